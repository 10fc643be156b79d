//! What a crash interrupted: index builds and collections that were the scratch of an operation.
//!
//! What was dropped and still takes space waits for [`super::freeing`], as it did before.

use crate::catalog::{Index, IndexState};
use crate::log::facts::Fact;
use crate::storage::Storage;
use baton_types::Result;

impl Storage {
    /// What a crash interrupted. Only while the data directory is opened: later, an index being built is nobody's remains.
    pub(crate) fn finish_interrupted_ddl(&self) -> Result<()> {
        self.remove_unfinished_indexes()?;
        self.remove_build_files();
        // A member of a set does so when it is primary: until then its log is another's.
        if self.facts().get(Fact::Configuration)?.is_none() {
            self.drop_temporary_collections()?;
        }
        Ok(())
    }

    /// Drops what interrupted operations left. Before clients may write: an operation under way has such a collection too.
    pub fn drop_temporary_collections(&self) -> Result<()> {
        for collection in self.catalog().iter().filter(|collection| collection.options.temporary) {
            tracing::info!(component = "STORAGE", namespace = %collection.namespace, "Dropping a temporary collection that an interrupted operation left");
            self.by_member().drop_collection(&collection.namespace)?;
        }
        Ok(())
    }

    /// Indexes that were built by who waited for them: nobody was told they exist, so they go. A build of the set goes on.
    fn remove_unfinished_indexes(&self) -> Result<()> {
        let is_unfinished = |index: &Index| index.state() == IndexState::Building && index.build().is_none();
        let catalog = self.catalog();
        for collection in catalog.iter() {
            for index in collection.indexes().iter().filter(|index| is_unfinished(index)) {
                tracing::warn!(component = "INDEX", index = index.definition.name, namespace = %collection.namespace, "An index build was interrupted; removing what it left. Build the index again");
                self.by_member().abort_index(collection.id, index.id)?;
            }
        }
        Ok(())
    }
}
