//! mongod's options that Baton does not have: what becomes of each where an existing configuration names it.
//!
//! One whose absence changes nothing that its giver relies on is inert: taken, with a warning at the start. One that promises what
//! would not hold (that users are checked, that traffic is encrypted) is refused, with what to do.
//!
//! Invariant: none is taken in silence, unless what it says is what Baton does.
//! Not here: options that Baton has (`settings`).

use crate::settings::{Takes, Value};

/// What becomes of an option.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It is taken, with a warning that says why it has no effect.
    Inert(&'static str),
    /// It is taken if its value is one of these, which is what Baton does; otherwise refused.
    Only(&'static [&'static str], &'static str),
    /// It is refused.
    Refused(&'static str),
}

/// One option, or with a key of a section everything in that.
#[derive(Debug)]
pub struct Row {
    /// The key in the configuration file.
    pub key: &'static str,
    /// mongod's flag for it, empty if it has none.
    pub flag: &'static str,
    /// How the flag takes its value.
    pub takes: Takes,
    /// What becomes of it.
    pub fate: Fate,
}

use Fate::{Inert, Only, Refused};

const fn row(key: &'static str, flag: &'static str, fate: Fate) -> Row {
    Row { key, flag, takes: Takes::One("VALUE"), fate }
}

const fn switch(key: &'static str, flag: &'static str, fate: Fate) -> Row {
    Row { key, flag, takes: Takes::Nothing, fate }
}

const LOG_IS_SYNCED: &str = "the log is always kept, and synced as each write's concern asks";
const ONE_DIRECTORY: &str = "all databases are in one RocksDB directory";
const COMPRESSION: &str = "data is compressed with LZ4, its keys with prefixes";
const NOT_WIRED_TIGER: &str = "there is no WiredTiger; --cacheSizeGB is the one setting of the cache";
const NO_TLS: &str = "TLS is not implemented yet; leave it out, and listen on trusted addresses only (net.bindIp)";
const NO_USERS: &str =
    "users and roles are not implemented yet; leave it out, and listen on trusted addresses only (net.bindIp)";
const NO_ENCRYPTION: &str = "files are not encrypted by Baton; leave it out, and encrypt the disk";
const NO_SHARDS: &str = "shards and routers are not implemented yet; leave it out";
const NO_AUDIT: &str = "there is no audit log; leave it out";

/// All of them, by key.
pub static ROWS: &[Row] = &[
    row("auditLog", "", Refused(NO_AUDIT)),
    row("cloud", "", Inert("nothing is reported to anybody")),
    row("net.compression", "", Refused("there is 'net.compression.compressors' alone")),
    switch("net.ipv6", "ipv6", Inert("net.bindIp takes IPv6 addresses as they are")),
    row("net.maxIncomingConnectionsOverride", "", Inert("net.maxIncomingConnections counts for every address")),
    row("net.serviceExecutor", "", Inert("every connection has a thread")),
    row("net.ssl", "", Refused(NO_TLS)),
    row("net.tls", "", Refused(NO_TLS)),
    row("net.transportLayer", "", Inert("there is one")),
    row(
        "net.unixDomainSocket.filePermissions",
        "filePermissions",
        Only(&["0700", "700", "448"], "the socket is its owner's alone, 0700; leave it out"),
    ),
    row("net.wireObjectCheck", "", Inert("every document is checked")),
    row("operationProfiling.filter", "", Inert("every slow operation is logged and profiled")),
    row("operationProfiling.slowOpSampleRate", "slowOpSampleRate", Inert("every slow operation is logged")),
    row("processManagement.timeZoneInfo", "timeZoneInfo", Inert("the time zones' rules are built in")),
    row("processManagement.windowsService", "", Inert("this is no Windows service")),
    row(
        "replication.enableMajorityReadConcern",
        "enableMajorityReadConcern",
        Inert("read concern majority is always there"),
    ),
    row("replication.localPingThresholdMs", "", Inert("it is a router's")),
    row("replication.secondaryIndexPrefetch", "", Inert("there is nothing to fetch ahead")),
    row("security.clusterAuthMode", "clusterAuthMode", Refused(NO_USERS)),
    row("security.clusterIpSourceAllowlist", "clusterIpSourceAllowlist", Refused(NO_USERS)),
    row("security.clusterIpSourceWhitelist", "", Refused(NO_USERS)),
    row("security.enableEncryption", "enableEncryption", Only(&["false"], NO_ENCRYPTION)),
    row("security.encryptionCipherMode", "", Refused(NO_ENCRYPTION)),
    row("security.encryptionKeyFile", "encryptionKeyFile", Refused(NO_ENCRYPTION)),
    row("security.javascriptEnabled", "", Inert("no JavaScript runs on the server")),
    row("security.kmip", "", Refused(NO_ENCRYPTION)),
    row("security.ldap", "", Refused(NO_USERS)),
    row(
        "security.redactClientLogData",
        "redactClientLogData",
        Only(
            &["false"],
            "the log is not redacted; leave it out, and keep slow operations out of the log with --slowms",
        ),
    ),
    row("security.sasl", "", Refused(NO_USERS)),
    switch("security.transitionToAuth", "transitionToAuth", Refused(NO_USERS)),
    row("setParameter.authenticationMechanisms", "", Inert("there are no users, so nobody authenticates")),
    row(
        "setParameter.diagnosticDataCollectionDirectorySizeMB",
        "",
        Inert("there is no full-time capture; see /metrics"),
    ),
    row("setParameter.diagnosticDataCollectionEnabled", "", Inert("there is no full-time capture; see /metrics")),
    row("setParameter.enableLocalhostAuthBypass", "", Inert("there are no users, so nobody authenticates")),
    row("setParameter.scramIterationCount", "", Inert("there are no users, so nobody authenticates")),
    row("setParameter.scramSHA256IterationCount", "", Inert("there are no users, so nobody authenticates")),
    row("setParameter.wiredTigerConcurrentReadTransactions", "", Inert(NOT_WIRED_TIGER)),
    row("setParameter.wiredTigerConcurrentWriteTransactions", "", Inert(NOT_WIRED_TIGER)),
    row("setParameter.wiredTigerEngineRuntimeConfig", "", Inert(NOT_WIRED_TIGER)),
    row("sharding.archiveMovedChunks", "", Inert("there are no chunks yet")),
    row("sharding.clusterRole", "", Refused(NO_SHARDS)),
    row("sharding.configDB", "", Refused(NO_SHARDS)),
    row("snmp", "", Inert("there is no SNMP; see /metrics")),
    switch("storage.directoryPerDB", "directoryperdb", Inert(ONE_DIRECTORY)),
    row("storage.inMemory", "", Refused("there is no engine that keeps data in memory alone; leave it out")),
    row("storage.indexBuildRetry", "", Inert("an index build that a crash interrupts is removed at the start")),
    row("storage.journal.commitIntervalMs", "journalCommitInterval", Inert(LOG_IS_SYNCED)),
    switch("storage.journal.enabled", "journal", Inert(LOG_IS_SYNCED)),
    row("storage.mmapv1", "", Inert("there is no MMAPv1")),
    row("storage.repairPath", "", Inert("nothing is repaired in files of its own")),
    row("storage.syncPeriodSecs", "syncdelay", Inert(LOG_IS_SYNCED)),
    row("storage.wiredTiger.collectionConfig", "", Inert(COMPRESSION)),
    row("storage.wiredTiger.engineConfig", "", Inert(NOT_WIRED_TIGER)),
    row("storage.wiredTiger.indexConfig", "", Inert(COMPRESSION)),
    row("systemLog.component", "", Inert("systemLog.verbosity counts for every component")),
    switch("systemLog.quiet", "quiet", Inert("the log says what it says")),
    row("systemLog.syslogFacility", "syslogFacility", Inert("the log goes to a file or to standard output")),
    row("systemLog.timeStampFormat", "timeStampFormat", Inert("the log's times are UTC, in ISO 8601")),
    row("systemLog.traceAllExceptions", "traceExceptions", Inert("failures are logged where they are handled")),
];

/// The row for a key: its own, or that of the section it is in.
pub fn by_key(key: &str) -> Option<&'static Row> {
    let is_within = |row: &&Row| key.strip_prefix(row.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    ROWS.iter().filter(is_within).max_by_key(|row| row.key.len())
}

impl Row {
    /// What to do with a value of `key`, which is this row's or within it: a warning, nothing, or a refusal.
    ///
    /// # Errors
    /// With the reason and what to do.
    pub fn judge(&self, key: &str, value: &Value) -> Result<Option<String>, String> {
        match self.fate {
            Inert(why) => Ok(Some(format!("{key} has no effect: {why}"))),
            Only(values, _) if values.contains(&value.text().as_str()) => Ok(None),
            Only(_, why) | Refused(why) => Err(why.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SETTINGS;

    #[test]
    fn the_table_is_sorted_and_has_nothing_that_is_a_setting() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].key < pair[1].key, "{} and {}", pair[0].key, pair[1].key);
        }
        for row in ROWS {
            let is_setting = |s: &crate::settings::Setting| s.key == row.key || s.flag == row.flag;
            assert!(!SETTINGS.iter().any(is_setting), "{}", row.key);
        }
    }

    #[test]
    fn the_nearest_row_counts() {
        assert_eq!(
            by_key("storage.wiredTiger.engineConfig.journalCompressor").unwrap().key,
            "storage.wiredTiger.engineConfig"
        );
        assert_eq!(by_key("net.tls.CAFile").unwrap().key, "net.tls");
        assert!(by_key("net.tlsx").is_none() && by_key("net").is_none());
        let text = |text: &str| Value::Text(text.into());
        let encryption = by_key("security.enableEncryption").unwrap();
        assert_eq!(encryption.judge("security.enableEncryption", &Value::Switch(false)), Ok(None));
        assert!(encryption.judge("security.enableEncryption", &text("true")).is_err());
    }
}
