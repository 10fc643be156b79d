//! The part of a connection string that a load generator needs: addresses, and a replica set's name to be ignored.
//!
//! What it deliberately does not do: users, TLS, SRV records. `--client driver` knows those.

use crate::Failure;

/// The `host:port` addresses of `mongodb://host[:port],…[/…][?…]`; the port is 27017 where none is given.
///
/// # Errors
/// With a text for the operator.
pub fn addresses(uri: &str) -> Result<Vec<String>, Failure> {
    let rest = uri.strip_prefix("mongodb://").ok_or_else(|| format!("{uri}: must begin with mongodb://"))?;
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    if hosts.contains('@') {
        return Err("the thin client knows no users: take --client driver".into());
    }
    let addresses: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect();
    if addresses.is_empty() { Err(format!("{uri}: names no host").into()) } else { Ok(addresses) }
}

fn with_port(host: &str) -> String {
    let has_port = match host.rfind(']') {
        Some(bracket) => host[bracket..].contains(':'),
        None => host.contains(':'),
    };
    if has_port { host.to_owned() } else { format!("{host}:27017") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_set_string_gives_all_its_members() {
        let found = addresses("mongodb://a:1,b,[::1]:3/db?replicaSet=rs0").expect("valid");
        assert_eq!(found, ["a:1", "b:27017", "[::1]:3"]);
    }

    #[test]
    fn what_is_not_a_connection_string_is_refused() {
        assert!(addresses("a:1").is_err());
        assert!(addresses("mongodb:///db").is_err());
        assert!(addresses("mongodb://u:p@a").is_err());
    }
}
