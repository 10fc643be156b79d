//! `$sampleRate`: a document passes with a given probability.
//!
//! Invariants: the sequence of draws follows from the request's seed alone.

use baton_document::number::Number;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operand of `$sampleRate`, with the state of its draws.
#[derive(Clone, Debug)]
pub struct SampleRate {
    /// The probability, from 0 to 1.
    pub rate: f64,
    state: Arc<AtomicU64>,
}

impl SampleRate {
    /// Parses a probability.
    pub(super) fn parse(value: RawBsonRef<'_>, seed: u64) -> Result<Self> {
        let Some(number) = Number::from_raw(value) else {
            return Err(Error::bad_value("argument to $sampleRate must be a numeric type"));
        };
        let rate = number.to_f64();
        if !(0.0..=1.0).contains(&rate) {
            return Err(Error::bad_value("numeric argument to $sampleRate must be in [0, 1]"));
        }
        Ok(Self { rate, state: Arc::new(AtomicU64::new(seed)) })
    }

    /// Draws once: SplitMix64 (Steele, Lea, Flood 2014), cut to the 53 bits of a double in [0, 1).
    pub(super) fn draw(&self) -> bool {
        const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed).wrapping_add(GOLDEN_GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((z >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < self.rate
    }
}
