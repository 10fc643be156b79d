//! What a command gets, and where it puts its answer.
//!
//! Invariant: a command writes its own fields into the [`Reply`] and nothing else; `ok`, the set's times and errors are
//! the dispatcher's.
//! What it deliberately does not do: decide anything; these are values handed from the dispatcher to a command.

use crate::dispatch::Left;
use crate::server::{Begin, Client, Operation, Server, Session};
use crate::table::{CommandSpec, Flags};
use baton_admission::{Settings, Subject};
use baton_document::type_name;
use baton_query::Effort;
use baton_request::{Envelope, Fields, Kind, WriteConcern};
use baton_storage::{Author, Placed, SessionHandle, Writer};
use baton_types::{Class, Error, ErrorCode, Namespace, OpTime, Result, Timestamp};
use baton_wire::{DocumentWriter, Request, Sequence};
use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use smallvec::SmallVec;
use std::cell::{Cell, OnceCell};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Where the member stands when a command begins: what came of it is judged by this.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Replication's era (see its `Waiters`).
    pub era: u64,
    /// Whether this member alone was the set's majority.
    pub is_own_majority: bool,
}

impl Standing {
    /// As it is now.
    pub fn now(server: &Server) -> Self {
        Self {
            era: server.replication().map_or(0, |replication| replication.waiters().era()),
            is_own_majority: server.topology.is_own_majority(),
        }
    }
}

/// One command being carried out.
pub struct Call<'a> {
    /// The member.
    pub server: &'a Arc<Server>,
    /// The connection it came by.
    pub client: &'a Arc<Client>,
    /// Its row in the table.
    pub spec: &'static CommandSpec,
    /// What every command has.
    pub envelope: Envelope<'a>,
    /// What is its own.
    pub fields: Fields<'a>,
    /// The message: its body, its document sequences, its flags.
    pub request: Request<'a>,
    /// What it runs as: its number, its deadline, whether it has been killed.
    pub operation: Operation,
    /// Its session, if it has one.
    pub session: Option<Arc<Session>>,
    /// The time as of which it reads, under read concern `snapshot`.
    pub read_at: Option<Timestamp>,
    /// Where the member stood before the command read or wrote anything.
    pub(crate) standing: Standing,
    /// What it has written.
    pub(crate) author: Arc<Author>,
    /// What others must have is this, and nothing later: the command has left nothing as it was that it may have read.
    pub(crate) newest: Option<OpTime>,
    /// Set where a fault on demand cuts the connection instead of letting the command be answered.
    pub(crate) hang_up: Cell<bool>,
    /// The transaction that it has written last, and not waited for.
    pub(crate) left: Option<Left>,
    /// How many documents the batch of a cursor has, for the profile; `None` where there is no cursor.
    pub(crate) returned: Cell<Option<u64>>,
    /// What it has taken; that of the cursor, if it goes on with one.
    pub(crate) effort: OnceCell<Arc<Effort>>,
}

