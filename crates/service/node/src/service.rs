//! Between the network and the commands: each connection's handler.
//!
//! Invariants: what large requests are parsed into is bounded by a pool, and by one request more; a stream of replies (exhaust)
//! carries out the request that the reply before named, in its own words.
//! What it deliberately does not do: anything that is a command's, or the socket's.

use baton_commands::server::parsed::parsed_bytes;
use baton_commands::server::{Client, Connection};
use baton_commands::{Next, Server, dispatch};
use baton_machine::{Sharing, about_to_wait, lend_to_sharers, share};
use baton_net::{After, ConnectionInfo, Handler, Outbox, Service, Threads};
use baton_types::MemoryAccount;
use baton_wire::Request;
use bson::RawDocumentBuf;
use std::sync::Arc;
use std::time::Duration;

/// What the network serves.
pub struct Commands {
    server: Arc<Server>,
}

impl Commands {
    /// The commands of that member.
    pub fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

impl Service for Commands {
    type Handler = ConnectionHandler;

    fn opened(&self, connection: ConnectionInfo) -> ConnectionHandler {
        let (probe, outbox) = (connection.probe, connection.outbox);
        let client = self.server.clients.open(
            Connection {
                id: connection.id,
                peer: connection.peer.to_string(),
                local: connection.local.to_string(),
                is_connected: Box::new(move || !probe.gone()),
            },
            &self.server.operations,
        );
        ConnectionHandler { server: self.server.clone(), client, outbox, in_turns: false, stream: None }
    }

    fn catch_up(&self) {
        self.server.storage.queue().lead_what_was_left();
    }

    fn closed(&self, connection_id: u64) {
        self.server.clients.close(connection_id);
    }
}

/// One connection's handler.
pub struct ConnectionHandler {
    server: Arc<Server>,
    client: Arc<Client>,
    outbox: Arc<Outbox>,
    /// The thread serves others after the request: the commit queue writes what it leaves there with what they leave.
    in_turns: bool,
    /// What an exhaust stream carries out next.
    stream: Option<RawDocumentBuf>,
}

/// How often memory for a parsed request is looked for, where there is none.
const MEMORY_WAIT: Duration = Duration::from_millis(5);

impl ConnectionHandler {
    /// Holds memory for what a large request is parsed into, until it is done; waits while others hold it, who are as urgent meanwhile.
    fn hold_parsed(&self, request: &Request<'_>) -> Option<(MemoryAccount, Sharing)> {
        let bytes = parsed_bytes(request)?;
        let pool = &self.server.parsed_memory;
        let mut account = pool.account(usize::MAX);
        if !account.set_in_turn(bytes) {
            let _waiting = about_to_wait();
            let waiting = account.wait(bytes);
            while !account.set_waited_for(&waiting) && !self.server.operations.is_shutting_down() {
                let _loans = waiting.is_near().then(|| lend_to_sharers(&**pool));
                std::thread::sleep(MEMORY_WAIT);
            }
        }
        Some((account, share(&**pool)))
    }

    fn carry_out(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let _parsed = self.hold_parsed(request);
        match dispatch(&self.server, &self.client, request, out) {
            Next::Read => After::Reply,
            Next::Close => After::Close,
            Next::Later(leaving, head) => {
                let promise = self.outbox.promise();
                let deliver = Box::new(move |reply| promise.keep(reply));
                leaving.go(std::mem::take(out), head, deliver, self.in_turns);
                After::Later
            }
            Next::Stream(next) => {
                self.stream = Some(next);
                After::Exhaust
            }
        }
    }
}

impl Handler for ConnectionHandler {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        self.carry_out(request, out)
    }

    fn resume(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let Some(body) = self.stream.take() else { return After::Close };
        let next = Request {
            request_id: request.request_id,
            reply_id: request.reply_id,
            flags: request.flags,
            body: &body,
            sequences: Default::default(),
            legacy_database: None,
            compressor: request.compressor,
            waited: Duration::ZERO,
        };
        self.carry_out(&next, out)
    }

    fn sends_slowly(&mut self) {
        self.client.leave_before_reply();
    }

    fn sent(&mut self) {
        self.client.release_reply();
    }

    fn takes_thread(&mut self, in_turns: bool) {
        self.in_turns = in_turns;
        self.server.priority.rest(&self.client);
    }

    fn threads(&self) -> Threads {
        match (self.client.keeps_thread(), self.client.is_alone() || self.server.priority.tells_apart()) {
            (true, _) => Threads::Kept,
            (false, true) => Threads::Own,
            (false, false) => Threads::Shared,
        }
    }

    fn precedes(&self) -> bool {
        self.server.priority.lets_go_before()
    }

    fn has_deadlines(&self) -> bool {
        self.client.has_deadlines()
    }

    fn rests(&mut self) {
        self.client.rest();
    }
}
