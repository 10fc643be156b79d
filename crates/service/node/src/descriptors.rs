//! File descriptors: how many the process may have open, and who may have how many of them.
//!
//! ```text
//!  the limit (the soft one, raised to the hard one at the start)
//!  ├─ four fifths: connections of clients and members        more are closed as soon as they are accepted
//!  └─ a fifth, 160 at least: the reserve
//!       ├─ a half: tables that RocksDB keeps open             more are opened when they are read, and closed again
//!       ├─ an eighth: the pages over HTTP
//!       ├─ an eighth: what queries have spilled              more are opened for each access, one at a time
//!       └─ the rest: logs, tables being written, connections to other members, files of a backup
//! ```
//!
//! Invariant: connections and storage together never need more than there are, so that a storm of connections costs
//! storage no file: a file that cannot be opened for writing stops the member.
//! What it deliberately does not do: raise the hard limit, which is the operator's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// MongoDB's recommended minimum; below it the start warns.
const RECOMMENDED: u64 = 64_000;
/// What storage, logs and other members need at the least.
const RESERVE_MIN: u64 = 160;
/// Connections that must remain.
const CONNECTIONS_MIN: u64 = 40;
/// Tables that RocksDB keeps open at the most, if there are descriptors in plenty.
const TABLES_MAX: u64 = 4096;

/// Who may have how many descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Connections, from clients and other members.
    pub connections: usize,
    /// Tables that RocksDB keeps open.
    pub tables: i32,
    /// Connections over HTTP.
    pub http: usize,
    /// Files that queries have spilled to.
    pub spills: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one and shares out what there is.
    ///
    /// # Errors
    /// With a text for the operator, if there are too few for any member.
    pub fn claim() -> Result<Self, String> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current != maximum
            && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        {
            warn!(target: "CONTROL", error = %error, "The soft limit of open files cannot be raised to the hard one");
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let shares = Self::share(limit)?;
        if limit < RECOMMENDED {
            warn!(
                target: "CONTROL", id = 22184, startupWarning = true, currentValue = limit,
                recommendedMinimum = RECOMMENDED, connections = shares.connections,
                "Soft rlimits for open file descriptors too low"
            );
        } else {
            info!(target: "CONTROL", limit, connections = shares.connections, "Open files");
        }
        Ok(shares)
    }

    /// The connections to allow where the operator allows `wanted`.
    pub fn connections_of(&self, wanted: usize) -> usize {
        if wanted > self.connections && wanted != crate::Options::default().connection_count_max {
            warn!(
                target: "NETWORK", id = 4615, startupWarning = true, wanted, limit = self.connections,
                "net.maxIncomingConnections is more than the limit of open files allows; raise the limit (ulimit -n, LimitNOFILE)"
            );
        }
        wanted.min(self.connections)
    }

    fn share(limit: u64) -> Result<Self, String> {
        let reserve = (limit - limit / 5 * 4).max(RESERVE_MIN);
        let connections = limit.saturating_sub(reserve);
        if connections < CONNECTIONS_MIN {
            return Err(format!(
                "The process may open {limit} files; a member needs {} at the least, and {RECOMMENDED} are recommended. \
                 Raise the hard limit (ulimit -Hn, or LimitNOFILE of the service)",
                RESERVE_MIN + CONNECTIONS_MIN
            ));
        }
        Ok(Self {
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            tables: (reserve / 2).min(TABLES_MAX) as i32,
            http: (reserve / 8).min(64) as usize,
            spills: (reserve / 8).min(1024) as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_four_fifths_and_storage_its_reserve() {
        assert_eq!(Descriptors::share(1024), Ok(Descriptors { connections: 816, tables: 104, http: 26, spills: 26 }));
        assert_eq!(
            Descriptors::share(64_000),
            Ok(Descriptors { connections: 51_200, tables: 4096, http: 64, spills: 1024 })
        );
        assert_eq!(Descriptors::share(300), Ok(Descriptors { connections: 140, tables: 80, http: 20, spills: 20 }));
        assert!(Descriptors::share(u64::MAX).is_ok());
    }

    #[test]
    fn with_too_few_a_member_does_not_start_and_says_how_many_it_needs() {
        let refusal = Descriptors::share(128).unwrap_err();
        assert!(refusal.contains("128") && refusal.contains("200"), "{refusal}");
    }
}
