//! Who leads a work of the queue, and what he is lent for it.
//!
//! A leader works for all that he has taken, and those who come meanwhile wait for him: so he is as urgent as the most urgent of them, from
//! when the work is passed on to him, which is before he runs.
//!
//! Invariant: what he is lent is given back when he is done with a group, after the queue's lock is.

use baton_machine::{Bearer, Loan};
use baton_types::Class;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a leader is lent.
pub(super) type Loans = SmallVec<[Loan; 2]>;

/// See the file's header. Of one work; nobody, while nobody does it.
#[derive(Default)]
pub(super) struct Lead {
    leader: Option<Arc<Bearer>>,
    loans: Loans,
}

impl Lead {
    /// The work is that thread's from now on, which is about to be woken; for transactions of these classes.
    pub fn pass_to(&mut self, leader: &Arc<Bearer>, classes: impl Iterator<Item = Class>) {
        self.loans.extend(classes.max().and_then(|class| leader.lend_as(class)));
        self.leader = Some(Arc::clone(leader));
    }

    /// The calling thread leads, for transactions of these classes.
    pub fn begin(&mut self, classes: impl Iterator<Item = Class>) {
        self.pass_to(&baton_machine::bearer(), classes);
    }

    /// One of this class waits for the leader.
    pub fn is_waited_for_by(&mut self, class: Class) {
        if let Some(leader) = &self.leader {
            self.loans.extend(leader.lend_as(class));
        }
    }

    /// The leader is done: what is to be given back.
    pub fn end(&mut self) -> Loans {
        self.leader = None;
        std::mem::take(&mut self.loans)
    }
}
