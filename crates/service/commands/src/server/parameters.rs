//! The parameters of `getParameter` and `setParameter`: one table, one row each.
//!
//! Invariants: a parameter is in the table only if it has an effect, or if it states a fact; setting one that cannot be
//! set, or to a value it cannot take, is refused and changes nothing.
//! What it deliberately does not do: keep a change over a restart, as in mongod.

use super::Server;
use crate::commands::set_feature_compatibility_version;
use baton_document::type_name;
use baton_replication::{InitialSyncMethod, InitialSyncOptions};
use baton_request::fields::{is_truthy, number_as_i64};
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, RawBsonRef, doc};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// The values behind the parameters that are no one else's state.
#[derive(Debug)]
pub struct Values {
    /// Commands for tests exist: fail points.
    pub enable_test_commands: AtomicBool,
    /// The version in which a member under test speaks to others; 0 is its own.
    pub test_protocol_version: AtomicI64,
    /// Refuse queries that no index serves.
    pub notablescan: AtomicBool,
    /// Delete expired documents.
    pub ttl_monitor_enabled: AtomicBool,
    /// Seconds between two passes of that.
    pub ttl_monitor_sleep_secs: AtomicI64,
    /// Whether queries that do not say may use the disk.
    pub allow_disk_use_by_default: AtomicBool,
    /// The most memory a blocking sort may take, in bytes.
    pub sort_memory_bytes_max: AtomicI64,
    /// The most memory a `$group` may take, in bytes.
    pub group_memory_bytes_max: AtomicI64,
    /// Refuse commands without `apiVersion`.
    pub require_api_version: AtomicBool,
    /// Seconds that a primary's log may stand still before it writes an entry that changes nothing.
    pub periodic_note_secs: AtomicI64,
    /// Milliseconds that a member asked to stop by a signal may take to hand over and to end what it serves.
    pub shutdown_timeout_ms: AtomicI64,
    /// How talkative the log is; 0 to 5.
    pub log_level: AtomicI64,
    /// How this member comes to its data if it has none: an index into [`InitialSyncMethod::ALL`].
    pub initial_sync_method: AtomicI64,
    /// Bytes from which on they come by file.
    pub initial_sync_file_copy_bytes_min: AtomicI64,
    /// Documents that an initial sync asks for at once; 0 is as many as a message holds.
    pub initial_sync_batch_documents: AtomicI64,
    /// Collections that an initial sync copies at once.
    pub initial_sync_collections_at_once: AtomicI64,
    /// Whether its copying leaves the processors to clients.
    pub initial_sync_yields: AtomicBool,
    /// The most memory the source's log may take during an initial sync, in bytes.
    pub initial_sync_log_memory_bytes: AtomicI64,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            enable_test_commands: AtomicBool::new(false),
            test_protocol_version: AtomicI64::new(0),
            notablescan: AtomicBool::new(false),
            ttl_monitor_enabled: AtomicBool::new(true),
            ttl_monitor_sleep_secs: AtomicI64::new(60),
            allow_disk_use_by_default: AtomicBool::new(true),
            sort_memory_bytes_max: AtomicI64::new(100 * 1024 * 1024),
            group_memory_bytes_max: AtomicI64::new(100 * 1024 * 1024),
            require_api_version: AtomicBool::new(false),
            periodic_note_secs: AtomicI64::new(10),
            shutdown_timeout_ms: AtomicI64::new(15_000),
            log_level: AtomicI64::new(0),
            initial_sync_method: AtomicI64::new(0),
            initial_sync_file_copy_bytes_min: AtomicI64::new(1 << 30),
            initial_sync_batch_documents: AtomicI64::new(0),
            initial_sync_collections_at_once: AtomicI64::new(2),
            initial_sync_yields: AtomicBool::new(true),
            initial_sync_log_memory_bytes: AtomicI64::new(64 << 20),
        }
    }
}

impl Values {
    /// In which version this member speaks to others.
    pub fn protocol_version(&self) -> u32 {
        match u32::try_from(self.test_protocol_version.load(Relaxed)) {
            Ok(pretended) if pretended > 0 => pretended,
            Ok(_) | Err(_) => baton_consensus::PROTOCOL_VERSION,
        }
    }

    /// Those about initial syncs.
    pub fn initial_sync(&self) -> InitialSyncOptions {
        InitialSyncOptions {
            method: InitialSyncMethod::ALL[self.initial_sync_method.load(Relaxed) as usize].1,
            file_copy_bytes_min: self.initial_sync_file_copy_bytes_min.load(Relaxed) as u64,
            batch_documents: self.initial_sync_batch_documents.load(Relaxed) as i32,
            collections_at_once: self.initial_sync_collections_at_once.load(Relaxed) as usize,
            yields_to_clients: self.initial_sync_yields.load(Relaxed),
            log_memory_bytes: self.initial_sync_log_memory_bytes.load(Relaxed) as u64,
            ..InitialSyncOptions::default()
        }
    }
}

