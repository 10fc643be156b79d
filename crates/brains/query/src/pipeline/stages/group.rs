//! `$group`: one document for each distinct key, with what accumulators make of the documents that share it.
//!
//! Source: MongoDB manual, "$group (aggregation)". Blocking: the groups are held within the request's memory bound.
//! Keys are equal when MongoDB compares them equal, so `1` and `1.0` are one group, shown as the first that came; a
//! missing key is null. Groups come out in the order in which their first documents came.
//!
//! What is more than memory is spilled: all groups so far, by key, each as the states of its accumulators. In the end the
//! states of one key are merged in the order in which they were written; groups then come out in the order of their keys.

use super::accumulated::{AccumulatedField, Accumulators};
use super::sort::BATCH_DOCUMENTS;
use crate::Context;
use crate::expression::{Dependencies, Expression};
use crate::pipeline::field::raw_value;
use crate::pipeline::stage::{Flow, Stage};
use crate::spill::{Merge, Room, Runs, SpillKind, Spillable, damaged};
use baton_document::keys::{self, Direction};
use baton_types::{Error, ErrorCode, MemoryAccount, Result};
use bson::Bson;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a group costs beside its key and accumulators, in bytes.
const GROUP_BYTES: usize = 128;

/// The arguments of `$group`.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    id: Expression,
    fields: Vec<AccumulatedField>,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
}

impl GroupSpec {
    /// Parses the argument: 15947 to 15955, 16414, 40234 to 40238.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            return Err(Error::location(15947, "a group's fields must be specified in an object"));
        };
        let mut id = None;
        let mut fields = Vec::new();
        for element in spec.iter() {
            let (name, value) = element?;
            if name.as_str() != "_id" {
                fields.push(AccumulatedField::parse(name.as_str(), value, ctx)?);
                continue;
            }
            if id.is_some() {
                return Err(Error::location(15948, "a group's _id may only be specified once"));
            }
            id = Some(Expression::parse(value, ctx)?);
        }
        let id = id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
        Ok(Self { id, fields, spec: spec.to_owned() })
    }

    /// The key's expression.
    pub fn id(&self) -> &Expression {
        &self.id
    }

    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) {
        into.merge(self.id.dependencies());
        self.fields.iter().for_each(|field| field.collect_dependencies(into));
    }

    pub(crate) fn start(self: &Arc<Self>, ctx: &Arc<Context>) -> GroupStage {
        GroupStage {
            spec: Arc::clone(self),
            ctx: Arc::clone(ctx),
            by_key: HashMap::new(),
            groups: VecDeque::new(),
            key: Vec::new(),
            bytes: 0,
            room: ctx.stage_room(SpillKind::Group),
            runs: None,
            merged: None,
            given_bytes: 0,
        }
    }

    fn document(&self, group: Group) -> Result<RawDocumentBuf> {
        let mut doc = RawDocumentBuf::new();
        doc.append(cstr!("_id"), group.id);
        group.accumulators.finish(&self.fields, &mut doc)?;
        Ok(doc)
    }
}

struct Group {
    id: RawBson,
    accumulators: Accumulators,
}

impl Group {
    /// Its key and the states of its accumulators.
    fn state(self) -> Result<RawDocumentBuf> {
        let mut state = RawDocumentBuf::new();
        state.append(cstr!("id"), self.id);
        state.append(cstr!("states"), raw_value(self.accumulators.state())?);
        Ok(state)
    }
}

/// `$group` at work.
pub(crate) struct GroupStage {
    spec: Arc<GroupSpec>,
    ctx: Arc<Context>,
    /// The place in `groups` by encoded key.
    by_key: HashMap<Vec<u8>, usize>,
    groups: VecDeque<Group>,
    /// The key at hand; kept to reuse its memory.
    key: Vec<u8>,
    bytes: usize,
    room: Room,
    /// What was too much.
    runs: Option<Runs>,
    /// The same, once the input is in.
    merged: Option<MergedGroups>,
    /// Bytes of the documents given so far.
    given_bytes: u64,
}

impl GroupStage {
    /// The place of the group with `id`, which is made if there is none.
    fn place(&mut self, id: Bson) -> Result<usize> {
        self.key.clear();
        keys::encode_bson(&mut self.key, &id, Direction::Ascending)?;
        if let Some(place) = self.by_key.get(self.key.as_slice()) {
            return Ok(*place);
        }
        let place = self.groups.len();
        let accumulators = Accumulators::start(&self.spec.fields, &id, &self.ctx)?;
        self.bytes += GROUP_BYTES + 2 * self.key.len() + accumulators.memory_bytes();
        self.groups.push_back(Group { id: raw_value(id)?, accumulators });
        self.by_key.insert(self.key.clone(), place);
        Ok(place)
    }

