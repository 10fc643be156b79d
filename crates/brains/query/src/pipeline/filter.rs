//! Taking filters apart: their conjuncts, putting conjuncts together again, and the fields they read.
//!
//! Works on the filter as the client wrote it, so that what the optimiser makes is a filter anyone can parse, print and
//! plan.

use crate::Context;
use crate::expression::{Dependencies, Expression};
use baton_types::Result;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::collections::HashSet;

/// The parts of a filter that all have to match, `$and` taken apart.
pub fn conjuncts(filter: &RawDocument) -> Result<Vec<RawDocumentBuf>> {
    let mut parts = Vec::new();
    collect_conjuncts(filter, &mut parts)?;
    Ok(parts)
}

fn collect_conjuncts(filter: &RawDocument, into: &mut Vec<RawDocumentBuf>) -> Result<()> {
    for element in filter.iter() {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("$comment", _) => {}
            ("$and", RawBsonRef::Array(branches)) => {
                for branch in branches {
                    if let RawBsonRef::Document(branch) = branch? {
                        collect_conjuncts(branch, into)?;
                    }
                }
            }
            _ => {
                let mut part = RawDocumentBuf::new();
                part.append(name, value);
                into.push(part);
            }
        }
    }
    Ok(())
}

/// One filter of several that all have to match.
pub fn conjunction(parts: &[RawDocumentBuf]) -> Result<RawDocumentBuf> {
    let mut names = HashSet::new();
    let mut flat = RawDocumentBuf::new();
    let mut is_flat = true;
    for part in parts {
        for element in part.iter() {
            let (name, value) = element?;
            is_flat &= names.insert(name.as_str());
            flat.append(name, value);
        }
    }
    if is_flat {
        return Ok(flat);
    }
    let branches: RawArrayBuf = parts.iter().collect();
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("$and"), branches);
    Ok(filter)
}

/// What of a document a filter reads. A filter whose reading is not known reads the whole document and counts as random,
/// so that nothing is moved past it.
pub fn dependencies(filter: &RawDocument, ctx: &Context) -> Result<Dependencies> {
    let mut found = Dependencies::default();
    collect(filter, ctx, &mut found)?;
    Ok(found)
}

fn collect(filter: &RawDocument, ctx: &Context, into: &mut Dependencies) -> Result<()> {
    for element in filter.iter() {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("$comment" | "$alwaysTrue" | "$alwaysFalse", _) => {}
            ("$and" | "$or" | "$nor", RawBsonRef::Array(branches)) => {
                for branch in branches {
                    if let RawBsonRef::Document(branch) = branch? {
                        collect(branch, ctx, into)?;
                    }
                }
            }
            ("$expr", value) => into.merge(Expression::parse(value, ctx)?.dependencies()),
            ("$jsonSchema", _) => into.whole_document = true,
            (name, _) if name.starts_with('$') => {
                into.whole_document = true;
                into.random = true;
            }
            (path, _) => {
                into.fields.insert(path.to_owned());
            }
        }
    }
    Ok(())
}
