//! What every request has for itself, in memory that its connection keeps: so that one request after the other takes none for it.
//!
//! Invariant: what a request gets is new, and nobody else's. Where something may outlive its request (a cursor's, or that of a
//! transaction in the queue), whoever has it still keeps it, and the next request gets one in other memory.

use parking_lot::Mutex;
use std::sync::Arc;

/// See the file's header.
pub(crate) struct Kept<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Kept<T> {
    /// Shares a value: in the memory of the one before, if nobody has that any more.
    pub fn share(&self, value: T) -> Arc<T> {
        let mut kept = self.0.lock();
        if let Some(before) = &mut *kept
            && let Some(unused) = Arc::get_mut(before)
        {
            *unused = value;
            return Arc::clone(before);
        }
        Arc::clone(kept.insert(Arc::new(value)))
    }

    /// Gives the memory back until the next request.
    pub fn give_back(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_else_has_it() {
        let kept = Kept::default();
        let first = kept.share(1);
        let second = kept.share(2);
        assert_eq!((*first, *second), (1, 2), "the first is used still");
        let place = Arc::as_ptr(&second);
        drop(second);
        let third = kept.share(3);
        assert_eq!((*first, *third, Arc::as_ptr(&third)), (1, 3, place));
        let copy = Arc::clone(&third);
        drop(third);
        assert_ne!(Arc::as_ptr(&kept.share(4)), place);
        assert_eq!(*copy, 3);
        kept.give_back();
        assert!(kept.0.lock().is_none());
        assert_eq!(*kept.share(5), 5);
    }
}
