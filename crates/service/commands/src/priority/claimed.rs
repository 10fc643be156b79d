//! What was said of a connection's, or a session's, class; nothing until somebody does.

use baton_types::Class;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const UNSAID: u8 = u8::MAX;
const CLASSES: [Class; 4] = [Class::Background, Class::Low, Class::Normal, Class::High];

/// See the file's header.
#[derive(Debug)]
pub(crate) struct ClaimedClass(AtomicU8);

impl Default for ClaimedClass {
    fn default() -> Self {
        Self(AtomicU8::new(UNSAID))
    }
}

impl ClaimedClass {
    pub fn get(&self) -> Option<Class> {
        CLASSES.get(usize::from(self.0.load(Relaxed))).copied()
    }

    pub fn set(&self, class: Class) {
        self.0.store(class as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_until_somebody_does() {
        let claimed = ClaimedClass::default();
        assert_eq!(claimed.get(), None);
        for class in CLASSES {
            claimed.set(class);
            assert_eq!(claimed.get(), Some(class));
        }
    }
}
