//! One file per command, each with its row for the table as `SPEC`.

pub mod build_info;
pub mod hello;
pub mod is_master;
pub mod ping;
pub mod profile;
