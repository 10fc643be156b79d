//! Nobody of whatever class writes while RocksDB leaves a log for the next. Alone in its process: it counts what threads are lent.

mod common;

use baton_machine::{Right, as_class, bearer, inheritances, right};
use baton_types::Class;
use bson::rawdoc;
use common::{create, open};

#[test]
fn who_leaves_a_log_for_the_next_is_urgent_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    create(&storage, "c", [1; 16], &rawdoc! {}).expect("created");
    as_class(Class::Low);
    let lent_by_a_flush = || {
        storage.sync();
        let before = inheritances();
        storage.flush().expect("flushed");
        inheritances() - before
    };
    let (with_memtables, without) = (lent_by_a_flush(), lent_by_a_flush());
    assert_eq!(with_memtables > without, right() != Right::None, "{with_memtables}, {without}");
    assert_eq!(bearer().class(), Some(Class::Low));
}
