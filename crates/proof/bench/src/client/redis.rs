//! Redis as a peer: GET and SET of the whole kilobyte, the floor of what a network store can do per request.
//!
//! Requests are built once and patched, as the thin client's are, so that the two differ by their servers only.
//! What it deliberately does not do: scans (Redis has no key order), fields (an update writes the whole value, which
//! costs Redis less than a hash would).

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{Client, Factory};
use crate::Failure;
use crate::record::{FIELD_BYTES, KEY_BYTES, Key, VALUE_BYTES};

/// Makes connections to one Redis.
pub struct RedisFactory {
    /// `host:port`.
    pub address: String,
}

impl Factory for RedisFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(RedisClient::new(&self.address)?))
    }

    fn clear(&self) -> Result<(), Failure> {
        let mut socket = Socket::connect(&self.address)?;
        socket.exchange(b"*1\r\n$8\r\nFLUSHALL\r\n", 1, |reply| reply == b"+OK")
    }
}

/// A connection, and what has been received on it.
struct Socket {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Socket {
    fn connect(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).map_err(|e| format!("redis at {address}: {e}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(super::READ_WAIT_MAX))?;
        Ok(Self { stream, received: vec![0; 64 << 10] })
    }

    /// Sends `request` and reads `count` replies, each of which must satisfy `is_good`.
    fn exchange(&mut self, request: &[u8], count: usize, is_good: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
        self.stream.write_all(request)?;
        let (mut have, mut begun) = (0, 0);
        for _ in 0..count {
            let end = loop {
                if let Some(end) = reply_end(&self.received[begun..have])? {
                    break begun + end;
                }
                if begun > 0 {
                    self.received.copy_within(begun..have, 0);
                    have -= begun;
                    begun = 0;
                }
                let got = self.stream.read(&mut self.received[have..])?;
                if got == 0 {
                    return Err("redis closed the connection".into());
                }
                have += got;
            };
            let reply = &self.received[begun..end - 2];
            if !is_good(reply) {
                return Err(format!("redis: {}", String::from_utf8_lossy(&reply[..reply.len().min(200)])).into());
            }
            begun = end;
        }
        Ok(())
    }
}

/// Where the first reply of `bytes` ends; `None` if it is not all there.
fn reply_end(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(line) = bytes.windows(2).take(600).position(|pair| pair == b"\r\n") else { return Ok(None) };
    if bytes[0] != b'$' {
        return Ok(Some(line + 2));
    }
    let length: i64 = std::str::from_utf8(&bytes[1..line])?.parse()?;
    let end = if length < 0 { line + 2 } else { line + 4 + length as usize };
    Ok((bytes.len() >= end).then_some(end))
}

const GET_KEY: usize = b"*2\r\n$3\r\nGET\r\n$23\r\n".len();
const SET_KEY: usize = b"*3\r\n$3\r\nSET\r\n$23\r\n".len();
const SET_VALUE: usize = SET_KEY + KEY_BYTES + b"\r\n$1000\r\n".len();
const _: () = assert!(KEY_BYTES == 23 && VALUE_BYTES == 1000);

fn get_request(key: &Key) -> Vec<u8> {
    [b"*2\r\n$3\r\nGET\r\n$23\r\n".as_slice(), key, b"\r\n"].concat()
}

fn append_set(request: &mut Vec<u8>, key: &Key, value: &[u8; VALUE_BYTES]) {
    for part in [b"*3\r\n$3\r\nSET\r\n$23\r\n".as_slice(), key, b"\r\n$1000\r\n", value, b"\r\n"] {
        request.extend_from_slice(part);
    }
}

struct RedisClient {
    socket: Socket,
    get: Vec<u8>,
    set: Vec<u8>,
    /// Of a load's batches.
    many: Vec<u8>,
}

impl RedisClient {
    fn new(address: &str) -> Result<Self, Failure> {
        let mut set = Vec::new();
        append_set(&mut set, &[b'k'; KEY_BYTES], &[b'x'; VALUE_BYTES]);
        Ok(Self { socket: Socket::connect(address)?, get: get_request(&[b'k'; KEY_BYTES]), set, many: Vec::new() })
    }
}

impl Client for RedisClient {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        self.get[GET_KEY..GET_KEY + KEY_BYTES].copy_from_slice(key);
        self.socket.exchange(&self.get, 1, |reply| reply.len() > VALUE_BYTES)
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure> {
        let from = SET_VALUE + (field * FIELD_BYTES) % VALUE_BYTES;
        self.set[SET_KEY..SET_KEY + KEY_BYTES].copy_from_slice(key);
        self.set[from..from + value.len()].copy_from_slice(value);
        self.socket.exchange(&self.set, 1, |reply| reply == b"+OK")
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        self.many.clear();
        for (key, value) in records {
            append_set(&mut self.many, key, value);
        }
        self.socket.exchange(&self.many, records.len(), |reply| reply == b"+OK")
    }

    fn scan(&mut self, _: &Key, _: u64) -> Result<u64, Failure> {
        Err("redis has no scans in key order".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_the_protocol_says_and_not_before_it_is_there() {
        assert_eq!(reply_end(b"+OK\r\n+OK\r\n").expect("valid"), Some(5));
        assert_eq!(reply_end(b"$3\r\nabc\r\n").expect("valid"), Some(9));
        assert_eq!(reply_end(b"$3\r\nabc").expect("valid"), None);
        assert_eq!(reply_end(b"$-1\r\n").expect("valid"), Some(5));
        assert_eq!(reply_end(b"").expect("valid"), None);
        assert!(reply_end(b"$x\r\n").is_err());
    }

    #[test]
    fn key_and_value_are_patched_where_they_stand() {
        let mut set = Vec::new();
        append_set(&mut set, &[b'k'; KEY_BYTES], &[b'x'; VALUE_BYTES]);
        assert_eq!(set[SET_KEY..SET_KEY + KEY_BYTES], [b'k'; KEY_BYTES]);
        assert_eq!(set[SET_VALUE..SET_VALUE + VALUE_BYTES], [b'x'; VALUE_BYTES]);
        assert_eq!(get_request(&[b'k'; KEY_BYTES])[GET_KEY..GET_KEY + KEY_BYTES], [b'k'; KEY_BYTES]);
    }
}
