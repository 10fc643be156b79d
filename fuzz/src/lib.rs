//! The fuzz targets, and what they share.
//!
//! Invariant: a target's outcome depends on its input alone (no clock, no randomness), so that a failure can be replayed.
//! What it does not do: run them; libFuzzer (`fuzz_targets/`) or the plain runner (`src/bin/mutate.rs`) does.

pub mod grow;
pub mod targets;

/// One target.
pub struct Target {
    /// Its name, also that of its files.
    pub name: &'static str,
    /// Runs one input; panics if a law is broken.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident)*) => {
        &[$(Target { name: stringify!($name), run: targets::$name::run, seeds: targets::$name::seeds },)*]
    };
}

/// All targets.
pub const TARGETS: &[Target] =
    targets!(wire_decode bson_validate key_decode filter expression update projection pipeline);
