//! What is told of a single condition: the rule, the reason, and the values it was tested on.
//!
//! Invariant: reasons are MongoDB's, word for word; [`WORDING`] has a row for each operator.

use super::{CONSIDERED_VALUES_MAX, Considered, Teller, consider_types, described};
use crate::Context;
use crate::expression::Expression;
use crate::matcher::Matcher;
use crate::raw;
use baton_document::path::{self, LeafArrays, Path};
use baton_document::type_name;
use baton_types::Result;
use bson::spec::ElementType;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use std::ops::ControlFlow;

/// A condition on a path, or on the document (`$expr`).
pub(super) struct Leaf<'v> {
    operator: &'v str,
    path: &'v str,
    argument: RawBsonRef<'v>,
    /// The condition alone, as the client wrote it.
    rule: RawDocumentBuf,
    matcher: Matcher,
    ctx: Context,
}

/// What an operator says, and what it looks at.
struct Wording {
    operator: &'static str,
    failed: &'static str,
    succeeded: &'static str,
    /// Types that it is about, by name; none if it is about all.
    expected: &'static [ElementType],
    arrays: LeafArrays,
}

const NUMBERS: [ElementType; 4] =
    [ElementType::Decimal128, ElementType::Double, ElementType::Int32, ElementType::Int64];
const BITS: [ElementType; 5] =
    [ElementType::Binary, ElementType::Decimal128, ElementType::Double, ElementType::Int32, ElementType::Int64];
const TEXTS: [ElementType; 3] = [ElementType::RegularExpression, ElementType::String, ElementType::Symbol];

const fn wording(
    operator: &'static str,
    failed: &'static str,
    succeeded: &'static str,
    expected: &'static [ElementType],
    arrays: LeafArrays,
) -> Wording {
    Wording { operator, failed, succeeded, expected, arrays }
}

const fn comparison(operator: &'static str) -> Wording {
    wording(operator, "comparison failed", "comparison succeeded", &[], LeafArrays::ElementsOnly)
}

const fn bits(operator: &'static str) -> Wording {
    let (failed, succeeded) = ("bitwise operator failed to match", "bitwise operator matched successfully");
    wording(operator, failed, succeeded, &BITS, LeafArrays::ElementsOnly)
}

const fn membership(operator: &'static str) -> Wording {
    let (failed, succeeded) = ("no matching value found in array", "matching value found in array");
    wording(operator, failed, succeeded, &[], LeafArrays::ElementsOnly)
}

/// Each operator's words.
static WORDING: [Wording; 19] = [
    comparison("$eq"),
    comparison("$ne"),
    comparison("$lt"),
    comparison("$lte"),
    comparison("$gt"),
    comparison("$gte"),
    membership("$in"),
    membership("$nin"),
    bits("$bitsAllClear"),
    bits("$bitsAllSet"),
    bits("$bitsAnyClear"),
    bits("$bitsAnySet"),
    wording("$exists", "path does not exist", "path does exist", &[], LeafArrays::Keep),
    wording("$type", "type did not match", "type did match", &[], LeafArrays::ElementsOnly),
    wording(
        "$mod",
        "$mod did not evaluate to expected remainder",
        "$mod did evaluate to expected remainder",
        &NUMBERS,
        LeafArrays::ElementsOnly,
    ),
    wording(
        "$regex",
        "regular expression did not match",
        "regular expression did match",
        &TEXTS,
        LeafArrays::ElementsOnly,
    ),
    wording(
        "$size",
        "array length was not equal to given size",
        "array length was equal to given size",
        &[ElementType::Array],
        LeafArrays::Keep,
    ),
    wording(
        "$elemMatch",
        "array did not satisfy the child predicate",
        "array did satisfy the child predicate",
        &[ElementType::Array],
        LeafArrays::Keep,
    ),
    wording(
        "$all",
        "array did not contain all specified values",
        "array did contain all specified values",
        &[],
        LeafArrays::Keep,
    ),
];

/// What is told of an operator that is not in the table: a constant.
static CONSTANT: Wording =
    wording("", "expression always evaluates to false", "expression always evaluates to true", &[], LeafArrays::Keep);

impl<'v> Leaf<'v> {
    /// `{path: value}`, or an operator without a path.
    pub(super) fn plain(path: &'v str, value: RawBsonRef<'v>, ctx: &Context) -> Result<Self> {
        let operator = match (path, value) {
            ("$ref" | "$id" | "$db", _) => "$eq",
            (name, _) if name.starts_with('$') => name,
            (_, RawBsonRef::RegularExpression(_)) => "$regex",
            _ => "$eq",
        };
        Self::new(operator, path, value, single(path, value)?, ctx)
    }

    /// `{path: {operator: argument}}`
    pub(super) fn operator(path: &'v str, operator: &'v str, argument: RawBsonRef<'v>, ctx: &Context) -> Result<Self> {
        let rule = single(path, RawBsonRef::Document(&single(operator, argument)?))?;
        Self::new(operator, path, argument, rule, ctx)
    }

