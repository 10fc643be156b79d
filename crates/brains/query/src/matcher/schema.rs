//! `$jsonSchema`: draft 4 of JSON Schema in MongoDB's dialect.
//!
//! Invariants: a keyword restricts only values of the type it speaks of (`minimum` says nothing about strings); a property
//! that is absent satisfies every schema; recursion is bounded when parsing. Source: MongoDB manual, "$jsonSchema".
//!
//! What it deliberately does not do: encryption keywords, and the keywords that MongoDB itself refuses (`$ref`,
//! `definitions`, `format`, `default`, the type `integer`).

mod parse;

use super::{RegexPredicate, TypeSet};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use baton_document::decimal::Decimal;
use baton_document::keys::{self, Direction};
use baton_document::number::Number;
use baton_types::Result;
use bson::spec::ElementType;
use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A parsed schema.
#[derive(Debug, Default)]
pub struct Schema {
    /// As written; only at the top.
    source: bson::Document,
    types: Option<TypeSet>,
    /// The members' [`comparable`] bytes.
    enumeration: Option<BTreeSet<Vec<u8>>>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    numbers: NumberRules,
    strings: StringRules,
    arrays: ArrayRules,
    objects: ObjectRules,
}

#[derive(Debug, Default)]
struct NumberRules {
    minimum: Option<(Number, Bound)>,
    maximum: Option<(Number, Bound)>,
    /// As a decimal, to which every number is brought first.
    multiple_of: Option<Decimal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Inclusive,
    Exclusive,
}

#[derive(Debug, Default)]
struct StringRules {
    /// In code points.
    length_min: Option<i64>,
    length_max: Option<i64>,
    pattern: Option<Box<RegexPredicate>>,
}

#[derive(Debug, Default)]
struct ArrayRules {
    items: Option<Items>,
    additional_items: Option<Additional>,
    count_min: Option<i64>,
    count_max: Option<i64>,
    is_unique: bool,
}

#[derive(Debug)]
enum Items {
    /// One schema for every element.
    Every(Box<Schema>),
    /// A schema for each position.
    Each(Vec<Schema>),
}

/// What becomes of elements or properties that no other keyword speaks of.
#[derive(Debug)]
enum Additional {
    Allowed,
    Forbidden,
    Restricted(Box<Schema>),
}

#[derive(Debug, Default)]
struct ObjectRules {
    required: Vec<String>,
    properties: HashMap<String, Schema>,
    pattern_properties: Vec<(RegexPredicate, Schema)>,
    additional: Option<Additional>,
    count_min: Option<i64>,
    count_max: Option<i64>,
    dependencies: Vec<(String, Dependency)>,
}

/// What the presence of a property asks for.
#[derive(Debug)]
enum Dependency {
    Properties(Vec<String>),
    Schema(Box<Schema>),
}

impl Schema {
    /// Parses the operand of `$jsonSchema`.
    pub fn parse(schema: &RawDocument, ctx: &crate::Context) -> Result<Self> {
        let mut parsed = parse::schema(schema, 1, &ctx.interruption)?;
        parsed.source = bson::Document::try_from(schema)?;
        Ok(parsed)
    }

    /// The schema as written.
    pub fn source(&self) -> &bson::Document {
        &self.source
    }

    /// Whether a document conforms.
    pub fn matches(&self, doc: &RawDocument, asked: &Interruption) -> Result<bool> {
        self.accepts(RawBsonRef::Document(doc), asked)
    }

    /// Whether a value conforms.
    pub(super) fn accepts(&self, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        asked.step()?;
        if self.types.is_some_and(|types| !types.contains(value.element_type())) {
            return Ok(false);
        }
        if let Some(members) = &self.enumeration
            && !members.contains(&comparable(value, asked)?)
        {
            return Ok(false);
        }
        Ok(self.accepts_by_kind(value, asked)? && self.accepts_by_combination(value, asked)?)
    }

