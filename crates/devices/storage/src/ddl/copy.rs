//! Copies of whole collections: what `convertToCapped`, `cloneCollectionAsCapped` and a rename into another database do.
//!
//! ```text
//!   hold   decide the options, create the copy under a temporary name, note what writers touch from now on, take a view
//!          copy the view
//!          carry over what was touched, again and again, until little is left      (writers that are faster are slowed down)
//!   hold   carry over the last HELD_MAX at the most; the copy takes its name
//! ```
//!
//! Invariants:
//! - A copy is filled under a name of its own and takes the wanted name in one transaction with the end of what it replaces, so
//!   that no reader and no crash meets half of it: until then it is temporary, and a restart drops it.
//! - Options, indexes and the view are of one moment. If the source was altered by the time the copy is to take its name, all begins
//!   anew, [`ATTEMPTS_MAX`] times at the most.
//! - Every write of the source is in the copy, or comes after it took its name: [`noted`].
//! - What is done under the catalog's guard is bounded by [`HELD_MAX`], however large the collection is and however much is written.
//! - Reads of a time before the swap are refused from then on: what had the name then has another id, or none.
//! - The temporary name is in no error.

mod carry;
mod noted;

pub(crate) use noted::Copies;

use crate::catalog::{Collection, CollectionKind, CollectionOptions, ID_INDEX, Index, IndexState};
use crate::ddl::{CatalogGuard, CreateOutcome, IndexBuildProgress, LoggedCommand, Quiet, forget};
use crate::documents::transaction::Transaction;
use crate::documents::view::View;
use crate::log::author::Writer;
use baton_types::{Class, Error, ErrorCode, Namespace, Result};
use bson::{RawDocument, rawdoc};
use noted::{NOTED_MAX, Noted, Touched};
use std::sync::Arc;

/// Documents and bytes that a copy commits at once, at the most.
const BATCH_DOCUMENTS: u64 = 256;
const BATCH_BYTES: usize = 1024 * 1024;
/// Documents that are carried over under the catalog's guard, at the most.
const HELD_MAX: usize = 256;
/// How often what was touched is carried over before a copy gives up. Writers are slowed down long before.
const ROUNDS_MAX: u32 = 64;
/// How often a copy of a source that is altered meanwhile is begun.
const ATTEMPTS_MAX: u32 = 4;

/// What a change makes of a document.
#[derive(Clone, Copy)]
pub(crate) enum DocumentChange<'a> {
    /// This one is new.
    Insert(&'a RawDocument),
    /// One that was there becomes this.
    Update(&'a RawDocument),
    /// This one goes.
    Delete(&'a RawDocument),
}

impl<'a> DocumentChange<'a> {
    fn document(self) -> &'a RawDocument {
        match self {
            Self::Insert(document) | Self::Update(document) | Self::Delete(document) => document,
        }
    }
}

/// What to copy, and where to.
pub struct CopyRequest<'a> {
    /// The collection to copy.
    pub from: &'a Namespace,
    /// The name the copy gets; may be that of the source, which it then replaces.
    pub to: &'a Namespace,
    /// A name nobody uses, in the database of `to`, for the time of copying.
    pub temporary: &'a Namespace,
    /// Decides the copy's options about the source, which stays as it is meanwhile; an error refuses it. Asked anew whenever the
    /// copy begins anew.
    pub options: &'a dyn Fn(&Collection) -> Result<CollectionOptions>,
    /// Draws a copy's UUID at random.
    pub uuid: &'a dyn Fn() -> [u8; 16],
    /// Whether the copy gets the source's indexes.
    pub with_indexes: bool,
    /// Whether what has the name `to` is dropped; otherwise there must be nothing.
    pub drop_target: bool,
    /// Whether the source is dropped.
    pub drop_source: bool,
}

/// What a copy took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// How often it was begun.
    pub attempts: u32,
    /// Documents carried over because they were touched meanwhile.
    pub carried: u64,
    /// Those of them that were carried over under the catalog's guard.
    pub carried_held: u64,
}

