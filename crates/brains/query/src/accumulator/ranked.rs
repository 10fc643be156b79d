//! `$top`, `$topN`, `$bottom`, `$bottomN`: the outputs of the first or last documents by a sort of their own.
//!
//! A document contributes its sort key and its output together, as `{k: [key, …], v: output}`, so that a spilled or
//! forwarded contribution is one value. Sorting is as `$sort` does it: an array counts by its least element in an
//! ascending sort and by its greatest in a descending one, and what is missing counts as null.

use super::{Accumulator, merge_values};
use crate::expression::Dependencies;
use crate::expression::value::{self, Value};
use baton_document::number::Number;
use baton_document::order;
use baton_document::path::{self, LeafArrays, Path};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document, RawBsonRef, RawDocument};
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What to sort by: paths, each with whether it descends.
#[derive(Clone, Debug)]
pub(super) struct Ranking(Arc<[(Path, bool)]>);

impl Ranking {
    /// Parses `{path: 1 | -1, …}`.
    pub fn parse(pattern: &RawDocument) -> Result<Self> {
        let mut fields = Vec::new();
        for element in pattern {
            let (path, direction) = element?;
            if matches!(direction, RawBsonRef::Document(_)) {
                return Err(Error::not_implemented("sorting by $meta"));
            }
            let descending = match Number::from_raw(direction).and_then(Number::to_i64_exact) {
                Some(1) => false,
                Some(-1) => true,
                Some(_) => {
                    return Err(Error::location(
                        15975,
                        "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                    ));
                }
                None => {
                    return Err(Error::location(
                        15974,
                        format!("Illegal key in $sort specification: {path}: {}", value::raw_type_name(direction)),
                    ));
                }
            };
            crate::expression::check_path(path.as_str())?;
            fields.push((Path::parse(path.as_str()), descending));
        }
        if fields.is_empty() {
            return Err(Error::location(15976, "$sort stage must have at least one sort key"));
        }
        Ok(Self(fields.into()))
    }

    /// The sort key of `doc` with its output.
    pub fn input(&self, doc: &RawDocument, output: Value) -> Result<Value> {
        let mut keys = Vec::with_capacity(self.0.len());
        for (path, descending) in self.0.iter() {
            keys.push(sort_key(doc, path, *descending)?);
        }
        Ok(Some(contribution(keys, output.unwrap_or(Bson::Null))))
    }

    /// Adds the paths.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        dependencies.fields.extend(self.0.iter().map(|(path, _)| path.as_str().to_owned()));
    }

    fn compare(&self, a: &[Bson], b: &[Bson]) -> Ordering {
        self.0
            .iter()
            .zip(a.iter().zip(b))
            .map(|((_, descending), (a, b))| {
                let order = order::compare_bson(a, b);
                if *descending { order.reverse() } else { order }
            })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

fn contribution(key: Vec<Bson>, output: Bson) -> Bson {
    let mut contribution = Document::new();
    contribution.insert("k", Bson::Array(key));
    contribution.insert("v", output);
    Bson::Document(contribution)
}

/// The least (or, descending, greatest) value at the path.
fn sort_key(doc: &RawDocument, path: &Path, descending: bool) -> Result<Bson> {
    let mut best: Option<RawBsonRef<'_>> = None;
    let mut failed = None;
    let _ = path::visit_with(doc.into(), path, LeafArrays::Keep, &mut |found| {
        let mut offer = |candidate| {
            let better = best.is_none_or(|best| {
                let order = order::compare(candidate, best);
                if descending { order.is_gt() } else { order.is_lt() }
            });
            if better {
                best = Some(candidate);
            }
        };
        match found.value {
            Some(RawBsonRef::Array(array)) if !array.is_empty() => {
                for element in array {
                    match element {
                        Ok(element) => offer(element),
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    }
                }
            }
            // An empty array sorts below null.
            Some(RawBsonRef::Array(_)) => offer(RawBsonRef::Undefined),
            Some(value) => offer(value),
            None => offer(RawBsonRef::Null),
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(best.map(Bson::try_from).transpose()?.unwrap_or(Bson::Null)),
    }
}

/// The state of any of the four.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    ranking: Ranking,
    /// Keeps the last instead of the first.
    bottom: bool,
    /// How many to keep; `None` for the one that is not put into an array.
    n: Option<usize>,
    /// Keys and outputs, sorted; of equals the earlier ones first.
    kept: Vec<(Vec<Bson>, Bson)>,
    bytes: usize,
    bytes_max: usize,
}

impl Ranked {
    pub fn new(ranking: Ranking, bottom: bool, n: Option<usize>, bytes_max: usize) -> Self {
        Self { ranking, bottom, n, kept: Vec::new(), bytes: 0, bytes_max }
    }
}

fn entry_bytes(entry: &(Vec<Bson>, Bson)) -> usize {
    entry.0.iter().map(value::size_bytes).sum::<usize>() + value::size_bytes(&entry.1)
}

impl Accumulator for Ranked {
    fn accumulate(&mut self, value: Option<Bson>) -> Result<()> {
        let Some(Bson::Document(mut contribution)) = value else { return Ok(()) };
        let Some(Bson::Array(key)) = contribution.remove("k") else { return Ok(()) };
        let output = contribution.remove("v").unwrap_or(Bson::Null);
        let keep = self.n.unwrap_or(1);
        let place = self.kept.partition_point(|(kept, _)| self.ranking.compare(kept, &key).is_le());
        if self.kept.len() >= keep && (if self.bottom { place == 0 } else { place == keep }) {
            return Ok(());
        }
        let entry = (key, output);
        self.bytes += entry_bytes(&entry);
        self.kept.insert(place, entry);
        if self.kept.len() > keep {
            let dropped = self.kept.remove(if self.bottom { 0 } else { keep });
            self.bytes -= entry_bytes(&dropped);
        }
        if self.bytes > self.bytes_max {
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "the top or bottom documents used too much memory and cannot spill to disk. Memory limit: {} bytes",
                    self.bytes_max
                ),
            ));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Bson {
        match self.n {
            Some(_) => Bson::Array(self.kept.into_iter().map(|(_, output)| output).collect()),
            None => self.kept.pop().map_or(Bson::Null, |(_, output)| output),
        }
    }

    fn state(self: Box<Self>) -> Bson {
        Bson::Array(self.kept.into_iter().map(|(key, output)| contribution(key, output)).collect())
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        merge_values(self, state)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}
