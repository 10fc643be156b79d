//! `$sortByCount`: how often each value occurs, most frequent first. Short for `$group` and `$sort`.
//!
//! Source: MongoDB manual, "$sortByCount (aggregation)".

use super::group::GroupSpec;
use super::sort::SortSpec;
use crate::Context;
use crate::pipeline::StageSpec;
use crate::pipeline::field::first_name;
use baton_types::{Error, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use bson::rawdoc;
use std::sync::Arc;

/// Parses the argument into the two stages: 40147 to 40149 unless it is a path or an expression.
pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context, out: &mut Vec<StageSpec>) -> Result<()> {
    const EXPECTED: &str =
        "the sortByCount field must be defined as a $-prefixed path or an expression inside an object";
    match value {
        RawBsonRef::Document(doc) => {
            if !first_name(doc)?.is_some_and(|name| name.starts_with('$')) {
                return Err(Error::location(40147, EXPECTED));
            }
        }
        RawBsonRef::String(path) => {
            if !path.starts_with('$') {
                return Err(Error::location(40148, EXPECTED));
            }
        }
        _ => {
            let message = "the sortByCount field must be specified as a string or as an object";
            return Err(Error::location(40149, message));
        }
    }
    let mut group = RawDocumentBuf::new();
    group.append(cstr!("_id"), value);
    group.append(cstr!("count"), rawdoc! { "$sum": 1 });
    out.push(StageSpec::Group(Arc::new(GroupSpec::parse((&*group).into(), ctx)?)));
    out.push(StageSpec::Sort(SortSpec::by(&rawdoc! { "count": -1 })?));
    Ok(())
}
