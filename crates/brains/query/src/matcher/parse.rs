//! From a filter document to its tree; the tables of operators are here.
//!
//! Invariants: a document is one of operators if its *first* field begins with `$` (and is none of a database
//! reference's); recursion is bounded by [`DEPTH_MAX`].

use super::regex::Options;
use super::{
    BitOperator, BitTest, Comparison, DEPTH_MAX, ExprNode, InList, Modulo, Node, Operator, Predicate, RegexPredicate,
    SampleRate, Schema, TypeSet, arrays, integer, regex,
};
use crate::Context;
use baton_document::number::Number;
use baton_document::path::Path;
use baton_types::{Error, Result};
use bson::{RawBson, RawBsonRef, RawDocument};
use smallvec::SmallVec;
use std::sync::Arc;

/// Most components of a path: as deep as the documents of clients may be nested.
const PATH_COMPONENTS_MAX: usize = 180;

/// Parses a filter.
pub(super) fn filter(doc: &RawDocument, ctx: &Context) -> Result<Node> {
    Parser { ctx, nested: false }.document(doc, 1)
}

/// Parses operators that apply to a value by itself.
pub(super) fn value_operators(doc: &RawDocument, ctx: &Context) -> Result<Node> {
    Parser { ctx, nested: true }.operators(&Path::parse(""), doc, 1)
}

/// Whether a value is a document of operators. A database reference (`$ref`, `$id`, `$db`) is a literal; whether one
/// field of it is enough to be one is the caller's to say.
pub(super) fn is_operators(value: RawBsonRef<'_>, incomplete_reference_is_literal: bool) -> bool {
    let RawBsonRef::Document(doc) = value else { return false };
    let Some(Ok(first)) = doc.iter_elements().next() else { return false };
    if !first.key().as_str().starts_with('$') {
        return false;
    }
    let has = |name: &str| doc.iter_elements().flatten().any(|element| element.key().as_str() == name);
    let is_reference = if incomplete_reference_is_literal {
        has("$ref") || has("$id") || has("$db")
    } else {
        has("$ref") && has("$id")
    };
    !is_reference
}

/// A plain value as a predicate: a regular expression is searched for, anything else must be equal.
pub(super) fn literal(value: RawBsonRef<'_>) -> Result<Predicate> {
    match value {
        RawBsonRef::RegularExpression(literal) => {
            Ok(Predicate::Regex(Box::new(RegexPredicate::from_literal(literal)?)))
        }
        RawBsonRef::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        value => Ok(Predicate::Compare(Comparison::new(Operator::Eq, value))),
    }
}

/// MongoDB's notion of a true value: all but `false`, zero, `null` and undefined.
pub(super) fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(b) => b,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        value => Number::from_raw(value).is_none_or(|number| !number.is_zero()),
    }
}

/// What parsing needs to know of its surroundings.
pub(super) struct Parser<'a> {
    ctx: &'a Context,
    /// Whether this is inside an `$elemMatch`, where `$expr` has no document to speak of.
    nested: bool,
}

