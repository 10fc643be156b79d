//! From BSON to the expression tree.
//!
//! What does not depend on a document or variable is folded to a constant here, unless evaluating it fails: a failing
//! branch may never be taken, so its error waits until it is. The context keeps the first (`Context::check_constants`).

use super::depth;
use super::meter::Meter;
use super::node::{Call, Node, Scope, Source, own};
use super::path;
use super::table::{self, Arity, Form};
use super::value;
use crate::Context;
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document, RawBsonRef, RawDocument};
use std::collections::HashSet;

/// How deep expressions may nest; MongoDB's limit on the nesting of documents.
pub(crate) const DEPTH_MAX: usize = 200;

/// How many levels the value of a variable may add: without a bound, nested `$let`s add up to a value so deep that
/// walking it would exhaust the stack.
const LEVELS_MAX: usize = 5 * DEPTH_MAX;

/// The state of parsing one expression.
pub(crate) struct Parser<'c> {
    pub ctx: &'c Context,
    /// Names of the variables in scope; the position is the slot.
    names: Vec<String>,
    /// For each variable in scope, how many levels its value may add to those of the document.
    levels: Vec<usize>,
    depth: usize,
}

impl<'c> Parser<'c> {
    pub fn new(ctx: &'c Context) -> Self {
        Self { ctx, names: Vec::new(), levels: Vec::new(), depth: 0 }
    }

    /// Parses anything that may stand where a value is expected.
    pub fn operand(&mut self, raw: RawBsonRef<'_>) -> Result<Node> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::new(
                ErrorCode::Overflow,
                format!("expression exceeds the maximum nesting depth of {DEPTH_MAX}"),
            ));
        }
        self.depth += 1;
        let node = match raw {
            RawBsonRef::String(text) if text.starts_with('$') => self.variable(text),
            RawBsonRef::Document(document) => self.document(document),
            RawBsonRef::Array(array) => {
                let mut elements = Vec::new();
                for element in array {
                    elements.push(self.operand(element?)?);
                }
                Ok(fold_array(elements))
            }
            literal => Ok(Node::Constant(Some(own(literal)?))),
        };
        self.depth -= 1;
        node
    }

    /// Parses the argument of an operator that takes a list: each element of an array, or the one value.
    pub fn operands(&mut self, raw: RawBsonRef<'_>) -> Result<Vec<Node>> {
        match raw {
            RawBsonRef::Array(array) => {
                let mut operands = Vec::new();
                for element in array {
                    operands.push(self.operand(element?)?);
                }
                Ok(operands)
            }
            single => Ok(vec![self.operand(single)?]),
        }
    }

    /// The slot the next binding gets.
    pub fn next_slot(&self) -> usize {
        self.names.len()
    }

    /// Parses `raw` with further variables in scope, each bound to the value of a node (or what is within it).
    pub fn operand_within(&mut self, bindings: &[(&str, &Node)], raw: RawBsonRef<'_>) -> Result<Node> {
        let outer = self.names.len();
        for (name, bound) in bindings {
            let levels = depth::levels(bound, &self.levels[..outer]);
            if levels > LEVELS_MAX {
                return Err(Error::new(
                    ErrorCode::Overflow,
                    format!("the value of variable {name} may exceed the maximum nesting depth of {DEPTH_MAX}"),
                ));
            }
            self.names.push((*name).to_owned());
            self.levels.push(levels);
        }
        let node = self.operand(raw);
        self.names.truncate(outer);
        self.levels.truncate(outer);
        node
    }

    fn variable(&mut self, text: &str) -> Result<Node> {
        if text == "$" {
            return Err(Error::location(16872, "'$' by itself is not a valid FieldPath"));
        }
        let Some(dotted) = text.strip_prefix("$$") else {
            let path = path::parse(&text[1..])?;
            return Ok(Node::Path(self.current(), path));
        };
        let (name, path) = match dotted.split_once('.') {
            Some((name, rest)) => (name, path::parse(rest)?),
            None => (dotted, Vec::new()),
        };
        check_readable_name(name)?;
        let source = match name {
            "ROOT" => Source::Root,
            "CURRENT" => self.current(),
            "REMOVE" => return Ok(Node::Constant(None)),
            "NOW" => Source::Now,
            "CLUSTER_TIME" => Source::ClusterTime,
            "USER_ROLES" | "SEARCH_META" | "JS_SCOPE" | "IS_MR" => {
                return Err(Error::not_implemented(format!("the variable $${name}")));
            }
            _ => match self.names.iter().rposition(|known| known == name) {
                Some(slot) => Source::Slot(slot),
                None if self.ctx.variable(name).is_some() => Source::Request(name.to_owned()),
                None => return Err(Error::location(17276, format!("Use of undefined variable: {name}"))),
            },
        };
        Ok(Node::Path(source, path))
    }

    fn current(&self) -> Source {
        match self.names.iter().rposition(|known| known == "CURRENT") {
            Some(slot) => Source::Slot(slot),
            None if self.ctx.variable("CURRENT").is_some() => Source::Request("CURRENT".to_owned()),
            None => Source::Root,
        }
    }

    fn document(&mut self, document: &RawDocument) -> Result<Node> {
        let mut elements = document.iter();
        let Some(first) = elements.next() else { return Ok(Node::Constant(Some(Bson::Document(Document::new())))) };
        let (key, argument) = first?;
        if key.as_str().starts_with('$') {
            if elements.next().is_some() {
                return Err(Error::location(
                    15983,
                    format!(
                        "an object representing an expression must have exactly one field: {}",
                        value::display_document(document)
                    ),
                ));
            }
            return self.operator(key.as_str(), argument);
        }
        let mut fields: Vec<(String, Node)> = Vec::new();
        let mut names = HashSet::new();
        for element in document {
            let (name, inner) = element?;
            path::check_component(name.as_str())?;
            if !names.insert(name.as_str()) {
                return Err(Error::location(
                    16406,
                    format!("duplicate field name specified in object literal: {}", value::display_document(document)),
                ));
            }
            fields.push((name.as_str().to_owned(), self.operand(inner)?));
        }
        Ok(fold_object(fields))
    }

    fn operator(&mut self, name: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        let operator = table::find(name).ok_or_else(|| {
            Error::new(ErrorCode::InvalidPipelineOperator, format!("Unrecognized expression '{name}'"))
        })?;
        match &operator.form {
            Form::Positional(arity, _) => {
                let arguments = self.operands(argument)?;
                arity.check(operator.name, arguments.len())?;
                self.fold(Call { operator, arguments, given: 0 })
            }
            Form::Named(signature, _) => {
                let call = signature.parse(self, operator, argument)?;
                self.fold(call)
            }
            Form::Special(parse) => parse(self, operator, argument),
            Form::Refused(reason) => Err(Error::not_implemented(format!("{name} ({reason})"))),
        }
    }

    /// A call as a node; a constant where all arguments are, the call succeeds, and its value is small enough to be
    /// kept for the whole request.
    pub fn fold(&self, call: Call) -> Result<Node> {
        let constant = call.arguments.iter().all(Node::is_constant);
        let node = Node::Call(Box::new(call));
        if !constant {
            return Ok(node);
        }
        let meter = Meter::new(self.ctx);
        match node.evaluate(&Scope::new(&bson::RawDocumentBuf::new(), self.ctx, &meter)) {
            Ok(value) if self.ctx.may_keep(value.as_ref()) => Ok(Node::Constant(value)),
            Ok(_) => Ok(node),
            Err(error) => {
                // An interrupt is not the call's own error.
                self.ctx.interruption.look()?;
                self.ctx.constant_failed(error);
                Ok(node)
            }
        }
    }
}

