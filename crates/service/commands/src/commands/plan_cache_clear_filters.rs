//! `planCacheClearFilters`. Source: MongoDB manual, "planCacheClearFilters". There is nothing to clear, so that nothing is done is the whole truth.

use crate::commands::plan_cache_clear;
use crate::table::{CommandSpec, DEFAULT, Flags};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "planCacheClearFilters",
    flags: Flags::ON_COLLECTION,
    help: "Removes a collection's index filters, of which there are none.",
    run: plan_cache_clear::run,
    ..DEFAULT
};
