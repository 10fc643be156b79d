//! `$sum`, `$avg` and `$count`.
//!
//! Integers are summed exactly; doubles with the rounding errors carried along (Neumaier's variant of Kahan's sum), as
//! MongoDB does; decimals apart, because their sum is exact where a double's is not. The sum's type is the widest seen;
//! an integer sum that does not fit widens. What is no number does not count.

use super::Accumulator;
use crate::expression::value::{self, Value};
use crate::spill::damaged;
use baton_document::decimal::Decimal;
use baton_document::number::Number;
use baton_types::Result;
use bson::Bson;

/// The widest numeric type seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    #[default]
    Int,
    Long,
    Double,
    Decimal,
}

impl Width {
    fn of_state(number: i32) -> Result<Self> {
        let all = [Self::Int, Self::Long, Self::Double, Self::Decimal];
        usize::try_from(number).ok().and_then(|place| all.get(place)).copied().ok_or_else(damaged)
    }
}

/// `$sum`.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    width: Width,
    whole: i128,
    double: f64,
    /// What rounding took from `double`.
    compensation: f64,
    decimal: Option<Decimal>,
    /// How many numbers were added.
    count: u64,
}

impl Sum {
    /// Adds a number.
    fn add(&mut self, number: Number) {
        self.count += 1;
        match number {
            Number::Int32(integer) => self.whole += i128::from(integer),
            Number::Int64(integer) => {
                self.width = self.width.max(Width::Long);
                self.whole += i128::from(integer);
            }
            Number::Double(double) => {
                self.width = self.width.max(Width::Double);
                (self.double, self.compensation) = compensated(self.double, self.compensation, double);
            }
            Number::Decimal(decimal) => {
                self.width = Width::Decimal;
                self.decimal = Some(self.decimal.unwrap_or(Decimal::ZERO).add(decimal));
            }
        }
    }

    fn as_double(&self) -> f64 {
        // The integers' sum in two parts, so that none of its digits is lost before the end.
        let high = self.whole as f64;
        let low = (self.whole - high as i128) as f64;
        let (double, compensation) = compensated(self.double, self.compensation, high);
        let (double, compensation) = compensated(double, compensation, low);
        if double.is_finite() { double + compensation } else { double }
    }

    /// The doubles in full: both parts of their sum, each with 34 digits.
    fn as_decimal(&self) -> Decimal {
        let whole = Decimal::parse(&self.whole.to_string()).unwrap_or(Decimal::NAN);
        let doubles = if self.double.is_finite() {
            // What the compensation adds to the nearest double, and what then is left of it.
            let sum = self.double + self.compensation;
            let rest = self.compensation - (sum - self.double);
            Decimal::from_f64_full(sum).add(Decimal::from_f64_full(rest))
        } else {
            Decimal::from_f64(self.double)
        };
        self.decimal.unwrap_or(Decimal::ZERO).add(doubles.add(whole))
    }

    fn total(&self) -> Bson {
        match self.width {
            Width::Int | Width::Long => match (i32::try_from(self.whole), i64::try_from(self.whole)) {
                (Ok(int), _) if self.width == Width::Int => Bson::Int32(int),
                (_, Ok(long)) => Bson::Int64(long),
                _ => Bson::Double(self.as_double()),
            },
            Width::Double => Bson::Double(self.as_double()),
            Width::Decimal => Number::Decimal(self.as_decimal()).to_bson(),
        }
    }
}

/// `sum + number` and the error of that, added to the errors so far.
fn compensated(sum: f64, compensation: f64, number: f64) -> (f64, f64) {
    let next = sum + number;
    if !next.is_finite() {
        return (next, 0.0);
    }
    let error = if sum.abs() >= number.abs() { (sum - next) + number } else { (number - next) + sum };
    (next, compensation + error)
}

impl Accumulator for Sum {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        if let Some(number) = value::number(&value) {
            self.add(number);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        self.total()
    }

    fn state(self: Box<Self>) -> Bson {
        // The integers' sum in two halves of 64 bits.
        let (high, low) = ((self.whole >> 64) as i64, self.whole as i64);
        let decimal = self.decimal.map(|decimal| Number::Decimal(decimal).to_bson());
        let mut state = vec![
            Bson::Int32(self.width as i32),
            Bson::Int64(high),
            Bson::Int64(low),
            Bson::Double(self.double),
            Bson::Double(self.compensation),
            Bson::Int64(self.count as i64),
        ];
        state.extend(decimal);
        Bson::Array(state)
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        let Bson::Array(parts) = &state else { return Err(damaged()) };
        let [
            Bson::Int32(width),
            Bson::Int64(high),
            Bson::Int64(low),
            Bson::Double(double),
            Bson::Double(compensation),
            Bson::Int64(count),
            decimal @ ..,
        ] = parts.as_slice()
        else {
            return Err(damaged());
        };
        self.width = self.width.max(Width::of_state(*width)?);
        self.whole += (i128::from(*high) << 64) | i128::from(*low as u64);
        (self.double, self.compensation) = compensated(self.double, self.compensation, *double);
        if self.double.is_finite() {
            self.compensation += compensation;
        }
        self.count += *count as u64;
        if let Some(decimal) = decimal.first() {
            let Some(Number::Decimal(decimal)) = Number::from_bson(decimal) else { return Err(damaged()) };
            self.decimal = Some(self.decimal.unwrap_or(Decimal::ZERO).add(decimal));
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// `$avg`: null where there was no number.
#[derive(Clone, Debug, Default)]
pub struct Average(Sum);

impl Accumulator for Average {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        self.0.accumulate(value)
    }

    fn finish(self: Box<Self>) -> Bson {
        let sum = &self.0;
        if sum.count == 0 {
            return Bson::Null;
        }
        if sum.width == Width::Decimal {
            let count = Decimal::from(i64::try_from(sum.count).unwrap_or(i64::MAX));
            return Number::Decimal(sum.as_decimal().divide(count)).to_bson();
        }
        Bson::Double(sum.as_double() / sum.count as f64)
    }

    fn state(self: Box<Self>) -> Bson {
        Box::new(self.0).state()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        self.0.merge(state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}