impl Arity {
    pub(crate) fn check(&self, name: &str, count: usize) -> Result<()> {
        match *self {
            Self::Any => Ok(()),
            Self::Exactly(expected) if count == expected => Ok(()),
            Self::Exactly(expected) => Err(Error::location(
                16020,
                format!("Expression {name} takes exactly {expected} arguments. {count} were passed in."),
            )),
            Self::Between(least, most) if (least..=most).contains(&count) => Ok(()),
            Self::Between(least, most) => Err(Error::location(
                28667,
                format!(
                    "Expression {name} takes at least {least} arguments, and at most {most}, but {count} were passed in."
                ),
            )),
        }
    }
}

/// Refuses what cannot be read as a variable: an empty name or foreign characters.
fn check_readable_name(name: &str) -> Result<()> {
    check_name(name, |first| first.is_ascii_alphabetic())
}

/// Refuses what an expression may not bind: user variables start with a lower-case letter, or are `CURRENT`.
pub(crate) fn check_bindable_name(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    check_name(name, |first| first.is_ascii_lowercase())
}

fn check_name(name: &str, first_ok: impl Fn(char) -> bool) -> Result<()> {
    let mut characters = name.chars();
    let Some(first) = characters.next() else {
        return Err(Error::failed_to_parse("empty variable names are not allowed"));
    };
    if first.is_ascii() && !first_ok(first) {
        return Err(Error::failed_to_parse(format!(
            "'{name}' starts with an invalid character for a user variable name"
        )));
    }
    match characters.find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_') {
        Some(bad) => {
            Err(Error::failed_to_parse(format!("'{name}' contains an invalid character for a variable name: '{bad}'")))
        }
        None => Ok(()),
    }
}

fn fold_array(elements: Vec<Node>) -> Node {
    if !elements.iter().all(Node::is_constant) {
        return Node::Array(elements);
    }
    Node::Constant(Some(Bson::Array(
        elements
            .into_iter()
            .map(|element| match element {
                Node::Constant(Some(value)) => value,
                _ => Bson::Null,
            })
            .collect(),
    )))
}

fn fold_object(fields: Vec<(String, Node)>) -> Node {
    if !fields.iter().all(|(_, node)| node.is_constant()) {
        return Node::Object(fields);
    }
    let mut document = Document::new();
    for (name, node) in fields {
        if let Node::Constant(Some(value)) = node {
            document.insert(name, value);
        }
    }
    Node::Constant(Some(Bson::Document(document)))
}
