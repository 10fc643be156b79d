//! A member in a directory of its own, without a network: what tests send commands to.

use crate::dispatch::{Next, dispatch};
use crate::membership;
use crate::server::{Client, Connection, Hooks, Identity, Parts, Server};
use baton_storage::{Storage, StorageOptions};
use baton_wire::Request;
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A member of a set with one member, and a connection to it.
pub struct Member {
    pub server: Arc<Server>,
    pub client: Arc<Client>,
    _directory: tempfile::TempDir,
    _builder: Builder,
}

/// Builds indexes of the set, as the member's duties have it done.
struct Builder {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Builder {
    fn start(server: &Arc<Server>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, ends) = (Arc::clone(server), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || own.index_builds.supervise(&own, || !ends.load(Ordering::Acquire)));
        Self { server: Arc::clone(server), thread: Some(thread), is_over }
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.server.index_builds.wake();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

impl Member {
    /// An empty one.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let storage = Storage::open(directory.path(), options).unwrap();
        let server = Server::new(Parts {
            identity: Identity {
                host: "localhost:27017".into(),
                port: 27017,
                argv: Vec::new(),
                parsed_options: Document::new(),
                compressors: Vec::new(),
                data_directory: directory.path().display().to_string(),
            },
            set: Some(("rs0".into(), "localhost:27017".into())),
            storage,
            hooks: Hooks {
                start_thread: |name, work| std::thread::Builder::new().name(name.into()).spawn(work),
                ..Hooks::default()
            },
            slow_ms: 100_000,
            profile_level: 0,
        });
        let set = server.topology.set().unwrap();
        membership::start(&server, &set, directory.path()).unwrap();
        membership::initiate_alone(&server, &set).unwrap();
        let connection =
            Connection { id: 1, peer: "test".into(), local: "test".into(), is_connected: Box::new(|| true) };
        let client = server.clients.open(connection, &server.operations);
        let builder = Builder::start(&server);
        Self { server, client, _directory: directory, _builder: builder }
    }

    /// Ends the connection.
    pub fn disconnect(self) -> (Arc<Server>, tempfile::TempDir) {
        self.server.clients.close(self.client.connection.id);
        (self.server, self._directory)
    }

    /// Sends a command to `db` and gives the whole reply.
    pub fn send(&self, db: &str, command: Document) -> Document {
        let (next, mut out) = self.begin(db, command);
        if let Next::Later(leaving, head) = next {
            let (deliver, delivered) = std::sync::mpsc::channel();
            leaving.go(out, head, Box::new(move |reply| deliver.send(reply).unwrap()), false);
            out = delivered.recv().unwrap();
        }
        self.client.release_reply();
        // The header's 16 bytes, the flags' four, the section's kind.
        Document::try_from(RawDocument::from_bytes(&out[21..]).unwrap()).unwrap()
    }

    /// Has a command carried out; gives what is to be done next, and the reply, or what there is of it.
    pub fn begin(&self, db: &str, command: Document) -> (Next, Vec<u8>) {
        let mut body = command;
        body.insert("$db", db);
        let body = RawDocumentBuf::try_from(&body).unwrap();
        let request = Request {
            request_id: 1,
            reply_id: 2,
            flags: Default::default(),
            body: &body,
            sequences: Default::default(),
            legacy_database: None,
            compressor: None,
            waited: Duration::ZERO,
        };
        let mut out = Vec::new();
        let next = dispatch(&self.server, &self.client, &request, &mut out);
        (next, out)
    }

    /// Sends a command that must succeed.
    pub fn ok(&self, db: &str, command: Document) -> Document {
        let reply = self.send(db, command.clone());
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{command}: {reply}");
        reply
    }

    /// Sends a command that must fail; gives the code.
    pub fn code(&self, db: &str, command: Document) -> i32 {
        let reply = self.send(db, command.clone());
        assert_eq!(reply.get_f64("ok").ok(), Some(0.0), "{command}: {reply}");
        reply.get_i32("code").unwrap()
    }

    /// The documents of a cursor reply's first batch.
    pub fn batch(&self, db: &str, command: Document) -> Vec<Document> {
        let reply = self.ok(db, command);
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().filter_map(Bson::as_document).cloned().collect()
    }
}
