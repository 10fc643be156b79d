//! `crash_point!`: a named place at which a test may kill the process, or have the thread panic.
//!
//! With the feature `crash-points` each is a fail point of crate `fail`, which the member arms; without it they are nothing,
//! and that crate is not compiled. Exported for the crates above that have places of their own.

#[cfg(feature = "crash-points")]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::fail::fail_point!($name)
    };
}

#[cfg(not(feature = "crash-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}
