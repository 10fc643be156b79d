//! A real member on a free port, and a thin client that says to it what no driver would.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use baton_node::{Member, Options};
use baton_telemetry::Log;
use baton_telemetry::log::{Format, Options as LogOptions, Output, Rotation};
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, Header};
use bson::{Document, RawDocumentBuf};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tempfile::TempDir;

/// A member with its data in a folder of its own; stopped when dropped.
pub struct Running {
    pub member: Option<Member>,
    pub directory: TempDir,
}

/// A one-member replica set with the commands for tests.
pub fn start() -> Running {
    start_with(|options| {
        options.replica_set = Some("rs0".into());
        options.initiate = true;
        options.parameters.push(("enableTestCommands".into(), "true".into()));
    })
}

pub fn start_with(change: impl FnOnce(&mut Options)) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options {
        data_directory: directory.path().to_owned(),
        port: 0,
        unix_socket_directory: None,
        cache_size_bytes: Some(64 * 1024 * 1024),
        http: false,
        ..Options::default()
    };
    change(&mut options);
    let log = Log::open(&LogOptions {
        format: Format::Json,
        output: Output::Nowhere,
        rotation: Rotation::Rename,
        verbosity: 0,
    })
    .unwrap();
    Running { member: Some(Member::start(&options, &log).unwrap()), directory }
}

impl Running {
    pub fn member(&self) -> &Member {
        self.member.as_ref().unwrap()
    }

    pub fn address(&self) -> SocketAddr {
        self.member().addresses()[0]
    }

    pub fn uri(&self) -> String {
        self.member().connection_string()
    }

    pub fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, next_id: 1 }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            member.stop();
        }
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    next_id: i32,
}

impl Client {
    /// Sends a command and returns its reply.
    pub fn run(&mut self, db: &str, command: Document) -> Document {
        let mut command = command;
        command.insert("$db", db);
        self.raw(&RawDocumentBuf::try_from(&command).unwrap())
    }

    /// The code of a command that must fail, 0 if it does not.
    pub fn code(&mut self, db: &str, command: Document) -> i32 {
        let reply = self.run(db, command);
        if reply.get_f64("ok").unwrap() == 1.0 { 0 } else { reply.get_i32("code").unwrap() }
    }

    /// Sends a body as it is.
    pub fn raw(&mut self, body: &RawDocumentBuf) -> Document {
        self.send(body, Flags::default());
        self.receive().1
    }

    pub fn send(&mut self, body: &RawDocumentBuf, flags: Flags) {
        let mut message = Vec::new();
        encode_command(&mut message, self.next_id, flags, body, None);
        self.next_id += 1;
        self.stream.write_all(&message).unwrap();
    }

    /// The flags and the body of the next reply.
    pub fn receive(&mut self) -> (Flags, Document) {
        let mut message = vec![0; 16];
        self.stream.read_exact(&mut message).unwrap();
        let length = usize::try_from(Header::read(&message).unwrap().message_length).unwrap();
        message.resize(length, 0);
        self.stream.read_exact(&mut message[16..]).unwrap();
        let reply = decode_reply(&message).unwrap();
        (reply.flags, Document::try_from(reply.body).unwrap())
    }

    /// Whether the member has hung up.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }
}
