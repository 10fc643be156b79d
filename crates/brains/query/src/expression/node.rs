//! The expression tree and its evaluation.
//!
//! Variables live on the evaluator's stack: a [`Scope`] links the bindings around it, innermost first, so that binding
//! allocates nothing and an inner scope cannot outlive an outer one. The parser numbers variables by nesting (their
//! slot), so that names are resolved once.

use super::meter::{Elements, Fields, Held, Meter};
use super::named::Named;
use super::path::{self, FieldPath};
use super::regex::RegexCall;
use super::sort_array::SortArray;
use super::table::{Form, Operator};
use super::value::{self, Value};
use crate::Context;
use baton_types::{Error, Result};
use bson::{Bson, RawArray, RawBsonRef, RawDocument};
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

/// An evaluated argument, borrowed where the expression or a variable owns it.
pub(crate) type Argument<'a> = Cow<'a, Value>;

/// The arguments of a call, and the meter its function counts on. Most functions take no longer, and make no more, than
/// their arguments are large, which are counted before; the others count themselves.
pub(crate) struct Arguments<'s, 'a> {
    values: &'s mut [Argument<'a>],
    pub meter: &'s Meter<'s>,
}

impl<'a> Deref for Arguments<'_, 'a> {
    type Target = [Argument<'a>];

    fn deref(&self) -> &Self::Target {
        self.values
    }
}

impl DerefMut for Arguments<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.values
    }
}

/// Where a path starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// `$$ROOT`, and `$$CURRENT` unless rebound.
    Root,
    /// A variable the expression binds, by slot.
    Slot(usize),
    /// A variable of the request, by name.
    Request(String),
    /// `$$NOW`.
    Now,
    /// `$$CLUSTER_TIME`.
    ClusterTime,
}

/// One node of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A literal, or what folded to one. `None` is `$$REMOVE`.
    Constant(Value),
    /// A variable, or a path into it.
    Path(Source, FieldPath),
    /// `{name: expression, …}`.
    Object(Vec<(String, Node)>),
    /// `[expression, …]`.
    Array(Vec<Node>),
    /// `$and`, stopping at the first false.
    And(Vec<Node>),
    /// `$or`, stopping at the first true.
    Or(Vec<Node>),
    /// `$ifNull`, stopping at the first that is not nullish; the last is the fallback.
    IfNull(Vec<Node>),
    /// `$cond`: condition, then, else.
    Cond(Box<[Node; 3]>),
    /// `$switch`: branches of condition and value, and the default.
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    /// `$let`: the first slot, the values of it and the following ones, and the body.
    Let(usize, Vec<Node>, Box<Node>),
    /// `$map`: the slot of the element, input and body.
    Map(usize, Box<[Node; 2]>),
    /// `$filter`: the slot of the element, input and condition, and the limit.
    Filter(usize, Box<[Node; 2]>, Option<Box<Node>>),
    /// `$reduce`: the slot of `$$value` (`$$this` follows it), input, initial value and body.
    Reduce(usize, Box<[Node; 3]>),
    /// `$regexMatch`, `$regexFind`, `$regexFindAll`.
    Regex(Box<RegexCall>),
    /// `$sortArray`.
    SortArray(Box<SortArray>),
    /// `$zip`: inputs, defaults (empty for none) and whether the longest input counts.
    Zip(Vec<Node>, Vec<Node>, bool),
    /// `$rand`.
    Rand,
    /// Any other operator.
    Call(Box<Call>),
}

/// An operator of the table, with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub operator: &'static Operator,
    /// In order; for named arguments, one for each name of the signature.
    pub arguments: Vec<Node>,
    /// For named arguments, one bit for each name that was given.
    pub given: u32,
}

/// What an expression is evaluated against.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub root: &'a RawDocument,
    pub ctx: &'a Context,
    pub meter: &'a Meter<'a>,
    locals: Option<&'a Locals<'a>>,
}

/// Consecutive bindings, and those around them.
pub(crate) struct Locals<'a> {
    first_slot: usize,
    values: &'a [Value],
    outer: Option<&'a Locals<'a>>,
}

impl<'a> Scope<'a> {
    pub fn new(root: &'a RawDocument, ctx: &'a Context, meter: &'a Meter<'a>) -> Self {
        Self { root, ctx, meter, locals: None }
    }

