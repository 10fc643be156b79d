//! By file: the source makes a checkpoint of its files, and this member copies them and begins with them.
//!
//! What it deliberately does not do: take what has come into use (`storage::incoming`, when the process starts).

use super::lane::{Context, LaneWorker, hold};
use super::session::ListedFile;
use baton_following::Answer;
use baton_storage::{Incoming, optime_of};
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawBsonRef, RawDocument, rawdoc};
use std::sync::Arc;

fn failure(reason: String) -> Error {
    Error::new(ErrorCode::InitialSyncFailure, reason)
}

impl LaneWorker {
    pub(super) fn begin_checkpoint(&mut self) -> Result<Answer> {
        let begin = rawdoc! { "batonBeginCheckpoint": 1, "for": "initial sync", "$db": "admin" };
        let reply = self.source()?.ask(&begin)?;
        let files = files_of(&reply)?;
        let file_bytes = files.iter().map(|file| file.bytes).collect();
        // A member of an older version does not tell: then nothing is known of its log.
        let newest = reply.get_document("newest").ok().and_then(optime_of).unwrap_or(OpTime::ZERO);
        let mut there = self.session.there.lock();
        there.checkpoint = reply.get_i64("checkpoint")?;
        there.files = files;
        Ok(Answer::Checkpoint { newest, file_bytes })
    }

    pub(super) fn begin_incoming(&mut self, context: &Context<'_>) -> Result<Answer> {
        let incoming = Incoming::begin(context.storage)?;
        self.session.there.lock().incoming = Some(Arc::new(incoming));
        Ok(Answer::Done)
    }

    fn incoming(&self) -> Result<Arc<Incoming>> {
        let incoming = self.session.there.lock().incoming.clone();
        incoming.ok_or_else(|| failure("there is no place for the source's files".to_owned()))
    }

    fn listed_file(&self, place: usize) -> Result<ListedFile> {
        let listed = self.session.there.lock().files.get(place).cloned();
        listed.ok_or_else(|| failure(format!("no file has the place {place}")))
    }

    pub(super) fn create_file(&mut self, place: usize) -> Result<Answer> {
        self.file = Some(self.incoming()?.create(&self.listed_file(place)?.name)?);
        Ok(Answer::Done)
    }

    pub(super) fn read_part(
        &mut self,
        context: &Context<'_>,
        place: usize,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Answer> {
        let (listed, checkpoint) = (self.listed_file(place)?, self.session.there.lock().checkpoint);
        hold(context, "initialSyncHangDuringCollectionClone")?;
        let read = rawdoc! {
            "batonReadCheckpoint": checkpoint, "file": listed.name.as_str(), "offset": offset as i64,
            "bytes": bytes_max as i64, "$db": "admin",
        };
        let reply = self.source()?.ask(&read)?;
        let data = reply.get_binary("data")?.bytes;
        if reply.get_i64("crc32c")? != i64::from(crc32c::crc32c(data)) || data.is_empty() {
            return Ok(Answer::Damaged { file: listed.name });
        }
        let file = self.file.as_mut().ok_or_else(|| failure(format!("{} was not created", listed.name)))?;
        file.append(data).map_err(|error| failure(format!("{} cannot be kept: {error}", listed.name)))?;
        let bytes = data.len() as u64;
        self.session.note(|status| status.file_bytes_done += bytes);
        Ok(Answer::Part { bytes })
    }

    pub(super) fn finish_file(&mut self, place: usize) -> Result<Answer> {
        let name = self.listed_file(place)?.name;
        if let Some(file) = self.file.take() {
            file.finish().map_err(|error| failure(format!("{name} cannot be kept: {error}")))?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn end_checkpoint(&mut self) -> Result<Answer> {
        let end = rawdoc! { "batonEndCheckpoint": self.session.there.lock().checkpoint, "$db": "admin" };
        self.source()?.ask(&end)?;
        Ok(Answer::Done)
    }

    pub(super) fn arrive(&mut self) -> Result<Answer> {
        self.incoming()?.arrived()?;
        Ok(Answer::Done)
    }

    pub(super) fn discard(&mut self) -> Result<Answer> {
        self.incoming()?.discard();
        Ok(Answer::Done)
    }

    /// Returns only if the process could not start anew.
    pub(super) fn restart(&mut self, context: &Context<'_>) -> Result<Answer> {
        tracing::info!(target: "INITSYNC", source = self.session.host, "All files are here: starting anew with them");
        if let Some(restart) = &context.hooks.restart {
            restart();
        }
        Ok(Answer::Done)
    }
}

fn files_of(reply: &RawDocument) -> Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    for file in reply.get_array("files")? {
        let RawBsonRef::Document(file) = file? else { continue };
        let bytes = u64::try_from(file.get_i64("size")?).unwrap_or(0);
        files.push(ListedFile { name: file.get_str("name")?.to_owned(), bytes });
    }
    Ok(files)
}
