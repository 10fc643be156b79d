//! The table of stages: the name, how its argument is parsed, and where in a pipeline it may stand.
//!
//! Invariant: the rows are sorted by name (a test checks it), because looking one up is a binary search. A stage of
//! MongoDB's that Baton does not have is a row that says so; a name that is no row is unknown (40324).

use super::scope::{Inside, Scope};
use super::spec::StageSpec;
use super::stages::{
    bucket, bucket_auto, count, documents, facet, group, limit, lookup, matching, merge, out, project, redact,
    replace_root, sample, skip, sort, sort_by_count, stats, union_with, unwind,
};
use baton_types::{Error, Result};
use bson::raw::{RawArray, RawBsonRef};
use std::sync::Arc;

type Parse = fn(RawBsonRef<'_>, &Scope<'_>, &mut Vec<StageSpec>) -> Result<()>;

/// Where in a pipeline a stage may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It makes its own input, so nothing may come before it.
    First,
    Any,
    /// It writes, so nothing may come after it.
    Last,
}

struct Row {
    name: &'static str,
    place: Place,
    /// Whether it may stand inside `$facet`.
    in_facet: bool,
    /// `None` for a stage that is not implemented.
    parse: Option<Parse>,
}

const fn any(name: &'static str, parse: Parse) -> Row {
    Row { name, place: Place::Any, in_facet: true, parse: Some(parse) }
}

const fn first(name: &'static str, parse: Parse) -> Row {
    Row { name, place: Place::First, in_facet: false, parse: Some(parse) }
}

const fn last(name: &'static str, parse: Parse) -> Row {
    Row { name, place: Place::Last, in_facet: false, parse: Some(parse) }
}

const fn missing(name: &'static str) -> Row {
    Row { name, place: Place::Any, in_facet: true, parse: None }
}

