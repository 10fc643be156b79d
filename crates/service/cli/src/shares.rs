//! What each of several members on one machine gets: together they take what one alone would take.
//!
//! Invariant: the caches of all members together, and their oplogs together, are no more than what a lone member chooses, unless
//! the smallest that a member can run with is more.

use baton_node::Options;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// The least cache that a member takes, in bytes.
const CACHE_BYTES_MIN: u64 = 64 * MIB;
/// The least oplog that is of use, in bytes.
const OPLOG_BYTES_MIN: u64 = 100 * MIB;

/// The sizes for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Memory for data.
    pub cache_bytes: u64,
    /// Disk for the oplog.
    pub oplog_bytes: u64,
}

impl Shares {
    /// Of one of `members` whose data is below `data`.
    pub fn of(members: u16, data: &Path) -> Self {
        let alone = Options { data_directory: data.to_owned(), ..Options::default() };
        Self::divided(alone.cache_bytes() as u64, alone.oplog_bytes(), members)
    }

    fn divided(cache_bytes: u64, oplog_bytes: u64, members: u16) -> Self {
        let whole_mib = |bytes: u64| bytes / MIB * MIB;
        let members = u64::from(members.max(1));
        Self {
            cache_bytes: whole_mib(cache_bytes / members).max(CACHE_BYTES_MIN),
            oplog_bytes: whole_mib(oplog_bytes / members).max(OPLOG_BYTES_MIN),
        }
    }

    /// `--cacheSizeGB`'s value.
    pub fn cache_gb(&self) -> String {
        // Whole megabytes are exact in it.
        format!("{}", (self.cache_bytes / MIB) as f64 / 1024.0)
    }

    /// `--oplogSize`'s value.
    pub fn oplog_mb(&self) -> String {
        (self.oplog_bytes / MIB).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_together_take_what_one_would_take() {
        for (cache, oplog) in [(512 * MIB, 990 * MIB), (7_500 * MIB, 20_000 * MIB)] {
            for members in 1..=7 {
                let each = Shares::divided(cache, oplog, members);
                assert!(each.cache_bytes * u64::from(members) <= cache);
                assert!(each.oplog_bytes * u64::from(members) <= oplog);
                assert!((each.cache_bytes + MIB) * u64::from(members) > cache, "nothing is left lying");
            }
        }
        let least = Shares::divided(256 * MIB, 500 * MIB, 7);
        assert_eq!((least.cache_gb().as_str(), least.oplog_mb().as_str()), ("0.0625", "100"));
    }
}
