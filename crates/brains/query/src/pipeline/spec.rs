//! A parsed stage: the closed list of what a pipeline may hold, and what can be asked of each.
//!
//! Invariant: every `match` over [`StageSpec`] is exhaustive, so that a new stage is a compile error until each question
//! about it is answered. Short forms (`$bucket`, `$sortByCount`, `$set`, `$unset`, `$replaceWith`) are parsed into the
//! stages they stand for.

use super::field::single;
use super::stage::{Host, Stage};
use super::stages::bucket_auto::BucketAutoSpec;
use super::stages::count::CountStage;
use super::stages::documents::DocumentsSpec;
use super::stages::facet::FacetSpec;
use super::stages::group::GroupSpec;
use super::stages::limit::LimitStage;
use super::stages::lookup::LookupSpec;
use super::stages::matching::MatchSpec;
use super::stages::merge::MergeSpec;
use super::stages::out::OutSpec;
use super::stages::project::ProjectSpec;
use super::stages::redact::RedactSpec;
use super::stages::replace_root::ReplaceRootSpec;
use super::stages::sample::SampleStage;
use super::stages::skip::SkipStage;
use super::stages::sort::SortSpec;
use super::stages::stats::{CollStatsSpec, CurrentOpSpec, ListSessionsSpec};
use super::stages::union_with::UnionWithSpec;
use super::stages::unwind::UnwindSpec;
use crate::Context;
use crate::expression::Dependencies;
use baton_types::Result;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use bson::rawdoc;
use std::sync::Arc;

/// One stage with its checked arguments. Cheap to clone.
#[derive(Clone, Debug)]
pub enum StageSpec {
    /// `$addFields`, `$set`.
    AddFields(Arc<ProjectSpec>),
    /// `$bucketAuto`.
    BucketAuto(Arc<BucketAutoSpec>),
    /// `$collStats`.
    CollStats(Arc<CollStatsSpec>),
    /// `$count`, with the field it counts into.
    Count(String),
    /// `$currentOp`.
    CurrentOp(Arc<CurrentOpSpec>),
    /// `$documents`.
    Documents(Arc<DocumentsSpec>),
    /// `$facet`.
    Facet(Arc<FacetSpec>),
    /// `$group`, also for `$bucket` and `$sortByCount`.
    Group(Arc<GroupSpec>),
    /// `$indexStats`.
    IndexStats,
    /// `$limit`, at least 1.
    Limit(u64),
    /// `$listLocalSessions`.
    ListLocalSessions(Arc<ListSessionsSpec>),
    /// `$listSessions`.
    ListSessions(Arc<ListSessionsSpec>),
    /// `$lookup`.
    Lookup(Arc<LookupSpec>),
    /// `$match`.
    Match(Arc<MatchSpec>),
    /// `$merge`.
    Merge(Arc<MergeSpec>),
    /// `$out`.
    Out(Arc<OutSpec>),
    /// `$planCacheStats`.
    PlanCacheStats,
    /// `$project`, `$unset`.
    Project(Arc<ProjectSpec>),
    /// `$redact`.
    Redact(Arc<RedactSpec>),
    /// `$replaceRoot`, `$replaceWith`.
    ReplaceRoot(Arc<ReplaceRootSpec>),
    /// `$sample`, with the number of documents.
    Sample(u64),
    /// `$skip`.
    Skip(u64),
    /// `$sort`.
    Sort(SortSpec),
    /// `$unionWith`.
    UnionWith(Arc<UnionWithSpec>),
    /// `$unwind`.
    Unwind(Arc<UnwindSpec>),
}

/// What a stage lets through of the documents that enter it, for finding out what a pipeline reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Fields it does not read may still matter further on.
    Through,
    /// Nothing further on sees a field that this stage does not read.
    Consumed,
}

impl StageSpec {
    /// Whether it is a source that no collection stands behind, so that only `{aggregate: 1}` can begin with it.
    pub fn reads_no_collection(&self) -> bool {
        matches!(self, Self::Documents(_) | Self::CurrentOp(_) | Self::ListLocalSessions(_))
    }

