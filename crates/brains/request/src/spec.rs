//! A command's row: what whoever carries requests out, or passes them on, must know of a command without knowing the command.

use crate::envelope::Envelope;
use crate::fields::Fields;
use bson::RawBsonRef;

/// What kind of operation a command is, for `opcounters`, latencies and `currentOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inserts documents.
    Insert,
    /// Reads documents by a query.
    Query,
    /// Changes documents.
    Update,
    /// Removes documents.
    Delete,
    /// Continues a cursor.
    GetMore,
    /// Everything else.
    Command,
}

impl Kind {
    /// `currentOp`'s word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Update => "update",
            Self::Delete => "remove",
            Self::GetMore => "getmore",
            Self::Command => "command",
        }
    }
}

/// Facts about a command that the dispatcher acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// Only on the `admin` database.
    pub const ADMIN_ONLY: Self = Self(1);
    /// Also for clients that have not authenticated.
    pub const NO_AUTHENTICATION: Self = Self(1 << 1);
    /// Takes a write concern.
    pub const WRITE_CONCERN: Self = Self(1 << 2);
    /// Takes a read concern other than local.
    pub const READ_CONCERN: Self = Self(1 << 3);
    /// May be retried under a transaction number.
    pub const RETRYABLE: Self = Self(1 << 4);
    /// Only with `enableTestCommands`.
    pub const TEST_ONLY: Self = Self(1 << 5);
    /// Part of API version 1.
    pub const API_V1: Self = Self(1 << 6);
    /// Changes data.
    pub const WRITES: Self = Self(1 << 7);
    /// Its first field names a collection.
    pub const ON_COLLECTION: Self = Self(1 << 8);
    /// Ends or asks after transactions, so it takes `autocommit: false` itself.
    pub const TRANSACTIONS: Self = Self(1 << 9);
    /// Its body is not to be shown in the log or in `currentOp`: it holds secrets.
    pub const SECRET: Self = Self(1 << 10);
    /// Carried out even while the member stops.
    pub const WHILE_STOPPING: Self = Self(1 << 11);
    /// Takes read concern `snapshot`.
    pub const SNAPSHOT: Self = Self(1 << 12);
    /// A secondary carries it out also for those who do not say that they mean to ask one.
    pub const ANY_ROLE: Self = Self(1 << 13);
    /// Carried out even before the member knows which set it is in, and as what.
    pub const WHILE_STARTING: Self = Self(1 << 14);
    /// It ends tasks of clients: served also if one is to end anyway.
    pub const ENDS_TASKS: Self = Self(1 << 15);
    /// It may have to wait for its turn: it reads or writes documents, as many as there are, on a client's account.
    pub const ADMITTED: Self = Self(1 << 16);
    /// Members ask it of each other, and it takes no time: it is served as what is urgent.
    pub const BETWEEN_MEMBERS: Self = Self(1 << 17);

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has that flag.
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A row of a table of commands. `R` carries the command out, `M` says what of it is mirrored.
pub struct CommandSpec<R, M> {
    /// The name.
    pub name: &'static str,
    /// Other names for it, mostly of a time before names had capitals.
    pub aliases: &'static [&'static str],
    /// What kind of operation it is.
    pub kind: Kind,
    /// What the dispatcher has to know.
    pub flags: Flags,
    /// The document sequences it takes.
    pub sequences: &'static [&'static str],
    /// What it does, for `listCommands`.
    pub help: &'static str,
    /// What a member that may follow reads to have in memory what the command reads, for a command that is mirrored.
    pub mirrored_as: Option<M>,
    /// What carries it out.
    pub run: R,
}

impl<R, M> CommandSpec<R, M> {
    /// Whether a client asks this for itself, rather than a driver that looks after its connection or a member that follows.
    pub fn serves_application(&self, db: &str) -> bool {
        let is_asked = self.flags.has(Flags::ON_COLLECTION) || self.flags.has(Flags::WRITES);
        (is_asked || self.kind == Kind::GetMore) && db != "local"
    }

    /// The collection that a request of it is about, as far as its first fields tell; empty for none.
    pub fn collection_of<'a>(&self, envelope: &Envelope<'a>, fields: &Fields<'a>) -> &'a str {
        if self.flags.has(Flags::ON_COLLECTION) {
            envelope.value.as_str().unwrap_or("")
        } else if self.kind == Kind::GetMore {
            fields.peek("collection").and_then(RawBsonRef::as_str).unwrap_or("")
        } else {
            ""
        }
    }
}
