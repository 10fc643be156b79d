//! Accumulators of `$group` and its kin: from many values to one.
//!
//! An [`AccumulatorSpec`] is parsed once; each group starts an [`Accumulator`] of its own, feeds it what
//! [`AccumulatorSpec::input`] yields for each document, and finishes it. Accumulators that hold values bound what they
//! hold by the request's limit and account for it in [`Accumulator::memory_bytes`].
//!
//! A group that is spilled is written as the [`Accumulator::state`]s of its fields. Taken in again by [`Accumulator::merge`],
//! in the order in which they were written, they give what the values themselves would have given; sums of doubles and
//! deviations up to rounding.
//!
//! Deliberately absent: server-side JavaScript (`$accumulator`), percentiles, and window functions.

mod collection;
mod ranked;
mod statistics;
mod sum;

#[cfg(test)]
mod tests;

pub use collection::{AddToSet, End, Ends, Extremes, MergeObjects, Push};
pub use statistics::{Deviation, Extreme};
pub use sum::{Average, Sum};

use crate::Context;
use crate::expression::value::{self, Value};
use crate::expression::{Dependencies, Expression};
use crate::spill::damaged;
use baton_types::{Error, Result};
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use ranked::{Ranked, Ranking};

/// One group's state.
pub trait Accumulator: Send {
    /// Takes in one value; `None` is a missing one.
    fn accumulate(&mut self, value: Option<Bson>) -> Result<()>;
    /// The result.
    fn finish(self: Box<Self>) -> Bson;
    /// All that it knows, as a value that [`Accumulator::merge`] takes.
    fn state(self: Box<Self>) -> Bson;
    /// Takes in what another of the same kind knew of values that come after its own.
    fn merge(&mut self, state: Bson) -> Result<()>;
    /// Roughly what the state takes, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// A parsed `{$accumulator: argument}`.
#[derive(Clone, Debug)]
pub struct AccumulatorSpec {
    kind: Kind,
    argument: Expression,
    /// How many values to keep, for those that keep N; may depend on the group.
    n: Option<Expression>,
    /// What the top and bottom ones sort by.
    ranking: Option<Ranking>,
    bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AddToSet,
    Average,
    Bottom,
    BottomN,
    Count,
    First,
    FirstN,
    Last,
    LastN,
    Max,
    MaxN,
    MergeObjects,
    Min,
    MinN,
    Push,
    DeviationOfPopulation,
    DeviationOfSample,
    Sum,
    Top,
    TopN,
}

/// What an accumulator takes as its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// An expression.
    Expression,
    /// An empty object.
    Nothing,
    /// `{input: …, n: …}`.
    InputAndN,
    /// `{output: …, sortBy: …}`.
    Ranked,
    /// `{output: …, sortBy: …, n: …}`.
    RankedN,
}

/// Every accumulator, sorted by name.
const ACCUMULATORS: &[(&str, Kind, Shape)] = &[
    ("$addToSet", Kind::AddToSet, Shape::Expression),
    ("$avg", Kind::Average, Shape::Expression),
    ("$bottom", Kind::Bottom, Shape::Ranked),
    ("$bottomN", Kind::BottomN, Shape::RankedN),
    ("$count", Kind::Count, Shape::Nothing),
    ("$first", Kind::First, Shape::Expression),
    ("$firstN", Kind::FirstN, Shape::InputAndN),
    ("$last", Kind::Last, Shape::Expression),
    ("$lastN", Kind::LastN, Shape::InputAndN),
    ("$max", Kind::Max, Shape::Expression),
    ("$maxN", Kind::MaxN, Shape::InputAndN),
    ("$mergeObjects", Kind::MergeObjects, Shape::Expression),
    ("$min", Kind::Min, Shape::Expression),
    ("$minN", Kind::MinN, Shape::InputAndN),
    ("$push", Kind::Push, Shape::Expression),
    ("$stdDevPop", Kind::DeviationOfPopulation, Shape::Expression),
    ("$stdDevSamp", Kind::DeviationOfSample, Shape::Expression),
    ("$sum", Kind::Sum, Shape::Expression),
    ("$top", Kind::Top, Shape::Ranked),
    ("$topN", Kind::TopN, Shape::RankedN),
];

/// Arguments for every accumulator over the fields `v`, `o` (an object) and `p`.
#[cfg(test)]
pub(crate) fn examples() -> impl Iterator<Item = (&'static str, Bson)> {
    ACCUMULATORS.iter().map(|(name, kind, shape)| {
        let argument = match shape {
            Shape::Expression if *kind == Kind::MergeObjects => Bson::from("$o"),
            Shape::Expression => Bson::from("$v"),
            Shape::Nothing => bson::doc! {}.into(),
            Shape::InputAndN => bson::doc! { "input": "$v", "n": 3 }.into(),
            Shape::Ranked => bson::doc! { "output": "$p", "sortBy": { "v": 1, "o.a": -1 } }.into(),
            Shape::RankedN => bson::doc! { "output": "$p", "sortBy": { "v": -1 }, "n": 3 }.into(),
        };
        (*name, argument)
    })
}

