//! A plan after it has run: explain's `executionStages`, with counters for each stage.
//!
//! The plan is carried out in one loop over one access path, not stage by stage, so what a stage returned follows from what
//! the access looked at and gave, what matched, and what was returned in the end.
//!
//! Invariants: `keysExamined` and `docsExamined` of the stages sum up to the totals; a stage returns what the stage above it
//! takes; `works` is what was looked at below it and one more for the end.
//! What it deliberately does not do: time stages one by one. `executionTimeMillisEstimate` of each is that of the whole.
//! Source: MongoDB manual, "Explain Results".

use crate::access::{Access, Examined, Leaf};
use baton_query::planner::Plan;
use baton_query::spill::Spilled;
use bson::{Bson, Document, doc};

/// What a query did that ran to its end.
pub(crate) struct Run {
    /// The access paths at the plan's leaves, from left to right.
    pub leaves: Vec<Leaf>,
    /// Documents that matched the filter.
    pub matched: u64,
    /// Of those, how many `skip` passed over.
    pub skipped: u64,
    /// Documents returned.
    pub returned: u64,
    /// Whether the limit ended it.
    pub is_cut: bool,
    /// What a blocking sort took in, and the most it may hold, in bytes.
    pub sorted_bytes: u64,
    /// See there.
    pub sort_bytes_max: u64,
    /// What it could not hold.
    pub spilled: Spilled,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

/// The plan's stages with their counters.
pub(crate) fn stages(plan: &Plan, run: &Run) -> Document {
    let mut walk = Walk { run, leaves: run.leaves.iter(), counters: Vec::new() };
    walk.stage(plan, Some(run.returned));
    let mut counters = walk.counters.into_iter();
    plan.explain_with(&mut |_| counters.next().unwrap_or_default())
}

/// Keys and documents examined in all, as the stages show them.
pub(crate) fn totals(plan: &Plan, leaves: &[Leaf]) -> Examined {
    let mut kinds = Vec::new();
    collect_leaves(plan, &mut kinds);
    let mut totals = Examined::default();
    for (kind, leaf) in kinds.iter().zip(leaves) {
        let shown = shown(kind, leaf.examined);
        totals.keys += shown.keys;
        totals.documents += shown.documents;
    }
    totals
}

fn collect_leaves<'p>(plan: &'p Plan, into: &mut Vec<&'p Plan>) {
    match plan.inputs() {
        [] => into.push(plan),
        inputs => inputs.iter().for_each(|input| collect_leaves(input, into)),
    }
}

/// What a leaf looked at, in MongoDB's terms: there, documents are not in the order of `_id` but found by an index on it.
fn shown(leaf: &Plan, examined: Examined) -> Examined {
    match leaf {
        Plan::IdScan { .. } => Examined { keys: examined.documents, ..examined },
        _ => examined,
    }
}

/// What is known of a stage when those below it are.
#[derive(Clone, Copy, Default)]
struct Figures {
    returned: u64,
    works: u64,
    documents: u64,
}

/// Goes through a plan in the order in which explain shows it.
struct Walk<'r> {
    run: &'r Run,
    leaves: std::slice::Iter<'r, Leaf>,
    counters: Vec<Document>,
}

