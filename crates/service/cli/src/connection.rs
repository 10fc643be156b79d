//! A plain connection to a member, for the subcommands that ask one something.
//!
//! Invariant: what the other side sends is never trusted further than the wire codec has checked it.
//! What it deliberately does not do: follow a topology, authenticate, or speak TLS: the host named first is the one asked.

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, Header, MESSAGE_SIZE_MAX_BYTES};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long to wait for an answer that should come at once.
const TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 16;

/// An open connection.
pub struct Connection {
    stream: TcpStream,
    /// The mode of `$readPreference`, if the URI lets another than the primary be read from.
    read_mode: Option<String>,
    next_id: i32,
    /// The last answer.
    received: Vec<u8>,
}

/// The answer, if the member did what it was asked for; its message otherwise.
///
/// # Errors
/// With that message.
pub fn accepted(reply: Document) -> Result<Document, String> {
    if reply.get_f64("ok").unwrap_or(0.0) == 1.0 {
        return Ok(reply);
    }
    Err(reply.get_str("errmsg").unwrap_or("refused without a reason").to_owned())
}

impl Connection {
    /// To the first host of a `mongodb://` URI; an answer is waited for ten seconds.
    ///
    /// # Errors
    /// With a text for the operator.
    pub fn open(uri: &str) -> Result<Self, String> {
        Self::open_within(uri, Some(TIMEOUT))
    }

    /// The same for work that takes as long as it takes: an answer is waited for without end.
    ///
    /// # Errors
    /// With a text for the operator.
    pub fn open_patient(uri: &str) -> Result<Self, String> {
        Self::open_within(uri, None)
    }

    /// The same with any patience for an answer.
    ///
    /// # Errors
    /// With a text for the operator.
    pub fn open_within(uri: &str, timeout: Option<Duration>) -> Result<Self, String> {
        let host = host_of(uri)?;
        let failed = |e: std::io::Error| format!("cannot reach {host}: {e}; is a member running there?");
        let stream = TcpStream::connect(&host).map_err(failed)?;
        stream.set_read_timeout(timeout).and_then(|()| stream.set_nodelay(true)).map_err(failed)?;
        Ok(Self { stream, read_mode: read_mode_of(uri), next_id: 1, received: Vec::new() })
    }

    /// Runs a command on `admin`.
    ///
    /// # Errors
    /// With the member's own message if it refuses, or why it could not be asked.
    pub fn run(&mut self, command: Document) -> Result<Document, String> {
        self.run_on("admin", command)
    }

    /// Runs a command on a database.
    ///
    /// # Errors
    /// With the member's own message if it refuses, or why it could not be asked.
    pub fn run_on(&mut self, database: &str, command: Document) -> Result<Document, String> {
        accepted(self.ask(database, command)?)
    }

    /// Runs a command and gives the answer, whether it says yes or no.
    ///
    /// # Errors
    /// If the member could not be asked.
    pub fn ask(&mut self, database: &str, command: Document) -> Result<Document, String> {
        Document::try_from(self.ask_raw(database, command, None)?).map_err(|e| e.to_string())
    }

    /// Runs a command, with a document sequence if one is given, and gives the answer as it came.
    ///
    /// # Errors
    /// If the member could not be asked.
    pub fn ask_raw(
        &mut self,
        database: &str,
        mut command: Document,
        sequence: Option<(&str, &[RawDocumentBuf])>,
    ) -> Result<&RawDocument, String> {
        command.insert("$db", database);
        if let Some(mode) = &self.read_mode {
            command.insert("$readPreference", doc! { "mode": mode });
        }
        let body = RawDocumentBuf::try_from(&command).map_err(|e| e.to_string())?;
        let mut message = Vec::new();
        let mut documents = sequence.map(|(_, documents)| documents).unwrap_or_default().iter().map(|raw| &**raw);
        let sequence = sequence.map(|(name, _)| (name, &mut documents as &mut dyn Iterator<Item = &RawDocument>));
        encode_command(&mut message, self.next_id, Flags::default(), &body, sequence);
        self.next_id = self.next_id.wrapping_add(1);
        self.received = self.exchange(&message).map_err(|e| format!("no answer: {e}"))?;
        let reply = decode_reply(&self.received).map_err(|_| "the answer is not MongoDB's protocol".to_owned())?;
        Ok(reply.body)
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

/// What a URI says about whom to read from, if that is not the primary alone: `readPreference`, or that it means this very host
/// (`directConnection=true`), whatever it is, as drivers take it.
fn read_mode_of(uri: &str) -> Option<String> {
    let options = uri.split_once('?').map_or("", |(_, options)| options);
    let option = |name: &str| {
        let mut pairs = options.split('&').filter_map(|option| option.split_once('='));
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    match option("readPreference") {
        Some("primary") => None,
        Some(mode) => Some(mode.to_owned()),
        None => option("directConnection").filter(|is| *is == "true").map(|_| "primaryPreferred".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_whom_to_read_from() {
        let mode = |options: &str| read_mode_of(&format!("mongodb://a:1/{options}"));
        assert_eq!(mode(""), None);
        assert_eq!(mode("?replicaSet=rs0&readPreference=primary&directConnection=true"), None);
        assert_eq!(mode("?readPreference=secondary").as_deref(), Some("secondary"));
        assert_eq!(mode("?directConnection=true").as_deref(), Some("primaryPreferred"));
    }

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
