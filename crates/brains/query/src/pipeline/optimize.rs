//! The optimiser: the same results from less work.
//!
//! Invariants: an optimised pipeline gives the results of the one it was made from (a property test holds it to that);
//! it does not run expressions or look at data. Rules are applied until none applies any more, each of them either
//! removing a stage or moving one forward, so it ends.
//!
//! The rules: a filter moves in front of stages that leave its fields alone, conjunct by conjunct; neighbouring filters,
//! limits and skips become one; a limit is taken over by the sort before it; a limit or skip moves in front of stages
//! that make one document of one.
//!
//! What it deliberately does not do: reorder sorts, groups or joins, or use knowledge of indexes; those are the
//! planner's, which gets the leading part.

use super::field::root;
use super::filter::{conjunction, conjuncts};
use super::spec::StageSpec;
use super::stages::matching::MatchSpec;
use crate::Context;
use crate::expression::Dependencies;
use baton_types::Result;
use bson::raw::RawDocumentBuf;
use std::sync::Arc;

/// Applies the rules to `stages` until none applies.
pub(crate) fn optimize(mut stages: Vec<StageSpec>, ctx: &Context) -> Result<Vec<StageSpec>> {
    while merge_one(&mut stages, ctx)? || move_one(&mut stages, ctx)? {}
    coalesce_limits(&mut stages);
    Ok(stages)
}

