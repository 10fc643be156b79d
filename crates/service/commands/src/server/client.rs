//! A connection as the service knows it, and the registry of them.
//!
//! Invariant: what a client said of itself in its first handshake never changes.
//! What it deliberately does not do: read or write the socket.

use super::client_tasks::Place;
use super::kept::Kept;
use super::operations::{Operations, Slot, SlotGuard};
use crate::priority::{ClaimedClass, KnownRules, Pass};
use baton_query::Effort;
use baton_storage::Author;
use baton_storage::tasks::TaskGuard;
use baton_types::{Class, Error, ErrorCode, Interruption, MemoryAccount, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Asks whether the peer is still there.
pub type Probe = Box<dyn Fn() -> bool + Send + Sync>;

/// The longest `client.application.name`, in bytes.
const APP_NAME_BYTES_MAX: usize = 128;
/// The largest `client` document, in bytes.
const METADATA_BYTES_MAX: usize = 512;

/// What the network knows of a connection.
pub struct Connection {
    /// Counted from 1.
    pub id: u64,
    /// The client's address as text.
    pub peer: String,
    /// The address it connected to.
    pub local: String,
    /// Tells whether it is still connected.
    pub is_connected: Probe,
}

/// One connection.
pub struct Client {
    /// What the network knows.
    pub connection: Connection,
    /// When it was accepted.
    pub opened: SystemTime,
    slot: SlotGuard,
    metadata: OnceLock<RawDocumentBuf>,
    app_name: OnceLock<String>,
    /// What was said of the class of its requests.
    pub(crate) claimed: ClaimedClass,
    /// Which rules of the policy may apply to it. Asked by one request at a time; and what thousands of clients have, and give up
    /// at once, costs nothing for each thread that there is, as an `ArcSwap` would.
    pub(crate) known_rules: Mutex<Option<Arc<KnownRules>>>,
    /// It has asked for something on its own account, and not only what member it talks to.
    served: AtomicBool,
    /// It is not served by threads that others share.
    is_alone: AtomicBool,
    /// Something of it is its thread's.
    keeps_thread: AtomicBool,
    /// A request of it had a near deadline.
    has_deadlines: AtomicBool,
    /// What its request holds until the reply is sent.
    until_sent: Mutex<UntilSent>,
    /// The tasks that it does.
    places: Mutex<Vec<Place>>,
    /// What it announced that it is.
    task: Mutex<Option<TaskGuard>>,
    /// On whose behalf its request writes.
    pub(crate) author: Kept<Author>,
    /// What its request has taken.
    pub(crate) effort: Kept<Effort>,
    /// Whom its request asks whether to go on.
    pub(crate) interruption: Kept<Interruption>,
}

#[derive(Default)]
struct UntilSent {
    /// Of a large reply.
    memory: Option<MemoryAccount>,
    pass: Option<Pass>,
}

impl Client {
    /// Keeps what a reply holds until it is sent.
    pub fn hold_reply(&self, memory: MemoryAccount) {
        if memory.bytes() > 0 {
            self.until_sent.lock().memory = Some(memory);
        }
    }

    /// Its request is counted until the reply is sent: whoever begins when it leaves does not delay that.
    pub(crate) fn hold_pass(&self, pass: Pass) {
        self.until_sent.lock().pass = Some(pass);
    }

    /// It does not take the reply at once. Nobody else is to wait for that.
    pub fn leave_before_reply(&self) {
        let pass = self.until_sent.lock().pass.take();
        drop(pass);
    }

    /// The reply is sent.
    pub fn release_reply(&self) {
        let held = std::mem::take(&mut *self.until_sent.lock());
        drop(held);
    }

    /// It asks for something on its own account.
    pub fn note_served(&self) {
        self.served.store(true, Ordering::Relaxed);
    }

    /// Whether it ever asked for anything on its own account.
    pub fn was_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// The thread that serves it is its own from now on, until it ends: its weight is its client's, or a task is measured by it.
    pub(crate) fn keep_thread(&self) {
        self.keeps_thread.store(true, Ordering::Relaxed);
    }

    /// Threads that others share do not serve it from now on: its requests are more urgent than theirs, or less.
    pub(crate) fn be_alone(&self) {
        self.is_alone.store(true, Ordering::Relaxed);
    }

    /// Whether the thread that serves it serves nobody else meanwhile.
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Whether the thread that serves it is to serve it until it ends.
    pub fn keeps_thread(&self) -> bool {
        self.keeps_thread.load(Ordering::Relaxed)
    }

    /// A request of it has a near deadline.
    pub(crate) fn note_deadline(&self) {
        self.has_deadlines.store(true, Ordering::Relaxed);
    }

    /// Whether one had.
    pub fn has_deadlines(&self) -> bool {
        self.has_deadlines.load(Ordering::Relaxed)
    }

    /// It is silent: what its next request would find is given back.
    pub fn rest(&self) {
        self.slot().rest();
        self.author.give_back();
        self.effort.give_back();
        self.interruption.give_back();
    }

    /// Where its operations run.
    pub fn slot(&self) -> &Arc<Slot> {
        self.slot.slot()
    }

    /// The `client` document of its handshake.
    pub fn metadata(&self) -> Option<&RawDocument> {
        self.metadata.get().map(|m| &**m)
    }

    /// `client.application.name`; empty if it gave none.
    pub fn app_name(&self) -> &str {
        self.app_name.get().map_or("", String::as_str)
    }

    /// Whether it is a member's that copies, or somebody else's for whom nobody waits.
    pub fn is_background(&self) -> bool {
        self.claimed.get() == Some(Class::Background)
    }

    /// It does this task, until it ends it or its connection ends.
    pub fn hold(&self, place: Place) {
        let mut places = self.places.lock();
        places.retain(Place::is_taken);
        places.push(place);
    }

    /// Fails if a task that it does is to end before it is done; with that the task has ended.
    pub fn check_tasks(&self) -> Result<()> {
        let mut places = self.places.lock();
        let told = places.iter().find_map(|place| place.check().err());
        told.map_or(Ok(()), |error| {
            places.retain(|place| place.check().is_ok());
            Err(error)
        })
    }

    /// Until it ends, its connection is this task.
    pub fn announce(&self, task: TaskGuard) {
        *self.task.lock() = Some(task);
    }

    /// Takes the handshake's `client` document. A second one, even the same, is `ClientMetadataCannotBeMutated` (186).
    pub fn set_metadata(&self, document: &RawDocument) -> Result<()> {
        if self.metadata.get().is_some() {
            return Err(Error::new(
                ErrorCode::ClientMetadataCannotBeMutated,
                "The client metadata document may only be sent in the first hello",
            ));
        }
        let app_name = check_metadata(document)?;
        let _ = self.app_name.set(app_name.to_owned());
        // What is known of the rules is of a client without a name.
        *self.known_rules.lock() = None;
        let _ = self.metadata.set(document.to_owned());
        Ok(())
    }
}

/// Checks MongoDB's rules for the `client` document; returns the application's name.
fn check_metadata(document: &RawDocument) -> Result<&str> {
    let size = document.as_bytes().len();
    if size > METADATA_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ClientMetadataDocumentTooLarge,
            format!(
                "The client metadata document must be less then or equal to {METADATA_BYTES_MAX} bytes, not {size}"
            ),
        ));
    }
    let missing = |field: &str| {
        Error::new(
            ErrorCode::ClientMetadataMissingField,
            format!("Missing required field '{field}' in the client metadata document"),
        )
    };
    let section = |name: &str| match document.get(name) {
        Ok(Some(RawBsonRef::Document(d))) => Ok(d),
        Ok(Some(_)) => Err(Error::type_mismatch(format!(
            "The '{name}' field is required to be a BSON document in the client metadata document"
        ))),
        Ok(None) | Err(_) => Err(missing(name)),
    };
    let text = |d: &RawDocument, path: &str, name: &str| match d.get(name) {
        Ok(Some(RawBsonRef::String(_))) => Ok(()),
        Ok(Some(_)) => Err(Error::type_mismatch(format!(
            "The '{path}.{name}' field must be a string in the client metadata document"
        ))),
        Ok(None) | Err(_) => Err(missing(&format!("{path}.{name}"))),
    };
    let driver = section("driver")?;
    text(driver, "driver", "name")?;
    text(driver, "driver", "version")?;
    text(section("os")?, "os", "type")?;
    let Ok(Some(RawBsonRef::Document(application))) = document.get("application") else {
        return Ok("");
    };
    match application.get("name") {
        Ok(Some(RawBsonRef::String(name))) if name.len() > APP_NAME_BYTES_MAX => Err(Error::new(
            ErrorCode::ClientMetadataAppNameTooLarge,
            format!(
                "The 'application.name' field must be less then or equal to {APP_NAME_BYTES_MAX} bytes in the client metadata document"
            ),
        )),
        Ok(Some(RawBsonRef::String(name))) => Ok(name),
        Ok(Some(_)) => {
            Err(Error::type_mismatch("The 'application.name' field must be a string in the client metadata document"))
        }
        Ok(None) | Err(_) => Ok(""),
    }
}

