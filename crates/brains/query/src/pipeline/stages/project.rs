//! `$project`, `$addFields`, `$set` and `$unset`: the stages that reshape each document by a projection.
//!
//! Sources: MongoDB manual, the pages of these stages. The projection itself is [`crate::projection`]'s; here are the
//! stages' own rules, and which fields go through untouched, for the optimiser.

use crate::Context;
use crate::expression::Dependencies;
use crate::pipeline::field::root;
use crate::pipeline::spec::Passing;
use crate::pipeline::stage::{Flow, Stage};
use crate::projection::{Mode, Projection};
use baton_document::Number;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The argument of a reshaping stage.
#[derive(Clone, Debug)]
pub struct ProjectSpec {
    /// The stage's name, as the client wrote it.
    pub name: &'static str,
    /// The argument as the client wrote it.
    pub spec: RawBson,
    projection: Arc<Projection>,
    untouched: Untouched,
}

/// The top-level fields that leave a stage exactly as they entered it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Untouched {
    /// These alone.
    Only(BTreeSet<String>),
    /// All but these.
    AllBut(BTreeSet<String>),
}

impl ProjectSpec {
    /// Parses `$project`: 15969 unless the argument is an object, else as [`Projection::parse`].
    pub(crate) fn project(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            return Err(Error::location(15969, "$project specification must be an object"));
        };
        let projection = Projection::parse(spec, None, ctx, Mode::Aggregate).map_err(|e| within("$project", e))?;
        Ok(Self::new("$project", value, projection, untouched_by_project(spec)?))
    }

    /// Parses `$addFields` or `$set`: 40272 unless the argument is an object.
    pub(crate) fn add_fields(name: &'static str, value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message =
                format!("{name} specification stage must be an object, got {}", type_name(value.element_type()));
            return Err(Error::location(40272, message));
        };
        let projection = Projection::parse_add_fields(spec, ctx).map_err(|e| within(name, e))?;
        Ok(Self::new(name, value, projection, Untouched::AllBut(roots(spec)?)))
    }

    /// Parses `$unset`: 31002, 31119 or 31120 unless the argument is a field name or an array of them.
    pub(crate) fn unset(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let mut removed = BTreeSet::new();
        match value {
            RawBsonRef::String(path) => {
                removed.insert(root(path).to_owned());
            }
            RawBsonRef::Array(paths) => {
                for path in paths {
                    let Some(path) = path?.as_str() else {
                        let message = "$unset specification must be a string or an array containing only string values";
                        return Err(Error::location(31120, message));
                    };
                    removed.insert(root(path).to_owned());
                }
                if removed.is_empty() {
                    let message = "$unset specification must be a string or an array with at least one field";
                    return Err(Error::location(31119, message));
                }
            }
            _ => return Err(Error::location(31002, "$unset specification must be a string or an array")),
        }
        let projection = Projection::parse_unset(value, ctx).map_err(|e| within("$unset", e))?;
        Ok(Self::new("$unset", value, projection, Untouched::AllBut(removed)))
    }

    fn new(name: &'static str, value: RawBsonRef<'_>, projection: Projection, untouched: Untouched) -> Self {
        Self { name, spec: value.into(), projection: Arc::new(projection), untouched }
    }

    /// What the stage does to a document.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// Whether the top-level field `name` leaves the stage as it entered.
    pub(crate) fn preserves(&self, name: &str) -> bool {
        match &self.untouched {
            Untouched::Only(names) => names.contains(name),
            Untouched::AllBut(names) => !names.contains(name),
        }
    }

    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) -> Passing {
        match &self.untouched {
            Untouched::Only(_) => {
                into.merge(self.projection.required_fields());
                Passing::Consumed
            }
            Untouched::AllBut(_) => {
                // Everything passes; what the stage itself computes from is needed besides what comes after.
                let mut reads = self.projection.required_fields();
                reads.whole_document = self.projection.computes_from_whole_document();
                into.merge(reads);
                Passing::Through
            }
        }
    }

    pub(crate) fn start(&self) -> ProjectStage {
        ProjectStage { projection: Arc::clone(&self.projection) }
    }
}

/// The error with the stage it comes from in front.
fn within(stage: &str, mut error: Error) -> Error {
    error.message = format!("Invalid {stage} :: caused by :: {}", error.message);
    error
}

fn roots(spec: &RawDocument) -> Result<BTreeSet<String>> {
    spec.iter().map(|element| Ok(root(element?.0.as_str()).to_owned())).collect()
}

/// Reads off a `$project` which fields it leaves alone. A projection keeps what it names, or drops what it names; `_id`
/// is kept either way unless it says otherwise.
fn untouched_by_project(spec: &RawDocument) -> Result<Untouched> {
    let mut kept = BTreeSet::from(["_id".to_owned()]);
    let mut drops = None;
    for element in spec.iter() {
        let (name, value) = element?;
        let name = name.as_str();
        let flag = match value {
            RawBsonRef::Boolean(flag) => Some(flag),
            other => Number::from_raw(other).map(|number| !number.is_zero()),
        };
        match (name, flag) {
            ("_id", Some(true)) => {}
            ("_id", Some(false) | None) => {
                kept.remove("_id");
            }
            (name, Some(true)) if !name.contains('.') => {
                kept.insert(name.to_owned());
                drops = Some(false);
            }
            (_, Some(false)) => drops = Some(drops.unwrap_or(true)),
            _ => drops = Some(false),
        }
        if name.starts_with("_id.") {
            kept.remove("_id");
        }
    }
    // `{_id: 0}` alone drops, `{_id: 1}` alone keeps; a nested document is taken for keeping, which is the safe reading.
    let only_id_dropped = drops.is_none() && !kept.contains("_id") && spec.get("_id")?.is_some_and(is_false);
    if drops == Some(true) || only_id_dropped {
        return Ok(Untouched::AllBut(roots(spec)?));
    }
    Ok(Untouched::Only(kept))
}

fn is_false(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(flag) => !flag,
        other => Number::from_raw(other).is_some_and(Number::is_zero),
    }
}

/// A reshaping stage at work.
pub(crate) struct ProjectStage {
    projection: Arc<Projection>,
}

impl Stage for ProjectStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        out.push_back(self.projection.apply(&doc, None)?);
        Ok(Flow::More)
    }
}

#[cfg(test)]
mod tests {
    use super::{Untouched, untouched_by_project};
    use bson::rawdoc;
    use std::collections::BTreeSet;

    #[test]
    fn a_projection_leaves_alone_what_it_keeps_whole() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let cases = [
            (rawdoc! { "a": 1, "b.c": 1 }, Untouched::Only(names(&["_id", "a"]))),
            (rawdoc! { "_id": 0, "a": true }, Untouched::Only(names(&["a"]))),
            (rawdoc! { "a": "$b" }, Untouched::Only(names(&["_id"]))),
            (rawdoc! { "_id": "$b", "a": 1 }, Untouched::Only(names(&["a"]))),
            (rawdoc! { "a": { "b": 1 } }, Untouched::Only(names(&["_id"]))),
            (rawdoc! { "a": 0, "b.c": false }, Untouched::AllBut(names(&["a", "b"]))),
            (rawdoc! { "_id": 0 }, Untouched::AllBut(names(&["_id"]))),
            (rawdoc! { "_id": 1 }, Untouched::Only(names(&["_id"]))),
            (rawdoc! { "_id": 0, "a": 0 }, Untouched::AllBut(names(&["_id", "a"]))),
        ];
        for (spec, expected) in cases {
            assert_eq!(untouched_by_project(&spec).expect("a document"), expected, "{spec:?}");
        }
    }
}