/// Merges one pair of neighbours, or removes a stage that does nothing.
fn merge_one(stages: &mut Vec<StageSpec>, ctx: &Context) -> Result<bool> {
    for at in 0..stages.len() {
        match (&stages[at], stages.get(at + 1)) {
            (StageSpec::Match(spec), _) if at > 0 && conjuncts(&spec.filter)?.is_empty() => {
                stages.remove(at);
                return Ok(true);
            }
            (StageSpec::Skip(0), _) => {
                stages.remove(at);
                return Ok(true);
            }
            (StageSpec::Match(first), Some(StageSpec::Match(second))) => {
                let mut parts = conjuncts(&first.filter)?;
                parts.extend(conjuncts(&second.filter)?);
                let merged = matching(&parts, ctx)?;
                replace_pair(stages, at, merged);
                return Ok(true);
            }
            (StageSpec::Limit(a), Some(StageSpec::Limit(b))) => {
                let merged = StageSpec::Limit(*a.min(b));
                replace_pair(stages, at, merged);
                return Ok(true);
            }
            (StageSpec::Skip(a), Some(StageSpec::Skip(b))) => {
                if let Some(sum) = a.checked_add(*b) {
                    replace_pair(stages, at, StageSpec::Skip(sum));
                    return Ok(true);
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

fn replace_pair(stages: &mut Vec<StageSpec>, at: usize, merged: StageSpec) {
    stages.remove(at + 1);
    stages[at] = merged;
}

fn matching(parts: &[RawDocumentBuf], ctx: &Context) -> Result<StageSpec> {
    Ok(StageSpec::Match(Arc::new(MatchSpec::by(&conjunction(parts)?, ctx)?)))
}

/// Moves one stage, or a part of one, in front of its predecessor.
fn move_one(stages: &mut Vec<StageSpec>, ctx: &Context) -> Result<bool> {
    for at in 1..stages.len() {
        match &stages[at] {
            StageSpec::Match(spec) => {
                let spec = Arc::clone(spec);
                if move_filter(stages, at, &spec, ctx)? {
                    return Ok(true);
                }
            }
            StageSpec::Limit(_) | StageSpec::Skip(_) if makes_one_of_one(&stages[at - 1]) => {
                stages.swap(at - 1, at);
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Moves those conjuncts of the filter at `at` forward that its predecessor leaves alone.
fn move_filter(stages: &mut Vec<StageSpec>, at: usize, spec: &MatchSpec, ctx: &Context) -> Result<bool> {
    let before = &stages[at - 1];
    if spec.dependencies.random || !lets_filters_pass(before) {
        return Ok(false);
    }
    let mut moving = Vec::new();
    let mut staying = Vec::new();
    for part in conjuncts(&spec.filter)? {
        let reads = super::filter::dependencies(&part, ctx)?;
        if leaves_alone(before, &reads) {
            moving.push(part);
        } else {
            staying.push(part);
        }
    }
    if moving.is_empty() {
        return Ok(false);
    }
    let moved = matching(&moving, ctx)?;
    if staying.is_empty() {
        stages.remove(at);
    } else {
        stages[at] = matching(&staying, ctx)?;
    }
    stages.insert(at - 1, moved);
    Ok(true)
}

/// Whether filtering before the stage instead of after it can be right at all.
fn lets_filters_pass(stage: &StageSpec) -> bool {
    match stage {
        StageSpec::AddFields(_) | StageSpec::Project(_) | StageSpec::Unwind(_) | StageSpec::Lookup(_) => true,
        // A sort with a limit chooses among what it gets.
        StageSpec::Sort(spec) => spec.limit.is_none(),
        StageSpec::BucketAuto(_)
        | StageSpec::CollStats(_)
        | StageSpec::Count(_)
        | StageSpec::CurrentOp(_)
        | StageSpec::Documents(_)
        | StageSpec::Facet(_)
        | StageSpec::Group(_)
        | StageSpec::IndexStats
        | StageSpec::Limit(_)
        | StageSpec::ListLocalSessions(_)
        | StageSpec::ListSessions(_)
        | StageSpec::Match(_)
        | StageSpec::Merge(_)
        | StageSpec::Out(_)
        | StageSpec::PlanCacheStats
        | StageSpec::Redact(_)
        | StageSpec::ReplaceRoot(_)
        | StageSpec::Sample(_)
        | StageSpec::Skip(_)
        | StageSpec::UnionWith(_) => false,
    }
}

/// Whether everything a filter `reads` is the same before the stage as after it. Fields are compared by their first
/// component: setting `a.b` may change what `a.0` or `a.c` finds, where `a` is an array.
fn leaves_alone(stage: &StageSpec, reads: &Dependencies) -> bool {
    if let StageSpec::Sort(_) = stage {
        return true;
    }
    if reads.whole_document {
        return false;
    }
    let mut roots = reads.fields.iter().map(|field| root(field));
    match stage {
        StageSpec::AddFields(spec) | StageSpec::Project(spec) => roots.all(|name| spec.preserves(name)),
        StageSpec::Unwind(spec) => roots.all(|name| {
            name != root(&spec.path) && spec.index_field.as_deref().is_none_or(|index| name != root(index))
        }),
        StageSpec::Lookup(spec) => roots.all(|name| name != root(&spec.as_field)),
        _ => false,
    }
}

/// Whether the stage emits exactly one document for each it takes, whatever the others are.
fn makes_one_of_one(stage: &StageSpec) -> bool {
    matches!(stage, StageSpec::AddFields(_) | StageSpec::Project(_) | StageSpec::ReplaceRoot(_) | StageSpec::Lookup(_))
}

/// Lets a sort take over the limit that follows it, directly or after a skip.
fn coalesce_limits(stages: &mut Vec<StageSpec>) {
    let mut at = 0;
    while at + 1 < stages.len() {
        let StageSpec::Sort(sort) = &stages[at] else {
            at += 1;
            continue;
        };
        let (limit, limit_at) = match (&stages[at + 1], stages.get(at + 2)) {
            (StageSpec::Limit(limit), _) => (Some(*limit), at + 1),
            (StageSpec::Skip(skip), Some(StageSpec::Limit(limit))) => (skip.checked_add(*limit), at + 2),
            _ => (None, 0),
        };
        let Some(limit) = limit else {
            at += 1;
            continue;
        };
        let mut sort = sort.clone();
        sort.limit = Some(sort.limit.map_or(limit, |known| known.min(limit)));
        stages[at] = StageSpec::Sort(sort);
        stages.remove(limit_at);
    }
}
