//! Which configurations make sense.
