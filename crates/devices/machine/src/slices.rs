//! How long a thread keeps a processor that others wait for.
//!
//! Who wakes up takes the processor from one whose slice is longer than his own. From any other he gets it when that one's slice is over,
//! which the kernel looks at by the tick, four milliseconds apart. A client's thread runs for microseconds, so who computes for
//! milliseconds takes longer slices than the kernel's own: he has the same part of the time, and is in nobody's way. They are not the
//! longest there are: those who take them wait for one another as long as one lasts, and some lead the commit queue now and then.
//! Who serves urgent requests takes the shortest there are: niceness says how large his part is, slices that he has it at once.
//!
//! Invariant: nobody inherits them. A thread has the slices that it took itself, whoever began it.
//!
//! Niceness is another matter: it says how large the part is, and to have it back takes a privilege. Slices need none.
//!
//! Source: `sched_setattr(2)`, `sched_runtime` of `SCHED_OTHER` (Linux 6.12 and later; earlier ones take no notice of it). What it does:
//! docs/spikes/scheduler-groups.md.

use std::cell::Cell;
use std::io;
use std::time::Duration;

/// The kernel's own are 3 ms at the most; its longest are 100.
const LONG: Duration = Duration::from_millis(10);
/// The kernel's shortest.
const SHORT: Duration = Duration::from_micros(100);
/// For `sched_runtime`: as long as the kernel thinks right.
const USUAL: Duration = Duration::ZERO;

/// What the slices of a thread are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slices {
    Usual,
    Short,
    Long,
    LongForGood,
}

thread_local! {
    /// Of this thread, so that the kernel is told of changes alone.
    static SLICES: Cell<Slices> = const { Cell::new(Slices::Usual) };
}

/// The calling thread computes for long from now on, until it [says otherwise](take_usual_slices).
pub fn take_long_slices() {
    change(Slices::Usual, Slices::Long, LONG);
}

/// The calling thread's next request may be a short one. What [never answers one](keep_long_slices) stays as it is.
pub fn take_usual_slices() {
    change(Slices::Long, Slices::Usual, USUAL);
}

/// Whether the calling thread takes long ones.
pub fn has_long_slices() -> bool {
    matches!(SLICES.get(), Slices::Long | Slices::LongForGood)
}

/// The calling thread is urgent from now on, or is not any more. While it is it takes no long slices.
pub(crate) fn be_urgent(is_urgent: bool) {
    if is_urgent {
        take_usual_slices();
        change(Slices::Usual, Slices::Short, SHORT);
    } else {
        change(Slices::Short, Slices::Usual, USUAL);
    }
}

/// The calling thread computes for long until it ends.
pub fn keep_long_slices() {
    be_urgent(false);
    take_long_slices();
    SLICES.set(Slices::LongForGood);
}

fn change(from: Slices, to: Slices, slice: Duration) {
    if SLICES.get() != from {
        return;
    }
    SLICES.set(to);
    if let Err(error) = set_slice(slice) {
        tracing::debug!(component = "MACHINE", error = %error, "The kernel does not change a thread's slices");
    }
}

/// Leaves policy and niceness as they are. A policy for real time has no slices, and is left alone by an error.
#[allow(unsafe_code, reason = "no crate has a safe call for slices; these two are all there is of it")]
fn set_slice(slice: Duration) -> io::Result<()> {
    // SAFETY: it takes a number and gives one.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy < 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: (policy & !libc::SCHED_RESET_ON_FORK) as u32,
        // To let children inherit again takes a privilege, so it stays set; niceness above 0 they inherit all the same.
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        // Of "the calling process", which for Linux is the calling thread.
        sched_nice: rustix::process::getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads so many bytes as the structure says that it has, and keeps nothing of it.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::yield_to_clients;

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
            assert!(slice == LONG.as_nanos() as u64 || before.2 == 0, "{slice} after {before:?}");
            take_usual_slices();
            assert_eq!(attributes(), before);
        });
    }

    #[test]
    fn who_is_urgent_has_short_slices_and_takes_no_long_ones_until_he_is_not() {
        on_a_thread_of_its_own(|| {
            let before = attributes();
            take_long_slices();
            be_urgent(true);
            take_long_slices();
            let slice = attributes().2;
            assert!(slice == SHORT.as_nanos() as u64 || before.2 == 0, "{slice} after {before:?}");
            assert!(!has_long_slices());
            take_usual_slices();
            assert_eq!(attributes().2, slice);
            be_urgent(false);
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
