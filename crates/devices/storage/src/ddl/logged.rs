//! Commands as the oplog has them: what one member did to what exists, for others to do the same.
//!
//! Invariant: the member that logs a command and those that follow read it by one function, [`LoggedCommand::parse`]; what it
//! does not read is not logged ([`super::CatalogGuard::log`]). What a command may ask for is decided before it is logged, by
//! who takes it from a client: an entry is a fact, and those that follow ask no such question again.
//!
//! Not here: carrying a command out where other things exist than at its origin (an initial sync's copy); `applyOps`.

use crate::catalog::{Collection, CollectionOptions, IndexBuild, IndexDefinition};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::{CStr, cstr};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

/// A command of an oplog entry (`o`), without its target.
#[derive(Clone)]
pub enum LoggedCommand {
    /// Creates the target, a collection or view.
    Create(CollectionOptions),
    /// Builds these indexes of the target.
    CreateIndexes(Vec<IndexDefinition>),
    /// Drops the target's index of this name.
    DropIndex(String),
    /// Alters the target.
    Modify(Modification),
    /// Gives the target another name.
    Rename {
        /// The new name.
        to: Namespace,
        /// The collection that had it and is dropped.
        drop_target: Option<[u8; 16]>,
    },
    /// Drops the target.
    Drop,
    /// Says that all of the target's database was dropped.
    DropDatabase,
    /// Begins a build of the set of these indexes of the target.
    StartBuild {
        /// Which build.
        build: IndexBuild,
        /// What it makes.
        definitions: Vec<IndexDefinition>,
        /// It is under way, and gets another commit quorum.
        is_change: bool,
    },
    /// Completes a build of the set.
    CommitBuild {
        /// Which build.
        build: IndexBuild,
        /// What it has made.
        definitions: Vec<IndexDefinition>,
    },
    /// Gives a build of the set up.
    AbortBuild {
        /// Which build.
        build: IndexBuild,
        /// What it would have made.
        definitions: Vec<IndexDefinition>,
        /// Why.
        cause: (ErrorCode, String),
    },
    /// Begins or gives up a build whose end alone takes effect: a log of a Baton that knew no builds of the set.
    IndexBuildNote,
}

/// The protocol by which the members of a set build an index together. A member that reads another number in an entry refuses it.
const BUILD_PROTOCOL: i32 = 1;

/// What `collMod` changes.
#[derive(Clone, Debug, Default)]
pub struct Modification {
    /// Fields of the collection's options that get these values.
    pub options: RawDocumentBuf,
    /// What changes of one index.
    pub index: Option<IndexModification>,
}

/// What `collMod` changes of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexModification {
    /// Its name.
    pub name: String,
    /// Whether the planner overlooks it from now on.
    pub hidden: Option<bool>,
    /// Its `expireAfterSeconds` from now on.
    pub expire_after_secs: Option<i32>,
}

/// Names that `collMod` has for fields of the options.
const RENAMED: [(&CStr, &CStr); 2] = [(cstr!("size"), cstr!("cappedSize")), (cstr!("max"), cstr!("cappedMax"))];
/// Fields of the options that `collMod` names as they are.
const MODIFIED: [&str; 5] = ["validator", "validationLevel", "validationAction", "viewOn", "pipeline"];

fn unreadable(o: &RawDocument, why: &str) -> Error {
    Error::new(ErrorCode::FailedToParse, format!("An oplog entry's command cannot be read: {why}: {o:?}"))
}

