//! Workloads and figures: the YCSB core workloads, a client thin enough to leave the CPU to the server, and the peers
//! the figures are compared with.
//!
//! It measures any server that speaks the MongoDB protocol and knows nothing of Baton's insides; what it compares Baton
//! with (a bare RocksDB, a bare socket) it builds itself from the same parts.

pub mod distribution;
