//! What a member does that has the data of another: apply its entries, copy it whole, by documents or by files, and take back what the set
//! never committed.
//!
//! Not here: whom to follow, what to fetch and when to roll back (`brains/following` and the replication driver decide).

pub(crate) mod apply;
pub(crate) mod cloning;
pub(crate) mod entry_change;
pub(crate) mod incoming;
pub(crate) mod incoming_file;
pub(crate) mod replay;
pub(crate) mod rollback;

use crate::storage::Storage;

/// What a member does that has the data of another: see [`Storage::follower`].
#[derive(Clone, Copy)]
pub struct Follower<'s>(pub(crate) &'s Storage);

impl Storage {
    /// Applying, copying and taking back what another member has logged.
    pub fn follower(&self) -> Follower<'_> {
        Follower(self)
    }
}