impl LoggedCommand {
    /// The entry's `o`.
    pub fn document(&self, target: &Namespace) -> Result<RawDocumentBuf> {
        let coll = target.coll();
        Ok(match self {
            Self::Create(options) => {
                let mut o = with_all(rawdoc! { "create": coll }, &options.document)?;
                o.append(cstr!("idIndex"), Collection::id_index_document());
                o
            }
            Self::CreateIndexes(definitions) => match definitions.as_slice() {
                [one] => with_all(rawdoc! { "createIndexes": coll }, &one.document)?,
                several => rawdoc! { "commitIndexBuild": coll, "indexes": specifications(several) },
            },
            Self::StartBuild { build, definitions, is_change } => {
                let mut o = of_build("startIndexBuild", coll, build, definitions);
                o.append(cstr!("protocol"), BUILD_PROTOCOL);
                if *is_change {
                    o.append(cstr!("changesQuorum"), true);
                }
                o
            }
            Self::CommitBuild { build, definitions } => of_build("commitIndexBuild", coll, build, definitions),
            Self::AbortBuild { build, definitions, cause: (code, message) } => {
                let mut o = of_build("abortIndexBuild", coll, build, definitions);
                let cause = rawdoc! {
                    "ok": false, "code": code.0, "codeName": &*code.name(), "errmsg": message.as_str(),
                };
                o.append(cstr!("cause"), cause);
                o
            }
            Self::DropIndex(name) => rawdoc! { "dropIndexes": coll, "index": name.as_str() },
            Self::Modify(modification) => modification.document(coll)?,
            Self::Rename { to, drop_target } => {
                let mut o = rawdoc! { "renameCollection": target.as_str(), "to": to.as_str(), "stayTemp": false };
                if let Some(target) = drop_target {
                    o.append(cstr!("dropTarget"), uuid(*target));
                }
                o
            }
            Self::Drop => rawdoc! { "drop": coll },
            Self::DropDatabase => rawdoc! { "dropDatabase": 1 },
            Self::IndexBuildNote => rawdoc! { "abortIndexBuild": coll },
        })
    }

    /// The inverse of [`Self::document`]: the target and the command, of an entry about this database.
    ///
    /// # Errors
    /// `OplogOperationUnsupported` (62) for a command that is none of these; those of reading its parts.
    pub fn parse(db: &str, o: &RawDocument) -> Result<(Namespace, Self)> {
        let Some((name, value)) = o.iter().next().transpose()? else {
            return Err(unreadable(o, "it names no command"));
        };
        let text = || value.as_str().ok_or_else(|| unreadable(o, "it names no collection"));
        if name == "dropDatabase" {
            return Ok((Namespace::new(db, "$cmd")?, Self::DropDatabase));
        }
        if name == "renameCollection" {
            let to = o.get_str("to").map_err(|_| unreadable(o, "'to'"))?;
            let drop_target = match o.get("dropTarget")? {
                Some(RawBsonRef::Binary(uuid)) => uuid.bytes.try_into().ok(),
                _ => None,
            };
            return Ok((Namespace::parse(text()?)?, Self::Rename { to: Namespace::parse(to)?, drop_target }));
        }
        let command = match name.as_str() {
            "create" => Self::Create(CollectionOptions::parse(&without(o, "idIndex")?)?),
            "createIndexes" => Self::CreateIndexes(vec![IndexDefinition::parse(&without(o, "")?)?]),
            "startIndexBuild" | "commitIndexBuild" | "abortIndexBuild" => Self::parse_build(name.as_str(), o)?,
            "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => {
                Self::DropIndex(o.get_str("index").map_err(|_| unreadable(o, "'index'"))?.to_owned())
            }
            "collMod" => Self::Modify(Modification::parse(o)?),
            "drop" => Self::Drop,
            other => {
                let message = format!("An oplog entry has the command '{other}', which is not carried out here");
                return Err(Error::new(ErrorCode::OplogOperationUnsupported, message));
            }
        };
        Ok((Namespace::new(db, text()?)?, command))
    }

    fn parse_build(name: &str, o: &RawDocument) -> Result<Self> {
        let definitions = || -> Result<Vec<IndexDefinition>> {
            let mut definitions = Vec::new();
            for spec in o.get_array("indexes").map_err(|_| unreadable(o, "'indexes'"))? {
                let spec = spec?.as_document().ok_or_else(|| unreadable(o, "'indexes'"))?;
                definitions.push(IndexDefinition::parse(spec)?);
            }
            Ok(definitions)
        };
        let Some(build) = o.get("indexBuildUUID")? else {
            return if name == "commitIndexBuild" {
                Ok(Self::CreateIndexes(definitions()?))
            } else {
                Ok(Self::IndexBuildNote)
            };
        };
        let build = build.as_binary().and_then(|binary| binary.bytes.try_into().ok());
        let uuid: [u8; 16] = build.ok_or_else(|| unreadable(o, "'indexBuildUUID'"))?;
        let commit_quorum = o.get("commitQuorum")?.unwrap_or(RawBsonRef::String("votingMembers")).into();
        let build = IndexBuild { uuid, commit_quorum };
        Ok(match name {
            "startIndexBuild" => {
                let protocol = o.get("protocol")?.map_or(Some(BUILD_PROTOCOL), |protocol| protocol.as_i32());
                if protocol != Some(BUILD_PROTOCOL) {
                    let message = format!(
                        "This member builds indexes by protocol {BUILD_PROTOCOL}, and the primary began a build by another; run the same version of Baton on all members: {o:?}"
                    );
                    return Err(Error::new(ErrorCode::OplogOperationUnsupported, message));
                }
                let is_change = o.get("changesQuorum")?.is_some_and(|change| change.as_bool() == Some(true));
                Self::StartBuild { build, definitions: definitions()?, is_change }
            }
            "commitIndexBuild" => Self::CommitBuild { build, definitions: definitions()? },
            _ => {
                let cause = o.get_document("cause").map_err(|_| unreadable(o, "'cause'"))?;
                let code = ErrorCode(cause.get_i32("code").map_err(|_| unreadable(o, "'cause.code'"))?);
                let message = cause.get_str("errmsg").map_err(|_| unreadable(o, "'cause.errmsg'"))?;
                Self::AbortBuild { build, definitions: definitions()?, cause: (code, message.to_owned()) }
            }
        })
    }
}