/// All connections, by number.
#[derive(Default)]
pub struct Clients {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    /// Adds a connection.
    pub fn open(&self, connection: Connection, operations: &Arc<Operations>) -> Arc<Client> {
        let client = Arc::new(Client {
            slot: operations.register(format!("conn{}", connection.id)),
            opened: SystemTime::now(),
            metadata: OnceLock::new(),
            app_name: OnceLock::new(),
            claimed: ClaimedClass::default(),
            known_rules: Mutex::default(),
            served: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            keeps_thread: AtomicBool::new(false),
            has_deadlines: AtomicBool::new(false),
            until_sent: Mutex::default(),
            places: Mutex::default(),
            task: Mutex::default(),
            author: Kept::default(),
            effort: Kept::default(),
            interruption: Kept::default(),
            connection,
        });
        self.clients.lock().insert(client.connection.id, client.clone());
        client
    }

    /// Removes a connection.
    pub fn close(&self, id: u64) {
        self.clients.lock().remove(&id);
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn client() -> Arc<Client> {
        let connection = Connection { id: 1, peer: "p".into(), local: "l".into(), is_connected: Box::new(|| true) };
        Clients::default().open(connection, &Arc::new(Operations::default()))
    }

    #[test]
    fn metadata_is_taken_once_and_checked() {
        let good = rawdoc! {
            "application": { "name": "app" }, "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" },
        };
        let c = client();
        c.set_metadata(&good).unwrap();
        assert_eq!(c.app_name(), "app");
        assert_eq!(c.set_metadata(&good).unwrap_err().code, ErrorCode::ClientMetadataCannotBeMutated);

        let code = |d: &RawDocument| client().set_metadata(d).unwrap_err().code;
        assert_eq!(code(&rawdoc! { "os": { "type": "L" } }), ErrorCode::ClientMetadataMissingField);
        let driver = rawdoc! { "name": "d", "version": "1" };
        let os = rawdoc! { "type": "L" };
        let long = rawdoc! { "application": { "name": "x".repeat(129) }, "driver": driver.clone(), "os": os.clone() };
        assert_eq!(code(&long), ErrorCode::ClientMetadataAppNameTooLarge);
        let large = rawdoc! { "driver": driver, "os": os, "platform": "x".repeat(512) };
        assert_eq!(code(&large), ErrorCode::ClientMetadataDocumentTooLarge);
    }
}
