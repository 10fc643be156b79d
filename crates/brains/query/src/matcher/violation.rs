//! Why a document fails a collection's validator: `errInfo` of `DocumentValidationFailure`.
//!
//! The validator is read anew from its source, since what is told is how the client wrote it (`specifiedAs`, the places of
//! clauses), which a [`super::Matcher`] has lost. That happens for documents that fail alone.
//!
//! Invariants: a clause is told of if and only if it is a reason: below a negation ("inverted") that is one that holds. The
//! result is at most [`ERROR_BYTES_MAX`] long and [`ERROR_DEPTH_MAX`] deep; what is longer leaves out the values and the
//! rules first, then everything. Source: MongoDB manual, "Modify Schema Validation", and its tests of these errors.

mod leaf;
mod schema;
#[cfg(test)]
mod tests;

use super::parse::is_operators;
use crate::Context;
use crate::raw;
use baton_types::{Error, Result};
use bson::{Bson, Document, RawArray, RawBsonRef, RawDocument, RawDocumentBuf, doc};
use leaf::Leaf;

/// The longest `errInfo`, as in MongoDB.
const ERROR_BYTES_MAX: usize = 12 * 1024 * 1024;

/// The deepest `errInfo`, as in MongoDB.
const ERROR_DEPTH_MAX: usize = 190;

/// Values of an array that are told at most, as in MongoDB.
const CONSIDERED_VALUES_MAX: usize = 10;

/// `errInfo` for a document that fails a validator.
pub fn violation(validator: &RawDocument, document: &RawDocument, ctx: &Context) -> Result<RawDocumentBuf> {
    let id = document.get("_id")?.map(Bson::try_from).transpose()?;
    let with_id = |rest: Document| {
        let mut info = Document::new();
        info.extend(id.clone().map(|id| ("failingDocumentId".to_owned(), id)));
        info.extend(rest);
        RawDocumentBuf::try_from(&info)
    };
    for truncated in [false, true] {
        let teller = Teller { ctx, truncated };
        let details = match teller.clauses(validator).and_then(|clause| teller.tell(&clause, document, false)) {
            Ok(details) => details,
            Err(error) => {
                ctx.interruption.look()?;
                let note = "failed to generate document validation error";
                return Ok(with_id(doc! { "note": note, "details": described(&error) })?);
            }
        };
        let mut rest = Document::new();
        if truncated {
            rest.insert("truncated", true);
        }
        rest.insert("details", details);
        let info = with_id(rest)?;
        if info.as_bytes().len() > ERROR_BYTES_MAX {
            continue;
        }
        if raw::document_depth(&info)? > ERROR_DEPTH_MAX {
            let reason = "generated error was too deeply nested";
            return Ok(RawDocumentBuf::try_from(&doc! { "reason": reason, "truncated": true })?);
        }
        return Ok(info);
    }
    Ok(with_id(doc! { "note": "detailed error was too large" })?)
}

/// An error as replies tell it.
fn described(error: &Error) -> Document {
    doc! { "code": error.code.0, "codeName": error.code.name().to_string(), "errmsg": &error.message }
}

