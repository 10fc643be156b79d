//! Cloning: what there is at the source, and collections with their indexes and documents.

use super::lane::{Context, LaneWorker, hold};
use super::source::Listed;
use super::status::CollectionProgress;
use baton_following::{Answer, Copying, Listed as ListedHere, ReadFrom};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// As many documents as a reply holds.
const BATCH: i32 = 1_000_000;

impl LaneWorker {
    pub(super) fn copy_statements(&mut self, context: &Context<'_>, until: OpTime, secs: u32) -> Result<Answer> {
        let mut from = until.timestamp;
        from.seconds = from.seconds.saturating_sub(secs);
        let find = rawdoc! {
            "find": "oplog.rs", "$db": "local", "batchSize": BATCH,
            "filter": {
                "ts": { "$gte": bson::Timestamp::from(from), "$lte": bson::Timestamp::from(until.timestamp) },
                "lsid": { "$exists": true },
            },
        };
        self.source()?.each_batch(find, |entries| context.storage.follower().put_statements(entries))?;
        Ok(Answer::Done)
    }

    pub(super) fn begin_log(&mut self, context: &Context<'_>) -> Result<Answer> {
        let begin = self.begin.as_ref();
        let begin = begin.ok_or_else(|| Error::new(ErrorCode::InitialSyncFailure, "the source has no log"))?;
        context.storage.follower().begin_log_with(begin)?;
        Ok(Answer::Done)
    }

    /// Drops this member's copy of the one collection that is copied.
    pub(super) fn drop_own(&mut self, context: &Context<'_>) -> Result<Answer> {
        let (storage, uuid) = (context.storage, self.uuid()?);
        if let Some(own) = storage.catalog().iter().find(|collection| collection.uuid == uuid) {
            storage.follower().unlogged(|writer| writer.drop_collection(&own.namespace))?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn list(&mut self, what: Copying) -> Result<Answer> {
        let uuid = match what {
            Copying::Everything => None,
            Copying::CollectionOf(_) => Some(self.uuid()?),
        };
        let is_it = |listed: &Listed| {
            let of = listed.uuid.as_ref().and_then(RawBson::as_binary);
            uuid.is_none_or(|uuid| of.is_some_and(|binary| binary.bytes == uuid))
        };
        // One that the source has dropped since: the log says so.
        let listed: Vec<Listed> = self.source()?.collections()?.into_iter().filter(is_it).collect();
        let (views, collections): (Vec<_>, Vec<_>) = listed.into_iter().partition(|listed| listed.is_view);
        let answer = collections.iter().map(|listed| ListedHere { is_capped: listed.is_capped() }).collect();
        let progress = |listed: &Listed| CollectionProgress::new(listed.namespace.clone());
        let mut there = self.session.there.lock();
        there.progress = collections.iter().map(progress).collect();
        there.collections = collections.into_iter().map(Arc::new).collect();
        there.views = views;
        Ok(Answer::Listed(answer))
    }

    pub(super) fn measure(&mut self, place: usize) -> Result<Answer> {
        let listed = self.session.collection(place)?;
        let mut progress = CollectionProgress::new(listed.namespace.clone());
        self.source()?.measure(&listed, &mut progress)?;
        let bytes = progress.bytes;
        if let Some(noted) = self.session.there.lock().progress.get_mut(place) {
            *noted = progress;
        }
        Ok(Answer::Bytes(bytes))
    }

    pub(super) fn create(&mut self, context: &Context<'_>, place: usize) -> Result<Answer> {
        create(context, &*self.session.collection(place)?)?;
        Ok(Answer::Done)
    }

    pub(super) fn ask_indexes(&mut self, place: usize) -> Result<Answer> {
        let listed = self.session.collection(place)?;
        self.indexes = self.source()?.indexes(&listed)?;
        Ok(Answer::Done)
    }

    pub(super) fn build_indexes(&mut self, context: &Context<'_>, place: usize) -> Result<Answer> {
        let listed = self.session.collection(place)?;
        for (name, rest) in &self.indexes {
            command(context, &listed, with_first(name, &listed.namespace, rest)?)?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn drop(&mut self, context: &Context<'_>, place: usize) -> Result<Answer> {
        let listed = self.session.collection(place)?;
        command(context, &listed, rawdoc! { "drop": listed.namespace.coll() })?;
        Ok(Answer::Done)
    }

    pub(super) fn create_views(&mut self, context: &Context<'_>) -> Result<Answer> {
        // A view may be of any collection.
        let views = std::mem::take(&mut self.session.there.lock().views);
        views.iter().try_for_each(|view| create(context, view))?;
        Ok(Answer::Done)
    }

    fn find(&self, listed: &Listed) -> RawDocumentBuf {
        let batch = match self.session.options.batch_documents {
            0 => BATCH,
            documents => documents,
        };
        let mut find = rawdoc! {
            "find": listed.named(), "$db": listed.namespace.db(), "batchSize": batch, "noCursorTimeout": true,
        };
        if !listed.is_capped() {
            find.append(cstr!("hint"), rawdoc! { "_id": 1 });
            if let Some(id) = &self.last_id {
                find.append(cstr!("min"), rawdoc! { "_id": id.clone() });
            }
        }
        find
    }

    pub(super) fn read(&mut self, context: &Context<'_>, place: usize, from: ReadFrom) -> Result<Answer> {
        let listed = self.session.collection(place)?;
        if from == ReadFrom::Start {
            self.last_id = None;
        }
        let ahead = if from == ReadFrom::Cursor { self.source()?.next_batch()? } else { None };
        let batch = match ahead {
            Some(batch) => batch,
            None => {
                let find = self.find(&listed);
                self.source()?.first_batch(find)?
            }
        };
        let next = batch.next()?;
        if let Some(next) = &next {
            self.source()?.ask_ahead(next)?;
        }
        let documents = batch.documents()?;
        hold(context, "initialSyncHangDuringCollectionClone")?;
        let Some(collection) = context.storage.collection(&listed.namespace) else {
            return Err(Error::new(ErrorCode::InitialSyncFailure, format!("{} is gone", listed.namespace)));
        };
        context.storage.follower().put_cloned(&collection, &documents)?;
        if let Some(last) = documents.last() {
            self.last_id = last.get("_id")?.map(Into::into);
        }
        let bytes = documents.iter().map(|document| document.as_bytes().len()).sum();
        self.session.note_documents(place, documents.len(), bytes);
        self.rest(context);
        Ok(Answer::Batch { is_last: next.is_none() })
    }
}

fn command(context: &Context<'_>, listed: &Listed, o: RawDocumentBuf) -> Result<()> {
    let mut entry = rawdoc! { "op": "c", "ns": format!("{}.$cmd", listed.namespace.db()) };
    if let Some(uuid) = &listed.uuid {
        entry.append(cstr!("ui"), uuid.clone());
    }
    entry.append(cstr!("o"), o);
    context.storage.follower().unlogged(|writer| (context.apply_command)(writer, &entry))
}

fn create(context: &Context<'_>, listed: &Listed) -> Result<()> {
    command(context, listed, with_first("create", &listed.namespace, &listed.options)?)
}

fn with_first(command: &str, namespace: &Namespace, rest: &RawDocument) -> Result<RawDocumentBuf> {
    let mut o = RawDocumentBuf::new();
    o.append(bson::raw::CString::try_from(command)?, namespace.coll());
    for element in rest {
        let (name, value) = element?;
        if name != "ns" {
            o.append(name, value);
        }
    }
    Ok(o)
}
