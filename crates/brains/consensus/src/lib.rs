//! Consensus by pull.

pub mod configuration;
