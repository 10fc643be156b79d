//! `$type`: sets of types.
//!
//! Invariant: a set of types is closed over the alias `number`.

use super::integer;
use baton_document::type_names::TYPES;
use baton_types::{Error, Result};
use bson::RawBsonRef;
use bson::spec::ElementType;

const NUMBERS: [ElementType; 4] =
    [ElementType::Double, ElementType::Int32, ElementType::Int64, ElementType::Decimal128];

/// A set of BSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TypeSet {
    bits: u32,
    /// Whether it was written with the alias `number`, so that it is printed with it.
    by_number_alias: bool,
}

impl TypeSet {
    /// The set of one type.
    pub fn one(element_type: ElementType) -> Self {
        Self { bits: bit(element_type), by_number_alias: false }
    }

    /// The operand of `$type` at a path: a name, a number, or an array of them.
    pub fn parse(path: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let mut set = Self::default();
        match value {
            RawBsonRef::Array(array) => {
                for element in array {
                    set.add(element?)?;
                }
            }
            other => set.add(other)?,
        }
        if set.bits == 0 {
            return Err(Error::failed_to_parse(format!("{path} must match at least one type")));
        }
        Ok(set)
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        match value {
            RawBsonRef::String(name) => self.add_name(name),
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                let code = integer::exact(value);
                let known = TYPES.iter().find(|(.., number)| code == Some(i64::from(*number)));
                let Some((element_type, ..)) = known else {
                    return Err(Error::bad_value(format!("Invalid numerical type code: {}", integer::display(value))));
                };
                self.bits |= bit(*element_type);
                Ok(())
            }
            _ => Err(Error::type_mismatch("type must be represented as a number or a string")),
        }
    }

    /// Adds a type by its name, or `number` for all numbers.
    pub fn add_name(&mut self, name: &str) -> Result<()> {
        if name == "number" {
            NUMBERS.iter().for_each(|t| self.bits |= bit(*t));
            self.by_number_alias = true;
            return Ok(());
        }
        let Some((element_type, ..)) = TYPES.iter().find(|(_, known, _)| *known == name) else {
            return Err(Error::bad_value(format!("Unknown type name alias: {name}")));
        };
        self.bits |= bit(*element_type);
        Ok(())
    }

    /// Adds one type.
    pub fn insert(&mut self, element_type: ElementType) {
        self.bits |= bit(element_type);
    }

    /// Whether the set holds the type.
    pub fn contains(self, element_type: ElementType) -> bool {
        self.bits & bit(element_type) != 0
    }

    /// The types in the set.
    pub fn iter(self) -> impl Iterator<Item = ElementType> {
        TYPES.into_iter().map(|(t, ..)| t).filter(move |t| self.contains(*t))
    }

    /// The set as the operand it was parsed from, for printing.
    pub fn to_bson(self) -> bson::Bson {
        let mut members: Vec<bson::Bson> = Vec::new();
        if self.by_number_alias {
            members.push("number".into());
        }
        for (element_type, _, number) in TYPES {
            if self.contains(element_type) && !(self.by_number_alias && NUMBERS.contains(&element_type)) {
                members.push(number.into());
            }
        }
        bson::Bson::Array(members)
    }
}

/// The bit of a type: its number, and the two unusual ones above.
fn bit(element_type: ElementType) -> u32 {
    match element_type {
        ElementType::MinKey => 1 << 30,
        ElementType::MaxKey => 1 << 31,
        other => 1 << (other as u32),
    }
}