/// The class of the request that has opened the cursor which this one goes on with, if that said of which it is.
fn class_of_cursor(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Option<Class> {
    if spec.kind != Kind::GetMore {
        return None;
    }
    server.cursors.class_of(envelope.value.as_i64()?)
}

impl<'a> Call<'a> {
    /// The command as an operation that has begun.
    pub(crate) fn begin(
        server: &'a Arc<Server>,
        client: &'a Arc<Client>,
        spec: &'static CommandSpec,
        (envelope, fields): (Envelope<'a>, Fields<'a>),
        request: Request<'a>,
        session: Option<Arc<Session>>,
        collection: &str,
    ) -> Self {
        let subject = Subject {
            db: envelope.db,
            collection,
            command: spec.name,
            comment: envelope.comment.and_then(RawBsonRef::as_str),
        };
        let claimed = envelope.class.or_else(|| class_of_cursor(server, spec, &envelope));
        let (class, source) = server.priority.judge(client, session.as_deref(), claimed, &subject);
        // On a getMore it says how long to wait for new documents; the deadline is the cursor's own.
        let max_time = envelope.max_time.filter(|_| spec.kind != Kind::GetMore);
        if max_time.is_some_and(Settings::is_hurry) {
            client.note_deadline();
        }
        let operation = server.operations.begin(
            client.slot(),
            &Begin {
                kind: spec.kind.name(),
                name: spec.name,
                db: envelope.db,
                collection,
                command: (!spec.flags.has(Flags::SECRET)).then_some(request.body),
                session: envelope.session,
                class,
                source,
                max_time,
                waited: request.waited,
            },
        );
        Self {
            server,
            client,
            spec,
            envelope,
            fields,
            request,
            operation,
            session,
            read_at: None,
            standing: Standing::now(server),
            author: client.author.share(Author::of(server.priority.served_as(class))),
            newest: None,
            left: None,
            hang_up: Cell::new(false),
            returned: Cell::new(None),
            effort: OnceCell::new(),
        }
    }

    /// The class that its reads have for the caches. What is mirrored is read for nothing but to be in them.
    pub(crate) fn reads_as(&self) -> Class {
        match self.operation.class {
            _ if self.envelope.is_mirrored => Class::Normal,
            Class::Background => Class::Background,
            class => self.server.priority.served_as(class),
        }
    }

    /// What it has taken so far.
    pub(crate) fn effort(&self) -> &Arc<Effort> {
        self.effort.get_or_init(|| self.client.effort.share(Effort::default()))
    }

    /// Whether a driver that hears nothing of it sends it again.
    pub(crate) fn is_retryable(&self) -> bool {
        self.envelope.txn_number.is_some() && self.spec.flags.has(Flags::RETRYABLE)
    }

    /// Writes on the request's behalf.
    pub fn writer(&self) -> Writer<'_> {
        self.server.storage.by(&self.author)
    }

    /// Its last transaction is not waited for here, if it was left there. `session`: of the retryable write that it is.
    pub(crate) fn leave(&mut self, left: &Cell<Option<Placed>>, session: Option<&SessionHandle>) {
        self.left = left.take().map(|placed| Left::new(placed, session.cloned()));
    }

    /// Waits for it after all: what the client is told is not about that alone.
    pub(crate) fn await_left(&mut self) {
        if let Some(left) = self.left.take() {
            left.wait(self);
            self.newest = None;
        }
    }

    /// The command has written all that it was to write.
    pub(crate) fn wrote_all(&mut self) {
        let committed = self.author.committed();
        if committed.count > 0 {
            self.newest = Some(committed.last);
        }
    }

    /// The command was to write one document, and has, if it has committed once: a second time is a collection's creation.
    pub(crate) fn wrote_one(&mut self) {
        if self.author.committed().count == 1 {
            self.wrote_all();
        }
    }

    /// The collection that the command's first field names.
    ///
    /// # Errors
    /// `InvalidNamespace` (73).
    pub fn namespace(&self) -> Result<Namespace> {
        match self.envelope.value {
            RawBsonRef::String(collection) => Namespace::new(self.envelope.db, collection),
            RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => self.namespace_of(binary.bytes),
            other => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("collection name has invalid type {}", type_name(other.element_type())),
            )),
        }
    }

    /// The name that the collection with this UUID has now: who reads by UUID is not led astray by a rename.
    fn namespace_of(&self, uuid: &[u8]) -> Result<Namespace> {
        let catalog = self.server.storage.catalog();
        let found = <[u8; 16]>::try_from(uuid).ok().and_then(|uuid| catalog.by_uuid(uuid));
        found.filter(|found| found.namespace.db() == self.envelope.db).map(|found| found.namespace.clone()).ok_or_else(
            || {
                let shown: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
                Error::new(
                    ErrorCode::NamespaceNotFound,
                    format!("Unable to resolve collection with UUID {shown} in database {}", self.envelope.db),
                )
            },
        )
    }

    /// Ends a time limit at once where the fail point `maxTimeAlwaysTimeOut` asks for that.
    pub(crate) fn expire_on_demand(&mut self) {
        if self.server.fail_points.any()
            && self.operation.deadline().is_some()
            && self.server.fail_points.fires("maxTimeAlwaysTimeOut").is_some()
        {
            self.operation.limit_deadline(self.operation.started);
        }
    }

    /// The write concern; the set's default if the client named none, and for what it left out.
    pub fn write_concern(&self) -> WriteConcern {
        match &self.envelope.write_concern {
            Some(concern) if concern.w_given => concern.clone(),
            Some(concern) => {
                let default = self.server.defaults.write_concern(&self.server.topology);
                WriteConcern { w: default.w, ..concern.clone() }
            }
            None => self.server.defaults.write_concern(&self.server.topology),
        }
    }

    /// Documents that come either as the document sequence `name` or as an array of that name in the body.
    ///
    /// # Errors
    /// 40414 if there are none, `TypeMismatch` (14) if one is no document.
    pub fn documents(&mut self, name: &str) -> Result<Documents<'a>> {
        if let Some(sequence) = self.request.sequence(name) {
            return Ok(Documents::Sequence(sequence));
        }
        let array = self.fields.required::<&bson::RawArray>(name)?;
        let mut documents = SmallVec::new();
        for (i, value) in array.into_iter().enumerate() {
            match value? {
                RawBsonRef::Document(document) => documents.push(document),
                other => {
                    return Err(baton_request::fields::wrong_type(
                        self.spec.name,
                        &format!("{name}.{i}"),
                        other,
                        &["object"],
                    ));
                }
            }
        }
        Ok(Documents::Array(documents))
    }

    /// Refuses document sequences that the command does not take.
    pub(crate) fn check_sequences(&self, known: &[&str]) -> Result<()> {
        match self.request.sequences.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::location(40415, format!("BSON field '{}.{name}' is an unknown field.", self.spec.name)))
            }
        }
    }
}

