//! `$min`, `$max`, `$stdDevPop`, `$stdDevSamp`.

use super::{Accumulator, merge_values};
use crate::expression::value::{self, Value};
use crate::spill::damaged;
use baton_document::order;
use baton_types::Result;
use bson::Bson;

/// `$min` and `$max`: nullish values do not count; null where nothing did.
#[derive(Clone, Debug)]
pub struct Extreme {
    greatest: bool,
    best: Option<Bson>,
}

impl Extreme {
    /// `$min`.
    pub fn least() -> Self {
        Self { greatest: false, best: None }
    }

    /// `$max`.
    pub fn greatest() -> Self {
        Self { greatest: true, best: None }
    }
}

impl Accumulator for Extreme {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        if value::is_nullish(&value) {
            return Ok(());
        }
        let better = match (&self.best, &value) {
            (Some(best), Some(value)) => {
                let order = order::compare_bson(value, best);
                if self.greatest { order.is_gt() } else { order.is_lt() }
            }
            _ => true,
        };
        if better {
            self.best = value;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        self.best.unwrap_or(Bson::Null)
    }

    fn state(self: Box<Self>) -> Bson {
        Bson::Array(self.best.into_iter().collect())
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.best.as_ref().map_or(0, value::size_bytes)
    }
}

/// `$stdDevPop` and `$stdDevSamp`, by Welford's method; what is no number does not count.
#[derive(Clone, Debug)]
pub struct Deviation {
    sample: bool,
    count: u64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl Deviation {
    /// `$stdDevPop`.
    pub fn of_population() -> Self {
        Self { sample: false, count: 0, mean: 0.0, squares: 0.0 }
    }

    /// `$stdDevSamp`.
    pub fn of_sample() -> Self {
        Self { sample: true, ..Self::of_population() }
    }
}

impl Accumulator for Deviation {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        let Some(number) = value::number(&value) else { return Ok(()) };
        let number = number.to_f64();
        self.count += 1;
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        let divisor = if self.sample { self.count.saturating_sub(1) } else { self.count };
        if divisor == 0 { Bson::Null } else { Bson::Double((self.squares / divisor as f64).sqrt()) }
    }

    fn state(self: Box<Self>) -> Bson {
        // A count that a double cannot hold has never been reached.
        Bson::Array(vec![Bson::Double(self.count as f64), Bson::Double(self.mean), Bson::Double(self.squares)])
    }

    /// Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    fn merge(&mut self, state: Bson) -> Result<()> {
        let Bson::Array(parts) = &state else { return Err(damaged()) };
        let [Bson::Double(count), Bson::Double(mean), Bson::Double(squares)] = parts.as_slice() else {
            return Err(damaged());
        };
        if self.count == 0 {
            (self.count, self.mean, self.squares) = (*count as u64, *mean, *squares);
        } else if *count > 0.0 {
            let own = self.count as f64;
            let (all, distance) = (own + count, mean - self.mean);
            self.squares += squares + distance * distance * own * count / all;
            self.mean += distance * count / all;
            self.count += *count as u64;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}
