//! How long a thread keeps a processor that others wait for.
//!
//! Who wakes up takes the processor from one whose slice is longer than his own. From any other he gets it when that one's slice is over,
//! which the kernel looks at by the tick, four milliseconds apart. A client's thread runs for microseconds, so who computes for
//! milliseconds takes longer slices than the kernel's own: he has the same part of the time, and is in nobody's way. They are not the
//! longest there are: those who take them wait for one another as long as one lasts, and some lead the commit queue now and then.
//! Who is urgent, by himself or because an urgent one waits for him, has the shortest there are: niceness says how large his part is, slices that
//! he has it at once.
//!
//! Invariant: nobody inherits them. A thread has its own, whoever began it.
//!
//! Niceness is another matter: it says how large the part is, and to have it back takes a privilege. Slices need none. The kernel is told of
//! both [at once](crate::niceness).
//!
//! Source: `sched_setattr(2)`, `sched_runtime` of `SCHED_OTHER` (Linux 6.12 and later; earlier ones take no notice of it). What it does:
//! docs/spikes/scheduler-groups.md.

use crate::niceness;
use rustix::process::{Pid, setpriority_process};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

/// What the slices of a thread are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slices {
    Usual,
    Short,
    Long,
    LongForGood,
}

impl Slices {
    const ALL: [Self; 4] = [Self::Usual, Self::Short, Self::Long, Self::LongForGood];

    /// For `sched_runtime`. The kernel's own are 3 ms at the most; its shortest are 0.1, its longest 100.
    fn time(self) -> Duration {
        match self {
            // As long as the kernel thinks right.
            Self::Usual => Duration::ZERO,
            Self::Short => Duration::from_micros(100),
            Self::Long | Self::LongForGood => Duration::from_millis(10),
        }
    }
}

/// A thread's own slices, as others may see them.
#[derive(Debug)]
pub(crate) struct AtomicSlices(AtomicU8);

impl Default for AtomicSlices {
    fn default() -> Self {
        Self(AtomicU8::new(Slices::Usual as u8))
    }
}

impl AtomicSlices {
    pub fn load(&self) -> Slices {
        Slices::ALL[usize::from(self.0.load(SeqCst))]
    }

    pub fn store(&self, slices: Slices) {
        self.0.store(slices as u8, SeqCst);
    }
}

/// The calling thread computes for long from now on, until it [says otherwise](take_usual_slices).
pub fn take_long_slices() {
    change(Slices::Usual, Slices::Long);
}

/// The calling thread's next request may be a short one. What [never answers one](keep_long_slices) stays as it is.
pub fn take_usual_slices() {
    change(Slices::Long, Slices::Usual);
}

/// Whether the calling thread takes long ones.
pub fn has_long_slices() -> bool {
    matches!(niceness::slices(), Slices::Long | Slices::LongForGood)
}

/// The calling thread computes for long until it ends.
pub fn keep_long_slices() {
    take_long_slices();
    change(Slices::Long, Slices::LongForGood);
}

/// The kernel is told of changes alone.
fn change(from: Slices, to: Slices) {
    if niceness::slices() == from {
        niceness::take(to);
    }
}

/// Tells the kernel of a thread's niceness and its slices. Where it takes no slices, as of a policy for real time, that it is of niceness alone.
pub(crate) fn set(thread: Pid, niceness: i32, slices: Slices) -> io::Result<()> {
    match set_both(thread, niceness, slices.time()) {
        Ok(()) => Ok(()),
        Err(_) => Ok(setpriority_process(Some(thread), niceness)?),
    }
}

/// Leaves its policy as it is.
#[allow(unsafe_code, reason = "no crate has a safe call for slices; these two are all there is of it")]
fn set_both(thread: Pid, niceness: i32, slice: Duration) -> io::Result<()> {
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: it takes numbers and gives one.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    if policy < 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: (policy & !libc::SCHED_RESET_ON_FORK) as u32,
        // To let children inherit again takes a privilege, so it stays set; niceness above 0 they inherit all the same.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: niceness,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads so many bytes as the structure says that it has, and keeps nothing of it.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::yield_to_clients;
    use crate::niceness::{Right, as_class, bearer, right};
    use baton_types::Class;

    /// Policy, niceness, slice in nanoseconds.
    fn attributes() -> (u32, i32, u64) {
        let mut attributes = libc::sched_attr {
            size: 0,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: the kernel writes no more bytes than it is told that there are.
        #[allow(unsafe_code)]
        let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(answer, 0);
        (attributes.sched_policy, attributes.sched_nice, attributes.sched_runtime)
    }

    fn on_a_thread_of_its_own(work: fn()) {
        std::thread::spawn(work).join().unwrap();
    }

    #[test]
    fn slices_are_long_until_they_are_usual_again_and_all_else_stays() {
        on_a_thread_of_its_own(|| {
            let before = attributes();
            take_usual_slices();
            assert_eq!(attributes(), before);
            take_long_slices();
            take_long_slices();
            let (policy, niceness, slice) = attributes();
            assert_eq!((policy, niceness), (before.0, before.1));
            // A kernel before 6.12 has none to tell of.
            assert!(slice == Slices::Long.time().as_nanos() as u64 || before.2 == 0, "{slice} after {before:?}");
            take_usual_slices();
            assert_eq!(attributes(), before);
        });
    }

    #[test]
    fn who_is_urgent_by_himself_or_for_others_has_short_slices_until_he_is_not() {
        on_a_thread_of_its_own(|| {
            let before = attributes();
            let is = |slice: Duration| attributes().2 == slice.as_nanos() as u64 || before.2 == 0;
            if right() != Right::All {
                return;
            }
            as_class(Class::High);
            assert!(is(Slices::Short.time()));
            take_long_slices();
            assert!(is(Slices::Short.time()), "it is urgent still");
            as_class(Class::Normal);
            assert!(is(Slices::Long.time()), "it computes for long still");
            let loan = bearer().lend_as(Class::High);
            assert!(loan.is_some() && is(Slices::Short.time()));
            take_usual_slices();
            assert!(is(Slices::Short.time()));
            drop(loan);
            assert_eq!(attributes(), before);
        });
    }

    /// RocksDB begins its threads on whichever needs one, and a thread that is born with long slices does not know it.
    #[test]
    fn nobody_inherits_them() {
        on_a_thread_of_its_own(|| {
            let usual = attributes().2;
            let of_a_child = || std::thread::spawn(|| attributes().2).join().unwrap();
            take_long_slices();
            assert_eq!(of_a_child(), usual);
            take_usual_slices();
            yield_to_clients();
            assert_eq!(of_a_child(), usual);
        });
    }

    #[test]
    fn who_yields_to_clients_does_so_until_it_ends() {
        on_a_thread_of_its_own(|| {
            yield_to_clients();
            let yielding = attributes();
            take_usual_slices();
            assert_eq!(attributes(), yielding);
            take_long_slices();
            take_usual_slices();
            assert_eq!(attributes(), yielding);
        });
    }
}