impl Parser<'_> {
    /// The parser for the inside of an `$elemMatch`.
    pub(super) fn nested(&self) -> Parser<'_> {
        Parser { ctx: self.ctx, nested: true }
    }

    /// A document of conditions.
    pub(super) fn document(&self, doc: &RawDocument, depth: usize) -> Result<Node> {
        check_depth(depth, doc)?;
        // Most filters are about one field.
        let mut children = SmallVec::<[Node; 1]>::new();
        for element in doc.iter_elements() {
            let element = element?;
            let (name, value) = (element.key().as_str(), element.value()?);
            match name {
                "$ref" | "$id" | "$db" => children.push(Node::field(&Path::parse(name), literal(value)?)),
                _ if name.starts_with('$') => children.extend(self.combination(name, value, depth)?),
                _ => {
                    check_path(name)?;
                    let path = Path::parse(name);
                    children.push(match value {
                        RawBsonRef::Document(inner) if is_operators(value, false) => {
                            self.operators(&path, inner, depth + 1)?
                        }
                        value => Node::field(&path, literal(value)?),
                    });
                }
            }
        }
        match children.len() {
            1 => Ok(children.remove(0)),
            _ => Ok(Node::and(children.into_vec())),
        }
    }

    /// An operator without a path.
    fn combination(&self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Option<Node>> {
        Ok(Some(match name {
            "$and" => Node::and(self.conditions(name, value, depth)?),
            "$or" => Node::or(self.conditions(name, value, depth)?),
            "$nor" => Node::Nor(self.conditions(name, value, depth)?),
            "$comment" => return Ok(None),
            "$alwaysTrue" => constant(name, value, Node::True)?,
            "$alwaysFalse" => constant(name, value, Node::False)?,
            "$expr" if self.nested => {
                return Err(Error::bad_value("$expr can only be applied to the top-level document"));
            }
            "$expr" => Node::Expr(ExprNode::parse(value, self.ctx)?),
            "$jsonSchema" => {
                let RawBsonRef::Document(schema) = value else {
                    return Err(Error::type_mismatch("$jsonSchema must be an object"));
                };
                Node::Schema(Arc::new(Schema::parse(schema, self.ctx)?))
            }
            "$sampleRate" if self.nested => {
                return Err(Error::bad_value("$sampleRate can only be applied to the top-level document"));
            }
            "$sampleRate" => Node::SampleRate(SampleRate::parse(value, self.ctx.seed)?),
            "$text" => return Err(Error::not_implemented("$text (text search)")),
            "$where" => {
                return Err(Error::bad_value("$where is refused: Baton runs no JavaScript on the server; use $expr"));
            }
            "$not" => {
                return Err(Error::bad_value(
                    "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
                ));
            }
            _ => {
                return Err(Error::bad_value(format!(
                    "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, \
                     consider using $getField or $setField."
                )));
            }
        }))
    }

    /// The conditions that `$and`, `$or` and `$nor` combine.
    fn conditions(&self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Vec<Node>> {
        let RawBsonRef::Array(array) = value else {
            return Err(Error::bad_value(format!("{name} must be an array")));
        };
        let mut children = Vec::new();
        for element in array {
            let RawBsonRef::Document(condition) = element? else {
                return Err(Error::bad_value("$or/$and/$nor entries need to be full objects"));
            };
            children.push(self.document(condition, depth + 1)?);
        }
        if children.is_empty() {
            return Err(Error::bad_value("$and/$or/$nor must be a nonempty array"));
        }
        Ok(children)
    }

    /// A document of operators on one path.
    pub(super) fn operators(&self, path: &Path, doc: &RawDocument, depth: usize) -> Result<Node> {
        check_depth(depth, doc)?;
        let has_regex = doc.get("$regex")?.is_some();
        let options = Options::beside(doc)?;
        let mut children = Vec::new();
        for element in doc.iter_elements() {
            let element = element?;
            let name = element.key().as_str();
            if name == "$comment" || name == "$options" {
                if name == "$options" && !has_regex {
                    return Err(Error::bad_value("$options needs a $regex"));
                }
                continue;
            }
            children.push(self.operator(path, name, element.value()?, options, depth)?);
        }
        Ok(Node::and(children))
    }

    /// One operator on a path, and the `$options` beside it.
    fn operator(
        &self,
        path: &Path,
        name: &str,
        value: RawBsonRef<'_>,
        options: Options<'_>,
        depth: usize,
    ) -> Result<Node> {
        let field = |predicate| Node::field(path, predicate);
        Ok(match name {
            "$eq" => field(comparison(path, Operator::Eq, value)?),
            "$ne" => match value {
                RawBsonRef::RegularExpression(_) => {
                    return Err(Error::bad_value("Can't have regex as arg to $ne."));
                }
                value => field(comparison(path, Operator::Eq, value)?).not(),
            },
            "$lt" => field(comparison(path, Operator::Lt, value)?),
            "$lte" => field(comparison(path, Operator::Lte, value)?),
            "$gt" => field(comparison(path, Operator::Gt, value)?),
            "$gte" => field(comparison(path, Operator::Gte, value)?),
            "$in" => field(Predicate::In(in_list(name, value)?)),
            "$nin" => field(Predicate::In(in_list(name, value)?)).not(),
            "$not" => self.negation(path, value, depth)?,
            "$exists" if is_true(value) => field(Predicate::Exists),
            "$exists" => field(Predicate::Exists).not(),
            "$type" => field(Predicate::Type(TypeSet::parse(path.as_str(), value)?)),
            "$mod" => field(Predicate::Mod(Modulo::parse(value)?)),
            "$regex" => field(Predicate::Regex(Box::new(regex::parse(value, options)?))),
            "$all" => arrays::all(self, path, value, depth)?,
            "$elemMatch" => field(arrays::elem_match(self, value, depth)?),
            "$size" => field(arrays::size(value)?),
            "$bitsAllSet" => field(Predicate::Bits(BitTest::parse(BitOperator::AllSet, value)?)),
            "$bitsAllClear" => field(Predicate::Bits(BitTest::parse(BitOperator::AllClear, value)?)),
            "$bitsAnySet" => field(Predicate::Bits(BitTest::parse(BitOperator::AnySet, value)?)),
            "$bitsAnyClear" => field(Predicate::Bits(BitTest::parse(BitOperator::AnyClear, value)?)),
            "$near" | "$nearSphere" | "$geoNear" | "$geoWithin" | "$within" | "$geoIntersects" | "$geometry"
            | "$maxDistance" | "$minDistance" | "$uniqueDocs" => {
                return Err(Error::not_implemented(format!("{name} (geospatial search)")));
            }
            "$where" => return Err(Error::bad_value("$where cannot be applied to a field")),
            _ => return Err(Error::bad_value(format!("unknown operator: {name}"))),
        })
    }

    /// `$not`
    fn negation(&self, path: &Path, value: RawBsonRef<'_>, depth: usize) -> Result<Node> {
        match value {
            RawBsonRef::RegularExpression(_) => Ok(Node::field(path, literal(value)?).not()),
            RawBsonRef::Document(doc) if doc.is_empty() => Err(Error::bad_value("$not cannot be empty")),
            RawBsonRef::Document(doc) => Ok(self.operators(path, doc, depth + 1)?.not()),
            _ => Err(Error::bad_value("$not needs a regex or a document")),
        }
    }
}

/// `$eq`, `$lt`, …: what can be compared with.
fn comparison(path: &Path, operator: Operator, value: RawBsonRef<'_>) -> Result<Predicate> {
    match (operator, value) {
        (_, RawBsonRef::Undefined) => Err(Error::bad_value("cannot compare to undefined")),
        (Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte, RawBsonRef::RegularExpression(_)) => {
            Err(Error::bad_value(format!("Can't have RegEx as arg to predicate over field '{path}'.")))
        }
        _ => Ok(Predicate::Compare(Comparison::new(operator, value))),
    }
}

/// `$in` and `$nin`: values and regular expressions.
fn in_list(name: &str, value: RawBsonRef<'_>) -> Result<InList> {
    let RawBsonRef::Array(array) = value else { return Err(Error::bad_value(format!("{name} needs an array"))) };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for element in array {
        let element = element?;
        match element {
            RawBsonRef::RegularExpression(literal) => regexes.push(RegexPredicate::from_literal(literal)?),
            RawBsonRef::Undefined => return Err(Error::bad_value("InMatchExpression equality cannot be undefined")),
            _ if is_operators(element, false) => return Err(Error::bad_value("cannot nest $ under $in")),
            _ => values.push(RawBson::from(element)),
        }
    }
    Ok(InList::new(values, regexes))
}

/// `$alwaysTrue` and `$alwaysFalse` take a one.
fn constant(name: &str, value: RawBsonRef<'_>, node: Node) -> Result<Node> {
    if integer::exact(value) == Some(1) {
        Ok(node)
    } else {
        Err(Error::failed_to_parse(format!("{name} must be an integer value of 1")))
    }
}

/// A path has no more components than documents have levels.
fn check_path(path: &str) -> Result<()> {
    if path.split('.').count() <= PATH_COMPONENTS_MAX {
        return Ok(());
    }
    Err(Error::location(5_729_100, "FieldPath is too long"))
}

fn check_depth(depth: usize, doc: &RawDocument) -> Result<()> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    // The whole of a deep document would drown the message.
    let bytes = doc.as_bytes().len();
    Err(Error::bad_value(format!("exceeded maximum query tree depth of {DEPTH_MAX} at a document of {bytes} bytes")))
}
