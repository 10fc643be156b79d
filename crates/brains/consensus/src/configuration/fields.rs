//! Reading a document's fields one by one, with MongoDB's answers to one of a wrong type, unknown, or there twice.
//!
//! Invariants: the document's order is kept, so that of two mistakes the first is named, as MongoDB names it. `null` counts
//! as absent where MongoDB lets it, and is of the wrong type where it does not.
//! What it deliberately does not do: give defaults, or notice what is missing.

use super::bounds::{self, Bound};
use baton_document::Number;
use baton_types::{Error, Result};
use bson::oid::ObjectId;
use bson::{Bson, RawArray, RawBsonRef, RawDocument};
use std::collections::BTreeSet;

const NUMBERS: &str = "long, int, decimal, double";
const TRUTHS: &str = "bool, long, int, decimal, double";

/// Where the text of a value within a message is cut, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// The fields of a document, in its order.
pub(super) struct Fields<'a> {
    path: &'static str,
    elements: Box<dyn Iterator<Item = Result<Field<'a>>> + 'a>,
    names: BTreeSet<&'a str>,
}

impl<'a> Fields<'a> {
    /// Those of `document`, which messages call `path`.
    pub(super) fn of(path: &'static str, document: &'a RawDocument) -> Self {
        let elements = document.iter().map(move |element| {
            let (name, value) = element?;
            Ok(Field { path, name: name.as_str(), value })
        });
        Self { path, elements: Box::new(elements), names: BTreeSet::new() }
    }

    /// The next one; 40413 if it was there before.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>> {
        let Some(field) = self.elements.next().transpose()? else { return Ok(None) };
        if !self.names.insert(field.name) {
            let message = format!("BSON field '{}.{}' is a duplicate field", field.path, field.name);
            return Err(Error::location(40413, message));
        }
        Ok(Some(field))
    }

    /// 40414: this one had to be there.
    pub(super) fn missing(&self, name: &str) -> Error {
        Error::location(40414, format!("BSON field '{}.{name}' is missing but a required field", self.path))
    }
}

/// One field.
pub(super) struct Field<'a> {
    path: &'static str,
    /// Its name.
    pub(super) name: &'a str,
    /// Its value.
    pub(super) value: RawBsonRef<'a>,
}

impl<'a> Field<'a> {
    /// 40415: nobody knows it.
    pub(super) fn unknown(&self) -> Error {
        Error::location(40415, format!("BSON field '{}.{}' is an unknown field.", self.path, self.name))
    }

