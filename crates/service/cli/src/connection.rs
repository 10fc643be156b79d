//! A plain connection to a member, for the subcommands that ask one something.
//!
//! Invariant: what the other side sends is never trusted further than the wire codec has checked it.
//! Not here: which member of a set to ask (`topology`), authentication, TLS.

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, Header, MESSAGE_SIZE_MAX_BYTES};
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long to wait for a connection and for an answer that should come at once.
const PROMPT: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 16;

/// How long a connection waits; `None` is without end.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Option<Duration>,
    /// For each answer.
    pub answer: Option<Duration>,
}

impl Timeouts {
    /// The same for both.
    pub fn both(time: Duration) -> Self {
        Self { connect: Some(time), answer: Some(time) }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::both(PROMPT)
    }
}

/// An open connection.
pub struct Connection {
    stream: TcpStream,
    /// The mode of `$readPreference`, if another than the primary may be read from.
    read_mode: Option<String>,
    next_id: i32,
    /// The last answer.
    received: Vec<u8>,
}

/// By this another thread ends a connection: who waits for an answer there gets an error.
pub struct Hangup(TcpStream);

impl Hangup {
    /// Ends it, if it has not ended.
    pub fn hang_up(&self) {
        // It fails only where the connection has ended.
        let _ = self.0.shutdown(Shutdown::Both);
    }
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
    /// To `host:port`.
    ///
    /// # Errors
    /// With a text for the operator.
    pub fn open(host: &str, timeouts: Timeouts) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot reach {host}: {e}; is a member running there?");
        let stream = connect(host, timeouts.connect).map_err(failed)?;
        stream.set_read_timeout(timeouts.answer).and_then(|()| stream.set_nodelay(true)).map_err(failed)?;
        Ok(Self { stream, read_mode: None, next_id: 1, received: Vec::new() })
    }

    /// From now on commands say that a member in this mode of `$readPreference` may answer them.
    pub fn read_in_mode(&mut self, mode: Option<&str>) {
        self.read_mode = mode.map(str::to_owned);
    }

    /// From now on an answer is waited for as long as this.
    ///
    /// # Errors
    /// If the system does not let us.
    pub fn wait_for_answers(&mut self, time: Option<Duration>) -> Result<(), String> {
        self.stream.set_read_timeout(time).map_err(|e| e.to_string())
    }

    /// What another thread can end this connection by.
    ///
    /// # Errors
    /// If the system does not let us.
    pub fn hangup(&self) -> Result<Hangup, String> {
        self.stream.try_clone().map(Hangup).map_err(|e| e.to_string())
    }

    /// Introduces this program, and gives what the member says of itself. To be asked first.
    ///
    /// # Errors
    /// With the member's own message if it refuses, or why it could not be asked.
    pub fn hello(&mut self, app_name: &str) -> Result<Document, String> {
        let client = doc! {
            "application": { "name": app_name },
            "driver": { "name": "baton", "version": env!("CARGO_PKG_VERSION") },
            "os": { "type": "Linux" },
        };
        self.run(doc! { "hello": 1, "client": client })
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
        command: Document,
        sequence: Option<(&str, &[RawDocumentBuf])>,
    ) -> Result<&RawDocument, String> {
        self.send(database, command, sequence)?;
        let mut received = std::mem::take(&mut self.received);
        self.read_message(&mut received)?;
        self.received = received;
        read_reply(&self.received)
    }

    /// The first half of [`Self::ask_raw`]: the member works while the caller does something else. Nothing else may be asked before
    /// [`Self::receive`] has given the answer.
    ///
    /// # Errors
    /// If the member could not be asked.
    pub fn send(
        &mut self,
        database: &str,
        mut command: Document,
        sequence: Option<(&str, &[RawDocumentBuf])>,
    ) -> Result<(), String> {
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
        self.stream.write_all(&message).map_err(no_answer)
    }

    /// The answer to what was sent last, in `buffer`.
    ///
    /// # Errors
    /// If there was none.
    pub fn receive<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Result<&'b RawDocument, String> {
        self.read_message(buffer)?;
        read_reply(buffer)
    }

    /// Reads a message in place of what was in the buffer.
    fn read_message(&mut self, buffer: &mut Vec<u8>) -> Result<(), String> {
        // What is longer than the last one alone has to be cleared beforehand.
        buffer.resize(buffer.len().max(HEADER_BYTES), 0);
        self.stream.read_exact(&mut buffer[..HEADER_BYTES]).map_err(no_answer)?;
        let length = Header::read(buffer).and_then(|h| usize::try_from(h.message_length).ok()).unwrap_or(0);
        if !(HEADER_BYTES..=MESSAGE_SIZE_MAX_BYTES).contains(&length) {
            return Err("no answer: it has an impossible length".to_owned());
        }
        buffer.resize(length, 0);
        self.stream.read_exact(&mut buffer[HEADER_BYTES..]).map_err(no_answer)
    }
}

fn no_answer(error: std::io::Error) -> String {
    format!("no answer: {error}")
}

fn read_reply(message: &[u8]) -> Result<&RawDocument, String> {
    decode_reply(message).map(|reply| reply.body).map_err(|_| "the answer is not MongoDB's protocol".to_owned())
}

/// To the first address of a host that takes the connection.
fn connect(host: &str, timeout: Option<Duration>) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    for address in host.to_socket_addrs()? {
        let stream = timeout.map_or_else(|| TcpStream::connect(address), |t| TcpStream::connect_timeout(&address, t));
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
