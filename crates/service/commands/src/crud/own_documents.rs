//! Documents that no collection holds: those of first stages that ask the member (`$currentOp`, `$indexStats`, …), and those of
//! `system.views`, which is only shown.
//!
//! Invariant: whoever runs a pipeline, whether of a command, of a view, of `$lookup` or of `$unionWith`, finds them, for all take their
//! host here.
//! Sources: MongoDB manual, "$collStats", "$indexStats", "$currentOp", "$listSessions".

use crate::call::Call;
use crate::commands::current_op::{self, Wanted};
use crate::ddl::{statistics, views};
use crate::server::Server;
use baton_execution::{OwnDocuments, StorageHost, SystemDraw};
use baton_query::pipeline::{CollStatsSpec, Pipeline, StageSpec};
use baton_storage::{Collection, CollectionKind, ID_INDEX, IndexState, Storage};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::{RawDocumentBuf, cstr, rawdoc};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What stands for a collection's name where a pipeline is of a whole database.
pub const WHOLE_DATABASE: &str = "$cmd.aggregate";

/// A host for the pipelines of a command.
pub fn host(call: &Call<'_>, namespace: &Namespace) -> StorageHost {
    let own = MemberDocuments { server: Arc::downgrade(call.server) };
    let (storage, author) = (Arc::clone(&call.server.storage), Arc::clone(&call.author));
    StorageHost::new(storage, namespace.db(), Arc::new(SystemDraw), Arc::new(own), author)
}

/// `InvalidNamespace` (73) where the first stage and the target do not fit.
pub fn check_source(pipeline: &Pipeline, namespace: &Namespace, whole_database: bool) -> Result<()> {
    let without_collection = pipeline.source().is_some_and(StageSpec::reads_no_collection);
    match pipeline.source() {
        Some(source @ StageSpec::CurrentOp(_)) if namespace.db() != "admin" => Err(needs_whole_database(source)),
        Some(source) if without_collection && !whole_database => Err(needs_whole_database(source)),
        source if whole_database && !without_collection => {
            let name = source.or(pipeline.stages().first()).map_or("an empty pipeline", StageSpec::name);
            let message = format!("{{aggregate: 1}} is not valid for '{name}'; a collection is required.");
            Err(Error::new(ErrorCode::InvalidNamespace, message))
        }
        _ => Ok(()),
    }
}

/// Whether a query on this name, whose collection this is, is a pipeline: on a view, or on what is only shown.
pub fn is_a_pipeline(storage: &Storage, namespace: &Namespace, collection: Option<&Collection>) -> bool {
    match collection {
        Some(collection) => collection.kind == CollectionKind::View,
        None => views::stored(storage, namespace).is_some(),
    }
}

/// See the file's header. A cursor that the server keeps has one, so it does not keep the server.
struct MemberDocuments {
    server: Weak<Server>,
}

impl OwnDocuments for MemberDocuments {
    fn documents(&self, namespace: &Namespace, source: Option<&StageSpec>) -> Result<Option<VecDeque<RawDocumentBuf>>> {
        let Some(server) = self.server.upgrade() else {
            return Err(Error::new(ErrorCode::ShutdownInProgress, "the member stops"));
        };
        let server = &*server;
        match source {
            Some(source) if source.reads_no_collection() && namespace.coll() != WHOLE_DATABASE => {
                Err(needs_whole_database(source))
            }
            Some(StageSpec::CurrentOp(spec)) => {
                let wanted = Wanted { idle_connections: spec.idle_connections, idle_cursors: spec.idle_cursors };
                Ok(Some(current_op::list(server, wanted).into()))
            }
            Some(StageSpec::ListLocalSessions(_) | StageSpec::ListSessions(_)) => Ok(Some(sessions(server))),
            Some(StageSpec::IndexStats) => Ok(Some(match server.storage.collection(namespace) {
                Some(collection) => index_stats(server, &collection),
                None if views::stored(&server.storage, namespace).is_some() => {
                    let specification = Collection::id_index_document();
                    [index_row(server, ID_INDEX, rawdoc! { "_id": 1 }, specification, 0)].into()
                }
                None => VecDeque::new(),
            })),
            Some(StageSpec::CollStats(spec)) => coll_stats(server, namespace, spec).map(|row| Some([row].into())),
            Some(StageSpec::PlanCacheStats) => Ok(Some(VecDeque::new())),
            Some(_) => Ok(None),
            None => Ok(views::stored(&server.storage, namespace)),
        }
    }
}

/// `InvalidNamespace` (73) for a stage that is not about a collection.
pub fn needs_whole_database(source: &StageSpec) -> Error {
    let message = match source {
        StageSpec::CurrentOp(_) => "$currentOp must be run against the 'admin' database with {aggregate: 1}".to_owned(),
        other => format!("{} can only be run with {{aggregate: 1}}", other.name()),
    };
    Error::new(ErrorCode::InvalidNamespace, message)
}

fn sessions(server: &Server) -> VecDeque<RawDocumentBuf> {
    let id = |session: &crate::server::Session| bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: session.id.0.to_vec(),
    };
    server.sessions.all().iter().map(|session| rawdoc! { "_id": { "id": id(session) } }).collect()
}

fn index_stats(server: &Server, collection: &Collection) -> VecDeque<RawDocumentBuf> {
    let mut rows = VecDeque::new();
    if collection.options.capped.is_none() {
        rows.push_back(index_row(server, collection.id_index_name(), rawdoc! { "_id": 1 }, collection.id_index(), 0));
    }
    for index in collection.indexes().iter() {
        let definition = &index.definition;
        let (key, specification) = (definition.key_pattern().to_owned(), definition.document.clone());
        let uses = index.uses.load(Ordering::Relaxed) as i64;
        let mut row = index_row(server, &definition.name, key, specification, uses);
        if index.state() == IndexState::Building {
            row.append(cstr!("building"), true);
        }
        rows.push_back(row);
    }
    rows
}

fn index_row(server: &Server, name: &str, key: RawDocumentBuf, spec: RawDocumentBuf, uses: i64) -> RawDocumentBuf {
    let since = bson::DateTime::from_system_time(server.started_wall);
    rawdoc! {
        "name": name, "key": key, "host": server.identity.host.as_str(), "accesses": { "ops": uses, "since": since },
        "spec": spec,
    }
}

fn coll_stats(server: &Server, namespace: &Namespace, spec: &CollStatsSpec) -> Result<RawDocumentBuf> {
    let storage = &server.storage;
    let figures = match storage.collection(namespace) {
        Some(collection) => statistics::of(storage, &collection),
        None => statistics::of_views(storage, namespace)
            .ok_or_else(|| Error::new(ErrorCode::NamespaceNotFound, format!("Collection [{namespace}] not found.")))?,
    };
    let mut row = rawdoc! {
        "ns": namespace.as_str(),
        "host": server.identity.host.as_str(),
        "localTime": bson::DateTime::now(),
    };
    if let Some(scale) = spec.storage_scale {
        row.append(cstr!("storageStats"), statistics::storage_fields(storage, namespace, figures, scale.max(1))?);
    }
    if spec.count {
        row.append(cstr!("count"), figures.documents);
    }
    Ok(row)
}
