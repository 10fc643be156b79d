//! The loopback ping-pong: messages of the sizes that a MongoDB server exchanges, and nothing behind them.
//!
//! It is the limit that sockets, system calls and threads set, a thread per connection. The first eight bytes of a
//! request are its own length and the length wanted back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::{Client, Factory};
use crate::Failure;
use crate::record::{FIELD_BYTES, Key, VALUE_BYTES};

/// What the thin client's requests and a server's replies weigh.
const READ_REQUEST_BYTES: usize = 112;
const READ_REPLY_BYTES: usize = 1290;
const UPDATE_REQUEST_BYTES: usize = 320;
const UPDATE_REPLY_BYTES: usize = 70;
const RECORD_BYTES: usize = VALUE_BYTES + 175;
const SCAN_REPLY_PREFIX_BYTES: usize = 100;
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Listens on loopback for as long as the process lives.
pub struct EchoFactory {
    address: SocketAddr,
}

impl EchoFactory {
    /// Starts listening on a free port.
    ///
    /// # Errors
    /// If no port is to be had.
    pub fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::Builder::new().name("echo".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that ends is how a client leaves.
                let _ = std::thread::Builder::new().name("echo-peer".into()).spawn(move || answer(stream));
            }
        })?;
        Ok(Self { address })
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![b'x'; MESSAGE_BYTES_MAX];
    loop {
        let mut have = 0;
        let mut need = 8;
        while have < need {
            let count = stream.read(&mut buffer[have..])?;
            if count == 0 {
                return Ok(());
            }
            have += count;
            if have >= 8 {
                need = length_at(&buffer, 0);
            }
        }
        let back = length_at(&buffer, 4);
        stream.write_all(&buffer[..back])?;
    }
}

fn length_at(buffer: &[u8], offset: usize) -> usize {
    let bytes = [buffer[offset], buffer[offset + 1], buffer[offset + 2], buffer[offset + 3]];
    (u32::from_le_bytes(bytes) as usize).clamp(8, MESSAGE_BYTES_MAX)
}

impl Factory for EchoFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(Box::new(EchoClient { stream, buffer: vec![0; 64 << 10] }))
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}

struct EchoClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl EchoClient {
    fn exchange(&mut self, there: usize, back: usize) -> Result<(), Failure> {
        let longest = there.max(back).min(MESSAGE_BYTES_MAX);
        if self.buffer.len() < longest {
            self.buffer.resize(longest, 0);
        }
        self.buffer[..4].copy_from_slice(&(there as u32).to_le_bytes());
        self.buffer[4..8].copy_from_slice(&(back as u32).to_le_bytes());
        self.stream.write_all(&self.buffer[..there])?;
        let mut have = 0;
        while have < back {
            let count = self.stream.read(&mut self.buffer[have..back])?;
            if count == 0 {
                return Err("the echo closed the connection".into());
            }
            have += count;
        }
        Ok(())
    }
}

impl Client for EchoClient {
    fn read(&mut self, _: &Key) -> Result<(), Failure> {
        self.exchange(READ_REQUEST_BYTES, READ_REPLY_BYTES)
    }

    fn update(&mut self, _: &Key, _: usize, _: &[u8; FIELD_BYTES]) -> Result<(), Failure> {
        self.exchange(UPDATE_REQUEST_BYTES, UPDATE_REPLY_BYTES)
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        self.exchange(UPDATE_REQUEST_BYTES + RECORD_BYTES * records.len(), UPDATE_REPLY_BYTES)
    }

    fn scan(&mut self, _: &Key, length: u64) -> Result<u64, Failure> {
        self.exchange(READ_REQUEST_BYTES, SCAN_REPLY_PREFIX_BYTES + RECORD_BYTES * length as usize)?;
        Ok(length)
    }
}