type Get = fn(&Server) -> Bson;
type Set = fn(&Server, RawBsonRef<'_>) -> Result<()>;

/// One parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value now.
    pub get: Get,
    /// Changes it; `None` if nobody can.
    pub set: Option<Set>,
    /// Whether `setParameter` can while the member runs; otherwise only the command line.
    pub at_runtime: bool,
}

const fn fact(name: &'static str, get: Get) -> Parameter {
    Parameter { name, get, set: None, at_runtime: false }
}

const fn setting(name: &'static str, get: Get, set: Set) -> Parameter {
    Parameter { name, get, set: Some(set), at_runtime: true }
}

const fn startup(name: &'static str, get: Get, set: Set) -> Parameter {
    Parameter { name, get, set: Some(set), at_runtime: false }
}

fn set_bool(cell: &AtomicBool, value: RawBsonRef<'_>) -> Result<()> {
    match value {
        RawBsonRef::Boolean(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) => {
            cell.store(is_truthy(value), Relaxed);
            Ok(())
        }
        RawBsonRef::String("true" | "1") => {
            cell.store(true, Relaxed);
            Ok(())
        }
        RawBsonRef::String("false" | "0") => {
            cell.store(false, Relaxed);
            Ok(())
        }
        other => Err(Error::bad_value(format!("Value must be a boolean, not {}", type_name(other.element_type())))),
    }
}

fn whole_number(value: RawBsonRef<'_>, min: i64, max: i64) -> Result<i64> {
    let number = match value {
        RawBsonRef::String(text) => text.parse().ok(),
        other => number_as_i64(other),
    };
    match number {
        None => Err(Error::bad_value("Value must be a number")),
        Some(n) if n < min => {
            Err(Error::bad_value(format!("Invalid value for parameter: {n} is not greater than or equal to {min}")))
        }
        Some(n) if n > max => {
            Err(Error::bad_value(format!("Invalid value for parameter: {n} is not less than or equal to {max}")))
        }
        Some(n) => Ok(n),
    }
}

fn set_number(cell: &AtomicI64, value: RawBsonRef<'_>, min: i64, max: i64) -> Result<()> {
    cell.store(whole_number(value, min, max)?, Relaxed);
    Ok(())
}

/// An int when it fits one, as mongod answers.
fn number(value: i64) -> Bson {
    i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32)
}

