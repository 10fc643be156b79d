//! Reading a command's fields by name and type, with MongoDB's answers to what is missing, unknown or of a wrong type.
//!
//! Invariants: a field is taken at most once; [`Fields::finish`] refuses whatever nobody took, so a misspelt option is
//! never silently ignored. `null` counts as absent, as it does in mongod.
//! What it deliberately does not do: give defaults or check ranges; a command does.

use baton_document::{Number, type_name};
use baton_types::{Error, Result};
use bson::{RawArray, RawBinaryRef, RawBsonRef, RawDocument, Timestamp, oid::ObjectId};
use smallvec::SmallVec;

/// A type that a field can be read as.
pub trait FieldType<'a>: Sized {
    /// The BSON types it takes, as MongoDB lists them in its message.
    const EXPECTED: &'static [&'static str];

    /// The value, unless it is of another type.
    fn read(value: RawBsonRef<'a>) -> Option<Self>;
}

/// A truth value that may also be written as a number (`1`, `0.0`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth(pub bool);

const NUMBERS: &[&str] = &["long", "int", "decimal", "double"];

/// A number as a 64-bit integer: fractions are cut off, what lies outside is clamped, NaN is 0.
pub fn number_as_i64(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(v) => Some(i64::from(v)),
        RawBsonRef::Int64(v) => Some(v),
        // `as` clamps, and makes NaN 0.
        RawBsonRef::Double(v) => Some(v as i64),
        decimal @ RawBsonRef::Decimal128(_) => Number::from_raw(decimal).map(Number::to_i64_lossy),
        _ => None,
    }
}

/// A number as a double.
pub fn number_as_f64(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(v) => Some(f64::from(v)),
        RawBsonRef::Int64(v) => Some(v as f64),
        RawBsonRef::Double(v) => Some(v),
        RawBsonRef::Decimal128(v) => Some(v.to_string().parse::<f64>().unwrap_or(f64::NAN)),
        _ => None,
    }
}

/// Whether MongoDB takes the value for true: anything but `false`, zero, `null` and `undefined`.
pub fn is_truthy(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(v) => v,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        other => number_as_f64(other).is_none_or(|v| v != 0.0),
    }
}

impl<'a> FieldType<'a> for i64 {
    const EXPECTED: &'static [&'static str] = NUMBERS;
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        number_as_i64(value)
    }
}

impl<'a> FieldType<'a> for i32 {
    const EXPECTED: &'static [&'static str] = NUMBERS;
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        number_as_i64(value).map(|v| v.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
    }
}

impl<'a> FieldType<'a> for f64 {
    const EXPECTED: &'static [&'static str] = NUMBERS;
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        number_as_f64(value)
    }
}

impl<'a> FieldType<'a> for bool {
    const EXPECTED: &'static [&'static str] = &["bool"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_bool()
    }
}

impl<'a> FieldType<'a> for Truth {
    const EXPECTED: &'static [&'static str] = &["bool", "long", "int", "decimal", "double"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        match value {
            RawBsonRef::Boolean(v) => Some(Self(v)),
            other => number_as_f64(other).map(|v| Self(v != 0.0)),
        }
    }
}

impl<'a> FieldType<'a> for &'a str {
    const EXPECTED: &'static [&'static str] = &["string"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_str()
    }
}

impl<'a> FieldType<'a> for &'a RawDocument {
    const EXPECTED: &'static [&'static str] = &["object"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_document()
    }
}

impl<'a> FieldType<'a> for &'a RawArray {
    const EXPECTED: &'static [&'static str] = &["array"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_array()
    }
}

impl<'a> FieldType<'a> for RawBinaryRef<'a> {
    const EXPECTED: &'static [&'static str] = &["binData"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_binary()
    }
}

impl<'a> FieldType<'a> for ObjectId {
    const EXPECTED: &'static [&'static str] = &["objectId"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_object_id()
    }
}

impl<'a> FieldType<'a> for Timestamp {
    const EXPECTED: &'static [&'static str] = &["timestamp"];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        value.as_timestamp()
    }
}

impl<'a> FieldType<'a> for RawBsonRef<'a> {
    const EXPECTED: &'static [&'static str] = &[];
    fn read(value: RawBsonRef<'a>) -> Option<Self> {
        Some(value)
    }
}

struct Field<'a> {
    name: &'a str,
    value: RawBsonRef<'a>,
    taken: bool,
}

/// The fields of a command, or of a document within one.
pub struct Fields<'a> {
    /// What messages put before the field's name: the command's name, or the path of the document.
    path: &'a str,
    fields: SmallVec<[Field<'a>; 8]>,
}

impl<'a> Fields<'a> {
    /// None yet.
    pub(crate) fn empty(path: &'a str) -> Self {
        Self { path, fields: SmallVec::new() }
    }

    /// Those of `document`, which messages call `path`.
    pub fn of(path: &'a str, document: &'a RawDocument) -> Result<Self> {
        let mut fields = Self::empty(path);
        for element in document.iter() {
            let (name, value) = element?;
            fields.add(name.as_str(), value)?;
        }
        Ok(fields)
    }

    /// Changes what messages call the document: some commands' requests have a name of their own in MongoDB.
    pub fn rename(&mut self, path: &'a str) {
        self.path = path;
    }

    /// Adds a field; 40413 if it is there already.
    pub(crate) fn add(&mut self, name: &'a str, value: RawBsonRef<'a>) -> Result<()> {
        if self.fields.iter().any(|f| f.name == name) {
            return Err(duplicate(self.path, name));
        }
        self.fields.push(Field { name, value, taken: false });
        Ok(())
    }

