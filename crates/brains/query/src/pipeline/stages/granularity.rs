//! The series of preferred numbers that `$bucketAuto` can round its boundaries to.
//!
//! Sources: MongoDB manual, "$bucketAuto, granularity"; ISO 3 (Renard series); IEC 60063 (E series).

use baton_types::{Error, Result};

/// A series, by MongoDB's name for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Granularity {
    /// Numbers of one decade, ascending, from 1 (or 10, 100) up to but without ten times that.
    Decade(&'static [f64]),
    /// Powers of two.
    PowersOfTwo,
}

const E6: &[f64] = &[10.0, 15.0, 22.0, 33.0, 47.0, 68.0];
const E12: &[f64] = &[10.0, 12.0, 15.0, 18.0, 22.0, 27.0, 33.0, 39.0, 47.0, 56.0, 68.0, 82.0];
const E24: &[f64] = &[
    10.0, 11.0, 12.0, 13.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 27.0, 30.0, 33.0, 36.0, 39.0, 43.0, 47.0, 51.0, 56.0,
    62.0, 68.0, 75.0, 82.0, 91.0,
];
const E48: &[f64] = &[
    100.0, 105.0, 110.0, 115.0, 121.0, 127.0, 133.0, 140.0, 147.0, 154.0, 162.0, 169.0, 178.0, 187.0, 196.0, 205.0,
    215.0, 226.0, 237.0, 249.0, 261.0, 274.0, 287.0, 301.0, 316.0, 332.0, 348.0, 365.0, 383.0, 402.0, 422.0, 442.0,
    464.0, 487.0, 511.0, 536.0, 562.0, 590.0, 619.0, 649.0, 681.0, 715.0, 750.0, 787.0, 825.0, 866.0, 909.0, 953.0,
];
const E96: &[f64] = &[
    100.0, 102.0, 105.0, 107.0, 110.0, 113.0, 115.0, 118.0, 121.0, 124.0, 127.0, 130.0, 133.0, 137.0, 140.0, 143.0,
    147.0, 150.0, 154.0, 158.0, 162.0, 165.0, 169.0, 174.0, 178.0, 182.0, 187.0, 191.0, 196.0, 200.0, 205.0, 210.0,
    215.0, 221.0, 226.0, 232.0, 237.0, 243.0, 249.0, 255.0, 261.0, 267.0, 274.0, 280.0, 287.0, 294.0, 301.0, 309.0,
    316.0, 324.0, 332.0, 340.0, 348.0, 357.0, 365.0, 374.0, 383.0, 392.0, 402.0, 412.0, 422.0, 432.0, 442.0, 453.0,
    464.0, 475.0, 487.0, 499.0, 511.0, 523.0, 536.0, 549.0, 562.0, 576.0, 590.0, 604.0, 619.0, 634.0, 649.0, 665.0,
    681.0, 698.0, 715.0, 732.0, 750.0, 768.0, 787.0, 806.0, 825.0, 845.0, 866.0, 887.0, 909.0, 931.0, 953.0, 976.0,
];
const E192: &[f64] = &[
    100.0, 101.0, 102.0, 104.0, 105.0, 106.0, 107.0, 109.0, 110.0, 111.0, 113.0, 114.0, 115.0, 117.0, 118.0, 120.0,
    121.0, 123.0, 124.0, 126.0, 127.0, 129.0, 130.0, 132.0, 133.0, 135.0, 137.0, 138.0, 140.0, 142.0, 143.0, 145.0,
    147.0, 149.0, 150.0, 152.0, 154.0, 156.0, 158.0, 160.0, 162.0, 164.0, 165.0, 167.0, 169.0, 172.0, 174.0, 176.0,
    178.0, 180.0, 182.0, 184.0, 187.0, 189.0, 191.0, 193.0, 196.0, 198.0, 200.0, 203.0, 205.0, 208.0, 210.0, 213.0,
    215.0, 218.0, 221.0, 223.0, 226.0, 229.0, 232.0, 234.0, 237.0, 240.0, 243.0, 246.0, 249.0, 252.0, 255.0, 258.0,
    261.0, 264.0, 267.0, 271.0, 274.0, 277.0, 280.0, 284.0, 287.0, 291.0, 294.0, 298.0, 301.0, 305.0, 309.0, 312.0,
    316.0, 320.0, 324.0, 328.0, 332.0, 336.0, 340.0, 344.0, 348.0, 352.0, 357.0, 361.0, 365.0, 370.0, 374.0, 379.0,
    383.0, 388.0, 392.0, 397.0, 402.0, 407.0, 412.0, 417.0, 422.0, 427.0, 432.0, 437.0, 442.0, 448.0, 453.0, 459.0,
    464.0, 470.0, 475.0, 481.0, 487.0, 493.0, 499.0, 505.0, 511.0, 517.0, 523.0, 530.0, 536.0, 542.0, 549.0, 556.0,
    562.0, 569.0, 576.0, 583.0, 590.0, 597.0, 604.0, 612.0, 619.0, 626.0, 634.0, 642.0, 649.0, 657.0, 665.0, 673.0,
    681.0, 690.0, 698.0, 706.0, 715.0, 723.0, 732.0, 741.0, 750.0, 759.0, 768.0, 777.0, 787.0, 796.0, 806.0, 816.0,
    825.0, 835.0, 845.0, 856.0, 866.0, 876.0, 887.0, 898.0, 909.0, 920.0, 931.0, 942.0, 953.0, 965.0, 976.0, 988.0,
];
const ONE_TWO_FIVE: &[f64] = &[10.0, 20.0, 50.0];
const R5: &[f64] = &[10.0, 16.0, 25.0, 40.0, 63.0];
const R10: &[f64] = &[100.0, 125.0, 160.0, 200.0, 250.0, 315.0, 400.0, 500.0, 630.0, 800.0];
const R20: &[f64] = &[
    100.0, 112.0, 125.0, 140.0, 160.0, 180.0, 200.0, 224.0, 250.0, 280.0, 315.0, 355.0, 400.0, 450.0, 500.0, 560.0,
    630.0, 710.0, 800.0, 900.0,
];
const R40: &[f64] = &[
    100.0, 106.0, 112.0, 118.0, 125.0, 132.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0, 212.0, 224.0, 236.0,
    250.0, 265.0, 280.0, 300.0, 315.0, 335.0, 355.0, 375.0, 400.0, 425.0, 450.0, 475.0, 500.0, 530.0, 560.0, 600.0,
    630.0, 670.0, 710.0, 750.0, 800.0, 850.0, 900.0, 950.0,
];
const R80: &[f64] = &[
    100.0, 103.0, 106.0, 109.0, 112.0, 115.0, 118.0, 122.0, 125.0, 128.0, 132.0, 136.0, 140.0, 145.0, 150.0, 155.0,
    160.0, 165.0, 170.0, 175.0, 180.0, 185.0, 190.0, 195.0, 200.0, 206.0, 212.0, 218.0, 224.0, 230.0, 236.0, 243.0,
    250.0, 258.0, 265.0, 272.0, 280.0, 290.0, 300.0, 307.0, 315.0, 325.0, 335.0, 345.0, 355.0, 365.0, 375.0, 387.0,
    400.0, 412.0, 425.0, 437.0, 450.0, 462.0, 475.0, 487.0, 500.0, 515.0, 530.0, 545.0, 560.0, 580.0, 600.0, 615.0,
    630.0, 650.0, 670.0, 690.0, 710.0, 730.0, 750.0, 775.0, 800.0, 825.0, 850.0, 875.0, 900.0, 925.0, 950.0, 975.0,
];