/// How an attempt ended that was not refused.
enum Attempt {
    Done,
    /// The source was altered, or changed too much.
    Anew(&'static str),
}

/// How the end of an attempt ended.
enum End {
    Ended(Attempt),
    /// So much was touched that it has to be carried over before.
    TooMuch(Vec<Touched>),
}

/// A copy under way; dropped, nothing is noted for it any more.
struct UnderWay<'v> {
    source: Arc<Collection>,
    indexes: Vec<Arc<Index>>,
    copy: Arc<Collection>,
    view: View<'v>,
    noted: Arc<Noted>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.source.shared.copies.end(&self.noted);
    }
}

impl CopyRequest<'_> {
    fn missing(&self) -> Error {
        Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {} does not exist", self.from))
    }

    /// The indexes of the source that the copy gets.
    fn indexes_of(&self, source: &Collection) -> Vec<Arc<Index>> {
        let is_copied = |index: &&Arc<Index>| {
            self.with_indexes && index.definition.name != ID_INDEX && index.state() == IndexState::Ready
        };
        source.indexes().iter().filter(is_copied).cloned().collect()
    }

    /// The error as the client is told of it.
    fn told(&self, mut error: Error) -> Error {
        if error.message.contains(self.temporary.as_str()) {
            error.message = error.message.replace(self.temporary.as_str(), self.to.as_str());
        }
        error
    }
}

impl<'w> Writer<'w> {
    /// Copies a collection. `ConflictingOperationInProgress` (117) if the source was altered meanwhile, or changed faster than it
    /// could be copied, at each of several attempts.
    pub fn copy_collection(&self, request: &CopyRequest<'_>, progress: IndexBuildProgress<'_>) -> Result<Copied> {
        let mut copied = Copied::default();
        let mut why = "";
        while copied.attempts < ATTEMPTS_MAX {
            copied.attempts += 1;
            let under_way = self.begin_copy(request).map_err(|error| request.told(error))?;
            let copy = Arc::clone(&under_way.copy);
            let attempt = self.make_copy(request, under_way, &mut copied, progress);
            let is_dropped = self.catalog().by_uuid(copy.uuid).is_none();
            if !matches!(attempt, Ok(Attempt::Done)) {
                self.drop_collection_if(|catalog| catalog.by_id(copy.id)).map_err(|error| request.told(error))?;
            }
            match attempt {
                Ok(Attempt::Done) => return Ok(copied),
                Ok(Attempt::Anew(reason)) => why = reason,
                // As if its database had been dropped before.
                Err(_) if is_dropped => why = "altered",
                Err(error) => return Err(request.told(error)),
            }
        }
        let message = format!("{} was {why} while it was copied", request.from);
        Err(Error::new(ErrorCode::ConflictingOperationInProgress, message))
    }

