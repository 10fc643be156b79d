//! How writes come together in a member's commit queue: transactions that share a batch, and batches' syncs, as the member counts them.

use crate::Failure;
use crate::client::Wire;
use bson::doc;
use serde_json::{Value, json};

/// What a member's queue has done since it was started.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    transactions: f64,
    batches: f64,
    syncs: f64,
}

/// How many transactions shared a batch, and a sync, on average; not a number where there was none.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Transactions a batch.
    pub batch: f64,
    /// Transactions a sync.
    pub sync: f64,
}

impl Counts {
    /// As of now.
    ///
    /// # Errors
    /// If the member does not say.
    pub fn of(address: &str) -> Result<Self, Failure> {
        let status = Wire::connect(address)?.command(&doc! { "serverStatus": 1, "metrics": 0, "$db": "admin" })?;
        let queue = status.get_document("rocksdb")?.get_document("commitQueue")?;
        let count = |name: &str| queue.get_i64(name).map(|count| count as f64);
        Ok(Self { transactions: count("transactions")?, batches: count("batches")?, syncs: count("syncs")? })
    }

    /// What came together since then.
    pub fn since(&self, before: &Self) -> Groups {
        let transactions = self.transactions - before.transactions;
        Groups {
            batch: transactions / (self.batches - before.batches),
            sync: transactions / (self.syncs - before.syncs),
        }
    }
}

impl Groups {
    /// For programs.
    pub fn json(self) -> Value {
        json!({ "batch": self.batch, "sync": self.sync })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_done_meanwhile() {
        let before = Counts { transactions: 10.0, batches: 10.0, syncs: 10.0 };
        let groups = Counts { transactions: 110.0, batches: 30.0, syncs: 14.0 }.since(&before);
        assert_eq!((groups.batch, groups.sync), (5.0, 25.0));
    }
}
