//! Execution over a real storage in a directory of its own: which way a query goes, how it is ended, what writes do.

mod access_paths;
mod common;
mod drops;
mod interruptions;
mod writes;
