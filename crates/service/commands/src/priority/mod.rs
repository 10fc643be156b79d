//! Priorities of requests: of which class each is, what its thread's niceness is, and its way through the door.
//!
//! ```text
//!  request ─▶ policy: class, by whose word ─▶ niceness ─▶ door: begins, waits, or is refused ─▶ the command ─▶ … ─▶ the pass is given back
//! ```
//!
//! Where to look: [`Priority::judge`] is what the dispatcher asks of every request; `door.rs` and `helping.rs` carry out what `baton_admission` decides.
//!
//! Invariants: the class is decided once, where a request enters; nobody waits at the door but those who ask for documents on their own
//! account (`Flags::ADMITTED`): not members, not heartbeats, not `hello`, not who asks how the member is, and not who changes a
//! class; where nothing was ever said of any class no request takes a lock here.
//! What it deliberately does not do: decide who begins (`baton_admission`), or what the configuration means (`baton_consensus`).

mod claimed;
mod door;
mod figures;
mod helping;
mod policy;
mod report;

pub(crate) use claimed::ClaimedClass;
pub(crate) use door::{Door, Pass, Visitor};
pub use figures::Histogram as ClassTimes;
pub(crate) use helping::Helping;
pub(crate) use policy::{KnownRules, Policy};
use report::append_metrics;
pub(crate) use report::append_status;

use crate::server::{Client, Session};
use arc_swap::ArcSwap;
use baton_admission::{Claims, Mode, Settings, Source, Subject};
use baton_machine::Right;
use baton_types::{Class, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What this member does about priorities.
pub struct Priority {
    policy: ArcSwap<Policy>,
    /// Whether threads have the niceness of their requests, by the mode.
    is_nice: AtomicBool,
    /// Whether those who serve others in turns let urgent ones go before, by the mode.
    has_precedence: AtomicBool,
    /// Who begins when.
    pub(crate) door: Arc<Door>,
    /// What may be done about the niceness of threads.
    pub(crate) right: Right,
}

impl Priority {
    /// As by default, until a configuration says otherwise.
    pub fn new() -> Self {
        let (policy, right) = (Policy::new(Settings::default(), 0), baton_machine::right());
        Self {
            is_nice: AtomicBool::new(policy.settings.mode.is_nice()),
            has_precedence: AtomicBool::new(has_precedence(&policy.settings, right)),
            policy: ArcSwap::from_pointee(policy),
            door: Door::new(Settings::default()),
            right,
        }
    }

    /// Takes over what the configuration says, if that is something else.
    pub fn configure(&self, settings: &Settings) {
        let before = self.policy.load();
        if before.settings == *settings {
            return;
        }
        self.is_nice.store(settings.mode.is_nice(), Relaxed);
        self.has_precedence.store(has_precedence(settings, self.right), Relaxed);
        self.policy.store(Arc::new(Policy::new(settings.clone(), before.version + 1)));
        self.door.configure(settings);
    }

    /// How long requests of each class took so far, the most urgent class first.
    pub fn times(&self) -> [(Class, ClassTimes); 3] {
        self.door.times()
    }

    /// Appends what Prometheus is told.
    pub fn append_metrics(&self, text: &mut String) {
        append_metrics(self, text);
    }

    /// The policy now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Of which class a request is, and by whose word.
    pub(crate) fn judge(
        &self,
        client: &Client,
        session: Option<&Session>,
        request: Option<Class>,
        subject: &Subject<'_>,
    ) -> (Class, Source) {
        let connection = client.claimed.get();
        if connection == Some(Class::Background) {
            // A member that copies: nobody else's word counts.
            return (Class::Background, Source::Connection);
        }
        let claims = Claims { request, session: session.and_then(|session| session.claimed.get()), connection };
        claims.class(|| self.policy.load().first_rule(client, subject))
    }

    /// The calling thread serves a request of this class from now on.
    pub(crate) fn serve_as(&self, class: Class) {
        // A thread of the background has chosen for itself.
        if class != Class::Background {
            baton_machine::as_class(self.served_as(class));
        }
    }

    /// As which class it is served and written: all are alike where the mode says so.
    pub(crate) fn served_as(&self, class: Class) -> Class {
        if self.is_nice.load(Relaxed) { class } else { Class::Normal }
    }

    /// Whether threads differ in niceness by whom they serve, just now.
    pub(crate) fn is_told_apart(&self) -> bool {
        self.is_nice.load(Relaxed) && self.door.has_classes()
    }

    /// Whether requests are to be told apart just now by the kernel alone: each client's by a thread of its own. Few threads of normal
    /// class would be worse than many beside one who is urgent: it has whoever had more than his part of the time wait until the others have
    /// caught up, and stretches that the more the less those weigh that are ready (docs/spikes/shared-threads.md).
    pub fn tells_apart(&self) -> bool {
        self.door.is_engaged() && !self.has_precedence.load(Relaxed)
    }

    /// Whether the calling thread, which serves one client, is one of those that threads which serve others in turns let go before just now.
    pub fn lets_go_before(&self) -> bool {
        self.has_precedence.load(Relaxed) && self.door.is_engaged() && baton_machine::is_urgent()
    }

    /// The calling thread waits for this client's next request: it has answered one, or is fresh.
    pub fn rest(&self, client: &Client) {
        let class = client.claimed.get().unwrap_or_default();
        if class != Class::Background {
            baton_machine::at_most_as_nice_as(self.served_as(class));
        }
    }
}

fn has_precedence(settings: &Settings, right: Right) -> bool {
    settings.mode == Mode::Full && right == Right::All
}

/// Whether this client may have its requests served as this class.
///
/// # Errors
/// None as long as there are no users, for then everybody may do everything; it will be `Unauthorized` (13).
pub(crate) fn check_privilege(_: &Client, _: Class) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel tells requests apart, and whether an urgent thread goes before others, once an urgent request has come.
    fn beside_an_urgent_one(mode: Mode) -> (bool, bool) {
        let priority = Priority::new();
        priority.configure(&Settings { mode, ..Settings::default() });
        std::thread::scope(|scope| {
            let urgent = scope.spawn(|| {
                assert!(!priority.tells_apart() && !priority.lets_go_before());
                priority.serve_as(Class::High);
                let goes_on = || Ok(());
                let visitor =
                    Visitor { class: Class::High, deadline: None, kind: &|| 1, check: &goes_on, waits: &|| {} };
                let _pass = priority.door.enter(&visitor).unwrap();
                (priority.tells_apart(), priority.lets_go_before())
            });
            let found = urgent.join().unwrap();
            assert!(!priority.lets_go_before(), "this thread is not urgent");
            found
        })
    }

    #[test]
    fn where_threads_may_be_raised_those_that_serve_in_turns_let_urgent_ones_go_before_in_mode_full_alone() {
        let is_nice = baton_machine::right() == Right::All;
        assert_eq!(beside_an_urgent_one(Mode::Full), (!is_nice, is_nice));
        assert_eq!(beside_an_urgent_one(Mode::Both), (true, false));
        assert_eq!(beside_an_urgent_one(Mode::Nice), (true, false));
        assert_eq!(beside_an_urgent_one(Mode::Checkpoint), (true, false));
        assert_eq!(beside_an_urgent_one(Mode::Off), (false, false));
    }
}