impl AccumulatorSpec {
    /// Parses the accumulator `name` (with its dollar) and its argument.
    pub fn parse(name: &str, argument: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Ok(row) = ACCUMULATORS.binary_search_by_key(&name, |(known, _, _)| known) else {
            return Err(match name {
                "$accumulator" => Error::not_implemented("$accumulator (server-side JavaScript)"),
                "$median" | "$percentile" => Error::not_implemented(format!("{name} (approximate percentiles)")),
                _ => Error::location(15952, format!("unknown group operator '{name}'")),
            });
        };
        let (_, kind, shape) = ACCUMULATORS[row];
        let mut spec = Self {
            kind,
            argument: Expression::constant(Bson::Null),
            n: None,
            ranking: None,
            bytes_max: ctx.accumulator_bytes_max,
        };
        match shape {
            Shape::Expression => {
                if matches!(argument, RawBsonRef::Array(_)) {
                    return Err(Error::location(40237, format!("The {name} accumulator is a unary operator")));
                }
                spec.argument = Expression::parse(argument, ctx)?;
            }
            Shape::Nothing => {
                if !matches!(argument, RawBsonRef::Document(document) if document.is_empty()) {
                    return Err(Error::type_mismatch("$count takes no arguments, i.e. $count:{}"));
                }
            }
            Shape::InputAndN => spec.parse_input_and_n(name, argument, ctx)?,
            Shape::Ranked => spec.parse_ranked(name, argument, ctx, false)?,
            Shape::RankedN => spec.parse_ranked(name, argument, ctx, true)?,
        }
        Ok(spec)
    }

    fn parse_input_and_n(&mut self, name: &str, argument: RawBsonRef<'_>, ctx: &Context) -> Result<()> {
        let RawBsonRef::Document(document) = argument else {
            return Err(Error::location(
                5_787_900,
                format!("specification must be an object; found {name}: {}", value::raw_type_name(argument)),
            ));
        };
        let mut input = None;
        for element in document {
            let (key, inner) = element?;
            match key.as_str() {
                "input" => input = Some(Expression::parse(inner, ctx)?),
                "n" => self.n = Some(parse_n(inner, ctx)?),
                other => {
                    return Err(Error::location(5_787_901, format!("Unknown argument for 'n' operator: {other}")));
                }
            }
        }
        if self.n.is_none() {
            return Err(Error::location(5_787_906, "Missing value for 'n'"));
        }
        self.argument = input.ok_or_else(|| Error::location(5_787_907, "Missing value for 'input'"))?;
        Ok(())
    }

    fn parse_ranked(&mut self, name: &str, argument: RawBsonRef<'_>, ctx: &Context, takes_n: bool) -> Result<()> {
        let RawBsonRef::Document(document) = argument else {
            return Err(Error::location(
                5_788_001,
                format!("specification must be an object; found {name}: {}", value::raw_type_name(argument)),
            ));
        };
        let mut output = None;
        for element in document {
            let (key, inner) = element?;
            match (key.as_str(), inner) {
                ("output", inner) => output = Some(Expression::parse(inner, ctx)?),
                ("sortBy", RawBsonRef::Document(pattern)) => self.ranking = Some(Ranking::parse(pattern)?),
                ("sortBy", other) => {
                    return Err(Error::location(
                        5_788_604,
                        format!(
                            "expected 'sortBy' to already be an object in the arguments to {name}, found {}",
                            value::raw_type_name(other)
                        ),
                    ));
                }
                ("n", inner) if takes_n => self.n = Some(parse_n(inner, ctx)?),
                (other, _) => {
                    return Err(Error::location(5_788_002, format!("Unknown argument to {name} '{other}'")));
                }
            }
        }
        let missing = |code, what| Error::location(code, format!("Missing value for '{what}'"));
        if takes_n && self.n.is_none() {
            return Err(missing(5_788_003, "n"));
        }
        if self.ranking.is_none() {
            return Err(missing(5_788_005, "sortBy"));
        }
        self.argument = output.ok_or_else(|| missing(5_788_004, "output"))?;
        Ok(())
    }

    /// What a document contributes: to be given to [`Accumulator::accumulate`].
    pub fn input(&self, doc: &RawDocument, ctx: &Context) -> Result<Option<Bson>> {
        let value = self.argument.evaluate(doc, ctx)?;
        match &self.ranking {
            None => Ok(value),
            Some(ranking) => ranking.input(doc, value),
        }
    }

