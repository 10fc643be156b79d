//! The thin client: a blocking socket, requests patched in place, replies read into one buffer and barely looked at.
//!
//! It exists because client and server share the machine: what the client burns, the server lacks. It sends what the
//! official drivers send (commands by OP_MSG, documents in a sequence) less their sessions and cluster times.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bson::{Document, doc};

use super::message::{self, Template};
use super::{Client, Factory, MessageSizes, WriteConcern, reply, uri};
use crate::Failure;
use crate::record::{DATABASE, KEY_BYTES, Key, Layout, VALUE_BYTES};

/// How long to look for a primary before giving up.
const PRIMARY_WAIT_MAX: Duration = Duration::from_secs(30);
const KEY_MARKER: &str = "KEY-MARKER-KEY-MARKER-K";
const _: () = assert!(KEY_MARKER.len() == KEY_BYTES);
/// A limit nobody asks for, to find where limits go.
const LIMIT_MARKER: i32 = 0x6D61_726B;
/// The largest request of a load: well under the 48 MB that servers take, over what more would gain from.
const RECEIVE_BYTES: usize = 64 << 10;

/// A socket that speaks OP_MSG.
pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    next_id: i32,
    last_reply_bytes: usize,
}

impl Wire {
    /// Connects to one address.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn connect(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(super::READ_WAIT_MAX))?;
        Ok(Self { stream, received: vec![0; RECEIVE_BYTES], next_id: 1, last_reply_bytes: 0 })
    }

    /// The connection by itself, for who says nothing more.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Waits longer for replies than a client of a workload does.
    ///
    /// # Errors
    /// If the socket does not take the setting.
    pub fn be_patient(&self, wait_max: Duration) -> Result<(), Failure> {
        Ok(self.stream.set_read_timeout(Some(wait_max))?)
    }

    /// Sends a request and gives the whole reply.
    ///
    /// # Errors
    /// If the connection fails or the reply answers another request.
    pub fn exchange(&mut self, request: &mut Template) -> Result<&[u8], Failure> {
        self.send(request)?;
        self.receive()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send(&mut self, request: &mut Template) -> Result<(), Failure> {
        self.next_id = self.next_id.wrapping_add(1);
        request.set_request_id(self.next_id);
        Ok(self.stream.write_all(&request.bytes)?)
    }

    /// The whole reply to the request sent last.
    ///
    /// # Errors
    /// If the connection fails or the reply answers another request.
    pub fn receive(&mut self) -> Result<&[u8], Failure> {
        let mut have = 0;
        let mut need = 16;
        while have < need {
            let count = self.stream.read(&mut self.received[have..])?;
            if count == 0 {
                return Err("the server closed the connection".into());
            }
            have += count;
            if need == 16 && have >= 16 {
                need = self.reply_length()?;
            }
        }
        self.last_reply_bytes = need;
        Ok(&self.received[..need])
    }

    fn reply_length(&mut self) -> Result<usize, Failure> {
        let field = |at: usize| -> i32 {
            i32::from_le_bytes([self.received[at], self.received[at + 1], self.received[at + 2], self.received[at + 3]])
        };
        let (length, answers) = (field(0), field(8));
        if answers != self.next_id {
            return Err(format!("a reply to request {answers} where {} was asked", self.next_id).into());
        }
        let length = usize::try_from(length).ok().filter(|n| (21..=64 << 20).contains(n));
        let length = length.ok_or("the reply's length makes no sense")?;
        if length > self.received.len() {
            self.received.resize(length, 0);
        }
        Ok(length)
    }

    /// Sends a rare command.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send_command(&mut self, body: &Document) -> Result<(), Failure> {
        self.send(&mut Template::new(body, None)?)
    }

    /// The reply to a rare command, decoded.
    ///
    /// # Errors
    /// If the connection fails or the reply is no document; not if the command failed.
    pub fn receive_document(&mut self) -> Result<Document, Failure> {
        reply::body(self.receive()?)
    }

    /// Runs a rare command and decodes its reply.
    ///
    /// # Errors
    /// If the connection fails or the reply is no document; not if the command failed.
    pub fn command(&mut self, body: &Document) -> Result<Document, Failure> {
        reply::body(self.exchange(&mut Template::new(body, None)?)?)
    }
}

