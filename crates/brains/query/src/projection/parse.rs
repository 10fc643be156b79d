//! Parsing `find` projections and `$project`.
//!
//! A projection keeps or drops what it names, not both, but for `_id`. Which of the two it does is decided by the first
//! field that says so; without one, `$slice` alone drops nothing and `$elemMatch` alone keeps nothing else.

use super::node::{Fields, Node};
use super::slice::Slice;
use super::{Kind, Mode};
use crate::Context;
use crate::expression::Expression;
use crate::matcher::Matcher;
use crate::{raw, show};
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument};

/// How deep a specification may nest.
const DEPTH_MAX: usize = 180;

/// Parses a specification.
pub(super) fn parse(spec: &RawDocument, filter: Option<&Matcher>, ctx: &Context, mode: Mode) -> Result<(Kind, Fields)> {
    let mut parser = Parser {
        ctx,
        mode,
        has_filter: filter.is_some(),
        kind: None,
        id_named: false,
        id_included: false,
        positional: false,
        elem_match: false,
        slice: false,
    };
    let mut fields = Fields::default();
    if spec.is_empty() {
        return match mode {
            // No projection: all fields stay.
            Mode::Find => Ok((Kind::Exclusion, fields)),
            Mode::Aggregate => Err(Error::location(51272, "projection specification must have at least one field")),
        };
    }
    for field in spec {
        let (name, value) = field?;
        let name = name.as_str();
        parser.id_named |= name == "_id" || name.starts_with("_id.");
        parser.field(name, value, 0, &mut fields)?;
    }
    let kind = parser.kind();
    if kind == Kind::Inclusion && !parser.id_named {
        fields.add("_id", Node::Include)?;
    }
    if kind == Kind::Exclusion
        && parser.id_included
        && let Some(at) = fields.position("_id")
    {
        fields.children.remove(at);
    }
    Ok((kind, fields))
}

struct Parser<'a> {
    ctx: &'a Context,
    mode: Mode,
    has_filter: bool,
    /// What the fields met so far have decided.
    kind: Option<Kind>,
    id_named: bool,
    id_included: bool,
    positional: bool,
    elem_match: bool,
    slice: bool,
}