    fn accepts_by_kind(&self, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        match value {
            RawBsonRef::String(text) => self.strings.accept(text, asked),
            RawBsonRef::Array(array) => self.arrays.accept(array, asked),
            RawBsonRef::Document(doc) => self.objects.accept(doc, asked),
            value => Ok(Number::from_raw(value).is_none_or(|number| self.numbers.accept(number))),
        }
    }

    fn accepts_by_combination(&self, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        for schema in &self.all_of {
            if !schema.accepts(value, asked)? {
                return Ok(false);
            }
        }
        if !self.any_of.is_empty() && count(&self.any_of, value, 1, asked)? == 0 {
            return Ok(false);
        }
        if !self.one_of.is_empty() && count(&self.one_of, value, 2, asked)? != 1 {
            return Ok(false);
        }
        match &self.not {
            Some(schema) => Ok(!schema.accepts(value, asked)?),
            None => Ok(true),
        }
    }
}

/// How many of `schemas` accept the value, counted up to `enough`.
fn count(schemas: &[Schema], value: RawBsonRef<'_>, enough: usize, asked: &Interruption) -> Result<usize> {
    let mut accepted = 0;
    for schema in schemas {
        accepted += usize::from(schema.accepts(value, asked)?);
        if accepted == enough {
            break;
        }
    }
    Ok(accepted)
}

/// Whether a count lies within optional bounds.
fn within(count: usize, min: Option<i64>, max: Option<i64>) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max)
}

impl NumberRules {
    fn accept(&self, number: Number) -> bool {
        let above = self.minimum.is_none_or(|(limit, bound)| match bound {
            Bound::Inclusive => !number.is_nan() && number.compare(limit).is_ge(),
            Bound::Exclusive => !number.is_nan() && number.compare(limit).is_gt(),
        });
        let below = self.maximum.is_none_or(|(limit, bound)| match bound {
            Bound::Inclusive => !number.is_nan() && number.compare(limit).is_le(),
            Bound::Exclusive => !number.is_nan() && number.compare(limit).is_lt(),
        });
        let multiple = self.multiple_of.is_none_or(|divisor| number.to_decimal().remainder(divisor).is_zero());
        above && below && multiple
    }
}

impl StringRules {
    fn accept(&self, text: &str, asked: &Interruption) -> Result<bool> {
        asked.steps(text.len() / BYTES_PER_STEP)?;
        if (self.length_min.is_some() || self.length_max.is_some())
            && !within(text.chars().count(), self.length_min, self.length_max)
        {
            return Ok(false);
        }
        self.pattern.as_ref().map_or(Ok(true), |pattern| pattern.is_found_in(text, asked))
    }
}

impl ArrayRules {
    fn accept(&self, array: &RawArray, asked: &Interruption) -> Result<bool> {
        if self.items.is_none()
            && self.additional_items.is_none()
            && self.count_min.is_none()
            && self.count_max.is_none()
            && !self.is_unique
        {
            return Ok(true);
        }
        let mut elements = Vec::new();
        for (i, element) in array.into_iter().enumerate() {
            asked.step()?;
            let element = element?;
            let accepted = match &self.items {
                Some(Items::Every(schema)) => schema.accepts(element, asked)?,
                Some(Items::Each(schemas)) => match (schemas.get(i), &self.additional_items) {
                    (Some(schema), _) => schema.accepts(element, asked)?,
                    (None, Some(additional)) => additional.accepts(element, asked)?,
                    (None, None) => true,
                },
                None => true,
            };
            if !accepted {
                return Ok(false);
            }
            elements.push(element);
        }
        if !within(elements.len(), self.count_min, self.count_max) {
            return Ok(false);
        }
        Ok(!self.is_unique || first_duplicate(&elements, asked)?.is_none())
    }
}

impl Additional {
    fn accepts(&self, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        match self {
            Self::Allowed => Ok(true),
            Self::Forbidden => Ok(false),
            Self::Restricted(schema) => schema.accepts(value, asked),
        }
    }
}

