//! What is in a data directory before a member uses it: Baton's own data, nothing, or somebody else's.
//!
//! Invariant: a directory with data that is not Baton's is never taken for an empty one; nothing in it is touched.
//! What it deliberately does not do: read the data.

use std::ffi::OsStr;
use std::path::Path;

/// The database within the data directory, and the start of the names of what lies beside it.
pub const DATABASE: &str = "rocksdb";
/// What else a member makes there.
const OWN: [&str; 4] = ["rollback", "initial-sync-log", "diagnostic.data", crate::lock::FILE_NAME];
/// Files that operators keep beside the data.
const BESIDE: [&str; 8] = ["log", "pid", "conf", "yaml", "yml", "pem", "key", "sock"];
/// Names that are shown of what is there, at the most.
const SHOWN_MAX: usize = 5;

/// Whether a member can make its data here, or go on with it.
///
/// # Errors
/// With a text for the operator: what is there instead, and what to do.
pub fn check(directory: &Path) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let mut names: Vec<String> =
        entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.iter().any(|name| name == DATABASE) {
        return Ok(());
    }
    let shown = directory.display();
    let is_there = |name: &str| names.iter().any(|other| other == name);
    if is_there("WiredTiger") || is_there("storage.bson") || is_there("WiredTiger.wt") {
        return Err(format!(
            "The data directory {shown} holds the data of a mongod (WiredTiger), which Baton does not read. Start with an empty --dbpath and \
             copy the data over: mongodump from that mongod, mongorestore into this member"
        ));
    }
    let members: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_member(&directory.join(name))).collect();
    if !members.is_empty() {
        return Err(format!(
            "The data directory {shown} holds a set of {} members ({}), which 'baton up --members {}' made. Start that again, or use \
             another directory; one member of it is started with 'baton serve --dbpath {shown}/{} --replSet' and the set's name",
            members.len(),
            members.join(", "),
            members.len(),
            members[0]
        ));
    }
    if is_there("CURRENT") && names.iter().any(|name| name.starts_with("MANIFEST-")) {
        return Err(format!(
            "The data directory {shown} is itself a RocksDB database. A member's data directory is the one above its '{DATABASE}'; \
             otherwise start with an empty --dbpath"
        ));
    }
    let strangers: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_strange(directory, name)).collect();
    if strangers.is_empty() {
        return Ok(());
    }
    let rest = strangers.len().saturating_sub(SHOWN_MAX);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    Err(format!(
        "The data directory {shown} is not empty, and what is there is not Baton's: {}{more}. Start with an empty --dbpath, or one that \
         Baton made",
        strangers[..strangers.len().min(SHOWN_MAX)].join(", ")
    ))
}

/// Whether this is the folder of one member of a local set.
pub fn is_member(folder: &Path) -> bool {
    let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let number = name.strip_prefix("member").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    number && folder.join(DATABASE).is_dir()
}

fn is_strange(directory: &Path, name: &str) -> bool {
    let is_own = OWN.contains(&name) || name.starts_with("rocksdb.") || name.starts_with('.') || name == "lost+found";
    if is_own {
        return false;
    }
    let is_file = directory.join(name).metadata().is_ok_and(|entry| !entry.is_dir());
    let is_beside = BESIDE.iter().any(|kind| name == *kind || name.split('.').skip(1).any(|part| part == *kind));
    !(is_file && is_beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn refusal_of(make: impl Fn(&Path)) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path());
        check(directory.path()).err()
    }

    #[test]
    fn the_data_of_a_mongod_is_refused_with_how_to_bring_it_over() {
        for file in ["WiredTiger", "storage.bson"] {
            let refusal = refusal_of(|d| write(d.join(file), "x").unwrap()).unwrap();
            assert!(refusal.contains("mongod") && refusal.contains("mongorestore"), "{refusal}");
        }
    }

    #[test]
    fn a_set_of_several_members_is_refused_with_how_many_it_has() {
        let refusal = refusal_of(|d| {
            for n in 0..3 {
                create_dir_all(d.join(format!("member{n}/rocksdb"))).unwrap();
            }
        });
        assert!(refusal.unwrap().contains("--members 3"));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let refusal = refusal_of(|d| {
            create_dir_all(d.join("photographs")).unwrap();
            write(d.join("thesis.tex"), "x").unwrap();
        });
        let refusal = refusal.unwrap();
        assert!(refusal.contains("photographs, thesis.tex"), "{refusal}");
        assert!(
            refusal_of(|d| write(d.join("CURRENT"), "x").and(write(d.join("MANIFEST-000001"), "x")).unwrap()).is_some()
        );
    }

    #[test]
    fn what_is_missing_empty_or_batons_own_is_not() {
        assert_eq!(check(Path::new("/nowhere/at/all")), Ok(()));
        assert_eq!(refusal_of(|_| ()), None);
        for name in [
            "baton.log",
            "baton.log.2026-01-01",
            "mongod.lock",
            "lost+found",
            ".keep",
            "pid",
            "baton.pid",
            "baton.yaml",
        ] {
            assert_eq!(refusal_of(|d| write(d.join(name), "x").unwrap()), None, "{name}");
        }
        assert_eq!(refusal_of(|d| create_dir_all(d.join("rocksdb.incoming")).unwrap()), None, "a copy under way");
        assert_eq!(
            refusal_of(|d| create_dir_all(d.join("rocksdb")).and(write(d.join("WiredTiger"), "x")).unwrap()),
            None
        );
    }
}
