//! `$bucket`: groups documents by which of the given intervals a value falls into. Short for `$group` by a `$switch`,
//! and `$sort`.
//!
//! Source: MongoDB manual, "$bucket (aggregation)".

use super::group::GroupSpec;
use super::sort::SortSpec;
use crate::Context;
use crate::expression::Expression;
use crate::pipeline::StageSpec;
use crate::pipeline::field::{cstring, first_name, raw_value};
use crate::show;
use baton_document::order;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf, cstr};
use bson::rawdoc;
use std::cmp::Ordering;
use std::sync::Arc;

/// The arguments, as they are read.
#[derive(Default)]
struct Arguments<'v> {
    group_by: Option<RawBsonRef<'v>>,
    boundaries: Vec<RawBson>,
    default: Option<RawBson>,
    output: Option<RawBsonRef<'v>>,
}

/// Parses the argument into the two stages: 40191 to 40202.
pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context, out: &mut Vec<StageSpec>) -> Result<()> {
    let arguments = read(value, ctx)?;
    let Some(group_by) = arguments.group_by.filter(|_| !arguments.boundaries.is_empty()) else {
        return Err(Error::location(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified."));
    };
    check_default(&arguments)?;

    let mut group = RawDocumentBuf::new();
    group.append(cstr!("_id"), interval_of(group_by, &arguments)?);
    match arguments.output {
        Some(RawBsonRef::Document(output)) => {
            for element in output.iter() {
                let (name, value) = element?;
                group.append(name, value);
            }
        }
        Some(other) => {
            let message = format!(
                "The $bucket 'output' field must be an object, but found type: {}.",
                type_name(other.element_type())
            );
            return Err(Error::location(40196, message));
        }
        None => group.append(cstr!("count"), rawdoc! { "$sum": 1 }),
    }
    out.push(StageSpec::Group(Arc::new(GroupSpec::parse((&*group).into(), ctx)?)));
    out.push(StageSpec::Sort(SortSpec::by(&rawdoc! { "_id": 1 })?));
    Ok(())
}

fn read<'v>(value: RawBsonRef<'v>, ctx: &Context) -> Result<Arguments<'v>> {
    let Some(spec) = value.as_document() else {
        let message = format!(
            "Argument to $bucket stage must be an object, but found type: {}.",
            type_name(value.element_type())
        );
        return Err(Error::location(40201, message));
    };
    let mut arguments = Arguments::default();
    for element in spec.iter() {
        let (name, value) = element?;
        match name.as_str() {
            "groupBy" => {
                if !is_path_or_expression(value)? {
                    let message = format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but \
                         found: {}.",
                        show::value(value)
                    );
                    return Err(Error::location(40202, message));
                }
                arguments.group_by = Some(value);
            }
            "boundaries" => arguments.boundaries = boundaries(value, ctx)?,
            "default" => {
                let not_constant = || {
                    let message = format!(
                        "The $bucket 'default' field must be a constant expression, but found: {}.",
                        show::value(value)
                    );
                    Error::location(40195, message)
                };
                arguments.default = Some(constant(value, ctx)?.ok_or_else(not_constant)?);
            }
            "output" => arguments.output = Some(value),
            other => return Err(Error::location(40197, format!("Unrecognized option to $bucket: {other}."))),
        }
    }
    Ok(arguments)
}

/// Whether `value` is what `groupBy` may be.
pub(super) fn is_path_or_expression(value: RawBsonRef<'_>) -> Result<bool> {
    Ok(match value {
        RawBsonRef::String(path) => path.len() > 1 && path.starts_with('$'),
        RawBsonRef::Document(doc) => first_name(doc)?.is_some_and(|name| name.starts_with('$')),
        _ => false,
    })
}

/// The value of an expression that needs no document.
fn constant(value: RawBsonRef<'_>, ctx: &Context) -> Result<Option<RawBson>> {
    let expression = Expression::parse(value, ctx)?;
    match expression.as_constant() {
        Some(Some(value)) => Ok(Some(raw_value(value.clone())?)),
        Some(None) | None => Ok(None),
    }
}

