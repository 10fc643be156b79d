//! Operators whose argument is an object of named arguments.
//!
//! A [`Signature`] lists the names and the errors for a wrong shape, which MongoDB words and numbers differently for
//! each operator; the operator's function asks for the arguments it needs, so that fallbacks stay unevaluated.

use super::meter::Meter;
use super::node::{Call, Node, Scope};
use super::parse::Parser;
use super::table::Operator;
use super::value::{self, Value};
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// One named argument. `missing` is the code of the error when it is absent, 0 for an optional one.
#[derive(Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub missing: i32,
}

/// Shorthand for a row of a signature.
pub(crate) const fn field(name: &'static str, missing: i32) -> Field {
    Field { name, missing }
}

/// The named arguments of an operator. In the texts `{op}` is the operator and `{x}` the offending type or name.
#[derive(Debug)]
pub(crate) struct Signature {
    pub fields: &'static [Field],
    pub not_an_object: (i32, &'static str),
    pub unknown: (i32, &'static str),
    pub missing: &'static str,
}

impl Signature {
    /// Parses the argument of `operator` by this signature.
    pub fn parse(&self, parser: &mut Parser<'_>, operator: &'static Operator, raw: RawBsonRef<'_>) -> Result<Call> {
        let RawBsonRef::Document(document) = raw else {
            return Err(self.error(self.not_an_object, operator.name, value::raw_type_name(raw)));
        };
        let mut arguments = vec![Node::Constant(None); self.fields.len()];
        let mut given = 0;
        for element in document {
            let (name, inner) = element?;
            let Some(position) = self.fields.iter().position(|field| field.name == name.as_str()) else {
                return Err(self.error(self.unknown, operator.name, name.as_str()));
            };
            arguments[position] = parser.operand(inner)?;
            given |= 1 << position;
        }
        for (position, field) in self.fields.iter().enumerate() {
            if field.missing != 0 && given & (1 << position) == 0 {
                return Err(self.error((field.missing, self.missing), operator.name, field.name));
            }
        }
        Ok(Call { operator, arguments, given })
    }

    fn error(&self, (code, text): (i32, &'static str), operator: &str, detail: &str) -> Error {
        Error::location(code, text.replace("{op}", operator).replace("{x}", detail))
    }
}

/// A call with named arguments, about to be evaluated.
pub(crate) struct Named<'s> {
    pub call: &'s Call,
    pub scope: &'s Scope<'s>,
}

impl Named<'_> {
    /// The operator's name.
    pub fn name(&self) -> &'static str {
        self.call.operator.name
    }

    /// Whether the argument was given at all.
    pub fn given(&self, position: usize) -> bool {
        self.call.given & (1 << position) != 0
    }

    /// The argument's value; missing if it was not given.
    pub fn value(&self, position: usize) -> Result<Value> {
        let Some(node) = self.call.arguments.get(position) else { return Ok(None) };
        let value = node.evaluate(self.scope)?;
        // Counted, and held for a moment only: the operators with named arguments have few, and give back no more.
        self.scope.meter.hold(self.name()).add_contents(value.as_ref())?;
        Ok(value)
    }

    /// What the call is counted on.
    pub fn meter(&self) -> &Meter<'_> {
        self.scope.meter
    }
}