    /// `{path: {$regex: …, $options: …}}`
    pub(super) fn regex(path: &'v str, operators: &'v RawDocument, ctx: &Context) -> Result<Self> {
        let rule = single(path, RawBsonRef::Document(operators))?;
        // The other operators beside it are clauses of their own.
        let mut own = RawDocumentBuf::new();
        for name in ["$regex", "$options"] {
            if let Some(value) = operators.get(name)? {
                own.append(crate::pipeline::field::cstring(name)?, value);
            }
        }
        let matcher = Matcher::parse(&single(path, RawBsonRef::Document(&own))?, ctx)?;
        let argument = RawBsonRef::Document(operators);
        Ok(Self { operator: "$regex", path, argument, rule, matcher, ctx: ctx.clone() })
    }

    fn new(
        operator: &'v str,
        path: &'v str,
        argument: RawBsonRef<'v>,
        rule: RawDocumentBuf,
        ctx: &Context,
    ) -> Result<Self> {
        let matcher = Matcher::parse(&rule, ctx)?;
        Ok(Self { operator, path, argument, rule, matcher, ctx: ctx.clone() })
    }

    pub(super) fn holds(&self, document: &RawDocument) -> Result<bool> {
        self.matcher.matches(document)
    }

    /// Whether the operator is the contrary of what its words speak of.
    fn is_contrary(&self) -> bool {
        match self.operator {
            "$ne" | "$nin" => true,
            "$exists" => !crate::matcher::parse::is_true(self.argument),
            _ => false,
        }
    }

    /// What is told of the condition: that it does not hold, or inverted that it does.
    pub(super) fn tell(&self, teller: &Teller<'_>, document: &RawDocument, inverted: bool) -> Result<Document> {
        let mut details = Document::new();
        details.insert("operatorName", self.operator);
        teller.specify(&mut details, Document::try_from(&*self.rule)?);
        if matches!(self.operator, "$expr" | "$sampleRate") {
            self.tell_result(&mut details, document, inverted)?;
            return Ok(details);
        }
        let found = WORDING.iter().find(|wording| wording.operator == self.operator);
        let is_constant =
            matches!(self.argument, RawBsonRef::Array(list) if list.is_empty() && self.operator == "$all");
        let wording = found.filter(|_| !is_constant).unwrap_or(&CONSTANT);
        let reason = if inverted != self.is_contrary() { wording.succeeded } else { wording.failed };
        if wording.operator.is_empty() || self.operator == "$exists" {
            details.insert("reason", reason);
            return Ok(details);
        }
        let Some(considered) = considered(document, &Path::parse(self.path), wording.arrays)? else {
            details.insert("reason", "field was missing");
            return Ok(details);
        };
        let is_expected = |value: &RawBsonRef<'_>| wording.expected.contains(&value.element_type());
        if wording.expected.is_empty() || considered.values.iter().any(is_expected) {
            details.insert("reason", reason);
        } else {
            details.insert("reason", "type did not match");
            consider_types(&mut details, &considered.values);
            let expected: Vec<&str> = wording.expected.iter().map(|t| type_name(*t)).collect();
            match &*expected {
                [one] => details.insert("expectedType", *one),
                several => details.insert("expectedTypes", several),
            };
        }
        teller.consider(&mut details, &considered)?;
        if self.operator == "$type" {
            consider_types(&mut details, &considered.values);
        }
        Ok(details)
    }

    /// The value of `$expr`, or why it has none.
    fn tell_result(&self, details: &mut Document, document: &RawDocument, inverted: bool) -> Result<()> {
        let result = match self.operator {
            "$expr" => Expression::parse(self.argument, &self.ctx).and_then(|e| e.evaluate(document, &self.ctx)),
            _ => Ok(Some(Bson::Boolean(inverted))),
        };
        match result {
            Ok(result) => {
                let reason = if inverted { "expression did match" } else { "expression did not match" };
                details.insert("reason", reason);
                if let Some(result) = result {
                    details.insert("expressionResult", result);
                }
            }
            Err(error) => {
                self.ctx.interruption.look()?;
                details.insert("reason", "failed to evaluate aggregation expression");
                details.insert("details", described(&error));
            }
        }
        Ok(())
    }
}

/// The values a path leads to; none if it leads nowhere.
fn considered<'d>(document: &'d RawDocument, path: &Path, arrays: LeafArrays) -> Result<Option<Considered<'d>>> {
    let mut values = Vec::new();
    let mut is_cut = false;
    let _ = path::visit_with(document.into(), path, arrays, &mut |found| match found.value {
        Some(value) if values.len() < CONSIDERED_VALUES_MAX => {
            values.push(value);
            ControlFlow::Continue(())
        }
        more => {
            is_cut = more.is_some();
            ControlFlow::Break(())
        }
    })?;
    if values.is_empty() {
        // An empty array has no elements, but is there.
        let mut is_there = false;
        let _ = path::visit(document, path, &mut |value| {
            is_there = value.is_some();
            ControlFlow::Break(())
        })?;
        if !is_there {
            return Ok(None);
        }
    }
    Ok(Some(Considered { values, is_cut }))
}

/// A document with one field.
fn single(name: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    let mut out = Vec::new();
    let start = raw::begin(&mut out);
    raw::put_value(&mut out, name, value);
    raw::end(&mut out, start);
    raw::finish(out)
}
