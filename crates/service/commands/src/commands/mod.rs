//! One file per command, each with its row for the table as `SPEC`.

pub mod aggregate;
pub mod build_info;
pub mod count;
pub mod delete;
pub mod distinct;
pub mod explain;
pub mod find;
pub mod find_and_modify;
pub mod get_more;
pub mod hello;
pub mod insert;
pub mod is_master;
pub mod kill_cursors;
pub mod ping;
pub mod profile;
pub mod update;
