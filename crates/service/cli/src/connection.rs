//! A plain connection to a member, for the subcommands that ask one something.
//!
//! Invariant: what the other side sends is never trusted further than the wire codec has checked it.
//! What it deliberately does not do: follow a topology, authenticate, or speak TLS: the host named first is the one asked.

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, Header, MESSAGE_SIZE_MAX_BYTES};
use bson::{Document, RawDocumentBuf};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 16;

/// An open connection.
pub struct Connection {
    stream: TcpStream,
    next_id: i32,
}

impl Connection {
    /// To the first host of a `mongodb://` URI.
    ///
    /// # Errors
    /// With a text for the operator.
    pub fn open(uri: &str) -> Result<Self, String> {
        let host = host_of(uri)?;
        let failed = |e: std::io::Error| format!("cannot reach {host}: {e}");
        let stream = TcpStream::connect(&host).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_nodelay(true)).map_err(failed)?;
        Ok(Self { stream, next_id: 1 })
    }

    /// Runs a command on `admin`.
    ///
    /// # Errors
    /// With the member's own message if it refuses, or why it could not be asked.
    pub fn run(&mut self, mut command: Document) -> Result<Document, String> {
        command.insert("$db", "admin");
        let body = RawDocumentBuf::try_from(&command).map_err(|e| e.to_string())?;
        let mut message = Vec::new();
        encode_command(&mut message, self.next_id, Flags::default(), &body, None);
        self.next_id = self.next_id.wrapping_add(1);
        let reply = self.exchange(&message).map_err(|e| format!("no answer: {e}"))?;
        let reply = decode_reply(&reply).map_err(|_| "the answer is not MongoDB's protocol".to_owned())?;
        let document = Document::try_from(reply.body).map_err(|e| e.to_string())?;
        if document.get_f64("ok").unwrap_or(0.0) == 1.0 {
            return Ok(document);
        }
        Err(document.get_str("errmsg").unwrap_or("refused without a reason").to_owned())
    }

    fn exchange(&mut self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        self.stream.write_all(message)?;
        let mut reply = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut reply)?;
        let length = Header::read(&reply).and_then(|h| usize::try_from(h.message_length).ok()).unwrap_or(0);
        if !(HEADER_BYTES..=MESSAGE_SIZE_MAX_BYTES).contains(&length) {
            return Err(std::io::Error::other("the answer has an impossible length"));
        }
        reply.resize(length, 0);
        self.stream.read_exact(&mut reply[HEADER_BYTES..])?;
        Ok(reply)
    }
}

/// `host:port` of the first host.
fn host_of(uri: &str) -> Result<String, String> {
    let rest = uri
        .strip_prefix("mongodb://")
        .ok_or_else(|| format!("'{uri}' is no connection string; it begins with mongodb://"))?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("users are not implemented yet; leave user and password out".into());
    }
    let host = authority.split(',').next().unwrap_or_default();
    if host.is_empty() {
        return Err(format!("'{uri}' names no host"));
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok() && !host.ends_with(']'));
    Ok(if has_port { host.to_owned() } else { format!("{host}:27017") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_is_taken_with_mongodbs_port_if_it_has_none() {
        assert_eq!(host_of("mongodb://a:5,b:6/?replicaSet=rs0").unwrap(), "a:5");
        assert_eq!(host_of("mongodb://a").unwrap(), "a:27017");
        assert_eq!(host_of("mongodb://[::1]/x").unwrap(), "[::1]:27017");
        assert_eq!(host_of("mongodb://[::1]:5").unwrap(), "[::1]:5");
        for bad in ["a:5", "mongodb://", "mongodb://u:p@a"] {
            assert!(host_of(bad).is_err(), "{bad}");
        }
    }
}
