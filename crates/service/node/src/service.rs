//! Between the network and the commands: each connection's handler.
//!
//! Invariant: a stream of replies (exhaust) carries out the request that the reply before named, in its own words.
//! What it deliberately does not do: anything that is a command's, or the socket's.

use baton_commands::server::{Client, Connection};
use baton_commands::{Next, Server, dispatch};
use baton_net::{After, ConnectionInfo, Handler, Service};
use baton_wire::Request;
use bson::RawDocumentBuf;
use std::sync::Arc;

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
        let probe = connection.probe;
        let client = self.server.clients.open(
            Connection {
                id: connection.id,
                peer: connection.peer.to_string(),
                local: connection.local.to_string(),
                is_connected: Box::new(move || !probe.gone()),
            },
            &self.server.operations,
        );
        ConnectionHandler { server: self.server.clone(), client, stream: None }
    }

    fn closed(&self, connection_id: u64) {
        self.server.clients.close(connection_id);
    }
}

/// One connection's handler.
pub struct ConnectionHandler {
    server: Arc<Server>,
    client: Arc<Client>,
    /// What an exhaust stream carries out next.
    stream: Option<RawDocumentBuf>,
}

impl ConnectionHandler {
    fn carry_out(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        match dispatch(&self.server, &self.client, request, out) {
            Next::Read => After::Reply,
            Next::Close => After::Close,
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
        };
        self.carry_out(&next, out)
    }

    fn sent(&mut self) {
        self.client.release_reply();
    }
}
