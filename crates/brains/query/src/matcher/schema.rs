//! `$jsonSchema`: draft 4 of JSON Schema in MongoDB's dialect.
//!
//! Invariants: a keyword restricts only values of the type it speaks of (`minimum` says nothing about strings); a property
//! that is absent satisfies every schema; recursion is bounded when parsing. Source: MongoDB manual, "$jsonSchema".
//!
//! What it deliberately does not do: encryption keywords, and the keywords that MongoDB itself refuses (`$ref`,
//! `definitions`, `format`, `default`, the type `integer`).

mod parse;

use super::{RegexPredicate, TypeSet};
use baton_document::decimal::Decimal;
use baton_document::keys::{self, Direction};
use baton_document::number::Number;
use baton_types::Result;
use bson::spec::ElementType;
use bson::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::BTreeSet;

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
    properties: Vec<(String, Schema)>,
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
    pub fn parse(schema: &RawDocument, _ctx: &crate::Context) -> Result<Self> {
        let mut parsed = parse::schema(schema, 1)?;
        parsed.source = bson::Document::try_from(schema)?;
        Ok(parsed)
    }

    /// The schema as written.
    pub fn source(&self) -> &bson::Document {
        &self.source
    }

    /// Whether a document conforms.
    pub fn matches(&self, doc: &RawDocument) -> Result<bool> {
        self.accepts(RawBsonRef::Document(doc))
    }

    /// Whether a value conforms.
    pub(super) fn accepts(&self, value: RawBsonRef<'_>) -> Result<bool> {
        if self.types.is_some_and(|types| !types.contains(value.element_type())) {
            return Ok(false);
        }
        if let Some(members) = &self.enumeration
            && !members.contains(&comparable(value)?)
        {
            return Ok(false);
        }
        Ok(self.accepts_by_kind(value)? && self.accepts_by_combination(value)?)
    }

    fn accepts_by_kind(&self, value: RawBsonRef<'_>) -> Result<bool> {
        match value {
            RawBsonRef::String(text) => self.strings.accept(text),
            RawBsonRef::Array(array) => self.arrays.accept(array),
            RawBsonRef::Document(doc) => self.objects.accept(doc),
            value => Ok(Number::from_raw(value).is_none_or(|number| self.numbers.accept(number))),
        }
    }

    fn accepts_by_combination(&self, value: RawBsonRef<'_>) -> Result<bool> {
        for schema in &self.all_of {
            if !schema.accepts(value)? {
                return Ok(false);
            }
        }
        if !self.any_of.is_empty() && count(&self.any_of, value, 1)? == 0 {
            return Ok(false);
        }
        if !self.one_of.is_empty() && count(&self.one_of, value, 2)? != 1 {
            return Ok(false);
        }
        match &self.not {
            Some(schema) => Ok(!schema.accepts(value)?),
            None => Ok(true),
        }
    }
}

/// How many of `schemas` accept the value, counted up to `enough`.
fn count(schemas: &[Schema], value: RawBsonRef<'_>, enough: usize) -> Result<usize> {
    let mut accepted = 0;
    for schema in schemas {
        accepted += usize::from(schema.accepts(value)?);
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
    fn accept(&self, text: &str) -> Result<bool> {
        if (self.length_min.is_some() || self.length_max.is_some())
            && !within(text.chars().count(), self.length_min, self.length_max)
        {
            return Ok(false);
        }
        self.pattern.as_ref().map_or(Ok(true), |pattern| pattern.is_found_in(text))
    }
}

impl ArrayRules {
    fn accept(&self, array: &RawArray) -> Result<bool> {
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
            let element = element?;
            let accepted = match &self.items {
                Some(Items::Every(schema)) => schema.accepts(element)?,
                Some(Items::Each(schemas)) => match (schemas.get(i), &self.additional_items) {
                    (Some(schema), _) => schema.accepts(element)?,
                    (None, Some(additional)) => additional.accepts(element)?,
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
        Ok(!self.is_unique || first_duplicate(&elements)?.is_none())
    }
}

impl Additional {
    fn accepts(&self, value: RawBsonRef<'_>) -> Result<bool> {
        match self {
            Self::Allowed => Ok(true),
            Self::Forbidden => Ok(false),
            Self::Restricted(schema) => schema.accepts(value),
        }
    }
}

impl ObjectRules {
    fn accept(&self, doc: &RawDocument) -> Result<bool> {
        let mut present: Vec<&str> = Vec::new();
        for element in doc.iter_elements() {
            let element = element?;
            let name = element.key().as_str();
            if !self.accept_property(name, element.value()?)? {
                return Ok(false);
            }
            present.push(name);
        }
        if !within(present.len(), self.count_min, self.count_max)
            || !self.required.iter().all(|name| present.contains(&name.as_str()))
        {
            return Ok(false);
        }
        for (name, dependency) in &self.dependencies {
            if !present.contains(&name.as_str()) {
                continue;
            }
            let satisfied = match dependency {
                Dependency::Properties(names) => names.iter().all(|name| present.contains(&name.as_str())),
                Dependency::Schema(schema) => schema.matches(doc)?,
            };
            if !satisfied {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn accept_property(&self, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        let mut is_known = false;
        if let Some((_, schema)) = self.properties.iter().find(|(property, _)| property == name) {
            is_known = true;
            if !schema.accepts(value)? {
                return Ok(false);
            }
        }
        for (pattern, schema) in &self.pattern_properties {
            if pattern.is_found_in(name)? {
                is_known = true;
                if !schema.accepts(value)? {
                    return Ok(false);
                }
            }
        }
        match &self.additional {
            Some(additional) if !is_known => additional.accepts(value),
            _ => Ok(true),
        }
    }
}

/// The first element that equals one before it.
pub(super) fn first_duplicate<'d>(elements: &[RawBsonRef<'d>]) -> Result<Option<RawBsonRef<'d>>> {
    let mut seen = BTreeSet::new();
    for element in elements {
        if !seen.insert(comparable(*element)?) {
            return Ok(Some(*element));
        }
    }
    Ok(None)
}

/// Bytes that are the same for equal values. As JSON Schema has it, the order of a document's fields does not count.
fn comparable(value: RawBsonRef<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    keys::encode(&mut bytes, in_order(value)?.as_raw_bson_ref(), Direction::Ascending);
    Ok(bytes)
}

/// A value whose documents have their fields in the order of their names, all the way down.
fn in_order(value: RawBsonRef<'_>) -> Result<RawBson> {
    match value {
        RawBsonRef::Document(document) => {
            let mut fields = document.iter().collect::<std::result::Result<Vec<_>, _>>()?;
            fields.sort_by_key(|(name, _)| name.as_str());
            let mut ordered = RawDocumentBuf::new();
            for (name, field) in fields {
                ordered.append(name, in_order(field)?);
            }
            Ok(RawBson::Document(ordered))
        }
        RawBsonRef::Array(array) => {
            let mut ordered = RawArrayBuf::new();
            for element in array {
                ordered.push(in_order(element?)?);
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