    /// The fields that [`AccumulatorSpec::input`] reads.
    pub fn dependencies(&self) -> Dependencies {
        let mut dependencies = self.argument.dependencies();
        if let Some(ranking) = &self.ranking {
            ranking.add_dependencies(&mut dependencies);
        }
        dependencies
    }

    /// The state of a new group. `group` is its key, `_id`: how many values to keep may depend on that.
    pub fn start(&self, group: &Bson, ctx: &Context) -> Result<Box<dyn Accumulator>> {
        let bytes_max = self.bytes_max;
        Ok(match self.kind {
            Kind::AddToSet => Box::new(AddToSet::new(bytes_max)),
            Kind::Average => Box::new(Average::default()),
            Kind::Bottom => Box::new(Ranked::new(self.ranking()?, true, None, bytes_max)),
            Kind::BottomN => Box::new(Ranked::new(self.ranking()?, true, Some(self.n(group, ctx)?), bytes_max)),
            Kind::Count => Box::new(Count::default()),
            Kind::First => Box::new(End::first()),
            Kind::FirstN => Box::new(Ends::first(self.n(group, ctx)?, bytes_max)),
            Kind::Last => Box::new(End::last()),
            Kind::LastN => Box::new(Ends::last(self.n(group, ctx)?, bytes_max)),
            Kind::Max => Box::new(Extreme::greatest()),
            Kind::MaxN => Box::new(Extremes::greatest(self.n(group, ctx)?, bytes_max)),
            Kind::MergeObjects => Box::new(MergeObjects::default()),
            Kind::Min => Box::new(Extreme::least()),
            Kind::MinN => Box::new(Extremes::least(self.n(group, ctx)?, bytes_max)),
            Kind::Push => Box::new(Push::new(bytes_max)),
            Kind::DeviationOfPopulation => Box::new(Deviation::of_population()),
            Kind::DeviationOfSample => Box::new(Deviation::of_sample()),
            Kind::Sum => Box::new(Sum::default()),
            Kind::Top => Box::new(Ranked::new(self.ranking()?, false, None, bytes_max)),
            Kind::TopN => Box::new(Ranked::new(self.ranking()?, false, Some(self.n(group, ctx)?), bytes_max)),
        })
    }

    fn ranking(&self) -> Result<Ranking> {
        self.ranking.clone().ok_or_else(|| Error::location(5_788_005, "Missing value for 'sortBy'"))
    }

    fn n(&self, group: &Bson, ctx: &Context) -> Result<usize> {
        let Some(n) = &self.n else { return Err(Error::location(5_787_906, "Missing value for 'n'")) };
        if let Some(constant) = n.as_constant() {
            return check_n(&constant.cloned());
        }
        // The group's key stands where a document's fields do.
        let key = match group {
            Bson::Document(document) => RawDocumentBuf::try_from(document)?,
            _ => RawDocumentBuf::new(),
        };
        check_n(&n.evaluate(&key, ctx)?)
    }
}

fn parse_n(raw: RawBsonRef<'_>, ctx: &Context) -> Result<Expression> {
    let n = Expression::parse(raw, ctx)?;
    if let Some(constant) = n.as_constant() {
        check_n(&constant.cloned())?;
    }
    Ok(n)
}

/// Takes in the values of a state that is a list of them.
fn merge_values(into: &mut dyn Accumulator, state: Bson) -> Result<()> {
    let Bson::Array(values) = state else { return Err(damaged()) };
    values.into_iter().try_for_each(|value| into.accumulate(Some(value)))
}

/// How many values to keep: a positive whole number.
pub(crate) fn check_n(value: &Value) -> Result<usize> {
    if !value::is_number(value) {
        return Err(Error::location(
            5_787_902,
            format!("Value for 'n' must be of integral type, but found {}", value::display(value)),
        ));
    }
    let Some(n) = value::long_exact(value) else {
        return Err(Error::location(
            5_787_903,
            format!("Value for 'n' must be of integral type, but found {}", value::display(value)),
        ));
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(Error::location(5_787_908, format!("'n' must be greater than 0, found {n}"))),
    }
}

/// `$count`: whatever the values are.
#[derive(Clone, Debug, Default)]
struct Count(i64);

impl Accumulator for Count {
    fn accumulate(&mut self, _: Option<Bson>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Bson {
        value::narrow(self.0)
    }

    fn state(self: Box<Self>) -> Bson {
        Bson::Int64(self.0)
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        let Bson::Int64(count) = state else { return Err(damaged()) };
        self.0 += count;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}
