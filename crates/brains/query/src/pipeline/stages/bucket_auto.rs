//! `$bucketAuto`: groups documents into a given number of intervals of about as many documents each.
//!
//! Source: MongoDB manual, "$bucketAuto (aggregation)". Blocking: all documents are sorted by the value first, within
//! the request's memory bound, and beyond it on the disk. Equal values never fall into different buckets.

use super::accumulated::{AccumulatedField, Accumulators};
use super::bucket::is_path_or_expression;
use super::granularity::Granularity;
use crate::Context;
use crate::expression::{Dependencies, Expression};
use crate::pipeline::field::raw_value;
use crate::pipeline::stage::{Flow, Stage};
use crate::show;
use crate::sort::{Sorted, Sorter};
use crate::spill::{SpillKind, Spillable, Spilled, damaged};
use baton_document::Number;
use baton_document::keys::{self, Direction};
use baton_document::order;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, rawdoc};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// The arguments of `$bucketAuto`.
#[derive(Clone, Debug)]
pub struct BucketAutoSpec {
    group_by: Expression,
    buckets: usize,
    fields: Vec<AccumulatedField>,
    granularity: Option<Granularity>,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
}

impl BucketAutoSpec {
    /// Parses the argument: 40239 to 40246, 40257, 40261.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!(
                "The argument to $bucketAuto must be an object, but found type: {}.",
                type_name(value.element_type())
            );
            return Err(Error::location(40240, message));
        };
        let mut group_by = None;
        let mut buckets = None;
        let mut fields = None;
        let mut granularity = None;
        for element in spec.iter() {
            let (name, value) = element?;
            match name.as_str() {
                "groupBy" => group_by = Some(group_by_argument(value, ctx)?),
                "buckets" => buckets = Some(buckets_argument(value)?),
                "output" => fields = Some(output_argument(value, ctx)?),
                "granularity" => {
                    let Some(name) = value.as_str() else {
                        let message = format!(
                            "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
                            type_name(value.element_type())
                        );
                        return Err(Error::location(40261, message));
                    };
                    granularity = Some(Granularity::parse(name)?);
                }
                other => return Err(Error::location(40245, format!("Unrecognized option to $bucketAuto: {other}."))),
            }
        }
        let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
            let message = "$bucketAuto requires 'groupBy' and 'buckets' to be specified.";
            return Err(Error::location(40246, message));
        };
        let fields = match fields {
            Some(fields) => fields,
            None => vec![AccumulatedField::parse("count", (&*rawdoc! { "$sum": 1 }).into(), ctx)?],
        };
        Ok(Self { group_by, buckets, fields, granularity, spec: spec.to_owned() })
    }

    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) {
        into.merge(self.group_by.dependencies());
        self.fields.iter().for_each(|field| field.collect_dependencies(into));
    }

    pub(crate) fn start(self: &Arc<Self>, ctx: &Arc<Context>) -> BucketAutoStage {
        BucketAutoStage {
            spec: Arc::clone(self),
            ctx: Arc::clone(ctx),
            sorter: Some(Sorter::new(None, ctx.stage_room(SpillKind::BucketAuto))),
            spilled: Spilled::default(),
        }
    }
}

fn group_by_argument(value: RawBsonRef<'_>, ctx: &Context) -> Result<Expression> {
    if is_path_or_expression(value)? {
        return Expression::parse(value, ctx);
    }
    let message = format!(
        "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, but found: {}",
        show::value(value)
    );
    Err(Error::location(40239, message))
}

fn buckets_argument(value: RawBsonRef<'_>) -> Result<usize> {
    let Some(number) = Number::from_raw(value) else {
        let message = format!(
            "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
            type_name(value.element_type())
        );
        return Err(Error::location(40241, message));
    };
    let Some(number) = number.to_i32_exact() else {
        let message = format!(
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}.",
            show::value(value)
        );
        return Err(Error::location(40242, message));
    };
    usize::try_from(number).ok().filter(|count| *count > 0).ok_or_else(|| {
        let message = format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {number}.");
        Error::location(40243, message)
    })
}

fn output_argument(value: RawBsonRef<'_>, ctx: &Context) -> Result<Vec<AccumulatedField>> {
    let Some(output) = value.as_document() else {
        let message = format!(
            "The $bucketAuto 'output' field must be an object, but found type: {}.",
            type_name(value.element_type())
        );
        return Err(Error::location(40244, message));
    };
    output
        .iter()
        .map(|element| {
            let (name, value) = element?;
            AccumulatedField::parse(name.as_str(), value, ctx)
        })
        .collect()
}

/// A value and the document it was computed from.
struct Valued {
    value: RawBson,
    doc: RawDocumentBuf,
}

/// A document that holds the value, and then the document.
impl Spillable for Valued {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(rawdoc! { "": self.value.clone() }.as_bytes());
        self.doc.put(out);
    }

    fn take(bytes: &[u8]) -> Result<Self> {
        let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        let (value, doc) = bytes.split_at_checked(length).ok_or_else(damaged)?;
        let value = RawDocument::from_bytes(value)?.get("")?.ok_or_else(damaged)?;
        Ok(Self { value: value.into(), doc: Spillable::take(doc)? })
    }
}

/// `$bucketAuto` at work.
pub(crate) struct BucketAutoStage {
    spec: Arc<BucketAutoSpec>,
    ctx: Arc<Context>,
    /// `None` once the buckets have been made.
    sorter: Option<Sorter<Valued>>,
    spilled: Spilled,
}

