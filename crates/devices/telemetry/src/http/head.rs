//! A request's head: reading it within bounds, and what of it counts.
//!
//! Invariants: no more than [`HEAD_SIZE_MAX_BYTES`] are read, until the deadline; a host that is not this member's is
//! told from one that is, because a page of another origin whose name was made to point here (DNS rebinding) sends its own.
//! What it does not do: routing, or answering.

use super::remaining;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::time::Instant;

/// A longer head is refused.
const HEAD_SIZE_MAX_BYTES: usize = 8 * 1024;
const HEADER_COUNT_MAX: usize = 64;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A request.
    Request(Request),
    /// More than a head may have.
    TooLong,
    /// Something else.
    NotHttp,
}

/// What counts of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    pub(super) host: Host,
}

/// Whom the client means to reach.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// HTTP/1.0 without the header: no browser.
    Unsaid,
    /// This name, without the port.
    Named(String),
    /// None or several where one is due, or one that is no host.
    Invalid,
}

impl Host {
    /// Whether it can only be this machine: an address, or localhost. Such a host is not looked up where others can say what
    /// it stands for.
    pub(super) fn is_address(&self) -> bool {
        let Self::Named(name) = self else { return matches!(self, Self::Unsaid) };
        let bare = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let is_v6 = bare.is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok());
        is_v6 || name.parse::<Ipv4Addr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    }

    /// Whether it is this name or address, which may have a port and brackets.
    pub(super) fn is(&self, other: &str) -> bool {
        let Self::Named(name) = self else { return false };
        // An address of IPv6 without brackets has colons of its own.
        let other = if other.parse::<IpAddr>().is_ok() { other } else { without_port(other) };
        name.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
    }
}

/// `host` of `host:port`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Reads a head.
///
/// # Errors
/// If the stream fails, ends, or the deadline passes before the head is whole.
pub(super) fn read(mut stream: &TcpStream, deadline: Instant) -> io::Result<Head> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
        if let Some(head) = parse(&head) {
            return Ok(head);
        }
        if head.len() > HEAD_SIZE_MAX_BYTES {
            return Ok(Head::TooLong);
        }
    }
}

/// What these bytes are; `None` if more must come to tell.
fn parse(bytes: &[u8]) -> Option<Head> {
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(Head::TooLong),
        Err(_) => return Some(Head::NotHttp),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Some(Head::NotHttp);
    };
    Some(Head::Request(Request {
        method: method.to_owned(),
        path: target.split(['?', '#']).next().unwrap_or_default().to_owned(),
        host: host_of(request.headers, minor),
    }))
}

fn host_of(headers: &[httparse::Header<'_>], minor_version: u8) -> Host {
    let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (None, _) if minor_version == 0 => Host::Unsaid,
        (Some(host), None) => match std::str::from_utf8(host.value).map(str::trim) {
            Ok(host) if !host.is_empty() && host.is_ascii() => Host::Named(without_port(host).to_owned()),
            _ => Host::Invalid,
        },
        _ => Host::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(head: &str) -> Host {
        match parse(head.as_bytes()) {
            Some(Head::Request(request)) => request.host,
            other => panic!("{head:?}: {other:?}"),
        }
    }

    #[test]
    fn an_address_is_told_from_a_name() {
        for address in ["127.0.0.1", "127.0.0.1:28017", "[::1]", "[::1]:28017", "localhost:28017", "LOCALHOST"] {
            let host = host(&format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n"));
            assert!(host.is_address(), "{host:?}");
        }
        for name in
            ["evil.example", "evil.example:28017", "127.0.0.1.evil.example", "localhost.evil.example", "2130706433"]
        {
            let host = host(&format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"));
            assert!(!host.is_address(), "{host:?}");
        }
    }

    #[test]
    fn a_name_is_compared_without_port_case_and_final_dot() {
        let host = host("GET / HTTP/1.1\r\nHost: DB1.example.:28017\r\n\r\n");
        assert!(host.is("db1.example:27017") && host.is("db1.example") && !host.is("db2.example:27017"));
    }

    #[test]
    fn http_1_1_has_exactly_one_host() {
        assert_eq!(host("GET / HTTP/1.1\r\n\r\n"), Host::Invalid);
        assert_eq!(host("GET / HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\n\r\n"), Host::Invalid);
        assert_eq!(host("GET / HTTP/1.0\r\n\r\n"), Host::Unsaid);
    }

    #[test]
    fn half_a_head_is_waited_for_and_what_is_none_is_not() {
        assert_eq!(parse(b"GET / HTT"), None);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(parse(b"\x16\x03\x01\x02\x00"), Some(Head::NotHttp));
    }
}
