//! `$group`: one document for each distinct key, with what accumulators make of the documents that share it.
//!
//! Source: MongoDB manual, "$group (aggregation)". Blocking: the groups are held within the request's memory bound.
//! Keys are equal when MongoDB compares them equal, so `1` and `1.0` are one group, shown as the first that came; a
//! missing key is null. Groups come out in the order in which their first documents came.

use super::accumulated::{AccumulatedField, Accumulators};
use super::sort::BATCH_DOCUMENTS;
use crate::Context;
use crate::expression::{Dependencies, Expression};
use crate::pipeline::field::raw_value;
use crate::pipeline::stage::{Flow, Stage};
use baton_document::keys::{self, Direction};
use baton_types::{Error, ErrorCode, MemoryAccount, Result};
use bson::Bson;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf, cstr};
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
            memory: ctx.group_memory(),
        }
    }
}

struct Group {
    id: RawBson,
    accumulators: Accumulators,
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
    memory: MemoryAccount,
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
}

impl Stage for GroupStage {
    fn push(&mut self, doc: RawDocumentBuf, _: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        let id = self.spec.id.evaluate(&doc, &self.ctx)?.unwrap_or(Bson::Null);
        let place = self.place(id)?;
        let Some(group) = self.groups.get_mut(place) else { return Ok(Flow::Done) };
        let before = group.accumulators.memory_bytes();
        group.accumulators.accumulate(&self.spec.fields, &doc, &self.ctx)?;
        self.bytes = (self.bytes + group.accumulators.memory_bytes()).saturating_sub(before);
        if !self.memory.set(self.bytes) {
            return Err(memory_exceeded(&self.memory, self.bytes));
        }
        Ok(Flow::More)
    }

    fn finish(&mut self, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        self.by_key = HashMap::new();
        let batch = self.groups.len().min(BATCH_DOCUMENTS);
        for group in self.groups.drain(..batch) {
            let mut doc = RawDocumentBuf::new();
            doc.append(cstr!("_id"), group.id);
            group.accumulators.finish(&self.spec.fields, &mut doc)?;
            out.push_back(doc);
        }
        Ok(if self.groups.is_empty() { Flow::Done } else { Flow::More })
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

fn memory_exceeded(memory: &MemoryAccount, bytes: usize) -> Error {
    let bytes_max = memory.bytes_max();
    Error::new(
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
        if bytes > bytes_max {
            format!(
                "Exceeded memory limit of {bytes_max} bytes for $group, and grouping on disk (allowDiskUse) is not \
                 implemented; group fewer documents, or raise internalDocumentSourceGroupMaxMemoryBytes."
            )
        } else {
            "$group exceeded the memory that all requests share; try again when fewer of them run.".to_owned()
        },
    )
}