fn boundaries(value: RawBsonRef<'_>, ctx: &Context) -> Result<Vec<RawBson>> {
    let Some(array) = value.as_array() else {
        let message = format!(
            "The $bucket 'boundaries' field must be an array, but found type: {}.",
            type_name(value.element_type())
        );
        return Err(Error::location(40200, message));
    };
    let mut values: Vec<RawBson> = Vec::new();
    for element in array {
        let element = element?;
        let Some(value) = constant(element, ctx)? else {
            let message = format!(
                "The $bucket 'boundaries' field must be an array of constant values, but found value: {}.",
                show::value(element)
            );
            return Err(Error::location(40191, message));
        };
        values.push(value);
    }
    if values.len() < 2 {
        let message =
            format!("The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).", values.len());
        return Err(Error::location(40192, message));
    }
    for (i, pair) in values.windows(2).enumerate() {
        check_ascending(i, pair[0].as_raw_bson_ref(), pair[1].as_raw_bson_ref())?;
    }
    Ok(values)
}

fn check_ascending(i: usize, lower: RawBsonRef<'_>, upper: RawBsonRef<'_>) -> Result<()> {
    if order::canonical_type(lower.element_type()) != order::canonical_type(upper.element_type()) {
        let message = format!(
            "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types \
             {} and {}.",
            type_name(lower.element_type()),
            type_name(upper.element_type())
        );
        return Err(Error::location(40193, message));
    }
    if order::compare(lower, upper) != Ordering::Less {
        let message = format!(
            "The 'boundaries' option to $bucket must be sorted, but elements {i} and {} are not in ascending order \
             ({} is not less than {}).",
            i + 1,
            show::value(lower),
            show::value(upper)
        );
        return Err(Error::location(40194, message));
    }
    Ok(())
}

fn check_default(arguments: &Arguments<'_>) -> Result<()> {
    let (Some(default), Some(lowest), Some(highest)) =
        (&arguments.default, arguments.boundaries.first(), arguments.boundaries.last())
    else {
        return Ok(());
    };
    let (default, lowest, highest) = (default.as_raw_bson_ref(), lowest.as_raw_bson_ref(), highest.as_raw_bson_ref());
    let same_type = order::canonical_type(default.element_type()) == order::canonical_type(lowest.element_type());
    let inside =
        order::compare(default, lowest) != Ordering::Less && order::compare(default, highest) == Ordering::Less;
    if same_type && inside {
        let message = "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to \
                       the highest boundary.";
        return Err(Error::location(40199, message));
    }
    Ok(())
}

/// `{$switch: …}` that yields the lower boundary of the interval `group_by` falls into.
fn interval_of(group_by: RawBsonRef<'_>, arguments: &Arguments<'_>) -> Result<RawDocumentBuf> {
    let mut branches = RawArrayBuf::new();
    for pair in arguments.boundaries.windows(2) {
        let mut both = RawArrayBuf::new();
        both.push(comparison("$gte", group_by, &pair[0])?);
        both.push(comparison("$lt", group_by, &pair[1])?);
        branches.push(rawdoc! { "case": { "$and": both }, "then": literal(&pair[0]) });
    }
    let mut switch = RawDocumentBuf::new();
    switch.append(cstr!("branches"), branches);
    if let Some(default) = &arguments.default {
        switch.append(cstr!("default"), literal(default));
    }
    Ok(rawdoc! { "$switch": switch })
}

fn comparison(operator: &str, group_by: RawBsonRef<'_>, boundary: &RawBson) -> Result<RawDocumentBuf> {
    let mut operands = RawArrayBuf::new();
    operands.push(group_by);
    operands.push(literal(boundary));
    let mut doc = RawDocumentBuf::new();
    doc.append(cstring(operator)?, operands);
    Ok(doc)
}

/// A boundary as an expression that yields it whatever it looks like.
fn literal(value: &RawBson) -> RawDocumentBuf {
    rawdoc! { "$literal": value.clone() }
}
