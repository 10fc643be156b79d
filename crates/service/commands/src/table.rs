//! Every command there is: the entry point to this crate.
//!
//! Invariants: the table is sorted by name, no name or alias occurs twice (both are tested), and a command that is not
//! here is answered with `CommandNotFound` (59).
//! What it deliberately does not do: carry anything out. A row names the file that does.

use crate::call::{Call, Reply};
use crate::commands::*;
use ahash::RandomState;
pub use baton_request::Flags;
use baton_request::Kind;
use baton_types::Result;
use bson::RawDocumentBuf;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What carries a command out. On success the reply holds its fields; an error throws away what was written.
pub type Run = for<'a, 'o> fn(&mut Call<'a>, &mut Reply<'o>) -> Result<()>;

/// What a member that may follow reads for a command that is mirrored.
pub type Mirror = fn(&Call<'_>) -> Option<RawDocumentBuf>;

/// A row of this table.
pub type CommandSpec = baton_request::CommandSpec<Run, Mirror>;

/// A row with nothing special, for others to start from with `..DEFAULT`. It fails: who forgets what carries a command out has
/// written no command that does nothing and says ok.
pub const DEFAULT: CommandSpec = CommandSpec {
    name: "",
    aliases: &[],
    kind: Kind::Command,
    flags: Flags::NONE,
    sequences: &[],
    help: "",
    mirrored_as: None,
    run: not_implemented::run,
};

/// All commands, sorted by name.
pub static COMMANDS: &[&CommandSpec] = &[
    &hash_bson_element::SPEC,
    &is_self::SPEC,
    &transactions::ABORT,
    &aggregate::SPEC,
    &append_oplog_note::SPEC,
    &apply_ops::SPEC,
    &authentication::AUTHENTICATE,
    &checkpoints::BEGIN,
    &checkpoints::END,
    &checkpoints::READ,
    &warm::SPEC,
    &yield_to_clients::SPEC,
    &build_info::SPEC,
    &clone_collection_as_capped::SPEC,
    &coll_mod::SPEC,
    &coll_stats::SPEC,
    &transactions::COMMIT,
    &compact::SPEC,
    &configure_fail_point::SPEC,
    &conn_pool_stats::SPEC,
    &connection_status::SPEC,
    &convert_to_capped::SPEC,
    &count::SPEC,
    &create::SPEC,
    &create_indexes::SPEC,
    &not_implemented::CREATE_ROLE,
    &not_implemented::CREATE_USER,
    &current_op::SPEC,
    &data_size::SPEC,
    &db_hash::SPEC,
    &db_stats::SPEC,
    &delete::SPEC,
    &distinct::SPEC,
    &drop::SPEC,
    &not_implemented::DROP_ALL_USERS_FROM_DATABASE,
    &not_implemented::DROP_CONNECTIONS,
    &drop_database::SPEC,
    &drop_indexes::SPEC,
    &not_implemented::DROP_ROLE,
    &not_implemented::DROP_USER,
    &end_sessions::SPEC,
    &explain::SPEC,
    &features::SPEC,
    &find::SPEC,
    &find_and_modify::SPEC,
    &fsync::SPEC,
    &fsync::UNLOCK,
    &get_cmd_line_opts::SPEC,
    &get_default_rw_concern::SPEC,
    &get_diagnostic_data::SPEC,
    &get_log::SPEC,
    &get_more::SPEC,
    &get_parameter::SPEC,
    &not_implemented::GRANT_ROLES_TO_USER,
    &hello::SPEC,
    &host_info::SPEC,
    &insert::SPEC,
    &is_master::SPEC,
    &kill_all_sessions::SPEC,
    &kill_all_sessions_by_pattern::SPEC,
    &kill_cursors::SPEC,
    &kill_op::SPEC,
    &kill_sessions::SPEC,
    &list_collections::SPEC,
    &list_commands::SPEC,
    &list_databases::SPEC,
    &list_indexes::SPEC,
    &log_rotate::SPEC,
    &authentication::LOGOUT,
    &not_implemented::MAP_REDUCE,
    &ping::SPEC,
    &plan_cache_clear::SPEC,
    &plan_cache_clear_filters::SPEC,
    &plan_cache_list_filters::SPEC,
    &not_implemented::PLAN_CACHE_SET_FILTER,
    &profile::SPEC,
    &refresh_sessions::SPEC,
    &rename_collection::SPEC,
    &repl_set_orders::ABORT_CATCH_UP,
    &repl_set_tasks::BEGIN,
    &repl_set_tasks::END,
    &repl_set_orders::FREEZE,
    &repl_set_get_config::SPEC,
    &repl_set_get_rbid::SPEC,
    &repl_set_get_status::SPEC,
    &repl_set_handoff::SPEC,
    &replication::HEARTBEAT,
    &repl_set_initiate::SPEC,
    &repl_set_orders::MAINTENANCE,
    &repl_set_reconfig::SPEC,
    &replication::REQUEST_VOTES,
    &repl_set_resize_oplog::SPEC,
    &repl_set_step_down::SPEC,
    &repl_set_orders::STEP_UP,
    &repl_set_orders::SYNC_FROM,
    &replication::UPDATE_POSITION,
    &repl_set_write_steps::SPEC,
    &not_implemented::REVOKE_ROLES_FROM_USER,
    &roles_info::SPEC,
    &authentication::SASL_CONTINUE,
    &authentication::SASL_START,
    &server_status::SPEC,
    &set_client_priority::SPEC,
    &set_default_rw_concern::SPEC,
    &set_feature_compatibility_version::SPEC,
    &index_builds::SET_COMMIT_QUORUM,
    &set_parameter::SPEC,
    &shutdown::SPEC,
    &start_session::SPEC,
    &top::SPEC,
    &update::SPEC,
    &not_implemented::UPDATE_USER,
    &users_info::SPEC,
    &validate::SPEC,
    &validate_db_metadata::SPEC,
    &index_builds::VOTE_ABORT,
    &index_builds::VOTE_COMMIT,
    &whatsmyuri::SPEC,
];

static BY_NAME: LazyLock<HashMap<&'static str, usize, RandomState>> = LazyLock::new(|| {
    let mut by_name = HashMap::default();
    for (index, spec) in COMMANDS.iter().enumerate() {
        by_name.insert(spec.name, index);
        for alias in spec.aliases {
            by_name.insert(*alias, index);
        }
    }
    by_name
});

/// The command of that name or alias, with its position in the table.
pub fn find(name: &str) -> Option<(usize, &'static CommandSpec)> {
    let index = *BY_NAME.get(name)?;
    Some((index, COMMANDS.get(index)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_no_name_occurs_twice() {
        for pair in COMMANDS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} and {} are out of order", pair[0].name, pair[1].name);
        }
        let names = COMMANDS.iter().map(|s| 1 + s.aliases.len()).sum::<usize>();
        assert_eq!(BY_NAME.len(), names);
    }

    #[test]
    fn the_default_of_a_commands_row_fails() {
        // The shape sees to it that a command whose file names nothing to carry it out is refused.
        assert!(std::ptr::fn_addr_eq(DEFAULT.run, not_implemented::run as Run));
        let idle: Vec<&str> = COMMANDS
            .iter()
            .filter(|spec| std::ptr::fn_addr_eq(spec.run, DEFAULT.run) && spec.help != "Not implemented yet.")
            .map(|spec| spec.name)
            .collect();
        assert!(idle.is_empty(), "{idle:?}");
    }

    #[test]
    fn every_command_says_what_it_does() {
        for spec in COMMANDS {
            assert!(!spec.help.is_empty(), "{} has no help", spec.name);
        }
    }
}
