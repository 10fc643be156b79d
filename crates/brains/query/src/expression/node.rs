//! The expression tree and its evaluation.
//!
//! Variables live on the evaluator's stack: a [`Scope`] links the bindings around it, innermost first, so that binding
//! allocates nothing and an inner scope cannot outlive an outer one. The parser numbers variables by nesting (their
//! slot), so that names are resolved once.

use super::named::Named;
use super::path::{self, FieldPath};
use super::regex::RegexCall;
use super::sort_array::SortArray;
use super::table::{Form, Operator};
use super::value::{self, Value};
use crate::Context;
use baton_types::{Error, Result};
use bson::{Bson, Document, RawBsonRef, RawDocument};
use std::borrow::Cow;

/// An evaluated argument, borrowed where the expression or a variable owns it.
pub(crate) type Argument<'a> = Cow<'a, Value>;

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
    locals: Option<&'a Locals<'a>>,
}

/// Consecutive bindings, and those around them.
pub(crate) struct Locals<'a> {
    first_slot: usize,
    values: &'a [Value],
    outer: Option<&'a Locals<'a>>,
}

impl<'a> Scope<'a> {
    pub fn new(root: &'a RawDocument, ctx: &'a Context) -> Self {
        Self { root, ctx, locals: None }
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
        Scope { root: self.root, ctx: self.ctx, locals: Some(locals) }
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
        self.ctx
            .variables
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
            .ok_or_else(|| Error::location(17276, format!("Use of undefined variable: {name}")))
    }
}

fn unbound(slot: usize) -> Error {
    Error::new(baton_types::ErrorCode::InternalError, format!("expression variable {slot} is not bound"))
}

impl Node {
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
                let mut values = Vec::with_capacity(elements.len());
                for element in elements {
                    values.push(element.evaluate(scope)?.unwrap_or(Bson::Null));
                }
                Ok(Some(Bson::Array(values)))
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
        Source::Root => path::in_document(scope.root, path),
        Source::Slot(slot) => Ok(path::in_value(scope.local(*slot)?.as_ref(), path)),
        Source::Request(name) => Ok(path::in_value(Some(scope.request_variable(name)?), path)),
        Source::Now => Ok(path.is_empty().then_some(Bson::DateTime(scope.ctx.now))),
        Source::ClusterTime => match scope.ctx.cluster_time {
            Some(time) => Ok(path.is_empty().then(|| Bson::Timestamp(time.into()))),
            None => Err(Error::location(51144, "Builtin variable '$$CLUSTER_TIME' is not available")),
        },
    }
}

fn evaluate_object(fields: &[(String, Node)], scope: &Scope<'_>) -> Result<Value> {
    let mut document = Document::new();
    for (name, node) in fields {
        if let Some(value) = node.evaluate(scope)? {
            document.insert(name.as_str(), value);
        }
    }
    Ok(Some(Bson::Document(document)))
}

impl Call {
    fn evaluate(&self, scope: &Scope<'_>) -> Result<Value> {
        let name = self.operator.name;
        match &self.operator.form {
            // The common arities avoid the allocation.
            Form::Positional(_, function) => match self.arguments.as_slice() {
                [a] => function(name, &mut [a.borrow(scope)?]),
                [a, b] => function(name, &mut [a.borrow(scope)?, b.borrow(scope)?]),
                many => {
                    let mut arguments = Vec::with_capacity(many.len());
                    for argument in many {
                        arguments.push(argument.borrow(scope)?);
                    }
                    function(name, &mut arguments)
                }
            },
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

/// A raw value as an owned one.
pub(crate) fn own(raw: RawBsonRef<'_>) -> Result<Bson> {
    Ok(Bson::try_from(raw)?)
}
