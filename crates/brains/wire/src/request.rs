//! A decoded request: what the service sees of a message.
//!
//! Invariant: everything borrows from the receive buffer (or from the buffer that a compressed message was inflated
//! into), nothing is copied, and every document in it has been validated.

use crate::compression::Compressor;
use crate::frame::read_i32;
use bson::RawDocument;
use smallvec::SmallVec;
use std::time::Duration;

/// OP_MSG's flag bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Bit 0: the message ends with a CRC-32C of all that precedes it.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// Bit 1: another message follows without being asked for; a request with it gets no reply.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// Bit 16: the client is ready for replies with `moreToCome`.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    /// The bits of which an unknown one is an error; those above are optional and ignored.
    pub const REQUIRED: u32 = 0xffff;

    /// Whether the message ends with a checksum.
    pub fn checksum_present(self) -> bool {
        self.0 & Self::CHECKSUM_PRESENT != 0
    }

    /// Whether the sender sends on without waiting; on a request: no reply is wanted.
    pub fn more_to_come(self) -> bool {
        self.0 & Self::MORE_TO_COME != 0
    }

    /// Whether the client takes a stream of replies.
    pub fn exhaust_allowed(self) -> bool {
        self.0 & Self::EXHAUST_ALLOWED != 0
    }

    /// The unknown bits among the required ones.
    pub fn unknown_required(self) -> u32 {
        self.0 & Self::REQUIRED & !(Self::CHECKSUM_PRESENT | Self::MORE_TO_COME)
    }
}

/// A request, ready to be carried out.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The client's number for the message; the reply's `responseTo`. In an exhaust stream the number of the reply before.
    pub request_id: i32,
    /// The number that the reply is to have; set by whoever sends it.
    pub reply_id: i32,
    /// OP_MSG's flags; none for a legacy request.
    pub flags: Flags,
    /// The command. Its first key is the command's name.
    pub body: &'a RawDocument,
    /// The document sequences by name: `documents`, `updates`, `deletes`, …
    pub sequences: SmallVec<[(&'a str, Sequence<'a>); 2]>,
    /// For OP_QUERY, the database from its namespace (the body has no `$db` then); the reply is an OP_REPLY.
    pub legacy_database: Option<&'a str>,
    /// How the message was compressed; the reply is compressed in the same way.
    pub compressor: Option<Compressor>,
    /// How long it had been there when it was read, as far as that is known; set by whoever reads it.
    pub waited: Duration,
}

impl<'a> Request<'a> {
    /// The same request for as long as it is borrowed: a small vector keeps its lifetime from shrinking by itself.
    pub fn reborrowed<'s>(&'s self) -> Request<'s> {
        Request {
            request_id: self.request_id,
            reply_id: self.reply_id,
            flags: self.flags,
            body: self.body,
            sequences: self.sequences.iter().map(|(name, sequence)| (*name, *sequence)).collect(),
            legacy_database: self.legacy_database,
            compressor: self.compressor,
            waited: self.waited,
        }
    }

    /// Whether this came as OP_QUERY.
    pub fn legacy(&self) -> bool {
        self.legacy_database.is_some()
    }

    /// The body's first key; empty for an empty body.
    pub fn command_name(&self) -> &'a str {
        match self.body.iter_elements().next() {
            Some(Ok(element)) => element.key().as_str(),
            _ => "",
        }
    }

    /// The document sequence of that name.
    pub fn sequence(&self, name: &str) -> Option<Sequence<'a>> {
        self.sequences.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }
}

/// The documents of a kind 1 section, back to back.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Sequence<'a> {
    /// Of documents that have been validated; `count` of them.
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes, count }
    }

    /// How large they are together.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many documents it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All documents as they lie in the message.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The documents in order.
    pub fn iter(&self) -> SequenceIter<'a> {
        SequenceIter { rest: self.bytes }
    }
}

impl<'a> IntoIterator for Sequence<'a> {
    type Item = &'a RawDocument;
    type IntoIter = SequenceIter<'a>;

    fn into_iter(self) -> SequenceIter<'a> {
        self.iter()
    }
}

/// Iterates over a [`Sequence`].
#[derive(Clone, Debug)]
pub struct SequenceIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for SequenceIter<'a> {
    type Item = &'a RawDocument;

    fn next(&mut self) -> Option<&'a RawDocument> {
        // The lengths were checked when the message was decoded; a miss here would end the iteration, not panic.
        let length = usize::try_from(read_i32(self.rest, 0)?).ok()?;
        let (document, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        RawDocument::from_bytes(document).ok()
    }
}
