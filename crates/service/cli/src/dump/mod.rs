//! `baton backup` and `baton restore`: databases as files, in the directory format of mongodump and mongorestore.
//!
//! ```text
//! DIR/prelude.json                        which server and which tool wrote it
//! DIR/<database>/<collection>.bson        the documents, one after the other
//! DIR/<database>/<collection>.metadata.json
//!                                         options, indexes, UUID, full name, type, in canonical extended JSON
//! DIR/oplog.bson                          the oplog's entries from the backup's start to its end
//! ```
//!
//! With `--gzip` every file is compressed and, but for `oplog.bson`, its name ends in `.gz`. A collection is read while it
//! changes; replaying the oplog over it makes it what it was at one moment, the backup's end.
//!
//! What it deliberately does not do: archives in one file, users and roles (there are none), `local` and `config` (they
//! are a member's own).

pub mod backup;
pub mod foreign;
pub mod format;
pub mod oplog;
pub mod progress;
pub mod restore;

/// Largest document in a file: what clients may store, and the room that MongoDB gives its own entries around it.
pub const DOCUMENT_BYTES_MAX: usize = (16 << 20) + (16 << 10);

/// Whether tools leave a database alone: it belongs to the member, not to its users.
pub fn is_of_the_member(database: &str) -> bool {
    matches!(database, "local" | "config")
}

/// Whether tools leave a collection alone, though its database is not: what the server keeps about the others.
pub fn is_of_the_server(collection: &str) -> bool {
    collection.starts_with("system.") && collection != "system.js"
}