impl Parser<'_> {
    fn kind(&self) -> Kind {
        self.kind.unwrap_or({
            if self.id_included || (self.elem_match && !self.slice) { Kind::Inclusion } else { Kind::Exclusion }
        })
    }

    /// Parses one field into `fields`; `depth` is 0 for those of the specification itself.
    fn field(&mut self, name: &str, value: RawBsonRef<'_>, depth: usize, fields: &mut Fields) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorCode::Overflow,
                format!("projection exceeds maximum nesting depth of {DEPTH_MAX}"),
            ));
        }
        let positional = self.positional_path(name)?;
        if let Some(included) = raw::is_true_number(value) {
            return match (included, positional) {
                (true, Some(path)) => self.positional(path, fields),
                (true, None) => self.inclusion(name, depth, fields),
                (false, _) => self.exclusion(name, depth, fields),
            };
        }
        match value {
            RawBsonRef::Document(_) if positional.is_some() => {
                Err(Error::location(31271, "positional projection cannot be used with an expression or sub object"))
            }
            RawBsonRef::Document(below) => self.sub_object(name, below, depth, fields),
            _ if positional.is_some() => {
                Err(Error::location(31308, "positional projection cannot be used with a literal"))
            }
            literal => {
                fields.add(name, Node::Compute(Expression::parse(literal, self.ctx)?))?;
                if self.kind == Some(Kind::Exclusion) {
                    let element = show::element(name, literal);
                    let message = format!("Cannot use an expression {element} in an exclusion projection");
                    return Err(Error::location(31310, message));
                }
                self.kind = Some(Kind::Inclusion);
                Ok(())
            }
        }
    }

    /// The path before a trailing `.$`.
    fn positional_path<'n>(&self, name: &'n str) -> Result<Option<&'n str>> {
        let path = name.strip_suffix(".$");
        if path.is_some() && self.mode != Mode::Find {
            return Err(Error::location(31324, "Cannot use positional projection in aggregation projection"));
        }
        if path.unwrap_or(name).split('.').skip(1).any(|component| component == "$") {
            return Err(Error::location(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
            ));
        }
        Ok(path)
    }

    fn inclusion(&mut self, name: &str, depth: usize, fields: &mut Fields) -> Result<()> {
        fields.add(name, Node::Include)?;
        if name == "_id" && depth == 0 {
            self.id_included = true;
            return Ok(());
        }
        self.decide_inclusion(name)
    }

    fn decide_inclusion(&mut self, name: &str) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            let message = format!("Cannot do inclusion on field {name} in exclusion projection");
            return Err(Error::location(31253, message));
        }
        self.kind = Some(Kind::Inclusion);
        Ok(())
    }

    fn exclusion(&mut self, name: &str, depth: usize, fields: &mut Fields) -> Result<()> {
        fields.add(name, Node::Exclude)?;
        if name == "_id" && depth == 0 {
            return Ok(());
        }
        if self.kind == Some(Kind::Inclusion) {
            let message = format!("Cannot do exclusion on field {name} in inclusion projection");
            return Err(Error::location(31254, message));
        }
        self.kind = Some(Kind::Exclusion);
        Ok(())
    }

    fn positional(&mut self, path: &str, fields: &mut Fields) -> Result<()> {
        if self.positional {
            return Err(Error::location(31276, "Cannot specify more than one positional projection per query."));
        }
        if self.elem_match {
            return Err(Error::location(31256, "Cannot specify positional operator and $elemMatch."));
        }
        if !self.has_filter {
            return Err(Error::location(51050, "Projections with a positional operator require a matcher"));
        }
        fields.add(path, Node::Positional)?;
        self.positional = true;
        self.decide_inclusion(&format!("{path}.$"))
    }

    /// Parses a document: an operator of the projection language, an expression, or fields of a field.
    fn sub_object(&mut self, name: &str, below: &RawDocument, depth: usize, fields: &mut Fields) -> Result<()> {
        let mut elements = below.iter();
        let Some(first) = elements.next() else {
            return Err(Error::location(
                51270,
                format!("An empty sub-projection is not a valid value. Found empty object at path {name}"),
            ));
        };
        let (operator, argument) = first?;
        if operator.as_str().starts_with('$') && elements.next().is_none() {
            return match (self.mode, operator.as_str()) {
                (Mode::Find, "$slice") => self.slice(name, below, argument, fields),
                (Mode::Find, "$elemMatch") => self.elem_match(name, below, argument, depth, fields),
                (_, "$meta") => Err(Error::not_implemented("$meta in a projection")),
                (_, operator) => self.expression(name, operator, below, fields),
            };
        }
        let mut inner = Fields::default();
        for field in below {
            let (name, value) = field?;
            self.field(name.as_str(), value, depth + 1, &mut inner)?;
        }
        // Added piece by piece, so that `{"a.b": 1, a: {c: 1}}` is one node.
        merge(name, inner, fields)
    }

    fn expression(&mut self, name: &str, operator: &str, value: &RawDocument, fields: &mut Fields) -> Result<()> {
        if self.kind == Some(Kind::Exclusion) {
            return Err(Error::location(31252, "Cannot use expression other than $meta in exclusion projection"));
        }
        let expression = Expression::parse(RawBsonRef::Document(value), self.ctx).map_err(|error| {
            let unknown =
                error.code == ErrorCode::InvalidPipelineOperator && error.message.contains(&format!("'{operator}'"));
            if unknown { Error::location(31325, format!("Unknown expression {operator}")) } else { error }
        })?;
        self.kind = Some(Kind::Inclusion);
        fields.add(name, Node::Compute(expression))
    }

    /// `$slice` means `find`'s if the argument has its form, and the expression otherwise.
    fn slice(&mut self, name: &str, value: &RawDocument, argument: RawBsonRef<'_>, fields: &mut Fields) -> Result<()> {
        match Slice::parse(argument) {
            Ok(slice) => {
                self.slice = true;
                fields.add(name, Node::Slice(slice))
            }
            Err(find) => self.expression(name, "$slice", value, fields).map_err(|mut expression| {
                expression.message = format!(
                    "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: {}: {} :: The given syntax did not match the expression $slice syntax. :: caused by :: {}",
                    show::document(value),
                    find.code.name(),
                    find.message,
                    expression.message
                );
                expression
            }),
        }
    }

    fn elem_match(
        &mut self,
        name: &str,
        value: &RawDocument,
        argument: RawBsonRef<'_>,
        depth: usize,
        fields: &mut Fields,
    ) -> Result<()> {
        if argument.as_document().is_none() {
            let found = type_name(argument.element_type());
            let message = format!("elemMatch: Invalid argument, object required, but got {found}");
            return Err(Error::location(31274, message));
        }
        if self.positional {
            return Err(Error::location(31255, "Cannot specify positional operator and $elemMatch."));
        }
        if depth > 0 || name.contains('.') {
            return Err(Error::location(31275, "Cannot use $elemMatch projection on a nested field."));
        }
        let mut out = Vec::new();
        let start = raw::begin(&mut out);
        raw::put_value(&mut out, name, RawBsonRef::Document(value));
        raw::end(&mut out, start);
        let matcher = Matcher::parse(RawDocument::from_bytes(&out)?, self.ctx)?;
        self.elem_match = true;
        fields.add(name, Node::ElemMatch(Box::new(matcher)))
    }
}

/// Adds the nodes of `inner` below the path `name`.
fn merge(name: &str, inner: Fields, fields: &mut Fields) -> Result<()> {
    for (below, node) in inner.children {
        let path = format!("{name}.{below}");
        match node {
            Node::Below(deeper) => merge(&path, *deeper, fields)?,
            node => fields.add(&path, node)?,
        }
    }
    Ok(())
}
