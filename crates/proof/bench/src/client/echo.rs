//! The loopback ping-pong: messages of the sizes that a MongoDB server exchanges, and nothing behind them.
//!
//! It is the limit that sockets, system calls and threads set, a thread per connection. The first eight bytes of a
//! request are its own length and the length wanted back.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::{Client, Factory};
use crate::Failure;
use crate::record::{Key, VALUE_BYTES};

const RECORD_BYTES: usize = VALUE_BYTES + 175;
const SCAN_REPLY_PREFIX_BYTES: usize = 100;
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// What requests and replies weigh.
#[derive(Clone, Copy, Debug)]
pub struct MessageSizes {
    /// A read by key.
    pub read_request: usize,
    /// Its answer, with the record.
    pub read_reply: usize,
    /// An update of one field.
    pub update_request: usize,
    /// Its answer.
    pub update_reply: usize,
}

impl Default for MessageSizes {
    /// What Baton exchanges with the thin client, about.
    fn default() -> Self {
        Self { read_request: 112, read_reply: 1290, update_request: 320, update_reply: 70 }
    }
}

/// Makes connections to one echo.
pub struct EchoFactory {
    /// Where it listens.
    pub address: SocketAddr,
    /// What to send and to ask back.
    pub sizes: MessageSizes,
}

impl EchoFactory {
    /// An echo in this very process, on a free port, for as long as the process lives.
    ///
    /// # Errors
    /// If no port is to be had.
    pub fn here() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::Builder::new().name("echo".into()).spawn(move || answer_all(&listener))?;
        Ok(Self { address, sizes: MessageSizes::default() })
    }
}

/// Answers on a port of loopback until the process ends.
///
/// # Errors
/// If the port is taken.
pub fn serve(port: u16) -> Result<(), Failure> {
    answer_all(&TcpListener::bind(("127.0.0.1", port))?);
    Ok(())
}

fn answer_all(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A connection that ends is how a client leaves.
        let _ = std::thread::Builder::new().name("echo-peer".into()).spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![b'x'; 256 << 10];
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
                let longest = need.max(length_at(&buffer, 4));
                if longest > buffer.len() {
                    buffer.resize(longest, b'x');
                }
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
        stream.set_read_timeout(Some(super::READ_WAIT_MAX))?;
        Ok(Box::new(EchoClient { stream, buffer: vec![0; 64 << 10], sizes: self.sizes }))
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}

struct EchoClient {
    stream: TcpStream,
    buffer: Vec<u8>,
    sizes: MessageSizes,
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
        self.exchange(self.sizes.read_request, self.sizes.read_reply)
    }

    fn update(&mut self, _: &Key, _: usize, _: &[u8]) -> Result<(), Failure> {
        self.exchange(self.sizes.update_request, self.sizes.update_reply)
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        self.exchange(self.sizes.update_request + RECORD_BYTES * records.len(), self.sizes.update_reply)
    }

    fn scan(&mut self, _: &Key, length: u64) -> Result<u64, Failure> {
        self.exchange(self.sizes.read_request, SCAN_REPLY_PREFIX_BYTES + RECORD_BYTES * length as usize)?;
        Ok(length)
    }
}