    /// A string.
    pub(super) fn text(&self) -> Result<Option<&'a str>> {
        self.one_of("string", self.value.as_str())
    }

    /// A document.
    pub(super) fn document(&self) -> Result<Option<&'a RawDocument>> {
        self.one_of("object", self.value.as_document())
    }

    /// An array.
    pub(super) fn array(&self) -> Result<Option<&'a RawArray>> {
        self.one_of("array", self.value.as_array())
    }

    /// An ObjectId.
    pub(super) fn object_id(&self) -> Result<Option<ObjectId>> {
        self.one_of("objectId", self.value.as_object_id())
    }

    /// A truth value, written as such.
    pub(super) fn boolean(&self) -> Result<Option<bool>> {
        self.one_of("bool", self.value.as_bool())
    }

    /// The text that a closed list of names takes: `BadValue` (2) with these, if it is none of them.
    pub(super) fn name_of<T>(&self, known: &str, from_name: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text()? else { return Ok(None) };
        let value = from_name(text).ok_or_else(|| self.must_be(known))?;
        Ok(Some(value))
    }

    /// `BadValue` (2): what the value must be, and what it is.
    pub(super) fn must_be(&self, expected: &str) -> Error {
        let path = self.path.strip_prefix("ReplSetConfig.").unwrap_or(self.path);
        Error::bad_value(format!("{path}.{} must be {expected}, but is {}", self.name, show(self.value)))
    }

    /// A truth value that may also be written as a number.
    pub(super) fn truth(&self) -> Result<Option<bool>> {
        let number = || Number::from_raw(self.value).map(|number| !number.is_zero());
        self.some_of(TRUTHS, self.value.as_bool().or_else(number))
    }

    /// A number as an integer within `bounds`: fractions are cut off, as MongoDB does.
    pub(super) fn integer(&self, bounds: &[Bound<i64>; 2]) -> Result<Option<i64>> {
        let number = self.some_of(NUMBERS, Number::from_raw(self.value).map(Number::to_i64_lossy))?;
        number.map_or(Ok(()), |number| bounds::check(self.name, number, bounds))?;
        Ok(number)
    }

    /// A number as a double.
    pub(super) fn any_double(&self) -> Result<Option<f64>> {
        self.some_of(NUMBERS, Number::from_raw(self.value).map(Number::to_f64))
    }

    /// A number as a double within `bounds`.
    pub(super) fn double(&self, bounds: &[Bound<f64>; 2]) -> Result<Option<f64>> {
        let number = self.any_double()?;
        number.map_or(Ok(()), |number| bounds::check(self.name, number, bounds))?;
        Ok(number)
    }

    /// A whole number within `bounds`, of any numeric type; neither `null` nor a fraction will do.
    pub(super) fn whole(&self, bounds: &[Bound<i64>; 2]) -> Result<i64> {
        let number = self.any_whole()?;
        bounds::check(self.name, number, bounds)?;
        Ok(number)
    }

    /// A whole number of any numeric type.
    pub(super) fn any_whole(&self) -> Result<i64> {
        let Some(number) = Number::from_raw(self.value) else {
            return Err(Error::type_mismatch(format!(
                "Expected a number, got value of type {} for field {}",
                self.type_name(),
                self.name
            )));
        };
        let Some(number) = number.to_i64_exact() else {
            let message = format!(
                "Expected field \"{}\" to have a value exactly representable as a 64-bit integer, but found {}",
                self.name,
                self.show()
            );
            return Err(Error::location(4708900, message));
        };
        Ok(number)
    }

    /// A truth value for which not even `null` will do.
    pub(super) fn strict_boolean(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| {
            let message = format!("Field '{}' should be a boolean value, but found: {}", self.name, self.type_name());
            Error::type_mismatch(message)
        })
    }

    /// The value's type, as messages call it.
    pub(super) fn type_name(&self) -> &'static str {
        type_name(self.value)
    }

    /// The field as messages show it.
    pub(super) fn show(&self) -> String {
        format!("{}: {}", self.name, show(self.value))
    }

    fn one_of<T>(&self, expected: &str, value: Option<T>) -> Result<Option<T>> {
        if value.is_some() || self.is_null() {
            return Ok(value);
        }
        Err(wrong_type(&format!("{}.{}", self.path, self.name), self.value, expected))
    }

    fn some_of<T>(&self, expected: &str, value: Option<T>) -> Result<Option<T>> {
        if value.is_some() || self.is_null() {
            return Ok(value);
        }
        let (path, name, found) = (self.path, self.name, self.type_name());
        // The quote before the bracket is MongoDB's own.
        let message = format!("BSON field '{path}.{name}' is the wrong type '{found}', expected types '[{expected}']");
        Err(Error::type_mismatch(message))
    }

    fn is_null(&self) -> bool {
        matches!(self.value, RawBsonRef::Null | RawBsonRef::Undefined)
    }
}

/// `TypeMismatch` (14) of the value at `path`.
pub(super) fn wrong_type(path: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    let found = type_name(value);
    Error::type_mismatch(format!("BSON field '{path}' is the wrong type '{found}', expected type '{expected}'"))
}

/// A value as messages show it, cut if it is long.
pub(super) fn show(value: RawBsonRef<'_>) -> String {
    let Ok(owned) = Bson::try_from(value) else { return type_name(value).into() };
    let mut text = owned.to_string();
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("...");
    }
    text
}

/// MongoDB's name of a value's type.
pub fn type_name(value: RawBsonRef<'_>) -> &'static str {
    baton_document::type_name(value.element_type())
}