    /// Bindings for `values` from `first_slot` on, to be given to [`Scope::with`].
    pub fn bind<'b>(&self, first_slot: usize, values: &'b [Value]) -> Locals<'b>
    where
        'a: 'b,
    {
        Locals { first_slot, values, outer: self.locals }
    }

    /// This scope within `locals`.
    pub fn with<'b>(&self, locals: &'b Locals<'b>) -> Scope<'b>
    where
        'a: 'b,
    {
        Scope { locals: Some(locals), ..*self }
    }

    fn local(&self, slot: usize) -> Result<&'a Value> {
        let mut next = self.locals;
        while let Some(locals) = next {
            if slot >= locals.first_slot {
                return locals.values.get(slot - locals.first_slot).ok_or_else(|| unbound(slot));
            }
            next = locals.outer;
        }
        Err(unbound(slot))
    }

    fn request_variable(&self, name: &str) -> Result<&'a Bson> {
        self.ctx.variable(name).ok_or_else(|| Error::location(17276, format!("Use of undefined variable: {name}")))
    }
}

fn unbound(slot: usize) -> Error {
    Error::new(baton_types::ErrorCode::InternalError, format!("expression variable {slot} is not bound"))
}

/// Whether a node's value lies in the document.
pub(crate) enum InPlace<'d> {
    /// This is it.
    Value(RawBsonRef<'d>),
    /// It would, and is missing.
    Missing,
    /// It has to be computed.
    No,
}

