//! `crash_point!`: a named place at which a test may kill the process.
//!
//! With the feature `crash-points` each is a fail point of crate `fail`, which the member arms; without it they are nothing,
//! and that crate is not compiled.

#[cfg(feature = "crash-points")]
macro_rules! crash_point {
    ($name:literal) => {
        fail::fail_point!($name)
    };
}

#[cfg(not(feature = "crash-points"))]
macro_rules! crash_point {
    ($name:literal) => {};
}
