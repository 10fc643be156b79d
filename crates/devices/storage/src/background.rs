//! Threads that work for nobody who waits: their share of the processor while others want it.
//!
//! What it deliberately does not do: give the share back. That takes a privilege which a member need not have, so a thread that
//! works in the background does so until it ends.

/// The niceness of background work. The kernel weighs it at about a tenth of a client's thread (110 to 1,024, `sched(7)`): next to
/// busy clients it goes on, slowly, and on an idle machine it has all that is left.
const NICENESS: i32 = 10;

/// From now on the calling thread works in the background.
pub fn work_in_background() {
    // Of "the calling process", which for Linux is the calling thread.
    let now = rustix::process::getpriority_process(None).unwrap_or(0);
    if now < NICENESS
        && let Err(error) = rustix::process::setpriority_process(None, NICENESS)
    {
        tracing::warn!(target: "STORAGE", error = %error, "Background work weighs as much as a client's");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_calling_thread_alone_that_yields() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let within = std::thread::spawn(move || {
            super::work_in_background();
            super::work_in_background();
            niceness()
        });
        assert_eq!(within.join().unwrap(), before.max(super::NICENESS));
        assert_eq!(niceness(), before);
    }
}