impl ObjectRules {
    fn accept(&self, doc: &RawDocument, asked: &Interruption) -> Result<bool> {
        let mut present: HashSet<&str> = HashSet::new();
        let mut count = 0;
        for element in doc.iter_elements() {
            asked.step()?;
            let element = element?;
            let name = element.key().as_str();
            if !self.accept_property(name, element.value()?, asked)? {
                return Ok(false);
            }
            count += 1;
            if self.asks_for_names() {
                present.insert(name);
            }
        }
        asked.steps(self.required.len())?;
        if !within(count, self.count_min, self.count_max)
            || !self.required.iter().all(|name| present.contains(name.as_str()))
        {
            return Ok(false);
        }
        for (name, dependency) in &self.dependencies {
            asked.step()?;
            if !present.contains(name.as_str()) {
                continue;
            }
            let satisfied = match dependency {
                Dependency::Properties(names) => {
                    asked.steps(names.len())?;
                    names.iter().all(|name| present.contains(name.as_str()))
                }
                Dependency::Schema(schema) => schema.matches(doc, asked)?,
            };
            if !satisfied {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a rule speaks of names that must be there.
    fn asks_for_names(&self) -> bool {
        !self.required.is_empty() || !self.dependencies.is_empty()
    }

    fn accept_property(&self, name: &str, value: RawBsonRef<'_>, asked: &Interruption) -> Result<bool> {
        let mut is_known = false;
        if let Some(schema) = self.properties.get(name) {
            is_known = true;
            if !schema.accepts(value, asked)? {
                return Ok(false);
            }
        }
        for (pattern, schema) in &self.pattern_properties {
            if pattern.is_found_in(name, asked)? {
                is_known = true;
                if !schema.accepts(value, asked)? {
                    return Ok(false);
                }
            }
        }
        match &self.additional {
            Some(additional) if !is_known => additional.accepts(value, asked),
            _ => Ok(true),
        }
    }
}

/// The first element that equals one before it.
pub(super) fn first_duplicate<'d>(elements: &[RawBsonRef<'d>], asked: &Interruption) -> Result<Option<RawBsonRef<'d>>> {
    let mut seen = BTreeSet::new();
    for element in elements {
        if !seen.insert(comparable(*element, asked)?) {
            return Ok(Some(*element));
        }
    }
    Ok(None)
}

/// Bytes that are the same for equal values. As JSON Schema has it, the order of a document's fields does not count.
fn comparable(value: RawBsonRef<'_>, asked: &Interruption) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    keys::encode(&mut bytes, in_order(value, asked)?.as_raw_bson_ref(), Direction::Ascending);
    Ok(bytes)
}

/// A value whose documents have their fields in the order of their names, all the way down.
fn in_order(value: RawBsonRef<'_>, asked: &Interruption) -> Result<RawBson> {
    match value {
        RawBsonRef::Document(document) => {
            asked.steps(1 + document.as_bytes().len() / BYTES_PER_STEP)?;
            let mut fields = document.iter().collect::<std::result::Result<Vec<_>, _>>()?;
            fields.sort_by_key(|(name, _)| name.as_str());
            let mut ordered = RawDocumentBuf::new();
            for (name, field) in fields {
                ordered.append(name, in_order(field, asked)?);
            }
            Ok(RawBson::Document(ordered))
        }
        RawBsonRef::Array(array) => {
            asked.steps(1 + array.as_bytes().len() / BYTES_PER_STEP)?;
            let mut ordered = RawArrayBuf::new();
            for element in array {
                ordered.push(in_order(element?, asked)?);
            }
            Ok(RawBson::Array(ordered))
        }
        scalar => Ok(scalar.into()),
    }
}

/// JSON Schema's own names of types.
fn json_types(name: &str) -> Option<&'static [ElementType]> {
    Some(match name {
        "object" => &[ElementType::EmbeddedDocument],
        "array" => &[ElementType::Array],
        "number" => &[ElementType::Int32, ElementType::Int64, ElementType::Double, ElementType::Decimal128],
        "string" => &[ElementType::String],
        "boolean" => &[ElementType::Boolean],
        "null" => &[ElementType::Null],
        _ => return None,
    })
}
