//! `std::thread`, as far as members use it.

use super::time::{Duration, Instant, advance_to, hurries};
use shuttle::rand::Rng;
pub use shuttle::thread::{Thread, current, park};

/// See [`Condvar::wait_until`](super::parking_lot::Condvar::wait_until).
pub fn park_timeout(time: Duration) {
    if !hurries() {
        return park();
    }
    let until = Instant::now() + time;
    shuttle::thread::yield_now();
    if shuttle::rand::thread_rng().gen_bool(0.5) {
        advance_to(until);
    }
}