    /// The stage's name, as `explain` and errors give it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddFields(spec) | Self::Project(spec) => spec.name,
            Self::BucketAuto(_) => "$bucketAuto",
            Self::CollStats(_) => "$collStats",
            Self::Count(_) => "$count",
            Self::CurrentOp(_) => "$currentOp",
            Self::Documents(_) => "$documents",
            Self::Facet(_) => "$facet",
            Self::Group(_) => "$group",
            Self::IndexStats => "$indexStats",
            Self::Limit(_) => "$limit",
            Self::ListLocalSessions(_) => "$listLocalSessions",
            Self::ListSessions(_) => "$listSessions",
            Self::Lookup(_) => "$lookup",
            Self::Match(_) => "$match",
            Self::Merge(_) => "$merge",
            Self::Out(_) => "$out",
            Self::PlanCacheStats => "$planCacheStats",
            Self::Redact(_) => "$redact",
            Self::ReplaceRoot(_) => "$replaceRoot",
            Self::Sample(_) => "$sample",
            Self::Skip(_) => "$skip",
            Self::Sort(_) => "$sort",
            Self::UnionWith(_) => "$unionWith",
            Self::Unwind(_) => "$unwind",
        }
    }

    /// Whether it makes its own input instead of reading the collection.
    pub fn is_source(&self) -> bool {
        matches!(
            self,
            Self::CollStats(_)
                | Self::CurrentOp(_)
                | Self::Documents(_)
                | Self::IndexStats
                | Self::ListLocalSessions(_)
                | Self::ListSessions(_)
                | Self::PlanCacheStats
        )
    }

    /// Whether it writes to a collection.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Merge(_) | Self::Out(_))
    }

    /// Whether it needs more than the documents pushed into it: only a [`Host`] can start it. A `$facet` starts here,
    /// but passes the host on to its pipelines.
    pub fn needs_host(&self) -> bool {
        match self {
            Self::Lookup(_) | Self::UnionWith(_) | Self::Merge(_) | Self::Out(_) => true,
            Self::Documents(_) => false,
            other => other.is_source(),
        }
    }

    /// The running stage.
    pub(crate) fn start(&self, ctx: &Arc<Context>, host: &dyn Host) -> Result<Box<dyn Stage>> {
        Ok(match self {
            Self::AddFields(spec) | Self::Project(spec) => Box::new(spec.start()),
            Self::BucketAuto(spec) => Box::new(spec.start(ctx)),
            Self::Count(name) => Box::new(CountStage::new(name.clone())),
            Self::Documents(spec) => Box::new(spec.start(ctx)?),
            Self::Facet(spec) => Box::new(spec.start(ctx, host)?),
            Self::Group(spec) => Box::new(spec.start(ctx)),
            Self::Limit(limit) => Box::new(LimitStage::new(*limit)),
            Self::Match(spec) => Box::new(spec.start()),
            Self::Redact(spec) => Box::new(spec.start(ctx)?),
            Self::ReplaceRoot(spec) => Box::new(spec.start(ctx)),
            Self::Sample(size) => Box::new(SampleStage::new(*size, ctx)),
            Self::Skip(skip) => Box::new(SkipStage::new(*skip)),
            Self::Sort(spec) => Box::new(spec.start(ctx)),
            Self::Unwind(spec) => Box::new(spec.start()),
            Self::CollStats(_)
            | Self::CurrentOp(_)
            | Self::IndexStats
            | Self::ListLocalSessions(_)
            | Self::ListSessions(_)
            | Self::Lookup(_)
            | Self::Merge(_)
            | Self::Out(_)
            | Self::PlanCacheStats
            | Self::UnionWith(_) => host.start(self, ctx)?,
        })
    }

    /// Adds the fields the stage reads to `into`, and says whether stages after it can read others.
    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) -> Passing {
        match self {
            Self::AddFields(spec) | Self::Project(spec) => return spec.collect_dependencies(into),
            Self::BucketAuto(spec) => {
                spec.collect_dependencies(into);
                return Passing::Consumed;
            }
            Self::Facet(spec) => {
                spec.collect_dependencies(into);
                return Passing::Consumed;
            }
            Self::Group(spec) => {
                spec.collect_dependencies(into);
                return Passing::Consumed;
            }
            Self::ReplaceRoot(spec) => {
                into.merge(spec.new_root.dependencies());
                return Passing::Consumed;
            }
            Self::Count(_) => return Passing::Consumed,
            Self::Lookup(spec) => spec.collect_dependencies(into),
            Self::Match(spec) => into.merge(spec.dependencies.clone()),
            Self::Sort(spec) => into.fields.extend(spec.pattern.parts().iter().map(|part| part.field.clone())),
            Self::Unwind(spec) => {
                into.fields.insert(spec.path.clone());
            }
            Self::Merge(_) | Self::Out(_) | Self::Redact(_) => into.whole_document = true,
            Self::Limit(_) | Self::Sample(_) | Self::Skip(_) | Self::UnionWith(_) => {}
            Self::CollStats(_)
            | Self::CurrentOp(_)
            | Self::Documents(_)
            | Self::IndexStats
            | Self::ListLocalSessions(_)
            | Self::ListSessions(_)
            | Self::PlanCacheStats => return Passing::Consumed,
        }
        Passing::Through
    }

    /// The stage as `explain` shows it.
    pub fn explain(&self) -> Result<RawDocumentBuf> {
        let argument: RawBson = match self {
            Self::AddFields(spec) | Self::Project(spec) => spec.spec.clone(),
            Self::BucketAuto(spec) => spec.spec.clone().into(),
            Self::CollStats(spec) => spec.spec.clone().into(),
            Self::Count(name) => name.clone().into(),
            Self::CurrentOp(spec) => spec.spec.clone().into(),
            Self::Documents(spec) => spec.spec.clone(),
            Self::Facet(spec) => explain_facet(spec)?.into(),
            Self::Group(spec) => spec.spec.clone().into(),
            Self::IndexStats | Self::PlanCacheStats => RawDocumentBuf::new().into(),
            Self::Limit(count) | Self::Skip(count) => whole(*count),
            Self::ListLocalSessions(spec) | Self::ListSessions(spec) => spec.spec.clone().into(),
            Self::Lookup(spec) => spec.spec.clone().into(),
            Self::Match(spec) => spec.filter.clone().into(),
            Self::Merge(spec) => spec.spec.clone(),
            Self::Out(spec) => spec.spec.clone(),
            Self::Redact(spec) => spec.spec.clone(),
            Self::ReplaceRoot(spec) => rawdoc! { "newRoot": spec.spec.clone() }.into(),
            Self::Sample(size) => rawdoc! { "size": whole(*size) }.into(),
            Self::Sort(spec) => {
                let mut sort = rawdoc! { "sortKey": spec.pattern.spec().to_owned() };
                if let Some(limit) = spec.limit {
                    sort.append(bson::raw::cstr!("limit"), whole(limit));
                }
                sort.into()
            }
            Self::UnionWith(spec) => spec.spec.clone(),
            Self::Unwind(spec) => explain_unwind(spec),
        };
        single(self.name(), argument.as_raw_bson_ref())
    }
}

/// A count as BSON holds it.
fn whole(count: u64) -> RawBson {
    RawBson::Int64(i64::try_from(count).unwrap_or(i64::MAX))
}

fn explain_facet(spec: &FacetSpec) -> Result<RawDocumentBuf> {
    let mut doc = RawDocumentBuf::new();
    for (name, pipeline) in &spec.facets {
        let stages: RawArrayBuf = pipeline.explain()?.into_iter().collect();
        doc.append(super::field::cstring(name)?, stages);
    }
    Ok(doc)
}

fn explain_unwind(spec: &UnwindSpec) -> RawBson {
    let mut doc = rawdoc! { "path": format!("${}", spec.path) };
    if spec.preserve_null_and_empty {
        doc.append(bson::raw::cstr!("preserveNullAndEmptyArrays"), true);
    }
    if let Some(name) = &spec.index_field {
        doc.append(bson::raw::cstr!("includeArrayIndex"), name.as_str());
    }
    doc.into()
}