impl Node {
    /// The value as it lies in `document`, where the node is a path and nothing but documents are on its way.
    pub fn in_place<'d>(&self, document: &'d RawDocument) -> Result<InPlace<'d>> {
        let Self::Path(Source::Root, path) = self else { return Ok(InPlace::No) };
        let mut value = RawBsonRef::Document(document);
        for name in path {
            value = match value {
                RawBsonRef::Document(inner) => match inner.get(name)? {
                    Some(next) => next,
                    None => return Ok(InPlace::Missing),
                },
                RawBsonRef::Array(_) => return Ok(InPlace::No),
                _ => return Ok(InPlace::Missing),
            };
        }
        Ok(InPlace::Value(value))
    }

    /// The array that is the node's value, where it lies in the document.
    pub fn array_in_place<'d>(&self, document: &'d RawDocument) -> Result<Option<&'d RawArray>> {
        match self.in_place(document)? {
            InPlace::Value(RawBsonRef::Array(array)) => Ok(Some(array)),
            InPlace::Value(_) | InPlace::Missing | InPlace::No => Ok(None),
        }
    }

    /// Whether the node is a constant.
    pub fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    /// The node's value.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Path(source, path) => evaluate_path(source, path, scope),
            Self::Object(fields) => evaluate_object(fields, scope),
            Self::Array(elements) => {
                let mut values = Elements::new(scope.meter, "an array", elements.len());
                for element in elements {
                    values.push(element.evaluate(scope)?.unwrap_or(Bson::Null))?;
                }
                Ok(values.into_value())
            }
            Self::And(_) | Self::Or(_) => Ok(Some(Bson::Boolean(self.evaluate_bool(scope)?))),
            Self::IfNull(alternatives) => {
                let mut value = None;
                for alternative in alternatives {
                    value = alternative.evaluate(scope)?;
                    if !value::is_nullish(&value) {
                        break;
                    }
                }
                Ok(value)
            }
            Self::Cond(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                if condition.evaluate_bool(scope)? { then.evaluate(scope) } else { otherwise.evaluate(scope) }
            }
            Self::Switch(branches, default) => super::conditional::switch(branches, default.as_deref(), scope),
            Self::Let(slot, values, body) => super::variables::evaluate_let(*slot, values, body, scope),
            Self::Map(slot, parts) => super::variables::evaluate_map(*slot, parts, scope),
            Self::Filter(slot, parts, limit) => {
                super::variables::evaluate_filter(*slot, parts, limit.as_deref(), scope)
            }
            Self::Reduce(slot, parts) => super::variables::evaluate_reduce(*slot, parts, scope),
            Self::Regex(call) => call.evaluate(scope),
            Self::SortArray(call) => call.evaluate(scope),
            Self::Zip(inputs, defaults, longest) => super::array::evaluate_zip(inputs, defaults, *longest, scope),
            Self::Rand => Ok(Some(Bson::Double(scope.ctx.random()))),
            Self::Call(call) => call.evaluate(scope),
        }
    }

    /// The node's value, borrowed where something owns it already.
    pub fn borrow<'s>(&'s self, scope: &Scope<'s>) -> Result<Argument<'s>> {
        match self {
            Self::Constant(value) => Ok(Cow::Borrowed(value)),
            Self::Path(Source::Slot(slot), path) if path.is_empty() => Ok(Cow::Borrowed(scope.local(*slot)?)),
            other => Ok(Cow::Owned(other.evaluate(scope)?)),
        }
    }

    /// The node's value by MongoDB's truth.
    pub fn evaluate_bool(&self, scope: &Scope<'_>) -> Result<bool> {
        match self {
            Self::And(operands) => {
                for operand in operands {
                    if !operand.evaluate_bool(scope)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(operands) => {
                for operand in operands {
                    if operand.evaluate_bool(scope)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            other => Ok(value::is_true(&*other.borrow(scope)?)),
        }
    }
}

fn evaluate_path(source: &Source, path: &FieldPath, scope: &Scope<'_>) -> Result<Value> {
    match source {
        Source::Root => path::in_document(scope.root, path, scope.meter),
        Source::Slot(slot) => path::in_value(scope.local(*slot)?.as_ref(), path, scope.meter),
        Source::Request(name) => path::in_value(Some(scope.request_variable(name)?), path, scope.meter),
        Source::Now => Ok(path.is_empty().then_some(Bson::DateTime(scope.ctx.now))),
        Source::ClusterTime => match scope.ctx.cluster_time {
            Some(time) => Ok(path.is_empty().then(|| Bson::Timestamp(time.into()))),
            None => Err(Error::location(51144, "Builtin variable '$$CLUSTER_TIME' is not available")),
        },
    }
}

fn evaluate_object(fields: &[(String, Node)], scope: &Scope<'_>) -> Result<Value> {
    let mut object = Fields::new(scope.meter, "an object");
    for (name, node) in fields {
        if let Some(value) = node.evaluate(scope)? {
            object.insert(name, value)?;
        }
    }
    Ok(object.into_value())
}

impl Call {
    fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        let name = self.operator.name;
        let meter = scope.meter;
        meter.step()?;
        if let Some(in_place) = self.operator.in_place
            && let Some(value) = in_place(self, scope)?
        {
            return Ok(value);
        }
        match &self.operator.form {
            Form::Positional(_, function) => {
                // What the arguments take is held until the result is there.
                let mut held = meter.hold(name);
                // The common arities avoid the allocation.
                match self.arguments.as_slice() {
                    [a] => function(name, &mut Arguments { values: &mut [argument(a, scope, &mut held)?], meter }),
                    [a, b] => {
                        let values = &mut [argument(a, scope, &mut held)?, argument(b, scope, &mut held)?];
                        function(name, &mut Arguments { values, meter })
                    }
                    many => {
                        let mut arguments = Vec::with_capacity(many.len());
                        for node in many {
                            arguments.push(argument(node, scope, &mut held)?);
                        }
                        function(name, &mut Arguments { values: &mut arguments, meter })
                    }
                }
            }
            Form::Named(_, function) => function(&Named { call: self, scope }),
            Form::Special(_) | Form::Refused(_) => match self.operator.call {
                Some(function) => function(&Named { call: self, scope }),
                None => {
                    Err(Error::new(baton_types::ErrorCode::InternalError, format!("{name} has no function to call")))
                }
            },
        }
    }
}

/// An argument of a call, held if it is the call's own.
fn argument<'s>(node: &'s Node, scope: &Scope<'s>, held: &mut Held<'_>) -> Result<Argument<'s>> {
    let argument = node.borrow(scope)?;
    match &argument {
        Cow::Owned(value) => held.add_contents(value.as_ref())?,
        Cow::Borrowed(Some(Bson::String(text))) => scope.meter.move_bytes(text.len())?,
        Cow::Borrowed(_) => {}
    }
    Ok(argument)
}

/// A raw value as an owned one.
pub(crate) fn own(raw: RawBsonRef<'_>) -> Result<Bson> {
    Ok(Bson::try_from(raw)?)
}