/// The series by name, sorted.
static SERIES: &[(&str, Granularity)] = &[
    ("1-2-5", Granularity::Decade(ONE_TWO_FIVE)),
    ("E12", Granularity::Decade(E12)),
    ("E192", Granularity::Decade(E192)),
    ("E24", Granularity::Decade(E24)),
    ("E48", Granularity::Decade(E48)),
    ("E6", Granularity::Decade(E6)),
    ("E96", Granularity::Decade(E96)),
    ("POWERSOF2", Granularity::PowersOfTwo),
    ("R10", Granularity::Decade(R10)),
    ("R20", Granularity::Decade(R20)),
    ("R40", Granularity::Decade(R40)),
    ("R5", Granularity::Decade(R5)),
    ("R80", Granularity::Decade(R80)),
];

impl Granularity {
    /// The series of that name: 40257 if there is none.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        SERIES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, series)| *series)
            .ok_or_else(|| Error::location(40257, format!("Unknown rounding granularity '{name}'")))
    }

    /// The least number of the series above `value`; zero stays zero. `value` is finite and not negative.
    pub(crate) fn round_up(self, value: f64) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        match self {
            Self::PowersOfTwo => {
                let mut power = exponent_of_two(value);
                while power <= value {
                    power *= 2.0;
                }
                power
            }
            Self::Decade(series) => {
                let (low, high) = (series[0], series[series.len() - 1]);
                let mut multiplier = 1.0;
                while value >= high * multiplier {
                    multiplier *= 10.0;
                }
                while value < low * multiplier {
                    // The next decade down may still end below the value: then this decade's first is the answer.
                    let smaller = multiplier / 10.0;
                    if value >= high * smaller {
                        return low * multiplier;
                    }
                    multiplier = smaller;
                }
                let at = series.partition_point(|number| number * multiplier <= value);
                series.get(at).map_or(low * multiplier * 10.0, |number| number * multiplier)
            }
        }
    }

    /// The greatest number of the series below `value`; zero stays zero.
    pub(crate) fn round_down(self, value: f64) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        match self {
            Self::PowersOfTwo => {
                let mut power = exponent_of_two(value) * 2.0;
                while power >= value {
                    power /= 2.0;
                }
                power
            }
            Self::Decade(series) => {
                let (low, high) = (series[0], series[series.len() - 1]);
                let mut multiplier = 1.0;
                while value <= low * multiplier {
                    multiplier /= 10.0;
                }
                while value > high * multiplier {
                    let larger = multiplier * 10.0;
                    if value <= low * larger {
                        return high * multiplier;
                    }
                    multiplier = larger;
                }
                let at = series.partition_point(|number| number * multiplier < value);
                at.checked_sub(1).and_then(|at| series.get(at)).map_or(high * multiplier / 10.0, |n| n * multiplier)
            }
        }
    }
}

/// A power of two near `value` and not above it, from which the exact one is a step or two away.
fn exponent_of_two(value: f64) -> f64 {
    let power = value.log2().floor().exp2();
    if power > value { power / 2.0 } else { power }
}

#[cfg(test)]
mod tests {
    use super::Granularity;

    #[test]
    fn boundaries_round_to_the_series_strictly() {
        let series = |name| Granularity::parse(name).expect("a known series");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(series("R5").round_up(5.0), 6.3));
        assert_eq!(series("R5").round_up(6.4), 10.0);
        assert_eq!(series("R5").round_up(99.0), 100.0);
        assert_eq!(series("1-2-5").round_up(5.0), 10.0);
        assert_eq!(series("1-2-5").round_down(5.0), 2.0);
        assert!(close(series("E6").round_down(10.0), 6.8));
        assert_eq!(series("POWERSOF2").round_up(8.0), 16.0);
        assert_eq!(series("POWERSOF2").round_up(5.0), 8.0);
        assert_eq!(series("POWERSOF2").round_down(8.0), 4.0);
        assert_eq!(series("R80").round_up(0.0), 0.0);
        assert_eq!(Granularity::parse("R7").expect_err("an unknown series").code.0, 40257);
    }
}