    /// The field as it is, `null` included.
    pub fn take(&mut self, name: &str) -> Option<RawBsonRef<'a>> {
        let field = self.fields.iter_mut().find(|f| f.name == name)?;
        field.taken = true;
        Some(field.value)
    }

    /// The field as it is, without taking it.
    pub fn peek(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.fields.iter().find(|f| f.name == name).map(|f| f.value)
    }

    /// The field as a `T`: absent is `None`, another type is `TypeMismatch` (14).
    pub fn optional<T: FieldType<'a>>(&mut self, name: &str) -> Result<Option<T>> {
        match self.take(name) {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
            Some(value) => match T::read(value) {
                Some(v) => Ok(Some(v)),
                None => Err(wrong_type(self.path, name, value, T::EXPECTED)),
            },
        }
    }

    /// The field as a `T`: absent is 40414, another type is `TypeMismatch` (14).
    pub fn required<T: FieldType<'a>>(&mut self, name: &str) -> Result<T> {
        self.optional(name)?.ok_or_else(|| {
            Error::location(40414, format!("BSON field '{}.{name}' is missing but a required field", self.path))
        })
    }

    /// A truth value that may be a number; absent is false.
    pub fn truth(&mut self, name: &str) -> Result<bool> {
        Ok(self.optional::<Truth>(name)?.is_some_and(|t| t.0))
    }

    /// A whole number that must not be negative (51024); absent is `None`.
    pub fn non_negative(&mut self, name: &str) -> Result<Option<i64>> {
        match self.optional::<i64>(name)? {
            Some(v) if v < 0 => {
                Err(Error::location(51024, format!("BSON field '{name}' value must be >= 0, actual value '{v}'")))
            }
            v => Ok(v),
        }
    }

    /// What was not taken yet.
    pub fn rest(&self) -> impl Iterator<Item = (&'a str, RawBsonRef<'a>)> + '_ {
        self.fields.iter().filter(|f| !f.taken).map(|f| (f.name, f.value))
    }

    /// Refuses what nobody took (40415).
    pub fn finish(&self) -> Result<()> {
        match self.fields.iter().find(|f| !f.taken) {
            None => Ok(()),
            Some(f) => {
                Err(Error::location(40415, format!("BSON field '{}.{}' is an unknown field.", self.path, f.name)))
            }
        }
    }
}

/// 40413: the same field twice.
pub(crate) fn duplicate(path: &str, name: &str) -> Error {
    Error::location(40413, format!("BSON field '{path}.{name}' is a duplicate field"))
}

/// `TypeMismatch` (14) as MongoDB words it.
pub fn wrong_type(path: &str, name: &str, value: RawBsonRef<'_>, expected: &[&str]) -> Error {
    let found = type_name(value.element_type());
    let dot = if path.is_empty() { "" } else { "." };
    Error::type_mismatch(match expected {
        [one] => format!("BSON field '{path}{dot}{name}' is the wrong type '{found}', expected type '{one}'"),
        many => format!(
            // The quote before the bracket is MongoDB's own, and what its clients' tests compare with.
            "BSON field '{path}{dot}{name}' is the wrong type '{found}', expected types '[{}']",
            many.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::ErrorCode;
    use bson::rawdoc;

    #[test]
    fn a_missing_an_unknown_and_a_mistyped_field_are_named_with_the_command() {
        let body = rawdoc! { "a": 1.9, "b": "x", "c": null, "d": true };
        let mut fields = Fields::of("frob", &body).unwrap();
        assert_eq!(fields.required::<i64>("a").unwrap(), 1);
        assert_eq!(fields.optional::<&str>("c").unwrap(), None);

        let missing = fields.required::<&str>("z").unwrap_err();
        assert_eq!(missing.code.0, 40414);
        assert_eq!(missing.message, "BSON field 'frob.z' is missing but a required field");

        let mistyped = fields.required::<&RawDocument>("b").unwrap_err();
        assert_eq!(mistyped.code, ErrorCode::TypeMismatch);
        assert_eq!(mistyped.message, "BSON field 'frob.b' is the wrong type 'string', expected type 'object'");
        let mistyped = fields.optional::<i32>("b").unwrap_err();
        assert!(mistyped.message.ends_with("expected types '[long, int, decimal, double']"));

        let unknown = fields.finish().unwrap_err();
        assert_eq!(unknown.code.0, 40415);
        assert_eq!(unknown.message, "BSON field 'frob.d' is an unknown field.");
        assert!(fields.truth("d").unwrap());
        fields.finish().unwrap();
    }

    #[test]
    fn the_same_field_twice_is_refused() {
        // Written by hand, because builders do not repeat keys.
        let bytes = [19, 0, 0, 0, 0x10, b'a', 0, 1, 0, 0, 0, 0x10, b'a', 0, 2, 0, 0, 0, 0];
        let body = RawDocument::from_bytes(&bytes).unwrap();
        assert_eq!(Fields::of("frob", body).err().unwrap().code.0, 40413);
    }

    #[test]
    fn numbers_are_clamped_not_wrapped() {
        assert_eq!(number_as_i64(RawBsonRef::Double(1e300)), Some(i64::MAX));
        assert_eq!(number_as_i64(RawBsonRef::Double(f64::NAN)), Some(0));
        assert_eq!(<i32 as FieldType>::read(RawBsonRef::Int64(i64::MIN)), Some(i32::MIN));
        assert!(!is_truthy(RawBsonRef::Double(0.0)) && is_truthy(RawBsonRef::String("")));
    }
}
