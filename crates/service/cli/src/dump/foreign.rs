//! Flags of mongodump and mongorestore that `baton backup` and `baton restore` do not have, each with what to do instead.
//!
//! Invariant: none of them is taken and left without effect.

const IN_URI: &str = "name it in the connection string: mongodb://HOST:PORT,HOST:PORT/?replicaSet=NAME";
const NO_USERS: &str = "users are not implemented yet; leave it out";
const NO_TLS: &str = "TLS is not implemented yet; leave it out";
const NO_PATTERNS: &str =
    "choose with --db and --collection; a restored database gets another name with DIR/NAME --db NEW";

/// By flag.
static FLAGS: &[(&str, &str)] = &[
    ("--archive", "a directory is written and read, no archive: --out DIR, and tar for one file"),
    ("--authenticationDatabase", NO_USERS),
    ("--authenticationMechanism", NO_USERS),
    ("--compressors", "what is sent is not compressed; leave it out"),
    ("--convertLegacyIndexes", "indexes are built as they are in the dump; correct its metadata.json instead"),
    (
        "--dryRun",
        "there is no rehearsal; restore into a member of its own: baton up --members 1 --port 28000 --data /tmp/try",
    ),
    ("--dumpDbUsersAndRoles", NO_USERS),
    ("--excludeCollection", "choose with --db and --collection what to save"),
    ("--excludeCollectionsWithPrefix", "choose with --db and --collection what to save"),
    ("--fixDottedHashIndex", "indexes are built as they are in the dump; correct its metadata.json instead"),
    ("--forceTableScan", "collections are read in the order of their documents in any case; leave it out"),
    ("--host", IN_URI),
    ("--keepIndexVersion", "there is one version of indexes; leave it out"),
    ("--maintainInsertionOrder", "give --numInsertionWorkersPerCollection 1"),
    ("--noOptionsRestore", "remove \"options\" from the dump's metadata.json instead"),
    ("--nsExclude", NO_PATTERNS),
    ("--nsFrom", NO_PATTERNS),
    ("--nsInclude", NO_PATTERNS),
    ("--nsTo", NO_PATTERNS),
    ("--numParallelCollections", "collections are saved and restored one after the other; leave it out"),
    ("--objcheck", "every document is checked in any case; leave it out"),
    ("--oplogFile", "the oplog is DIR/oplog.bson; put it there"),
    ("--password", NO_USERS),
    ("--port", IN_URI),
    ("--preserveUUID", "the member gives collections UUIDs of its own; leave it out"),
    ("--query", "whole collections are saved; use mongosh or mongoexport for a part"),
    ("--queryFile", "whole collections are saved; use mongosh or mongoexport for a part"),
    ("--quiet", "progress goes to standard error: append 2>/dev/null"),
    ("--readPreference", "give it in the connection string: ?readPreference=secondary"),
    ("--restoreDbUsersAndRoles", NO_USERS),
    ("--ssl", NO_TLS),
    ("--sslCAFile", NO_TLS),
    ("--sslPEMKeyFile", NO_TLS),
    ("--stopOnError", "documents that are refused are counted and shown, and the exit code is 1; leave it out"),
    ("--tls", NO_TLS),
    ("--tlsInsecure", NO_TLS),
    ("--username", NO_USERS),
    ("--verbose", "leave it out; progress goes to standard error"),
    ("--viewsAsCollections", "views are saved as views; save the collection, or copy the view with $out first"),
    ("--writeConcern", "give it in the connection string: ?w=1"),
    ("-j", "collections are saved and restored one after the other; leave it out"),
    ("-p", NO_USERS),
    ("-q", "whole collections are saved; use mongosh or mongoexport for a part"),
    ("-u", NO_USERS),
    ("-v", "leave it out; progress goes to standard error"),
];

/// What to say about the first flag of a command line that is one of these.
pub fn hint(arguments: impl IntoIterator<Item = String>) -> Option<String> {
    arguments.into_iter().find_map(|argument| {
        let flag = argument.split('=').next().unwrap_or_default();
        let (flag, instead) = FLAGS.iter().find(|(known, _)| *known == flag)?;
        Some(format!("{flag} is not there: {instead}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_tools_is_ours_or_has_a_hint_and_none_has_both() {
        for command in [super::super::backup::command(), super::super::restore::command(), crate::status::command()] {
            for argument in command.get_arguments() {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                for own in [long, short].into_iter().flatten() {
                    assert_eq!(hint([own.clone()]), None, "{own}");
                }
            }
        }
        assert!(hint(["mongodb://a".into(), "--archive=x".into()]).unwrap().starts_with("--archive is not there"));
    }

    #[test]
    fn the_table_is_sorted() {
        for pair in FLAGS.windows(2) {
            assert!(pair[0].0.to_lowercase() < pair[1].0.to_lowercase(), "{} and {}", pair[0].0, pair[1].0);
        }
    }
}
