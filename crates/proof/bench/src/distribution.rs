//! Which record comes next: YCSB's request distributions, number for number.
//!
//! Invariant: a generator is a pure function of its seed, so two runs with one seed ask for the same records. The
//! zipfian follows Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994), as YCSB does,
//! with YCSB's constants, so that figures are comparable with published ones.

/// SplitMix64: eight bytes of state, a nanosecond a number; a benchmark needs no more.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound` (`bound` above 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `out` with printable ASCII that does not compress to less than three quarters.
    pub fn fill_printable(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let mut bits = self.next_u64();
            for byte in chunk {
                *byte = b'0' + (bits & 0x3f) as u8;
                bits >>= 8;
            }
        }
    }
}

/// YCSB's FNV-1a variant over the eight bytes of a number; it spreads keys and the zipfian's popular records.
pub fn fnv_hash64(value: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for octet in value.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    }
    (hash as i64).unsigned_abs()
}

/// YCSB's zipfian constant.
pub const ZIPFIAN_THETA: f64 = 0.99;
/// The scrambled zipfian draws from this many items whatever the number of records, as YCSB's does.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// zeta(SCRAMBLED_ITEMS, 0.99), which would take minutes to sum.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Zipfian over `0..items`: item 0 the most popular.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
    /// Below this share of zeta comes the second item.
    second: f64,
}

impl Zipfian {
    /// Over `0..items`, summing zeta, which takes time linear in `items`.
    pub fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta_between(0, items))
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        let zeta_two = zeta_between(0, 2);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - ZIPFIAN_THETA)) / (1.0 - zeta_two / zeta);
        Self { items, zeta, eta, second: 1.0 + 0.5f64.powf(ZIPFIAN_THETA) }
    }

    /// Widens the range; costs time linear in the growth.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            let zeta = self.zeta + zeta_between(self.items, items);
            *self = Self::with_zeta(items, zeta);
        }
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.second {
            return 1;
        }
        const ALPHA: f64 = 1.0 / (1.0 - ZIPFIAN_THETA);
        let item = (self.items as f64 * (self.eta * u - self.eta + 1.0).powf(ALPHA)) as u64;
        item.min(self.items - 1)
    }
}

fn zeta_between(from: u64, to: u64) -> f64 {
    (from..to).map(|i| 1.0 / ((i + 1) as f64).powf(ZIPFIAN_THETA)).sum()
}

/// How a workload chooses among the records that exist.
#[derive(Clone, Debug)]
pub enum Distribution {
    /// Every record alike.
    Uniform,
    /// Zipfian, the popular ones scattered by a hash over `span` records, some of which may not exist yet.
    ScrambledZipfian {
        /// Popularity before scattering.
        zipfian: Zipfian,
        /// Records scattered over; fixed for a run, lest popularity wander as records are inserted.
        span: u64,
    },
    /// Zipfian counted back from the newest record.
    Latest(Zipfian),
}

impl Distribution {
    /// The scrambled zipfian over `span` records, YCSB's default.
    pub fn scrambled_zipfian(span: u64) -> Self {
        let zipfian = Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA);
        Self::ScrambledZipfian { zipfian, span: span.max(1) }
    }

    /// Prefers the newest of (at first) `records`.
    pub fn latest(records: u64) -> Self {
        Self::Latest(Zipfian::new(records.max(2)))
    }

    /// The next record number in `0..records` (`records` above 0).
    pub fn next(&mut self, random: &mut Random, records: u64) -> u64 {
        match self {
            Self::Uniform => random.below(records),
            Self::ScrambledZipfian { zipfian, span } => loop {
                let record = fnv_hash64(zipfian.next(random)) % *span;
                if record < records {
                    return record;
                }
            },
            Self::Latest(zipfian) => {
                zipfian.grow(records);
                records - 1 - zipfian.next(random).min(records - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_popular_item_of_a_zipfian_comes_as_often_as_zeta_says() {
        let zipfian = Zipfian::new(1000);
        let mut random = Random::new(7);
        let draws = 200_000;
        let first = (0..draws).filter(|_| zipfian.next(&mut random) == 0).count();
        let expected = f64::from(draws) / zeta_between(0, 1000);
        assert!((first as f64 - expected).abs() < expected * 0.03, "{first} of {draws}, expected {expected}");
    }

    #[test]
    fn growing_a_zipfian_equals_making_a_wider_one() {
        let mut grown = Zipfian::new(100);
        grown.grow(5000);
        let wide = Zipfian::new(5000);
        assert!((grown.zeta - wide.zeta).abs() < 1e-9);
        assert!((grown.eta - wide.eta).abs() < 1e-9);
    }

    #[test]
    fn every_distribution_stays_within_the_records_that_exist() {
        let mut random = Random::new(1);
        for mut distribution in [Distribution::Uniform, Distribution::scrambled_zipfian(20), Distribution::latest(1)] {
            for records in [2, 10, 1000] {
                for _ in 0..1000 {
                    assert!(distribution.next(&mut random, records) < records);
                }
            }
        }
    }

    #[test]
    fn latest_prefers_the_newest_record() {
        let mut random = Random::new(3);
        let mut latest = Distribution::latest(1000);
        let newest = (0..10_000).filter(|_| latest.next(&mut random, 1000) >= 990).count();
        assert!(newest > 3000, "{newest} of 10000 among the ten newest");
    }
}