static ROWS: &[Row] = &[
    any("$addFields", |value, scope, out| {
        out.push(StageSpec::AddFields(Arc::new(project::ProjectSpec::add_fields("$addFields", value, scope.ctx)?)));
        Ok(())
    }),
    any("$bucket", |value, scope, out| bucket::parse(value, scope.ctx, out)),
    any("$bucketAuto", |value, scope, out| {
        out.push(StageSpec::BucketAuto(Arc::new(bucket_auto::BucketAutoSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    missing("$changeStream"),
    missing("$changeStreamSplitLargeEvent"),
    first("$collStats", |value, _, out| {
        out.push(StageSpec::CollStats(Arc::new(stats::CollStatsSpec::parse(value)?)));
        Ok(())
    }),
    any("$count", |value, _, out| {
        out.push(StageSpec::Count(count::parse(value)?));
        Ok(())
    }),
    first("$currentOp", |value, _, out| {
        out.push(StageSpec::CurrentOp(Arc::new(stats::CurrentOpSpec::parse(value)?)));
        Ok(())
    }),
    missing("$densify"),
    first("$documents", |value, scope, out| {
        out.push(StageSpec::Documents(Arc::new(documents::DocumentsSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    Row {
        name: "$facet",
        place: Place::Any,
        in_facet: false,
        parse: Some(|value, scope, out| {
            out.push(StageSpec::Facet(Arc::new(facet::FacetSpec::parse(value, scope)?)));
            Ok(())
        }),
    },
    missing("$fill"),
    missing("$geoNear"),
    missing("$graphLookup"),
    any("$group", |value, scope, out| {
        out.push(StageSpec::Group(Arc::new(group::GroupSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    first("$indexStats", |value, _, out| {
        stats::parse_index_stats(value)?;
        out.push(StageSpec::IndexStats);
        Ok(())
    }),
    any("$limit", |value, _, out| {
        out.push(StageSpec::Limit(limit::parse(value)?));
        Ok(())
    }),
    missing("$listCatalog"),
    first("$listLocalSessions", |value, _, out| {
        let spec = stats::ListSessionsSpec::parse("$listLocalSessions", value)?;
        out.push(StageSpec::ListLocalSessions(Arc::new(spec)));
        Ok(())
    }),
    missing("$listSampledQueries"),
    missing("$listSearchIndexes"),
    first("$listSessions", |value, _, out| {
        let spec = stats::ListSessionsSpec::parse("$listSessions", value)?;
        out.push(StageSpec::ListSessions(Arc::new(spec)));
        Ok(())
    }),
    any("$lookup", |value, scope, out| {
        out.push(StageSpec::Lookup(Arc::new(lookup::LookupSpec::parse(value, scope)?)));
        Ok(())
    }),
    any("$match", |value, scope, out| {
        out.push(StageSpec::Match(Arc::new(matching::MatchSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    last("$merge", |value, scope, out| {
        out.push(StageSpec::Merge(Arc::new(merge::MergeSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    last("$out", |value, _, out| {
        out.push(StageSpec::Out(Arc::new(out::OutSpec::parse(value)?)));
        Ok(())
    }),
    first("$planCacheStats", |value, _, out| {
        stats::parse_plan_cache_stats(value)?;
        out.push(StageSpec::PlanCacheStats);
        Ok(())
    }),
    any("$project", |value, scope, out| {
        out.push(StageSpec::Project(Arc::new(project::ProjectSpec::project(value, scope.ctx)?)));
        Ok(())
    }),
    any("$redact", |value, scope, out| {
        out.push(StageSpec::Redact(Arc::new(redact::RedactSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    any("$replaceRoot", |value, scope, out| {
        out.push(StageSpec::ReplaceRoot(Arc::new(replace_root::ReplaceRootSpec::parse(value, scope.ctx)?)));
        Ok(())
    }),
    any("$replaceWith", |value, scope, out| {
        out.push(StageSpec::ReplaceRoot(Arc::new(replace_root::ReplaceRootSpec::with(value, scope.ctx)?)));
        Ok(())
    }),
    any("$sample", |value, _, out| {
        out.push(StageSpec::Sample(sample::parse(value)?));
        Ok(())
    }),
    missing("$search"),
    missing("$searchMeta"),
    any("$set", |value, scope, out| {
        out.push(StageSpec::AddFields(Arc::new(project::ProjectSpec::add_fields("$set", value, scope.ctx)?)));
        Ok(())
    }),
    missing("$setWindowFields"),
    missing("$shardedDataDistribution"),
    any("$skip", |value, _, out| {
        out.push(StageSpec::Skip(skip::parse(value)?));
        Ok(())
    }),
    any("$sort", |value, _, out| {
        out.push(StageSpec::Sort(sort::SortSpec::parse(value)?));
        Ok(())
    }),
    any("$sortByCount", |value, scope, out| sort_by_count::parse(value, scope.ctx, out)),
    any("$unionWith", |value, scope, out| {
        out.push(StageSpec::UnionWith(Arc::new(union_with::UnionWithSpec::parse(value, scope)?)));
        Ok(())
    }),
    any("$unset", |value, scope, out| {
        out.push(StageSpec::Project(Arc::new(project::ProjectSpec::unset(value, scope.ctx)?)));
        Ok(())
    }),
    any("$unwind", |value, _, out| {
        out.push(StageSpec::Unwind(Arc::new(unwind::UnwindSpec::parse(value)?)));
        Ok(())
    }),
    missing("$vectorSearch"),
];

fn row(name: &str) -> Option<&'static Row> {
    ROWS.binary_search_by(|row| row.name.cmp(name)).ok().and_then(|at| ROWS.get(at))
}

/// The stages Baton has, sorted by name.
pub fn stage_names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter(|row| row.parse.is_some()).map(|row| row.name)
}

/// 40324 if the pipeline names a stage that MongoDB does not know; other faults are left for parsing to find.
pub fn check_stage_names(pipeline: &RawArray) -> Result<()> {
    for stage in pipeline {
        if let Some(stage) = stage?.as_document()
            && let Some((name, _)) = stage.iter().next().transpose()?
            && row(name.as_str()).is_none()
        {
            return Err(unknown(name.as_str()));
        }
    }
    Ok(())
}

fn unknown(name: &str) -> Error {
    Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'"))
}

/// Parses the stage `name`, which is number `at` of `count`, onto `out`.
///
/// 40324 for an unknown name, `NotImplemented` (238) for one that Baton does not have; 40600 to 40602, 31441 and 51047
/// for a place where the stage may not stand.
pub(crate) fn parse(
    name: &str,
    value: RawBsonRef<'_>,
    (at, count): (usize, usize),
    scope: &Scope<'_>,
    out: &mut Vec<StageSpec>,
) -> Result<()> {
    let Some(row) = row(name) else {
        return Err(unknown(name));
    };
    let Some(parse) = row.parse else { return Err(Error::not_implemented(format!("the stage {name}"))) };
    let writes = row.place == Place::Last;
    match scope.inside {
        Inside::Command => {}
        Inside::Facet => {
            if !row.in_facet {
                let message = format!("{name} is not allowed to be used within a $facet stage");
                return Err(Error::location(40600, message));
            }
        }
        Inside::Lookup if writes => {
            return Err(Error::location(51047, format!("{name} is not allowed within a $lookup's sub-pipeline")));
        }
        Inside::UnionWith if writes => {
            return Err(Error::location(31441, format!("{name} is not allowed within a $unionWith's sub-pipeline")));
        }
        Inside::Lookup | Inside::UnionWith => {}
    }
    if row.place == Place::First && at > 0 {
        return Err(Error::location(40602, format!("{name} is only valid as the first stage in a pipeline")));
    }
    if writes && at + 1 < count {
        return Err(Error::location(40601, format!("{name} can only be the final stage in the pipeline")));
    }
    parse(value, scope, out)
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn rows_are_sorted_by_name() {
        assert!(ROWS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