/// A condition as the client wrote it.
enum Clause<'v> {
    And(Vec<Clause<'v>>),
    Or(Vec<Clause<'v>>),
    Nor(Vec<Clause<'v>>),
    Not(Box<Clause<'v>>),
    Leaf(Box<Leaf<'v>>),
    Schema(&'v RawDocument),
}

/// Reads clauses and tells of them.
struct Teller<'c> {
    ctx: &'c Context,
    /// Whether values and rules are left out.
    truncated: bool,
}

impl Teller<'_> {
    /// The clauses of a filter; one alone stands for itself.
    fn clauses<'v>(&self, filter: &'v RawDocument) -> Result<Clause<'v>> {
        let mut clauses = Vec::new();
        for element in filter.iter_elements() {
            let element = element?;
            let (name, value) = (element.key().as_str(), element.value()?);
            match (name, value) {
                ("$and", RawBsonRef::Array(array)) => clauses.push(Clause::And(self.each(array)?)),
                ("$or", RawBsonRef::Array(array)) => clauses.push(Clause::Or(self.each(array)?)),
                ("$nor", RawBsonRef::Array(array)) => clauses.push(Clause::Nor(self.each(array)?)),
                ("$jsonSchema", RawBsonRef::Document(schema)) => clauses.push(Clause::Schema(schema)),
                ("$comment", _) => {}
                (_, RawBsonRef::Document(operators)) if is_operators(value, false) && !name.starts_with('$') => {
                    self.operators(name, operators, &mut clauses)?;
                }
                _ => clauses.push(Clause::Leaf(Box::new(Leaf::plain(name, value, self.ctx)?))),
            }
        }
        Ok(all(clauses))
    }

    fn each<'v>(&self, array: &'v RawArray) -> Result<Vec<Clause<'v>>> {
        let mut clauses = Vec::new();
        for element in array {
            if let RawBsonRef::Document(filter) = element? {
                clauses.push(self.clauses(filter)?);
            }
        }
        Ok(clauses)
    }

    /// The clauses of one path.
    fn operators<'v>(&self, path: &'v str, operators: &'v RawDocument, clauses: &mut Vec<Clause<'v>>) -> Result<()> {
        for element in operators.iter_elements() {
            let element = element?;
            let (name, value) = (element.key().as_str(), element.value()?);
            match (name, value) {
                ("$options" | "$comment", _) => {}
                ("$not", RawBsonRef::Document(inner)) => {
                    let mut negated = Vec::new();
                    self.operators(path, inner, &mut negated)?;
                    clauses.push(Clause::Not(Box::new(all(negated))));
                }
                ("$not", value) => {
                    clauses.push(Clause::Not(Box::new(Clause::Leaf(Box::new(Leaf::plain(path, value, self.ctx)?)))));
                }
                ("$regex", _) => clauses.push(Clause::Leaf(Box::new(Leaf::regex(path, operators, self.ctx)?))),
                _ => clauses.push(Clause::Leaf(Box::new(Leaf::operator(path, name, value, self.ctx)?))),
            }
        }
        Ok(())
    }

    fn holds(&self, clause: &Clause<'_>, document: &RawDocument) -> Result<bool> {
        let any = |clauses: &[Clause<'_>], wanted: bool| -> Result<bool> {
            for clause in clauses {
                if self.holds(clause, document)? == wanted {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match clause {
            Clause::And(clauses) => any(clauses, false).map(|found| !found),
            Clause::Or(clauses) => any(clauses, true),
            Clause::Nor(clauses) => any(clauses, true).map(|found| !found),
            Clause::Not(clause) => self.holds(clause, document).map(|holds| !holds),
            Clause::Leaf(leaf) => leaf.holds(document),
            Clause::Schema(schema) => super::Schema::parse(schema, self.ctx)?.matches(document, &self.ctx.interruption),
        }
    }

    /// What is told of a clause that is a reason.
    fn tell(&self, clause: &Clause<'_>, document: &RawDocument, inverted: bool) -> Result<Document> {
        match clause {
            Clause::And(clauses) => self.tell_several("$and", clauses, document, inverted, !inverted),
            Clause::Or(clauses) => self.tell_several("$or", clauses, document, inverted, inverted),
            Clause::Nor(clauses) => self.tell_several("$nor", clauses, document, !inverted, !inverted),
            Clause::Not(clause) => {
                Ok(doc! { "operatorName": "$not", "details": self.tell(clause, document, !inverted)? })
            }
            Clause::Leaf(leaf) => leaf.tell(self, document, inverted),
            Clause::Schema(schema) => self.tell_schema(schema, document, inverted),
        }
    }

    /// What is told of several clauses; of all of them, or of those that are a reason.
    fn tell_several(
        &self,
        operator: &str,
        clauses: &[Clause<'_>],
        document: &RawDocument,
        inverted: bool,
        only_reasons: bool,
    ) -> Result<Document> {
        let mut told = Vec::new();
        for (index, clause) in clauses.iter().enumerate() {
            let is_reason = match self.holds(clause, document) {
                Ok(holds) => holds == inverted,
                // A clause that cannot be decided is a reason, unless there is no time for it.
                Err(_) => self.ctx.interruption.look().map(|()| true)?,
            };
            if is_reason || !only_reasons {
                told.push(doc! { "index": count(index), "details": self.tell(clause, document, inverted)? });
            }
        }
        let field = if inverted { "clausesSatisfied" } else { "clausesNotSatisfied" };
        Ok(doc! { "operatorName": operator, field: told })
    }

    /// Adds `specifiedAs` unless it is left out.
    fn specify(&self, details: &mut Document, rule: Document) {
        if !self.truncated {
            details.insert("specifiedAs", rule);
        }
    }

    /// Adds the values that were considered, unless they are left out.
    fn consider(&self, details: &mut Document, considered: &Considered<'_>) -> Result<()> {
        if self.truncated {
            return Ok(());
        }
        match &*considered.values {
            [value] => details.insert("consideredValue", Bson::try_from(*value)?),
            values => {
                let values =
                    values.iter().map(|value| Bson::try_from(*value)).collect::<std::result::Result<_, _>>()?;
                details.insert("consideredValues", Bson::Array(values))
            }
        };
        if considered.is_cut {
            details.insert("consideredValuesTruncated", true);
        }
        Ok(())
    }
}

/// The values that a rule was tested on.
struct Considered<'d> {
    values: Vec<RawBsonRef<'d>>,
    /// Whether there were more.
    is_cut: bool,
}

/// Adds the types of values, by name and each once.
fn consider_types(details: &mut Document, values: &[RawBsonRef<'_>]) {
    let mut types: Vec<&str> = values.iter().map(|value| baton_document::type_name(value.element_type())).collect();
    types.sort_unstable();
    types.dedup();
    match &*types {
        [] => None,
        [one] => details.insert("consideredType", *one),
        several => details.insert("consideredTypes", several),
    };
}

/// All of `clauses`.
fn all(mut clauses: Vec<Clause<'_>>) -> Clause<'_> {
    match (clauses.len(), clauses.pop()) {
        (1, Some(clause)) => clause,
        (_, last) => {
            clauses.extend(last);
            Clause::And(clauses)
        }
    }
}

/// A number of things.
fn count(number: usize) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number as i64), Bson::Int32)
}