/// What the entries of a build have in common.
fn of_build(name: &str, coll: &str, build: &IndexBuild, definitions: &[IndexDefinition]) -> RawDocumentBuf {
    let mut o = RawDocumentBuf::new();
    if let Ok(name) = bson::raw::CString::try_from(name) {
        o.append(name, coll);
    }
    o.append(cstr!("indexBuildUUID"), uuid(build.uuid));
    o.append(cstr!("indexes"), specifications(definitions));
    o.append(cstr!("commitQuorum"), build.commit_quorum.clone());
    o
}

fn uuid(bytes: [u8; 16]) -> bson::Binary {
    bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: bytes.to_vec() }
}

fn specifications(definitions: &[IndexDefinition]) -> bson::RawArrayBuf {
    let mut indexes = bson::RawArrayBuf::new();
    definitions.iter().for_each(|definition| indexes.push(definition.document.clone()));
    indexes
}

impl Modification {
    fn document(&self, coll: &str) -> Result<RawDocumentBuf> {
        let mut o = rawdoc! { "collMod": coll };
        for element in &self.options {
            let (name, value) = element?;
            let renamed = RENAMED.iter().find(|(own, _)| *own == name).map(|(_, renamed)| *renamed);
            o.append(renamed.unwrap_or(name), value);
        }
        if let Some(index) = &self.index {
            let mut changes = rawdoc! { "name": index.name.as_str() };
            if let Some(hidden) = index.hidden {
                changes.append(cstr!("hidden"), hidden);
            }
            if let Some(secs) = index.expire_after_secs {
                changes.append(cstr!("expireAfterSeconds"), secs);
            }
            o.append(cstr!("index"), changes);
        }
        Ok(o)
    }

    fn parse(o: &RawDocument) -> Result<Self> {
        let mut modification = Self::default();
        for element in o.iter().skip(1) {
            let (name, value) = element?;
            if let Some((own, _)) = RENAMED.iter().find(|(_, renamed)| *renamed == name) {
                modification.options.append(*own, value);
            } else if MODIFIED.contains(&name.as_str()) {
                modification.options.append(name, value);
            } else if name == "index" {
                let index = value.as_document().ok_or_else(|| unreadable(o, "'index'"))?;
                modification.index = Some(IndexModification {
                    name: index.get_str("name").map_err(|_| unreadable(o, "'index.name'"))?.to_owned(),
                    hidden: index.get("hidden")?.and_then(|hidden| hidden.as_bool()),
                    expire_after_secs: match index.get("expireAfterSeconds")? {
                        Some(RawBsonRef::Int32(secs)) => Some(secs),
                        Some(RawBsonRef::Int64(secs)) => Some(i32::try_from(secs).unwrap_or(i32::MAX)),
                        _ => None,
                    },
                });
            } else {
                return Err(unreadable(o, &format!("'{}'", name.as_str())));
            }
        }
        Ok(modification)
    }
}

fn with_all(mut document: RawDocumentBuf, fields: &RawDocument) -> Result<RawDocumentBuf> {
    for element in fields {
        let (name, value) = element?;
        document.append(name, value);
    }
    Ok(document)
}

/// All fields but the first, and but this one.
fn without(o: &RawDocument, field: &str) -> Result<RawDocumentBuf> {
    let mut rest = RawDocumentBuf::new();
    for element in o.iter().skip(1) {
        let (name, value) = element?;
        if name != field {
            rest.append(name, value);
        }
    }
    Ok(rest)
}