impl Stage for BucketAutoStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let Some(sorter) = &mut self.sorter else { return Ok(Flow::Done) };
        let value = self.spec.group_by.evaluate(&doc, &self.ctx)?.unwrap_or(Bson::Null);
        let value = raw_value(value)?;
        if self.spec.granularity.is_some() {
            check_roundable(value.as_raw_bson_ref())?;
        }
        let mut key = Vec::new();
        keys::encode(&mut key, value.as_raw_bson_ref(), Direction::Ascending);
        let bytes = doc.as_bytes().len() + key.len();
        sorter.push(key, Valued { value, doc }, bytes)?;
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let Some(sorter) = self.sorter.take() else { return Ok(Flow::Done) };
        let size = approximate_size(sorter.len(), self.spec.buckets);
        let mut values = sorter.into_sorted()?;
        self.spilled = values.spilled();
        let mut previous_max = None;
        for number in 1..=self.spec.buckets {
            let is_last = number == self.spec.buckets;
            let Some(bucket) = self.next_bucket(&mut values, if is_last { usize::MAX } else { size }, &previous_max)?
            else {
                break;
            };
            previous_max = Some(bucket.max.clone());
            let mut doc = RawDocumentBuf::new();
            let mut id = RawDocumentBuf::new();
            id.append(cstr!("min"), bucket.min);
            id.append(cstr!("max"), bucket.max);
            doc.append(cstr!("_id"), id);
            bucket.accumulators.finish(&self.spec.fields, &mut doc)?;
            out.push_back(doc);
        }
        Ok(Flow::Done)
    }

    fn figures(&self) -> RawDocumentBuf {
        let mut figures = RawDocumentBuf::new();
        self.spilled.append_to(&mut figures);
        figures
    }

    fn memory_bytes(&self) -> usize {
        self.sorter.as_ref().map_or(0, Sorter::memory_bytes)
    }
}

struct Bucket {
    min: RawBson,
    max: RawBson,
    accumulators: Accumulators,
}

impl BucketAutoStage {
    /// Fills a bucket with `size` documents and those that must not be parted from them.
    fn next_bucket(
        &self,
        values: &mut Sorted<Valued>,
        size: usize,
        previous_max: &Option<RawBson>,
    ) -> Result<Option<Bucket>> {
        let Some((_, Valued { value: first, doc })) = values.pop()? else { return Ok(None) };
        // No key stands for a whole bucket: accumulators that start from one see null.
        let accumulators = Accumulators::start(&self.spec.fields, &Bson::Null, &self.ctx)?;
        let mut bucket = Bucket { min: first.clone(), max: first, accumulators };
        if let Some(granularity) = self.spec.granularity {
            bucket.min = match previous_max {
                Some(max) => max.clone(),
                None => RawBson::Double(granularity.round_down(double(&bucket.min))),
            };
        }
        self.take(&mut bucket, &doc)?;
        for _ in 1..size {
            let Some((_, Valued { value, doc })) = values.pop()? else { break };
            bucket.max = value;
            self.take(&mut bucket, &doc)?;
        }
        self.close(&mut bucket, values)?;
        Ok(Some(bucket))
    }

    fn take(&self, bucket: &mut Bucket, doc: &RawDocumentBuf) -> Result<()> {
        bucket.accumulators.accumulate(&self.spec.fields, doc, &self.ctx)
    }

    /// Draws the upper boundary: after everything equal to the last value, rounded where that is asked for.
    fn close(&self, bucket: &mut Bucket, values: &mut Sorted<Valued>) -> Result<()> {
        let boundary = self.spec.granularity.map(|g| RawBson::Double(g.round_up(double(&bucket.max))));
        while let Some((_, Valued { doc, .. })) = values.pop_if(|Valued { value, .. }| {
            let is_below = boundary.as_ref().is_some_and(|boundary| compare(boundary, value) == Ordering::Greater);
            is_below || compare(&bucket.max, value) == Ordering::Equal
        })? {
            self.take(bucket, &doc)?;
        }
        match (boundary, self.spec.granularity, values.peek()?) {
            (Some(RawBson::Double(0.0)), Some(granularity), Some(Valued { value: next, .. })) => {
                // All values so far are zero, which rounds to itself: end before the next value instead.
                bucket.max = RawBson::Double(granularity.round_down(double(next)));
            }
            (Some(boundary), _, _) => bucket.max = boundary,
            (None, _, Some(Valued { value: next, .. })) => bucket.max = next.clone(),
            (None, _, None) => {}
        }
        Ok(())
    }
}

fn approximate_size(documents: usize, buckets: usize) -> usize {
    // Rounded to the nearest, halves up.
    ((documents + buckets / 2) / buckets).max(1)
}

fn compare(a: &RawBson, b: &RawBson) -> Ordering {
    order::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref())
}

fn double(value: &RawBson) -> f64 {
    Number::from_raw(value.as_raw_bson_ref()).map_or(0.0, Number::to_f64)
}

/// Only numbers from zero up can be rounded: 40258 to 40260.
fn check_roundable(value: RawBsonRef<'_>) -> Result<()> {
    let Some(number) = Number::from_raw(value) else {
        let message = format!(
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {}",
            type_name(value.element_type())
        );
        return Err(Error::location(40258, message));
    };
    if number.is_nan() {
        let message = "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN";
        return Err(Error::location(40259, message));
    }
    if number.is_negative() && !number.is_zero() {
        let message =
            "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number";
        return Err(Error::location(40260, message));
    }
    Ok(())
}