/// Finds the primary of the set (or the lone server) that `uri` names.
///
/// # Errors
/// If none is found in 30 seconds.
pub fn primary_of(uri: &str) -> Result<String, Failure> {
    let mut candidates = uri::addresses(uri)?;
    let deadline = Instant::now() + PRIMARY_WAIT_MAX;
    let mut last = Failure::from("no address answered");
    loop {
        for address in candidates.clone() {
            match Wire::connect(&address).and_then(|mut wire| hello(&mut wire)) {
                Ok(hello) if takes_writes(&hello) => return Ok(address),
                Ok(hello) => {
                    last = format!("{address} is not a primary").into();
                    if let Ok(primary) = hello.get_str("primary")
                        && !candidates.iter().any(|known| known == primary)
                    {
                        candidates.insert(0, primary.to_owned());
                    }
                }
                Err(error) => last = error,
            }
        }
        if Instant::now() > deadline {
            return Err(format!("no primary behind {uri}: {last}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a set of one member, unless it is in one, and waits until it takes writes.
///
/// # Errors
/// If it refuses, or takes none in 30 seconds.
pub fn initiate_alone(address: &str) -> Result<(), Failure> {
    let mut wire = Wire::connect(address)?;
    if !hello(&mut wire)?.contains_key("setName") {
        let reply = wire.command(&doc! { "replSetInitiate": 1, "$db": "admin" })?;
        if !reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            return Err(format!("{address} cannot be made a set: {reply}").into());
        }
    }
    primary_of(&format!("mongodb://{address}/")).map(|_| ())
}

/// `hello`, or what it was called before 5.0: some of the peers know only that.
fn hello(wire: &mut Wire) -> Result<Document, Failure> {
    let reply = wire.command(&doc! { "hello": 1, "$db": "admin" })?;
    if takes_writes(&reply) || reply.contains_key("isWritablePrimary") {
        return Ok(reply);
    }
    wire.command(&doc! { "isMaster": 1, "$db": "admin" })
}

fn takes_writes(hello: &Document) -> bool {
    hello.get_bool("isWritablePrimary").or_else(|_| hello.get_bool("ismaster")).unwrap_or(false)
}

/// Makes thin clients of one primary.
pub struct ThinFactory {
    address: String,
    write_concern: WriteConcern,
    layout: Layout,
}

impl ThinFactory {
    /// Looks for the primary behind `uri`.
    ///
    /// # Errors
    /// If there is none.
    pub fn new(uri: &str, write_concern: WriteConcern, layout: Layout) -> Result<Self, Failure> {
        Ok(Self { address: primary_of(uri)?, write_concern, layout })
    }

    /// What a read and an update of the record `key` weigh, there and back, so that others can be given the same load.
    ///
    /// # Errors
    /// If the server fails or has no such record.
    pub fn message_sizes(&self, key: &Key) -> Result<MessageSizes, Failure> {
        let mut client = ThinClient::new(Wire::connect(&self.address)?, self.write_concern, self.layout)?;
        client.read(key)?;
        let (read_request, read_reply) = (client.find.bytes.len(), client.wire.last_reply_bytes);
        client.update(key, 0, &vec![b'x'; self.layout.field_bytes()])?;
        let (update_request, update_reply) = (client.update.bytes.len(), client.wire.last_reply_bytes);
        Ok(MessageSizes { read_request, read_reply, update_request, update_reply })
    }
}

impl Factory for ThinFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(ThinClient::new(Wire::connect(&self.address)?, self.write_concern, self.layout)?))
    }

    fn clear(&self) -> Result<(), Failure> {
        let command = doc! { "drop": self.layout.collection(), "$db": DATABASE };
        let reply = Wire::connect(&self.address)?.command(&command)?;
        match (reply.get_f64("ok").unwrap_or(0.0) > 0.0, reply.get_str("errmsg")) {
            (true, _) | (false, Ok("ns not found")) => Ok(()),
            (false, _) => Err(format!("drop: {reply}").into()),
        }
    }
}

pub(super) struct ThinClient {
    wire: Wire,
    find: Template,
    find_key: usize,
    scan: Template,
    scan_key: usize,
    scan_limits: [usize; 2],
    update: Template,
    update_key: usize,
    update_field: usize,
    update_value: usize,
    insert_body: Document,
    insert: Template,
    layout: Layout,
}

impl ThinClient {
    pub(super) fn new(wire: Wire, write_concern: WriteConcern, layout: Layout) -> Result<Self, Failure> {
        let collection = layout.collection();
        let find = Template::new(
            &doc! { "find": collection, "filter": { "_id": KEY_MARKER }, "limit": 1, "singleBatch": true, "$db": DATABASE },
            None,
        )?;
        let scan_body = |limit: i32, batch: i32| {
            let from = doc! { "_id": { "$gte": KEY_MARKER } };
            doc! { "find": collection, "filter": from, "sort": { "_id": 1 }, "limit": limit, "batchSize": batch, "$db": DATABASE }
        };
        let marker = LIMIT_MARKER.to_le_bytes();
        let scan_limits = [
            Template::new(&scan_body(LIMIT_MARKER, 0), None)?.offset_of(&marker)?,
            Template::new(&scan_body(0, LIMIT_MARKER), None)?.offset_of(&marker)?,
        ];
        let scan = Template::new(&scan_body(0, 0), None)?;
        let value_marker = "V".repeat(layout.field_bytes());
        let concern = write_concern.document();
        let update = Template::new(
            &doc! { "update": collection, "ordered": true, "writeConcern": concern.clone(), "$db": DATABASE },
            Some(("updates", &[doc! { "q": { "_id": KEY_MARKER }, "u": { "$set": { "field0": &value_marker } } }])),
        )?;
        Ok(Self {
            find_key: find.offset_of(KEY_MARKER.as_bytes())?,
            scan_key: scan.offset_of(KEY_MARKER.as_bytes())?,
            update_key: update.offset_of(KEY_MARKER.as_bytes())?,
            update_field: update.offset_of(b"field0")? + 5,
            update_value: update.offset_of(value_marker.as_bytes())?,
            wire,
            find,
            scan,
            scan_limits,
            update,
            insert_body: doc! { "insert": collection, "ordered": true, "writeConcern": concern, "$db": DATABASE },
            insert: Template { bytes: Vec::new() },
            layout,
        })
    }
}

fn refuse(what: &str, message: &[u8]) -> Failure {
    let body = reply::body(message).map_or_else(|e| e.to_string(), |body| body.to_string());
    format!("{what}: {}", body.chars().take(500).collect::<String>()).into()
}

impl Client for ThinClient {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        self.find.patch(self.find_key, key);
        let message = self.wire.exchange(&mut self.find)?;
        let summary = reply::summarize(message)?;
        if summary.ok && summary.first_batch == Some(1) { Ok(()) } else { Err(refuse("find", message)) }
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure> {
        self.update.patch(self.update_key, key);
        self.update.patch(self.update_field, &[b'0' + field as u8]);
        self.update.patch(self.update_value, value);
        let message = self.wire.exchange(&mut self.update)?;
        let summary = reply::summarize(message)?;
        let done = summary.ok && summary.n == Some(1) && !summary.write_error;
        if done { Ok(()) } else { Err(refuse("update", message)) }
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        let bytes = &mut self.insert.bytes;
        message::begin(bytes, &self.insert_body)?;
        let start = message::open_sequence(bytes, "documents");
        for (key, value) in records {
            append_record(bytes, self.layout, key, value);
        }
        message::close_sequence(bytes, start);
        message::finish(bytes);
        let message = self.wire.exchange(&mut self.insert)?;
        let summary = reply::summarize(message)?;
        let done = summary.ok && summary.n == Some(records.len() as i64) && !summary.write_error;
        if done { Ok(()) } else { Err(refuse("insert", message)) }
    }

    fn scan(&mut self, key: &Key, length: u64) -> Result<u64, Failure> {
        self.scan.patch(self.scan_key, key);
        for offset in self.scan_limits {
            self.scan.patch(offset, &(length as i32).to_le_bytes());
        }
        let message = self.wire.exchange(&mut self.scan)?;
        let summary = reply::summarize(message)?;
        match summary.first_batch {
            Some(count @ 1..) if summary.ok => Ok(count),
            _ => Err(refuse("find (scan)", message)),
        }
    }
}

/// The record as BSON: `{_id: key, field0: …, field9: …}`, or all of it in `field0`.
pub fn append_record(bytes: &mut Vec<u8>, layout: Layout, key: &Key, value: &[u8; VALUE_BYTES]) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    append_text(bytes, b"_id", key);
    for (field, text) in value.chunks_exact(layout.field_bytes()).enumerate() {
        append_text(bytes, &[b'f', b'i', b'e', b'l', b'd', b'0' + field as u8], text);
    }
    bytes.push(0);
    let length = (bytes.len() - start) as i32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn append_text(bytes: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    bytes.push(0x02);
    bytes.extend_from_slice(name);
    bytes.push(0);
    bytes.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    bytes.extend_from_slice(text);
    bytes.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_valid_bson_with_ten_fields_of_a_hundred_bytes() {
        let mut bytes = Vec::new();
        append_record(&mut bytes, Layout::Fields, b"user0000000000000000042", &[b'x'; VALUE_BYTES]);
        let document = Document::from_reader(bytes.as_slice()).expect("valid");
        assert_eq!(document.len(), 11);
        assert_eq!(document.get_str("_id").ok(), Some("user0000000000000000042"));
        assert_eq!(document.get_str("field9").map(str::len).ok(), Some(100));
    }
}