    /// Decides and sees everything that is of one moment.
    fn begin_copy(&self, request: &CopyRequest<'_>) -> Result<UnderWay<'w>> {
        let catalog = self.lock_catalog();
        let source = catalog.collection(request.from).ok_or_else(|| request.missing())?;
        let options = (request.options)(&source)?.with_temporary(true)?;
        let created = catalog.create_collection(request.temporary, options, (request.uuid)())?;
        let CreateOutcome::Created(copy) = created else {
            return Err(Error::new(ErrorCode::NamespaceExists, format!("{} exists", request.to)));
        };
        Ok(source.quietly(|source| {
            let source = Arc::clone(source.collection());
            let noted = source.shared.copies.begin();
            UnderWay {
                indexes: request.indexes_of(&source),
                source,
                copy,
                view: self.storage().view().read_by(Class::Background),
                noted,
            }
        }))
    }

    fn make_copy(
        &self,
        request: &CopyRequest<'_>,
        under_way: UnderWay<'_>,
        copied: &mut Copied,
        progress: IndexBuildProgress<'_>,
    ) -> Result<Attempt> {
        let UnderWay { source, indexes, copy, view, noted } = &under_way;
        for index in indexes {
            let definition = index.definition.clone();
            // There is nothing in it yet.
            let nobody = Arc::default();
            self.create_index_if(
                |catalog| Ok(catalog.by_id(copy.id).map(|copy| (copy, definition))),
                &nobody,
                &mut |_, _| Ok(()),
            )?;
        }
        self.copy_documents(view, source, copy, progress, &|| noted.slow_writers(noted.len() > NOTED_MAX / 2))?;
        crash_point!("copy-filled");
        let too_much = Attempt::Anew("changed too much");
        let mut before = usize::MAX;
        for _ in 0..ROUNDS_MAX {
            let touched = if noted.len() > HELD_MAX {
                noted.take()
            } else {
                match self.end_copy(request, &under_way, copied, progress)? {
                    End::Ended(attempt) => return Ok(attempt),
                    End::TooMuch(touched) => Some(touched),
                }
            };
            let Some(touched) = touched else { return Ok(too_much) };
            noted.slow_writers(touched.len() > before / 2);
            before = touched.len();
            copied.carried += touched.len() as u64;
            self.carry(source, copy, &touched, progress)?;
        }
        Ok(too_much)
    }

    /// Carries over what is left, if that is little, and gives the copy its name.
    fn end_copy(
        &self,
        request: &CopyRequest<'_>,
        under_way: &UnderWay<'_>,
        copied: &mut Copied,
        progress: IndexBuildProgress<'_>,
    ) -> Result<End> {
        let catalog = self.lock_catalog();
        let altered = Ok(End::Ended(Attempt::Anew("altered")));
        let source = catalog.collection(request.from).ok_or_else(|| request.missing())?;
        let ids = |indexes: &[Arc<Index>]| indexes.iter().map(|index| index.id).collect::<Vec<_>>();
        if !Arc::ptr_eq(&source, &under_way.source) || ids(&request.indexes_of(&source)) != ids(&under_way.indexes) {
            return altered;
        }
        let replaces_source = request.from == request.to;
        let target = catalog.collection(request.to).filter(|_| !replaces_source);
        if target.is_some() && !request.drop_target {
            return Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists"));
        }
        if target.as_ref().is_some_and(|target| target.kind == CollectionKind::View) {
            let message = format!("a view already exists with that name: {}", request.to);
            return Err(Error::new(ErrorCode::NamespaceExists, message));
        }
        let Some(copy) = catalog.by_id(under_way.copy.id) else { return altered };
        source.quietly_with(target.as_ref(), |source, target| {
            let Some(touched) = under_way.noted.take() else {
                return Ok(End::Ended(Attempt::Anew("changed too much")));
            };
            if touched.len() > HELD_MAX {
                return Ok(End::TooMuch(touched));
            }
            copied.carried += touched.len() as u64;
            copied.carried_held += touched.len() as u64;
            self.carry(source.collection(), &under_way.copy, &touched, progress)?;
            copy.quietly(|copy| {
                self.swap_in(&catalog, request, (source, copy), if replaces_source { Some(source) } else { target })
            })?;
            Ok(End::Ended(Attempt::Done))
        })
    }

    /// Gives the copy its name in place of what has it.
    fn swap_in(
        &self,
        catalog: &CatalogGuard<'_>,
        request: &CopyRequest<'_>,
        (source, copy): (&Quiet<'_>, &Quiet<'_>),
        target: Option<&Quiet<'_>>,
    ) -> Result<()> {
        let mut transaction = Transaction::default();
        let renamed = catalog.rename_entry(&mut transaction, copy, target, request.to)?;
        let drops_source = request.drop_source && request.from != request.to;
        if drops_source {
            let uuid = source.collection().uuid;
            let before = rawdoc! { "numRecords": source.collection().counts().documents };
            catalog.log(&mut transaction, request.from, Some(uuid), &LoggedCommand::Drop, Some(&before))?;
            forget(&mut transaction, source);
        }
        crash_point!("copy-before-swap");
        let _unreadable = self.commit_catalog_change(transaction)?;
        crash_point!("copy-after-swap");
        catalog.publish(|catalog| {
            catalog.remove(request.temporary);
            if drops_source {
                catalog.remove(request.from);
            }
            catalog.insert(renamed);
        });
        Ok(())
    }
}
