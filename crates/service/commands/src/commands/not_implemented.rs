//! Commands of MongoDB that Baton knows by name and does not have yet: each answers `NotImplemented` (238), so that a
//! client can tell them from what it has misspelt.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};

const fn row(name: &'static str, flags: Flags) -> CommandSpec {
    CommandSpec { name, flags, help: "Not implemented yet.", run, ..DEFAULT }
}

/// Refuses whatever command it is. Also what a row of the table does that names nothing else.
pub fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    Err(Error::not_implemented(call.spec.name))
}

const USERS: Flags = Flags::SECRET.and(Flags::WRITE_CONCERN);

/// Users and roles.
pub const CREATE_ROLE: CommandSpec = row("createRole", USERS);
/// Users and roles.
pub const CREATE_USER: CommandSpec = row("createUser", USERS);
/// Users and roles.
pub const DROP_ALL_USERS_FROM_DATABASE: CommandSpec = row("dropAllUsersFromDatabase", USERS);
/// Users and roles.
pub const DROP_ROLE: CommandSpec = row("dropRole", USERS);
/// Users and roles.
pub const DROP_USER: CommandSpec = row("dropUser", USERS);
/// Users and roles.
pub const GRANT_ROLES_TO_USER: CommandSpec = row("grantRolesToUser", USERS);
/// Connections to other servers: each has its one use, and none can be taken from it.
pub const DROP_CONNECTIONS: CommandSpec = row("dropConnections", Flags::ADMIN_ONLY);
/// Index filters: the planner asks for none.
pub const PLAN_CACHE_SET_FILTER: CommandSpec = row("planCacheSetFilter", Flags::ON_COLLECTION);
/// JavaScript in the server.
pub const MAP_REDUCE: CommandSpec = row("mapReduce", Flags::WRITE_CONCERN.and(Flags::READ_CONCERN));
/// Users and roles.
pub const REVOKE_ROLES_FROM_USER: CommandSpec = row("revokeRolesFromUser", USERS);
/// Users and roles.
pub const UPDATE_USER: CommandSpec = row("updateUser", USERS);