/// The documents of a batch, wherever in the message they were.
pub enum Documents<'a> {
    /// A section of their own.
    Sequence(Sequence<'a>),
    /// An array in the body.
    Array(SmallVec<[&'a RawDocument; 4]>),
}

impl<'a> Documents<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Sequence(sequence) => sequence.len(),
            Self::Array(documents) => documents.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &'a RawDocument> {
        let (sequence, array) = match self {
            Self::Sequence(sequence) => (Some(sequence.iter()), None),
            Self::Array(documents) => (None, Some(documents.iter().copied())),
        };
        sequence.into_iter().flatten().chain(array.into_iter().flatten())
    }
}

/// The answer being written.
pub struct Reply<'o> {
    body: DocumentWriter<'o>,
    pub(crate) write_concern_error: Option<Error>,
    pub(crate) stream: Option<RawDocumentBuf>,
    pub(crate) close: bool,
    /// Another member has seen to the write concern.
    pub(crate) is_settled: bool,
}

impl<'o> Reply<'o> {
    pub(crate) fn new(body: DocumentWriter<'o>) -> Self {
        Self { body, write_concern_error: None, stream: None, close: false, is_settled: false }
    }

    /// Whether nothing about it is out of the ordinary.
    pub(crate) fn is_plain(&self) -> bool {
        self.write_concern_error.is_none() && self.stream.is_none() && !self.close && !self.is_settled
    }

    /// The write is done, but what the write concern asks for is not.
    pub fn set_write_concern_error(&mut self, error: Error) {
        self.write_concern_error = Some(error);
    }

    /// The reply is one of a stream (exhaust): when it is sent, `next` is carried out and answered unasked.
    pub fn stream(&mut self, next: RawDocumentBuf) {
        self.stream = Some(next);
    }

    /// The connection is to be closed once the reply is sent.
    pub fn close_connection(&mut self) {
        self.close = true;
    }
}

impl<'o> Deref for Reply<'o> {
    type Target = DocumentWriter<'o>;

    fn deref(&self) -> &DocumentWriter<'o> {
        &self.body
    }
}

impl<'o> DerefMut for Reply<'o> {
    fn deref_mut(&mut self) -> &mut DocumentWriter<'o> {
        &mut self.body
    }
}
