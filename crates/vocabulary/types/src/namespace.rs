//! `database.collection` names and the rules MongoDB sets for them.

use crate::{Error, ErrorCode, Result};
use smol_str::SmolStr;
use std::fmt;

/// Longest `database.collection` in bytes.
const NAMESPACE_BYTES_MAX: usize = 255;
/// Longest database name in bytes.
const DATABASE_BYTES_MAX: usize = 63;

/// A collection or view by its full name.
///
/// Invariant: both parts are valid by MongoDB's naming rules; the only way in is a constructor that checks them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    full: SmolStr,
    dot: usize,
}

impl Namespace {
    /// `db.coll`, or `InvalidNamespace` (73) with the part that is wrong.
    pub fn new(db: &str, coll: &str) -> Result<Self> {
        check_database(db)?;
        let invalid = |why: &str| {
            Err(Error::new(ErrorCode::InvalidNamespace, format!("Invalid namespace specified '{db}.{coll}': {why}")))
        };
        if coll.is_empty() {
            return invalid("the collection name is empty");
        }
        if coll.contains('\0') {
            return invalid("the collection name contains a null character");
        }
        if coll.starts_with('.') {
            return invalid("the collection name starts with '.'");
        }
        if coll.contains('$') && !coll.starts_with("$cmd") && !(db == "local" && coll.starts_with("oplog.$")) {
            return invalid("the collection name contains '$'");
        }
        if db.len() + 1 + coll.len() > NAMESPACE_BYTES_MAX {
            return invalid("the full name is longer than 255 bytes");
        }
        Ok(Self { full: [db, ".", coll].into_iter().collect(), dot: db.len() })
    }

    /// Splits `db.coll` at its first dot.
    pub fn parse(full: &str) -> Result<Self> {
        match full.split_once('.') {
            Some((db, coll)) => Self::new(db, coll),
            None => Err(Error::new(ErrorCode::InvalidNamespace, format!("Invalid namespace specified '{full}'"))),
        }
    }

    /// The database's name.
    pub fn db(&self) -> &str {
        &self.full[..self.dot]
    }

    /// The collection's name within its database.
    pub fn coll(&self) -> &str {
        &self.full[self.dot + 1..]
    }

    /// `db.coll`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Whether writes here stay on this member: the `local` database is not replicated.
    pub fn is_local(&self) -> bool {
        self.db() == "local"
    }

    /// Whether the name belongs to the server (`system.…`).
    pub fn is_system(&self) -> bool {
        self.coll().starts_with("system.")
    }
}

/// Checks a database's name alone: `InvalidNamespace` (73) if it breaks a rule.
pub fn check_database(db: &str) -> Result<()> {
    let bad = |c: char| matches!(c, '\0' | '/' | '\\' | '.' | ' ' | '"' | '$');
    if db.is_empty() || db.len() > DATABASE_BYTES_MAX || (db.contains(bad) && db != "$external") {
        return Err(Error::new(ErrorCode::InvalidNamespace, format!("Invalid database name: '{db}'")));
    }
    Ok(())
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}
