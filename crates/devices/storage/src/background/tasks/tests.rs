//! Tasks are registered from the answer of the gate to their end.

use super::*;

/// Lets nothing begin before it was asked so often, and then only half the time.
struct Slow {
    asks: AtomicU64,
    begins_at: u64,
}

impl Gate for Slow {
    fn may_begin(&self, proposal: &Proposal<'_>) -> Admission {
        let asked_before = self.asks.fetch_add(1, Ordering::Relaxed);
        assert_eq!(proposal.waited.is_zero(), asked_before == 0, "it is told how long the task has waited");
        match asked_before {
            asks if asks >= self.begins_at => Admission::Begin(Pace::Half),
            0 => Admission::Wait { why: "it has just come" },
            _ => Admission::Wait { why: "others go first" },
        }
    }

    fn pace(&self, _: &Proposal<'_>) -> Pace {
        Pace::Half
    }
}

fn slow(begins_at: u64) -> Arc<TaskRegistry> {
    let registry = Arc::new(TaskRegistry::default());
    registry.bind(Arc::new(Slow { asks: AtomicU64::new(0), begins_at }));
    registry
}

#[test]
fn a_task_shows_while_it_runs_and_counts_once_it_ended() {
    let registry = Arc::new(TaskRegistry::default());
    let guard = registry.admit_now(TaskKind::IndexBuild, "shop.carts", 100);
    assert_eq!(registry.running()[0].progress().counts(), (0, 100));
    guard.progress(25, 100);
    let running = registry.running();
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].progress().counts(), (25, 100));
    assert!(running[0].progress().eta_secs().is_some());
    guard.begin_phase(25, 100);
    assert_eq!(registry.running()[0].progress().eta_secs(), None, "nothing was done in this phase");
    drop(guard);
    assert!(registry.running().is_empty());
    assert_eq!(registry.totals()[0].1.count, 1);
}

#[test]
fn a_task_that_waits_shows_why_until_it_begins_or_is_given_up() {
    let registry = slow(2);
    let Asked::Waits(waiting) = registry.admit(TaskKind::Backup, "all", 7) else { panic!("admitted at once") };
    assert_eq!(registry.waiting()[0].waits_for, Some("it has just come"));
    assert!(registry.running().is_empty());
    let Asked::Waits(waiting) = waiting.ask_again() else { panic!("admitted early") };
    assert_eq!((waiting.why(), registry.waiting()[0].waits_for), ("others go first", Some("others go first")));
    let id = registry.waiting()[0].id;
    let Asked::Admitted(guard) = waiting.ask_again() else { panic!("it has asked often enough") };
    assert!(registry.waiting().is_empty());
    assert_eq!((guard.task().id, guard.task().waits_for, guard.task().pace()), (id, None, Pace::Half));
    drop(guard);
    registry.bind(Arc::new(Slow { asks: AtomicU64::new(0), begins_at: u64::MAX }));
    let given_up = registry.admit(TaskKind::Backup, "all", 7);
    assert!(given_up.waits());
    drop(given_up);
    assert!(registry.waiting().is_empty());
    assert_eq!(registry.totals()[0].1.count, 1, "what never began does not count");
}

#[test]
fn who_cannot_wait_is_admitted_and_told_to_go_slowly() {
    let registry = slow(u64::MAX);
    let guard = registry.admit_now(TaskKind::IndexBuild, "shop.carts", 0);
    assert_eq!(guard.task().pace(), Pace::Half);
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    guard.rest();
    assert!(begun.elapsed() >= Duration::from_millis(50), "it rests for as long as it worked");
    assert!(!guard.may_go_on(), "it is to stop after a step, if it can");
    registry.bind(Arc::new(AlwaysOpen));
    assert!(guard.may_go_on());
    std::thread::sleep(PACE_INTERVAL);
    guard.rest();
    assert_eq!(guard.task().pace(), Pace::Full, "the gate bound meanwhile was asked");
}

#[test]
fn who_waits_with_its_thread_can_be_interrupted() {
    let registry = slow(2);
    let mut asked = 0;
    let guard = registry.admit_patiently(TaskKind::Compaction, "shop.carts", 0, &mut || {
        asked += 1;
        Ok(())
    });
    assert!(guard.is_ok() && asked == 2);
    registry.bind(Arc::new(Slow { asks: AtomicU64::new(0), begins_at: u64::MAX }));
    let refused = registry.admit_patiently(TaskKind::Compaction, "shop.carts", 0, &mut || {
        Err(Error::new(ErrorCode::Interrupted, "enough"))
    });
    assert_eq!(refused.err().map(|error| error.code), Some(ErrorCode::Interrupted));
    assert!(registry.waiting().is_empty());
}