    /// Writes all groups as a run.
    fn spill(&mut self) -> Result<()> {
        if self.runs.is_none() {
            self.runs = self.room.runs()?;
        }
        let Some(runs) = &mut self.runs else {
            return Err(self.room.exceeded("$group", self.bytes, |_| {
                "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in."
                    .to_owned()
            }));
        };
        let mut order: Vec<(Vec<u8>, usize)> = self.by_key.drain().collect();
        order.sort_unstable();
        let mut groups: Vec<Option<Group>> = self.groups.drain(..).map(Some).collect();
        runs.write(&mut self.room, |run| {
            order.into_iter().try_for_each(|(key, place)| {
                let Some(group) = groups.get_mut(place).and_then(Option::take) else { return Ok(()) };
                let state = group.state()?;
                run.put(&key, |out| out.extend_from_slice(state.as_bytes()))
            })
        })?;
        self.bytes = 0;
        // To hold less is always allowed.
        let _ = self.room.hold(0);
        Ok(())
    }

    fn give(&mut self, group: Group, out: &mut VecDeque<RawDocumentBuf>) -> Result<()> {
        let doc = self.spec.document(group)?;
        self.given_bytes += doc.as_bytes().len() as u64;
        out.push_back(doc);
        Ok(())
    }

    fn give_merged(&mut self, mut merged: MergedGroups, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        for _ in 0..BATCH_DOCUMENTS {
            let Some(group) = merged.next(&self.spec.fields, &self.ctx)? else { return Ok(Flow::Done) };
            self.give(group, out)?;
        }
        self.merged = Some(merged);
        Ok(Flow::More)
    }
}

impl Stage for GroupStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let id = self.spec.id.evaluate(&doc, &self.ctx)?.unwrap_or(Bson::Null);
        let place = self.place(id)?;
        let Some(group) = self.groups.get_mut(place) else { return Ok(Flow::Done) };
        let before = group.accumulators.memory_bytes();
        group.accumulators.accumulate(&self.spec.fields, &doc, &self.ctx)?;
        self.bytes = (self.bytes + group.accumulators.memory_bytes()).saturating_sub(before);
        if !self.room.hold(self.bytes) {
            self.spill()?;
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if self.runs.is_some() && !self.groups.is_empty() {
            self.spill()?;
        }
        if let Some(runs) = self.runs.take() {
            let merge = runs.into_merge(&mut self.room, None)?;
            self.merged = Some(MergedGroups { merge, next: None, memory: self.ctx.memory.account(usize::MAX) });
        }
        if let Some(merged) = self.merged.take() {
            return self.give_merged(merged, out);
        }
        self.by_key = HashMap::new();
        for _ in 0..BATCH_DOCUMENTS {
            let Some(group) = self.groups.pop_front() else { break };
            self.give(group, out)?;
        }
        Ok(if self.groups.is_empty() { Flow::Done } else { Flow::More })
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn figures(&self) -> RawDocumentBuf {
        let mut figures = RawDocumentBuf::new();
        figures.append(cstr!("totalOutputDataSizeBytes"), i64::try_from(self.given_bytes).unwrap_or(i64::MAX));
        self.room.spilled().append_to(&mut figures);
        figures
    }
}

/// What the states on the disk become.
struct MergedGroups {
    merge: Merge,
    /// The state that was read last, with its key: the first of another group.
    next: Option<(Vec<u8>, RawDocumentBuf)>,
    /// What the group holds that is being made. Its accumulators know their own limits.
    memory: MemoryAccount,
}

impl MergedGroups {
    fn next(&mut self, fields: &[AccumulatedField], ctx: &Context) -> Result<Option<Group>> {
        let first = match self.next.take() {
            Some(first) => first,
            None => match self.merge.next()? {
                Some((key, state)) => (key.to_vec(), Spillable::take(state)?),
                None => return Ok(None),
            },
        };
        let (key, state) = first;
        let id = state.get("id")?.ok_or_else(damaged)?;
        let accumulators = Accumulators::start(fields, &Bson::try_from(id)?, ctx)?;
        let mut group = Group { id: id.into(), accumulators };
        self.merge_into(&mut group, &state)?;
        while let Some((next, state)) = self.merge.next()? {
            let state: RawDocumentBuf = Spillable::take(state)?;
            if next != key {
                self.next = Some((next.to_vec(), state));
                break;
            }
            self.merge_into(&mut group, &state)?;
        }
        Ok(Some(group))
    }

    fn merge_into(&mut self, group: &mut Group, state: &RawDocument) -> Result<()> {
        let states = state.get("states")?.ok_or_else(damaged)?;
        group.accumulators.merge(Bson::try_from(states)?)?;
        let bytes = group.accumulators.memory_bytes();
        if self.memory.set(bytes) {
            return Ok(());
        }
        let message = format!("One group takes {bytes} bytes, more than the memory that all requests share has left.");
        Err(Error::new(ErrorCode::ExceededMemoryLimit, message))
    }
}
