//! Threads that work for nobody who waits, and leave the processors to those who do.
//!
//! What it deliberately does not do: give a thread its weight back. That takes a privilege which a member need not have, so a
//! thread works in the background until it ends.

use crate::niceness::be_at_least_as_nice_as;
use crate::slices::keep_long_slices;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// Beside a client's thread the kernel gives one of this niceness a tenth (110 to 1,024, `sched(7)`).
pub(crate) const NICENESS: i32 = 10;

/// From now on the calling thread has a tenth of the weight of a client's, and long slices. For a thread that takes locks which clients
/// take, too: it gives them back soon however busy the processors are.
pub fn yield_to_clients() {
    keep_long_slices();
    be_at_least_as_nice_as(NICENESS);
}

/// From now on the calling thread has only such time as nobody else wants (`SCHED_IDLE`). For a thread whose locks no client waits
/// for: it may hold them for long. Who merely is nice keeps the processor for a slice once it has it, in which a client could have
/// been answered thirty times.
pub fn work_when_idle() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
        tracing::warn!(component = "MACHINE", error = ?error, "A background thread weighs as much as a client's");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thread_priority::thread_schedule_policy;

    fn standing() -> (i32, ThreadSchedulePolicy) {
        (rustix::process::getpriority_process(None).unwrap(), thread_schedule_policy().unwrap())
    }

    fn on_a_thread_that(yields: fn()) -> (i32, ThreadSchedulePolicy) {
        let thread = std::thread::spawn(move || {
            yields();
            yields();
            standing()
        });
        thread.join().unwrap()
    }

    #[test]
    fn it_is_the_calling_thread_alone_that_yields() {
        let (niceness, policy) = standing();
        assert_eq!(on_a_thread_that(yield_to_clients), (niceness.max(NICENESS), policy));
        let (_, idle) = on_a_thread_that(work_when_idle);
        assert_eq!(idle, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle));
        assert_eq!(standing(), (niceness, policy));
    }
}
