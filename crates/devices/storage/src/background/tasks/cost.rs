//! What a task cost: processor time, and bytes read and written, of the thread that does it ([`Spent`]).
//!
//! A task that one thread does from its beginning to its end is measured by what that thread had spent then and now. One that many
//! threads do in turns is measured step by step, and one that RocksDB does by what RocksDB tells of it.
//!
//! What it deliberately does not do: reckon in the waits of others, or what was evicted from caches.

use baton_machine::{Meter, Spent};
use parking_lot::Mutex;

/// How a task is measured.
#[derive(Debug)]
pub(super) enum Metering {
    /// It does not run yet.
    NotBegun,
    /// By the thread that began it.
    Thread(Meter),
    /// By what is charged to it.
    Charged(Spent),
    /// By what tasks cost that did its work, and count themselves.
    Parts(Spent),
}

impl Metering {
    /// What it cost. Who asks is the thread that ends it.
    pub fn spent(&self) -> Spent {
        match self {
            Self::NotBegun => Spent::UNKNOWN,
            Self::Thread(meter) => meter.spent(),
            Self::Charged(spent) | Self::Parts(spent) => *spent,
        }
    }

    /// The same, but for what others count.
    pub fn counted(&self) -> Spent {
        if let Self::Parts(_) = self { Spent::NOTHING } else { self.spent() }
    }

    /// What it cost until now, where that is known.
    pub fn spent_so_far(&self) -> Spent {
        match self {
            Self::NotBegun | Self::Parts(_) => Spent::NOTHING,
            Self::Thread(meter) => meter.spent_so_far(),
            Self::Charged(spent) => *spent,
        }
    }
}

/// What compactions cost that somebody asked RocksDB for, and who did: the jobs themselves do not tell for whom they are.
#[derive(Debug)]
pub(crate) struct AskedCompactions(Mutex<AskedSoFar>);

#[derive(Clone, Copy, Debug)]
struct AskedSoFar {
    running: u32,
    begun: u64,
    spent: Spent,
}

impl Default for AskedCompactions {
    fn default() -> Self {
        Self(Mutex::new(AskedSoFar { running: 0, begun: 0, spent: Spent::NOTHING }))
    }
}

/// Somebody asks for compactions as long as this lives.
pub(crate) struct AskedCompaction<'a> {
    all: &'a AskedCompactions,
    at_begin: AskedSoFar,
}

impl AskedCompactions {
    /// A job that was asked for has ended.
    pub fn ended(&self, spent: Spent) {
        let mut so_far = self.0.lock();
        so_far.spent = so_far.spent.plus(spent);
    }

    /// Somebody begins to ask.
    pub fn ask(&self) -> AskedCompaction<'_> {
        let mut so_far = self.0.lock();
        so_far.running += 1;
        so_far.begun += 1;
        AskedCompaction { all: self, at_begin: *so_far }
    }
}

impl AskedCompaction<'_> {
    /// What the jobs cost that were for this one: not known if anybody else has asked meanwhile.
    pub fn spent(&self) -> Spent {
        let now = *self.all.0.lock();
        let was_alone = self.at_begin.running == 1 && now.begun == self.at_begin.begun;
        if was_alone { now.spent.since(self.at_begin.spent) } else { Spent::UNKNOWN }
    }
}

impl Drop for AskedCompaction<'_> {
    fn drop(&mut self) {
        self.all.0.lock().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_asked_for_by_two_at_once_is_known_of_neither() {
        let all = AskedCompactions::default();
        let spent = Spent { cpu: Some(Duration::from_secs(1)), read_bytes: Some(10), written_bytes: Some(5) };
        all.ended(spent);
        let first = all.ask();
        all.ended(spent);
        assert_eq!(first.spent(), spent, "what was before does not count");
        let second = all.ask();
        all.ended(spent);
        assert_eq!((first.spent(), second.spent()), (Spent::UNKNOWN, Spent::UNKNOWN));
        drop((first, second));
        let third = all.ask();
        assert_eq!(third.spent(), Spent::NOTHING);
    }
}
