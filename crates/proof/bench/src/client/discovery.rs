//! Who is primary, learnt as official drivers learn it: one connection a member on which a `hello` waits until the member has
//! something new to say (`topologyVersion`, `maxAwaitTimeMS`). All clients of an experiment share it.
//!
//! Of two that both say they are primary the later elected one counts (`electionId`). A member whose connection fails is none,
//! and is asked again after a moment.
//!
//! What it deliberately does not do: find members that it was not told of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::Wire;
use crate::Failure;

/// How long a member may keep a `hello` waiting.
const AWAIT_MS: i64 = 500;
/// Until a member that did not answer is asked again. Drivers wait this long, too.
const RETRY: Duration = Duration::from_millis(500);
/// How often a watcher that rests looks whether it is to stop.
const TICK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Known {
    /// By member: the election that made it primary.
    primaries: Vec<Option<ObjectId>>,
}

impl Known {
    fn primary(&self) -> Option<usize> {
        let elected = self.primaries.iter().enumerate().filter_map(|(index, id)| Some(((*id)?, index)));
        elected.max().map(|(_, index)| index)
    }
}

struct Shared {
    known: Mutex<Known>,
    news: Condvar,
    stopping: AtomicBool,
}

impl Shared {
    fn tell(&self, index: usize, elected: Option<ObjectId>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.primaries[index] != elected {
            known.primaries[index] = elected;
            self.news.notify_all();
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn rest(&self, duration: Duration) {
        let until = Instant::now() + duration;
        while !self.is_stopping() && Instant::now() < until {
            std::thread::sleep(TICK);
        }
    }

    fn watch(&self, index: usize, address: &str) {
        while !self.is_stopping() {
            // It ends when the member does not answer any more.
            let _ = self.follow(index, address);
            self.tell(index, None);
            self.rest(RETRY);
        }
    }

    fn follow(&self, index: usize, address: &str) -> Result<(), Failure> {
        let mut wire = Wire::connect(address)?;
        wire.be_patient(Duration::from_millis(AWAIT_MS as u64) * 20)?;
        let mut hello = doc! { "hello": 1, "$db": "admin" };
        while !self.is_stopping() {
            let reply = wire.command(&hello)?;
            self.tell(index, elected(&reply));
            hello = doc! {
                "hello": 1, "topologyVersion": reply.get_document("topologyVersion")?.clone(), "maxAwaitTimeMS": AWAIT_MS,
                "$db": "admin",
            };
        }
        Ok(())
    }
}

/// Which election made this member primary, if it is.
fn elected(hello: &Document) -> Option<ObjectId> {
    let is_primary = hello.get_bool("isWritablePrimary").unwrap_or(false);
    is_primary.then(|| hello.get_object_id("electionId").ok()).flatten()
}

/// See the file's header.
pub struct Discovery {
    shared: Arc<Shared>,
    watchers: Vec<JoinHandle<()>>,
}

impl Discovery {
    /// Begins to watch these members.
    #[must_use]
    pub fn of(addresses: &[String]) -> Self {
        let known = Mutex::new(Known { primaries: vec![None; addresses.len()] });
        let shared = Arc::new(Shared { known, news: Condvar::new(), stopping: AtomicBool::new(false) });
        let watchers = addresses.iter().cloned().enumerate().map(|(index, address)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.watch(index, &address))
        });
        let watchers = watchers.collect();
        Self { shared, watchers }
    }

    /// A connection to this member failed: it is no primary until it says so anew.
    pub fn failed(&self, index: usize) {
        self.shared.tell(index, None);
    }

    /// Which member is primary, as soon as one is; none, if that takes longer than `patience`.
    #[must_use]
    pub fn primary(&self, patience: Duration) -> Option<usize> {
        let until = Instant::now() + patience;
        let mut known = self.shared.known.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(index) = known.primary() {
                return Some(index);
            }
            let left = until.checked_duration_since(Instant::now())?;
            known = self.shared.news.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for watcher in self.watchers.drain(..) {
            // One that panicked has nothing left to say.
            let _ = watcher.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_elected_of_two_primaries_counts() {
        let election = |last: u8| Some(ObjectId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]));
        let known = |primaries: &[Option<ObjectId>]| Known { primaries: primaries.to_vec() };
        assert_eq!(known(&[None, None]).primary(), None);
        assert_eq!(known(&[election(3), election(4), None]).primary(), Some(1));
        assert_eq!(known(&[election(5), election(4), None]).primary(), Some(0));
    }

    #[test]
    fn a_primary_without_an_election_is_none() {
        let id = ObjectId::new();
        assert_eq!(elected(&doc! { "isWritablePrimary": true, "electionId": id }), Some(id));
        assert_eq!(elected(&doc! { "isWritablePrimary": false, "electionId": id }), None);
        assert_eq!(elected(&doc! { "isWritablePrimary": true }), None);
    }
}