impl Walk<'_> {
    /// Counts for `plan` and all below it. `returned` is what it must have returned, if the stage above says so.
    fn stage(&mut self, plan: &Plan, returned: Option<u64>) -> Figures {
        let at = self.counters.len();
        self.counters.push(Document::new());
        let run = self.run;
        let (figures, own, is_eof) = match plan {
            Plan::Count { input } => {
                let below = self.stage(input, returned);
                let own = doc! { "nCounted": number(run.returned), "nSkipped": number(run.skipped) };
                (Figures { returned: 0, ..below }, own, true)
            }
            Plan::Limit { input, .. } | Plan::Projection { input, .. } => {
                let below = self.stage(input, returned);
                let is_limit = matches!(plan, Plan::Limit { .. });
                (below, Document::new(), is_limit || !run.is_cut)
            }
            Plan::Skip { input, .. } => {
                let below = self.stage(input, returned.map(|returned| returned + run.skipped));
                let returned = returned.unwrap_or(below.returned);
                (Figures { returned, ..below }, Document::new(), !run.is_cut)
            }
            Plan::Sort { input, .. } => {
                let below = self.stage(input, Some(run.matched));
                let returned = returned.unwrap_or(below.returned);
                let own = doc! {
                    "memLimit": number(run.sort_bytes_max),
                    "totalDataSizeSorted": number(run.sorted_bytes),
                    "usedDisk": run.spilled.spills > 0,
                    "spills": number(run.spilled.spills),
                    "spilledDataStorageSize": number(run.spilled.stored_bytes),
                    "spilledBytes": number(run.spilled.bytes),
                    "spilledRecords": number(run.spilled.records),
                };
                (Figures { returned, works: below.works + returned, ..below }, own, true)
            }
            Plan::Filter { input, .. } => {
                let below = self.stage(input, None);
                let returned = returned.map_or(below.returned, |_| run.matched);
                (Figures { returned, ..below }, Document::new(), !run.is_cut)
            }
            Plan::Fetch { input } => {
                let below = self.stage(input, None);
                let returned = returned.map_or(below.returned, |_| run.matched);
                let own = doc! { "docsExamined": number(below.documents), "alreadyHasObj": 0 };
                (Figures { returned, ..below }, own, !run.is_cut)
            }
            Plan::Or { inputs } => {
                let mut all = Figures::default();
                for input in inputs {
                    let below = self.stage(input, None);
                    all.returned += below.returned;
                    all.works += below.works;
                    all.documents += below.documents;
                }
                all.returned = returned.map_or(all.returned, |_| run.matched);
                (all, Document::new(), !run.is_cut)
            }
            Plan::Eof
            | Plan::CollectionScan { .. }
            | Plan::IdLookup { .. }
            | Plan::IdScan { .. }
            | Plan::IndexScan(_) => {
                let (figures, own) = self.leaf(plan, returned);
                (figures, own, !run.is_cut)
            }
        };
        self.counters[at] = self.with_common(figures, is_eof, own);
        figures
    }

    fn leaf(&mut self, plan: &Plan, returned: Option<u64>) -> (Figures, Document) {
        let leaf = self.leaves.next().copied().unwrap_or_default();
        let examined = shown(plan, leaf.examined);
        let own = match plan {
            Plan::CollectionScan { .. } => doc! { "docsExamined": number(examined.documents) },
            Plan::IdLookup { .. } | Plan::IdScan { .. } => {
                doc! { "keysExamined": number(examined.keys), "docsExamined": number(examined.documents) }
            }
            Plan::IndexScan(scan) => {
                let tested = if scan.needs_deduplication() { examined.duplicates + leaf.given } else { 0 };
                doc! {
                    "keysExamined": number(examined.keys),
                    "seeks": number(examined.seeks),
                    "dupsTested": number(tested),
                    "dupsDropped": number(examined.duplicates),
                }
            }
            _ => Document::new(),
        };
        let figures = Figures {
            returned: returned.map_or(leaf.given, |_| self.run.matched),
            works: examined.keys.max(examined.documents) + 1,
            documents: examined.documents,
        };
        (figures, own)
    }

    fn with_common(&self, figures: Figures, is_eof: bool, own: Document) -> Document {
        let Figures { returned, works, .. } = figures;
        let mut document = doc! {
            "nReturned": number(returned),
            "executionTimeMillisEstimate": number(self.run.millis),
            "works": number(works),
            "advanced": number(returned),
            "needTime": number(works.saturating_sub(returned + u64::from(is_eof))),
            "needYield": 0,
            "saveState": 0,
            "restoreState": 0,
            "isEOF": i32::from(is_eof),
        };
        document.extend(own);
        document
    }
}

/// A count as MongoDB answers it: an int if it fits one.
pub(crate) fn number(count: u64) -> Bson {
    i32::try_from(count).map_or(Bson::Int64(i64::try_from(count).unwrap_or(i64::MAX)), Bson::Int32)
}

impl Access {
    /// The figures of the accesses at this one's leaves; `whole` is those of this one itself.
    pub(crate) fn leaves(&self, whole: Leaf) -> Vec<Leaf> {
        match self {
            Self::Union { parts, .. } => parts.iter().flat_map(|part| part.access.leaves(part.figures)).collect(),
            Self::Nothing | Self::Points { .. } | Self::Documents { .. } | Self::Entries(_) => vec![whole],
        }
    }
}
