//! What has been written on whose behalf.

mod common;

use baton_storage::{Author, Committed, Durability, Inserted};
use baton_types::ErrorCode;
use bson::rawdoc;
use common::{create, create_as, index_as, insert, name, open};

#[test]
fn an_author_tells_what_it_has_committed_and_nobody_elses() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = open(folder.path());
    let (one, other) = (Author::default(), Author::default());
    let c = create_as(storage.by(&one), "c", [1; 16], &rawdoc! {}).expect("created");
    assert_eq!(one.committed(), Committed { count: 1, last: storage.oplog().last_entry() });
    insert(&storage, &c, &rawdoc! { "_id": 1 }).expect("inserted");
    assert_eq!(one.committed().count, 1, "what the member does by itself is nobody's");
    // Parts of what one author writes may be written on several threads.
    std::thread::scope(|scope| {
        for id in 2..6 {
            let (storage, other, c) = (&storage, &other, &c);
            scope.spawn(move || {
                let writer = storage.by(other);
                let mut transaction = writer.transaction();
                assert_eq!(
                    storage.insert(&mut transaction, c, &rawdoc! { "_id": id }, None).expect("added"),
                    Inserted::Added
                );
                writer.commit(transaction, Durability::Applied).expect("committed");
            });
        }
    });
    assert_eq!((one.committed().count, other.committed().count), (1, 4));
    assert_eq!(other.committed().last, storage.oplog().last_entry());
    // What the gate refuses is not committed.
    storage.queue().close_to_writes();
    let refused = create_as(storage.by(&other), "d", [2; 16], &rawdoc! {}).map(|_| ()).expect_err("closed");
    assert_eq!((refused.code, other.committed().count), (ErrorCode::NotWritablePrimary, 4));
}

#[test]
fn who_follows_has_no_entries_of_this_members_own_and_others_have_meanwhile() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let primary = open(folders[0].path());
    create(&primary, "c", [1; 16], &rawdoc! {}).expect("created");
    let entry = common::log(&primary).pop().expect("an entry");
    let follower = open(folders[1].path());
    follower.queue().close_to_writes();
    let options = rawdoc! {};
    let refused = follower.replay(&entry, |writer| {
        create_as(writer, "c", [1; 16], &options)?;
        index_as(writer, "c", &rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" })?;
        // The same thread, not on the entry's behalf: the gate is asked.
        Ok(follower
            .by_member()
            .create_collection(&name("own"), baton_storage::CollectionOptions::default(), [3; 16])
            .err())
    });
    let refused = refused.expect("replayed").flatten().expect("refused");
    assert_eq!(refused.code, ErrorCode::NotWritablePrimary);
    assert_eq!(common::log(&follower), [entry], "and nothing but the entry is in the log");
    assert!(follower.collection(&name("c")).is_some_and(|c| c.index("a_1").is_some()));
}
