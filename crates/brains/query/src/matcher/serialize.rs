//! A filter in normal form, as explain prints it (`parsedQuery`, a stage's `filter`).

use super::{FieldNode, Node, Predicate, RegexPredicate};
use bson::raw::CString;
use bson::{Bson, Document, RawBsonRef, doc};

/// A condition as a document.
pub(super) fn document(node: &Node) -> Document {
    match node {
        Node::And(children) if children.is_empty() => Document::new(),
        Node::And(children) => doc! { "$and": list(children) },
        Node::Or(children) => doc! { "$or": list(children) },
        Node::Nor(children) => doc! { "$nor": list(children) },
        Node::Not(child) => match &**child {
            Node::Field(field) => doc! { field.path.as_str(): { "$not": predicate(&field.predicate) } },
            other => doc! { "$nor": [document(other)] },
        },
        Node::True => doc! { "$alwaysTrue": 1 },
        Node::False => doc! { "$alwaysFalse": 1 },
        Node::Field(FieldNode { path, predicate: p }) => doc! { path.as_str(): predicate(p) },
        Node::Expr(expr) => doc! { "$expr": expr.source().clone() },
        Node::Schema(schema) => doc! { "$jsonSchema": schema.source().clone() },
        Node::SampleRate(sample) => doc! { "$sampleRate": sample.rate },
    }
}

fn list(children: &[Node]) -> Vec<Document> {
    children.iter().map(document).collect()
}

/// A value as the printing side holds it; what cannot be read prints as null.
fn bson(value: RawBsonRef<'_>) -> Bson {
    Bson::try_from(value).unwrap_or(Bson::Null)
}

/// A regular expression as a literal; its parts were checked for NUL when it was parsed.
fn literal(regex: &RegexPredicate) -> Bson {
    match (CString::try_from(regex.pattern()), CString::try_from(regex.options())) {
        (Ok(pattern), Ok(options)) => Bson::RegularExpression(bson::Regex { pattern, options }),
        _ => Bson::Null,
    }
}

/// A predicate as a document of one operator.
fn predicate(predicate: &Predicate) -> Document {
    match predicate {
        Predicate::Compare(comparison) => {
            doc! { comparison.operator.name(): bson(comparison.value()) }
        }
        Predicate::In(list) => {
            let mut members: Vec<Bson> = list.values().iter().map(|value| bson(value.as_raw_bson_ref())).collect();
            for regex in list.regexes() {
                members.push(literal(regex));
            }
            doc! { "$in": members }
        }
        Predicate::Exists => doc! { "$exists": true },
        Predicate::Type(types) => doc! { "$type": types.to_bson() },
        Predicate::Mod(modulo) => doc! { "$mod": [modulo.divisor, modulo.remainder] },
        Predicate::Regex(regex) if regex.options().is_empty() => doc! { "$regex": regex.pattern() },
        Predicate::Regex(regex) => doc! { "$regex": regex.pattern(), "$options": regex.options() },
        Predicate::Bits(bits) => {
            doc! { bits.operator.name(): bits.positions.iter().map(|p| i64::from(*p)).collect::<Vec<_>>() }
        }
        Predicate::Size(size) => doc! { "$size": *size },
        Predicate::ElemMatchObject(node) => doc! { "$elemMatch": document(node) },
        Predicate::ElemMatchValue(node) => doc! { "$elemMatch": operators(node) },
    }
}

/// Conditions on a value itself, as one document of operators.
fn operators(node: &Node) -> Document {
    let mut all = Document::new();
    for conjunct in node.conjuncts() {
        match conjunct {
            Node::Field(field) => all.extend(predicate(&field.predicate)),
            Node::Not(child) => all.extend(doc! { "$not": operators(child) }),
            other => all.extend(document(other)),
        }
    }
    all
}
