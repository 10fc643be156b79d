//! Redis as a peer: GET and SET of the whole kilobyte, the floor of what a network store can do per request.
//!
//! What it deliberately does not do: scans (Redis has no key order), fields (an update writes the whole value, which
//! costs Redis less than a hash would).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Client, Factory};
use crate::Failure;
use crate::record::{FIELD_BYTES, Key, VALUE_BYTES};

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
        let mut client = RedisClient::new(&self.address)?;
        client.request.extend_from_slice(b"*1\r\n$8\r\nFLUSHALL\r\n");
        client.exchange(1, |reply| reply == b"+OK")
    }
}

struct RedisClient {
    stream: TcpStream,
    request: Vec<u8>,
    received: Vec<u8>,
    value: [u8; VALUE_BYTES],
}

fn append_bulk(request: &mut Vec<u8>, bytes: &[u8]) {
    // Writing into a Vec cannot fail.
    let _ = write!(request, "${}\r\n", bytes.len());
    request.extend_from_slice(bytes);
    request.extend_from_slice(b"\r\n");
}

impl RedisClient {
    fn new(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).map_err(|e| format!("redis at {address}: {e}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream, request: Vec::new(), received: vec![0; 64 << 10], value: [b'x'; VALUE_BYTES] })
    }

    fn append_set(&mut self, key: &Key, value: &[u8; VALUE_BYTES]) {
        self.request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        append_bulk(&mut self.request, key);
        append_bulk(&mut self.request, value);
    }

    /// Sends what was appended and reads `count` replies, each of which must satisfy `is_good`.
    fn exchange(&mut self, count: usize, is_good: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
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

impl Client for RedisClient {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        self.request.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
        append_bulk(&mut self.request, key);
        self.exchange(1, |reply| reply.len() > VALUE_BYTES)
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8; FIELD_BYTES]) -> Result<(), Failure> {
        self.value[field * FIELD_BYTES..(field + 1) * FIELD_BYTES].copy_from_slice(value);
        let whole = self.value;
        self.append_set(key, &whole);
        self.exchange(1, |reply| reply == b"+OK")
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        for (key, value) in records {
            self.append_set(key, value);
        }
        self.exchange(records.len(), |reply| reply == b"+OK")
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
}
