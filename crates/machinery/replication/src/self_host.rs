//! By which of its hosts a configuration names this member.
//!
//! Usually the one that it was told to advertise. But `localhost`, an address and a machine's name may all be the same process: then
//! each host with this member's port is asked who it is, and the one that answers with this process's own identity is it.
//!
//! Invariants: a host is taken for this member only if the process behind it is this one; what it is asked for that is answered by a
//! member that is still starting, as this one may be.
//! What it deliberately does not do: ask hosts with other ports, so that a set of many members is not asked one by one.

use baton_consensus::Configuration;
use baton_consensus::configuration::HostAndPort;
use baton_net::Outgoing;
use bson::oid::ObjectId;
use bson::rawdoc;
use std::time::Duration;

/// How long a host may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The host of this member, which advertises `advertised` and whose process is `process_id`; `None` if it is not in there.
pub(crate) fn find(configuration: &Configuration, advertised: &str, process_id: ObjectId) -> Option<String> {
    if configuration.member_at(advertised).is_some() {
        return Some(advertised.to_owned());
    }
    let port = port_of(advertised)?;
    let hosts = configuration.members.iter().map(|member| member.host.as_str());
    hosts.filter(|host| port_of(host) == Some(port)).find(|host| identity(host) == Some(process_id)).map(str::to_owned)
}

fn port_of(host: &str) -> Option<u16> {
    let host = HostAndPort::parse(host).ok()?.to_string();
    host.rsplit(':').next()?.parse().ok()
}

/// Which process answers there.
fn identity(host: &str) -> Option<ObjectId> {
    let mut connection = Outgoing::connect(host, TIMEOUT).ok()?;
    let reply = connection.call(&rawdoc! { "_isSelf": 1, "$db": "admin" }, TIMEOUT).ok()?;
    reply.get_object_id("id").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_host_needs_no_asking_and_another_port_is_another_member() {
        let id = ObjectId::from_bytes([1; 12]);
        let configuration = Configuration::initial("rs0", "127.0.0.1:1", id).unwrap();
        assert_eq!(find(&configuration, "127.0.0.1:1", id).as_deref(), Some("127.0.0.1:1"));
        assert_eq!(find(&configuration, "127.0.0.1:2", id), None);
        // Nobody answers there.
        assert_eq!(find(&configuration, "localhost:1", id), None);
    }
}