/// All parameters, by name.
pub static PARAMETERS: &[Parameter] = &[
    setting(
        "allowDiskUseByDefault",
        |s| Bson::Boolean(s.parameters.allow_disk_use_by_default.load(Relaxed)),
        |s, v| set_bool(&s.parameters.allow_disk_use_by_default, v),
    ),
    fact("authenticationMechanisms", |_| Bson::Array(Vec::new())),
    setting(
        "collectionClonerBatchSize",
        |s| number(s.parameters.initial_sync_batch_documents.load(Relaxed)),
        |s, v| set_number(&s.parameters.initial_sync_batch_documents, v, 0, i64::from(i32::MAX)),
    ),
    setting(
        "cursorTimeoutMillis",
        |s| Bson::Int64(s.cursors.timeout().as_millis() as i64),
        |s, v| {
            s.cursors.set_timeout(Duration::from_millis(whole_number(v, 1, i64::MAX)? as u64));
            Ok(())
        },
    ),
    setting(
        "enableFlowControl",
        |s| Bson::Boolean(s.storage.flow_figures().is_on),
        |s, v| {
            let is_on = AtomicBool::new(true);
            set_bool(&is_on, v)?;
            s.storage.switch_flow_control(is_on.into_inner());
            Ok(())
        },
    ),
    startup(
        "enableTestCommands",
        |s| Bson::Boolean(s.parameters.enable_test_commands.load(Relaxed)),
        |s, v| set_bool(&s.parameters.enable_test_commands, v),
    ),
    fact("featureCompatibilityVersion", |_| {
        Bson::Document(doc! { "version": set_feature_compatibility_version::VERSION })
    }),
    setting(
        "initialSyncCollectionsAtOnce",
        |s| number(s.parameters.initial_sync_collections_at_once.load(Relaxed)),
        |s, v| set_number(&s.parameters.initial_sync_collections_at_once, v, 1, 64),
    ),
    setting(
        "initialSyncFileCopyMinBytes",
        |s| Bson::Int64(s.parameters.initial_sync_file_copy_bytes_min.load(Relaxed)),
        |s, v| set_number(&s.parameters.initial_sync_file_copy_bytes_min, v, 0, i64::MAX),
    ),
    setting(
        "initialSyncLogMemoryBytes",
        |s| Bson::Int64(s.parameters.initial_sync_log_memory_bytes.load(Relaxed)),
        |s, v| set_number(&s.parameters.initial_sync_log_memory_bytes, v, 0, i64::MAX),
    ),
    setting(
        "initialSyncMethod",
        |s| Bson::String(s.parameters.initial_sync().method.name().to_owned()),
        |s, v| {
            let known = InitialSyncMethod::ALL.iter().position(|(name, _)| v == RawBsonRef::String(name));
            let Some(known) = known else {
                return Err(Error::bad_value("initialSyncMethod must be one of auto, logical, fileCopyBased"));
            };
            s.parameters.initial_sync_method.store(known as i64, Relaxed);
            Ok(())
        },
    ),
    setting(
        "initialSyncYieldsToClients",
        |s| Bson::Boolean(s.parameters.initial_sync_yields.load(Relaxed)),
        |s, v| set_bool(&s.parameters.initial_sync_yields, v),
    ),
    setting(
        "internalDocumentSourceGroupMaxMemoryBytes",
        |s| Bson::Int64(s.parameters.group_memory_bytes_max.load(Relaxed)),
        |s, v| set_number(&s.parameters.group_memory_bytes_max, v, 1, i64::MAX),
    ),
    setting(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        |s| Bson::Int64(s.parameters.sort_memory_bytes_max.load(Relaxed)),
        |s, v| set_number(&s.parameters.sort_memory_bytes_max, v, 0, i64::MAX),
    ),
    fact("localLogicalSessionTimeoutMinutes", |_| Bson::Int32(super::sessions::TIMEOUT_MINUTES)),
    setting(
        "logLevel",
        |s| number(s.parameters.log_level.load(Relaxed)),
        |s, v| {
            let level = whole_number(v, 0, 5)?;
            s.parameters.log_level.store(level, Relaxed);
            (s.hooks.set_log_level)(level as u8);
            Ok(())
        },
    ),
    setting("mirrorReads", |s| s.mirroring.get(), |s, v| s.mirroring.set(v)),
    setting(
        "notablescan",
        |s| Bson::Boolean(s.parameters.notablescan.load(Relaxed)),
        |s, v| set_bool(&s.parameters.notablescan, v),
    ),
    startup(
        "periodicNoopIntervalSecs",
        |s| number(s.parameters.periodic_note_secs.load(Relaxed)),
        |s, v| set_number(&s.parameters.periodic_note_secs, v, 1, i64::from(i32::MAX)),
    ),
    fact("port", |s| Bson::Int32(i32::from(s.identity.port))),
    setting(
        "requireApiVersion",
        |s| Bson::Boolean(s.parameters.require_api_version.load(Relaxed)),
        |s, v| set_bool(&s.parameters.require_api_version, v),
    ),
    setting(
        "shutdownTimeoutMillisForSignaledShutdown",
        |s| number(s.parameters.shutdown_timeout_ms.load(Relaxed)),
        |s, v| set_number(&s.parameters.shutdown_timeout_ms, v, 0, i64::from(i32::MAX)),
    ),
    startup(
        "testProtocolVersion",
        |s| number(s.parameters.test_protocol_version.load(Relaxed)),
        |s, v| {
            if !s.parameters.enable_test_commands.load(Relaxed) {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "testProtocolVersion needs enableTestCommands before it",
                ));
            }
            set_number(&s.parameters.test_protocol_version, v, 0, i64::from(i32::MAX))
        },
    ),
    setting(
        "ttlMonitorEnabled",
        |s| Bson::Boolean(s.parameters.ttl_monitor_enabled.load(Relaxed)),
        |s, v| set_bool(&s.parameters.ttl_monitor_enabled, v),
    ),
    setting(
        "ttlMonitorSleepSecs",
        |s| number(s.parameters.ttl_monitor_sleep_secs.load(Relaxed)),
        |s, v| set_number(&s.parameters.ttl_monitor_sleep_secs, v, 1, i64::from(i32::MAX)),
    ),
];

/// The parameter of that name.
pub fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|p| p.name == name)
}

/// Sets a parameter; returns what it was.
pub fn set(server: &Server, name: &str, value: RawBsonRef<'_>, starting: bool) -> Result<Bson> {
    let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
    let Some(parameter) = find(name) else {
        return invalid(format!("attempted to set unrecognized parameter [{name}], use help:true to see options "));
    };
    let Some(set) = parameter.set else {
        return Err(Error::new(ErrorCode::IllegalOperation, format!("Parameter {name} cannot be set")));
    };
    if !starting && !parameter.at_runtime {
        return Err(Error::new(ErrorCode::IllegalOperation, format!("not allowed to change [{name}] at runtime")));
    }
    let was = (parameter.get)(server);
    set(server, value)?;
    Ok(was)
}
