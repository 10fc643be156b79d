//! Where a member is reached: `name:port`, `address:port` or `[IPv6 address]:port`.
//!
//! Invariants: neither part is empty, the port is not 0; [`HostAndPort`]'s text reads back as itself, so that two members
//! are at the same place only if the texts are equal.
//! What it deliberately does not do: resolve names, or tell that two names are one machine. Unix sockets have no place
//! here: members reach each other over TCP.

use baton_types::{Error, Result};
use std::fmt;

/// The port of a host that names none.
pub const DEFAULT_PORT: u16 = 27017;

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAndPort {
    /// The name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostAndPort {
    /// Reads `text`, without the blanks around it: `FailedToParse` (9).
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let (host, port) = split(text)?;
        if host.is_empty() {
            let message = format!("Empty host component parsing HostAndPort from \"{text}\"");
            return Err(Error::failed_to_parse(message));
        }
        // None of them is part of a name; some would end it within a connection string.
        let is_foreign = |c: char| c.is_whitespace() || c.is_control() || "[]/,@?#\\".contains(c);
        if let Some(foreign) = host.chars().find(|c| is_foreign(*c)) {
            let message = format!("Character {foreign:?} cannot be part of a host parsing HostAndPort from {text:?}");
            return Err(Error::failed_to_parse(message));
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| parse_port(port, text))?;
        Ok(Self { host: host.into(), port })
    }

    /// Whether only this machine means itself by it.
    pub fn is_localhost(&self) -> bool {
        self.host == "localhost" || self.host == "::1" || self.host.starts_with("127.")
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The host without brackets, and what stands after the colon, if there is one.
fn split(text: &str) -> Result<(&str, Option<&str>)> {
    let fail = |message: String| Err(Error::failed_to_parse(message));
    let Some(bracketed) = text.strip_prefix('[') else {
        if text.contains('[') {
            return fail(format!("'[' present, but not first character in {text}"));
        }
        if text.contains(']') {
            return fail(format!("']' present without '[' in {text}"));
        }
        return match text.split_once(':') {
            None => Ok((text, None)),
            Some((_, port)) if port.contains(':') => fail(format!(
                "More than one ':' detected. If this is an ipv6 address, it needs to be surrounded by '[' and ']'; {text}"
            )),
            Some((host, port)) => Ok((host, Some(port))),
        };
    };
    let Some((host, rest)) = bracketed.split_once(']') else {
        return fail(format!("ipv6 address is missing closing ']' in hostname in {text}"));
    };
    match rest.rsplit_once(':') {
        None if rest.is_empty() => Ok((host, None)),
        None => fail(format!("missing colon after ']' before the port in {text}")),
        Some(("", port)) => Ok((host, Some(port))),
        Some(_) => fail(format!("Extraneous characters between ']' and pre-port ':' in {text}")),
    }
}

/// 1 to 65535.
fn parse_port(port: &str, text: &str) -> Result<u16> {
    let digits = port.strip_prefix(['+', '-']).unwrap_or(port);
    if port.is_empty() {
        return Err(Error::failed_to_parse("Empty string"));
    }
    if digits.is_empty() {
        return Err(Error::failed_to_parse("No digits"));
    }
    if let Some(bad) = digits.chars().find(|c| !c.is_ascii_digit()) {
        return Err(Error::failed_to_parse(format!("Bad digit \"{bad}\" while parsing {port}")));
    }
    port.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        Error::failed_to_parse(format!("Port number {port} out of range parsing HostAndPort from \"{text}\""))
    })
}
