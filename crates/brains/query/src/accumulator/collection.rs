//! `$push`, `$addToSet`, `$first`, `$last`, `$firstN`, `$lastN`, `$minN`, `$maxN`, `$mergeObjects`: accumulators that
//! hold values.

use super::{Accumulator, merge_values};
use crate::expression::value::{self, Ordered, Value};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document};
use std::collections::{BTreeSet, VecDeque};

fn too_much(name: &str, memory_bytes_max: usize) -> Error {
    Error::new(
        ErrorCode::ExceededMemoryLimit,
        format!("{name} used too much memory and cannot spill to disk. Memory limit: {memory_bytes_max} bytes"),
    )
}

/// `$push`: all values in order, missing ones left out.
#[derive(Clone, Debug)]
pub struct Push {
    values: Vec<Bson>,
    bytes: usize,
    bytes_max: usize,
}

impl Push {
    /// With a bound on what the values may take.
    pub fn new(bytes_max: usize) -> Self {
        Self { values: Vec::new(), bytes: 0, bytes_max }
    }
}

impl Accumulator for Push {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        self.bytes += value::size_bytes(&value);
        if self.bytes > self.bytes_max {
            return Err(too_much("$push", self.bytes_max));
        }
        self.values.push(value);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        Bson::Array(self.values)
    }

    fn state(self: Box<Self>) -> Bson {
        self.finish()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// `$addToSet`: each value once, in MongoDB's order; missing ones left out.
#[derive(Clone, Debug)]
pub struct AddToSet {
    values: BTreeSet<Ordered<Bson>>,
    bytes: usize,
    bytes_max: usize,
}

impl AddToSet {
    /// With a bound on what the values may take.
    pub fn new(bytes_max: usize) -> Self {
        Self { values: BTreeSet::new(), bytes: 0, bytes_max }
    }
}

impl Accumulator for AddToSet {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let bytes = value::size_bytes(&value);
        if self.values.insert(Ordered(value)) {
            self.bytes += bytes;
        }
        if self.bytes > self.bytes_max {
            return Err(too_much("$addToSet", self.bytes_max));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        Bson::Array(self.values.into_iter().map(|Ordered(value)| value).collect())
    }

    fn state(self: Box<Self>) -> Bson {
        self.finish()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// `$first` and `$last`: null where the value was missing.
#[derive(Clone, Debug)]
pub struct End {
    last: bool,
    value: Option<Bson>,
}

impl End {
    /// `$first`.
    pub fn first() -> Self {
        Self { last: false, value: None }
    }

    /// `$last`.
    pub fn last() -> Self {
        Self { last: true, value: None }
    }
}

impl Accumulator for End {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        if self.last || self.value.is_none() {
            self.value = Some(value.unwrap_or(Bson::Null));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        self.value.unwrap_or(Bson::Null)
    }

    fn state(self: Box<Self>) -> Bson {
        Bson::Array(self.value.into_iter().collect())
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.value.as_ref().map_or(0, value::size_bytes)
    }
}

/// `$firstN` and `$lastN`: null for missing values.
#[derive(Clone, Debug)]
pub struct Ends {
    last: bool,
    n: usize,
    values: VecDeque<Bson>,
    bytes: usize,
    bytes_max: usize,
}

impl Ends {
    /// `$firstN`.
    pub fn first(n: usize, bytes_max: usize) -> Self {
        Self { last: false, n, values: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// `$lastN`.
    pub fn last(n: usize, bytes_max: usize) -> Self {
        Self { last: true, ..Self::first(n, bytes_max) }
    }
}

impl Accumulator for Ends {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        if self.values.len() >= self.n {
            if !self.last {
                return Ok(());
            }
            if let Some(dropped) = self.values.pop_front() {
                self.bytes -= value::size_bytes(&dropped);
            }
        }
        let value = value.unwrap_or(Bson::Null);
        self.bytes += value::size_bytes(&value);
        if self.bytes > self.bytes_max {
            return Err(too_much(if self.last { "$lastN" } else { "$firstN" }, self.bytes_max));
        }
        self.values.push_back(value);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        Bson::Array(self.values.into())
    }

    fn state(self: Box<Self>) -> Bson {
        self.finish()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// `$minN` and `$maxN`: the best first; nullish values do not count.
#[derive(Clone, Debug)]
pub struct Extremes {
    greatest: bool,
    n: usize,
    /// Kept sorted, best first.
    values: Vec<Bson>,
    bytes: usize,
    bytes_max: usize,
}

impl Extremes {
    /// `$minN`.
    pub fn least(n: usize, bytes_max: usize) -> Self {
        Self { greatest: false, n, values: Vec::new(), bytes: 0, bytes_max }
    }

    /// `$maxN`.
    pub fn greatest(n: usize, bytes_max: usize) -> Self {
        Self { greatest: true, ..Self::least(n, bytes_max) }
    }
}

impl Accumulator for Extremes {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        let Some(value) = value.filter(|value| !matches!(value, Bson::Null | Bson::Undefined)) else { return Ok(()) };
        let place = self.values.partition_point(|kept| {
            let order = baton_document::order::compare_bson(kept, &value);
            if self.greatest { order.is_ge() } else { order.is_le() }
        });
        if place >= self.n {
            return Ok(());
        }
        self.bytes += value::size_bytes(&value);
        self.values.insert(place, value);
        if self.values.len() > self.n
            && let Some(dropped) = self.values.pop()
        {
            self.bytes -= value::size_bytes(&dropped);
        }
        if self.bytes > self.bytes_max {
            return Err(too_much(if self.greatest { "$maxN" } else { "$minN" }, self.bytes_max));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        Bson::Array(self.values)
    }

    fn state(self: Box<Self>) -> Bson {
        self.finish()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// `$mergeObjects`: later fields replace earlier ones; nullish values do not count.
#[derive(Clone, Debug, Default)]
pub struct MergeObjects {
    merged: Document,
    bytes: usize,
}

impl Accumulator for MergeObjects {
    fn accumulate(&mut self, value: Value) -> Result<()> {
        match value {
            Some(Bson::Document(document)) => {
                for (name, value) in document {
                    self.bytes += name.len() + value::size_bytes(&value);
                    if let Some(replaced) = self.merged.insert(name.as_str(), value) {
                        self.bytes -= name.len() + value::size_bytes(&replaced);
                    }
                }
                Ok(())
            }
            nullish if value::is_nullish(&nullish) => Ok(()),
            other => Err(Error::location(
                40400,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    value::display(&other),
                    value::type_name(&other)
                ),
            )),
        }
    }

    fn finish(self: Box<Self>) -> Bson {
        Bson::Document(self.merged)
    }

    fn state(self: Box<Self>) -> Bson {
        self.finish()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        self.accumulate(Some(state))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}
