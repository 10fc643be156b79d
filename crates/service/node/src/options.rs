//! What an operator may say about a member. Where it was said (command line, file) is the command line's business.
//!
//! Invariant: the defaults are mongod's, unless the comment says why not.

use baton_wire::Compressor;
use bson::Document;
use std::path::PathBuf;

/// A member's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the data is.
    pub data_directory: PathBuf,
    /// The TCP port; 0 for any free one.
    pub port: u16,
    /// The addresses to listen on.
    pub bind_ip: Vec<String>,
    /// The directory for the Unix socket; `None` for no socket.
    pub unix_socket_directory: Option<PathBuf>,
    /// The most connections at once.
    pub connection_count_max: usize,
    /// Compressors to offer, most wanted first.
    pub compressors: Vec<Compressor>,
    /// The replica set to be a member of; `None` for a standalone.
    pub replica_set: Option<String>,
    /// Whether to make a set of this member alone, if it is in none yet.
    pub initiate: bool,
    /// The address that clients of the set are to use, `host:port`; by default the first one listened on.
    pub advertised_host: Option<String>,
    /// The size of a new oplog in bytes; by default a twentieth of the free disk space, within mongod's bounds.
    pub oplog_size_bytes: Option<u64>,
    /// How long entries stay in the oplog at least, in seconds; as it was, if absent.
    pub oplog_retention_secs_min: Option<u64>,
    /// The memory for the block cache and memtables in bytes; by default half of the machine's, less a gigabyte.
    pub cache_size_bytes: Option<usize>,
    /// Milliseconds from which on an operation is slow.
    pub slow_ms: i64,
    /// The profiler's level for every database.
    pub profile_level: i32,
    /// Parameters, by name.
    pub parameters: Vec<(String, String)>,
    /// Whether to serve the status page and the metrics over HTTP, on the port a thousand above.
    pub http: bool,
    /// A file for the process id.
    pub pid_file: Option<PathBuf>,
    /// Starts the process anew, without coming back; absent where the process is not the member's own.
    pub restart: Option<fn()>,
    /// The command line, for `getCmdLineOpts`.
    pub argv: Vec<String>,
    /// The same, parsed and together with the configuration file, in the file's form.
    pub parsed: Document,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data_directory: PathBuf::from("/data/db"),
            port: 27017,
            bind_ip: vec!["127.0.0.1".into()],
            unix_socket_directory: Some(PathBuf::from("/tmp")),
            connection_count_max: 65_536,
            compressors: vec![Compressor::Snappy, Compressor::Zstd, Compressor::Zlib],
            replica_set: None,
            initiate: false,
            advertised_host: None,
            oplog_size_bytes: None,
            oplog_retention_secs_min: None,
            cache_size_bytes: None,
            slow_ms: 100,
            profile_level: 0,
            parameters: Vec::new(),
            http: true,
            pid_file: None,
            restart: None,
            argv: Vec::new(),
            parsed: Document::new(),
        }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;
const MIB: u64 = 1024 * 1024;

impl Options {
    /// The cache's size: half of what the machine has beyond a gigabyte, at least 256 MB, as mongod reckons.
    pub fn cache_bytes(&self) -> usize {
        self.cache_size_bytes.unwrap_or_else(|| {
            let total = baton_machine::memory_limit_bytes().unwrap_or(2 * GIB);
            (total.saturating_sub(GIB) / 2).max(256 * MIB) as usize
        })
    }

    /// The oplog's size: a twentieth of the free disk space, between 990 MB and 50 GB, as mongod reckons.
    pub fn oplog_bytes(&self) -> u64 {
        self.oplog_size_bytes.unwrap_or_else(|| {
            let free = baton_machine::host::disk_free_bytes(&self.data_directory).unwrap_or(0);
            (free / 20).clamp(990 * MIB, 50 * GIB)
        })
    }
}
