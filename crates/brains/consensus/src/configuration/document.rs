//! A configuration as MongoDB's document: read strictly, written with every field.
//!
//! Invariants: what [`Configuration::to_document`] writes of a valid configuration, [`Configuration::parse`] reads as the
//! same one. No field is skipped: one that nobody knows is refused, and so is one that asks for what Baton does not do.
//! What it deliberately does not do: check what concerns more than one member (`validate.rs`), or what a command allows
//! (a `replicaSetId` on initiate, say).

use super::bounds;
use super::fields::{self, Field, Fields};
use super::host::HostAndPort;
use super::leadership;
use super::priority;
use super::{Configuration, ConfigurationVersion, Member, MemberId, Settings, UNKNOWN_TERM};
use baton_document::Number;
use baton_types::{Error, ErrorCode, Result};
use bson::{Bson, Document, RawArray, RawBsonRef, RawDocument, doc};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// `RepairedReplicaSetNode`.
const REPAIRED_REPLICA_SET_NODE: ErrorCode = ErrorCode(270);
/// The most members that a write concern can name by number.
const W_MAX: i64 = super::MEMBERS_MAX as i64;

impl Configuration {
    /// Reads a configuration; absent fields get MongoDB's defaults. The caller then asks [`Configuration::validate`].
    ///
    /// Errors are those of `ReplSetConfig`'s parser: `TypeMismatch` (14), 40413 (twice), 40414 (missing), 40415 (unknown),
    /// 51024 (out of range), 4708900 (not whole), 51001 (a mode twice), `FailedToParse` (9) for a host, `BadValue` (2) for
    /// a member that contradicts itself, `NoSuchKey` (4) for a mode's tag that no member has, 5624102 for
    /// `getLastErrorDefaults` that are not the default, `NotImplemented` (238) for `configsvr` and `horizons`.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        Self::parse_or(document, None)
    }

    /// Reads the configuration that a set is to be initiated with: without a `version` it is the first.
    pub fn parse_first(document: &RawDocument) -> Result<Self> {
        Self::parse_or(document, Some(1))
    }

    fn parse_or(document: &RawDocument, default_version: Option<i64>) -> Result<Self> {
        let (mut set_name, mut version, mut members) = (None, None, None);
        let (mut term, mut majority_is_durable, mut settings) = (UNKNOWN_TERM, true, Settings::default());
        let mut fields = Fields::of("ReplSetConfig", document);
        while let Some(field) = fields.next()? {
            match field.name {
                "_id" => set_name = field.text()?,
                "version" => version = Some(field.whole(&bounds::VERSION)?),
                "term" => term = field.whole(&bounds::TERM)?,
                "members" => members = field.array()?.map(parse_members).transpose()?,
                "configsvr" => {
                    if field.strict_boolean()? {
                        return Err(Error::not_implemented("A set of config servers (configsvr: true)"));
                    }
                }
                "protocolVersion" => {
                    field.integer(&bounds::PROTOCOL_VERSION)?;
                }
                "writeConcernMajorityJournalDefault" => majority_is_durable = field.truth()?.unwrap_or(true),
                "settings" => settings = field.document()?.map(parse_settings).transpose()?.unwrap_or_default(),
                "repaired" => {
                    if field.strict_boolean()? {
                        return Err(Error::new(REPAIRED_REPLICA_SET_NODE, "Replicated data has been repaired"));
                    }
                }
                _ => return Err(field.unknown()),
            }
        }
        let configuration = Self {
            set_name: set_name.ok_or_else(|| fields.missing("_id"))?.into(),
            version: ConfigurationVersion {
                version: version.or(default_version).ok_or_else(|| fields.missing("version"))?,
                term,
            },
            members: members.ok_or_else(|| fields.missing("members"))?,
            majority_is_durable,
            settings,
        };
        configuration.check_name()?;
        configuration.check_tags_of_write_modes()?;
        Ok(configuration)
    }

    /// The configuration with every field, in MongoDB's order and types; an unknown term is left out.
    pub fn to_document(&self) -> Document {
        let mut document = doc! { "_id": &self.set_name, "version": integer(self.version.version) };
        if self.version.term != UNKNOWN_TERM {
            document.insert("term", integer(self.version.term));
        }
        document.insert("members", self.members.iter().map(Member::to_document).collect::<Vec<_>>());
        document.insert("protocolVersion", 1_i64);
        document.insert("writeConcernMajorityJournalDefault", self.majority_is_durable);
        document.insert("settings", self.settings.to_document());
        document
    }
}

impl Member {
    /// The entry of `members`.
    fn to_document(&self) -> Document {
        let mut document = doc! { "_id": self.id.0, "host": &self.host, "arbiterOnly": self.arbiter };
        if self.newly_added {
            document.insert("newlyAdded", true);
        }
        let tags: Document = self.tags.iter().map(|(name, value)| (name.clone(), Bson::from(value))).collect();
        document.extend(doc! {
            "buildIndexes": self.builds_indexes,
            "hidden": self.hidden,
            "priority": self.priority,
            "tags": tags,
            "secondaryDelaySecs": bounds::secs(self.delay),
            "votes": i32::from(self.votes),
        });
        document
    }
}

impl Settings {
    /// The document `settings`.
    fn to_document(&self) -> Document {
        let or_never = |timer: Option<Duration>| integer(timer.map_or(-1, bounds::millis));
        let count = |count: &u32| integer(i64::from(*count));
        let mode = |tags: &BTreeMap<String, u32>| -> Document {
            tags.iter().map(|(tag, values)| (tag.clone(), count(values))).collect()
        };
        let modes: Document =
            self.write_modes.iter().map(|(name, tags)| (name.clone(), Bson::from(mode(tags)))).collect();
        let mut document = doc! {
            "chainingAllowed": self.chaining_allowed,
            "heartbeatIntervalMillis": integer(bounds::millis(self.heartbeat_interval)),
            "heartbeatTimeoutSecs": integer(bounds::secs(self.heartbeat_timeout)),
            "electionTimeoutMillis": integer(bounds::millis(self.election_timeout)),
            "catchUpTimeoutMillis": or_never(self.catch_up_timeout),
            "catchUpTakeoverDelayMillis": or_never(self.catch_up_takeover_delay),
            "getLastErrorModes": modes,
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
            "leadership": leadership::to_document(&self.leadership),
            "priority": priority::to_document(&self.priority),
        };
        if let Some(set_id) = self.set_id {
            document.insert("replicaSetId", set_id);
        }
        document
    }
}

/// 32 bits where they suffice, as MongoDB writes most numbers of a configuration.
pub(super) fn integer(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

fn parse_members(array: &RawArray) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for (i, element) in array.into_iter().enumerate() {
        let value = element?;
        let Some(document) = value.as_document() else {
            return Err(fields::wrong_type(&format!("ReplSetConfig.members.{i}"), value, "object"));
        };
        let member = parse_member(document).map_err(|error| Error {
            message: format!("member: {} :: caused by :: {}", fields::show(value), error.message),
            ..error
        })?;
        members.push(member);
    }
    Ok(members)
}

fn parse_member(document: &RawDocument) -> Result<Member> {
    let (mut id, mut host) = (None, None);
    // The rest is in there as it is by default.
    let mut member = Member::new(MemberId(0), String::new());
    let mut fields = Fields::of("MemberConfig", document);
    while let Some(field) = fields.next()? {
        match field.name {
            "_id" => id = Some(parse_member_id(&field)?),
            "host" => host = field.text()?,
            "votes" => member.votes = field.integer(&bounds::VOTES)?.unwrap_or(1) == 1,
            "newlyAdded" => match field.boolean()? {
                Some(false) => {
                    let message = "Value must be true if specified";
                    return Err(Error::new(ErrorCode::InvalidReplicaSetConfig, message));
                }
                newly_added => member.newly_added = newly_added.is_some(),
            },
            "priority" => member.priority = field.double(&bounds::PRIORITY)?.unwrap_or(1.0),
            "hidden" => member.hidden = field.truth()?.unwrap_or(false),
            "secondaryDelaySecs" => {
                let secs = field.integer(&bounds::DELAY_SECS)?.unwrap_or(0);
                member.delay = Duration::from_secs(secs.unsigned_abs());
            }
            "arbiterOnly" => member.arbiter = field.truth()?.unwrap_or(false),
            "buildIndexes" => member.builds_indexes = field.truth()?.unwrap_or(true),
            "tags" => member.tags = field.document()?.map(parse_tags).transpose()?.unwrap_or_default(),
            "horizons" => {
                if field.document()?.is_some() {
                    return Err(Error::not_implemented("A member with several horizons (horizons)"));
                }
            }
            _ => return Err(field.unknown()),
        }
    }
    member.id = id.ok_or_else(|| fields.missing("_id"))?;
    member.host = HostAndPort::parse(host.ok_or_else(|| fields.missing("host"))?)?.to_string();
    // 1 is what a member has that does not say, and an arbiter need not say.
    if member.arbiter && member.priority == 1.0 {
        member.priority = 0.0;
    }
    member.check()?;
    Ok(member)
}

fn parse_member_id(field: &Field<'_>) -> Result<MemberId> {
    let Some(number) = Number::from_raw(field.value) else {
        return Err(Error::type_mismatch(format!("Element for MemberId was not a number: {}", field.show())));
    };
    let id = number.to_i64_lossy();
    bounds::check_member_id(id)?;
    // Within bounds it fits.
    Ok(MemberId(id as i32))
}

fn parse_tags(document: &RawDocument) -> Result<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    let mut fields = Fields::of("MemberConfig.tags", document);
    while let Some(field) = fields.next()? {
        let Some(value) = field.value.as_str() else {
            let (name, found) = (field.name, field.type_name());
            return Err(Error::type_mismatch(format!("tags.{name} field has non-string value of type {found}")));
        };
        tags.insert(field.name.to_owned(), value.to_owned());
    }
    Ok(tags)
}

fn parse_settings(document: &RawDocument) -> Result<Settings> {
    let mut settings = Settings::default();
    let mut fields = Fields::of("ReplSetConfig.settings", document);
    while let Some(field) = fields.next()? {
        match field.name {
            "chainingAllowed" => settings.chaining_allowed = field.truth()?.unwrap_or(true),
            "heartbeatIntervalMillis" => settings.heartbeat_interval = millis(field.whole(&bounds::TIMER)?),
            "heartbeatTimeoutSecs" => {
                settings.heartbeat_timeout = Duration::from_secs(field.whole(&bounds::TIMER)?.unsigned_abs());
            }
            "electionTimeoutMillis" => settings.election_timeout = millis(field.whole(&bounds::TIMER)?),
            "catchUpTimeoutMillis" => settings.catch_up_timeout = millis_or_never(&field)?,
            "catchUpTakeoverDelayMillis" => settings.catch_up_takeover_delay = millis_or_never(&field)?,
            "getLastErrorModes" => settings.write_modes = parse_write_modes(&field)?,
            "getLastErrorDefaults" => {
                field.document()?.map_or(Ok(()), check_default_write_concern)?;
            }
            "leadership" => {
                settings.leadership = field.document()?.map(leadership::parse).transpose()?.unwrap_or_default()
            }
            "priority" => settings.priority = field.document()?.map(priority::parse).transpose()?.unwrap_or_default(),
            "replicaSetId" => {
                settings.set_id = field.object_id()?;
                settings.check_set_id()?;
            }
            _ => return Err(field.unknown()),
        }
    }
    Ok(settings)
}

fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

fn millis_or_never(field: &Field<'_>) -> Result<Option<Duration>> {
    let number = field.whole(&bounds::TIMER_OR_NEVER)?;
    Ok((number >= 0).then(|| millis(number)))
}

fn parse_write_modes(field: &Field<'_>) -> Result<BTreeMap<String, BTreeMap<String, u32>>> {
    let name = field.name;
    let Some(document) = field.value.as_document() else {
        let found = field.type_name();
        return Err(Error::type_mismatch(format!("Expected {name} to be an Object, it actually had type {found}")));
    };
    let mut modes = BTreeMap::new();
    for element in document.iter() {
        let (mode, value) = element?;
        let mode = mode.as_str();
        let Entry::Vacant(entry) = modes.entry(mode.to_owned()) else {
            return Err(Error::location(51001, format!("{name} contains multiple fields named {mode}")));
        };
        let Some(tags) = value.as_document() else {
            let found = fields::type_name(value);
            return Err(Error::type_mismatch(format!("Expected {name}.{mode} to be an Object, not {found}")));
        };
        entry.insert(parse_write_mode(&format!("{name}.{mode}"), tags)?);
    }
    Ok(modes)
}

fn parse_write_mode(path: &str, document: &RawDocument) -> Result<BTreeMap<String, u32>> {
    let mut counts = BTreeMap::new();
    for element in document.iter() {
        let (tag, value) = element?;
        let tag = tag.as_str();
        let Some(number) = Number::from_raw(value) else {
            let found = fields::type_name(value);
            return Err(Error::type_mismatch(format!("Expected {path}.{tag} to be a number, not {found}")));
        };
        let number = number.to_i64_lossy();
        if number <= 0 {
            return Err(Error::bad_value(format!("Value of {path}.{tag} must be positive, but found {number}")));
        }
        // More than fit are more than there can be members, which validate refuses.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let count = counts.entry(tag.to_owned()).or_insert(number);
        *count = number.max(*count);
    }
    Ok(counts)
}

/// `getLastErrorDefaults` has been without effect since MongoDB 5.0; only what it is by default may stand there.
fn check_default_write_concern(document: &RawDocument) -> Result<()> {
    let mut is_default = true;
    let mut fields = Fields::of("writeConcern", document);
    while let Some(field) = fields.next()? {
        match field.name {
            "w" => is_default &= is_default_w(&field)?,
            "j" | "fsync" => is_default &= field.truth()?.is_none(),
            "wtimeout" => is_default &= Number::from_raw(field.value).is_none_or(|number| number.to_i64_lossy() == 0),
            // Accepted and meaningless in any write concern.
            "wElectionId" | "wOpTime" | "getLastError" => {}
            _ => return Err(field.unknown()),
        }
    }
    if is_default {
        return Ok(());
    }
    Err(Error::location(
        5624102,
        "Replica set config contains customized getLastErrorDefaults, which has been deprecated and is now ignored. \
         Use setDefaultRWConcern instead to set a cluster-wide default writeConcern.",
    ))
}

fn is_default_w(field: &Field<'_>) -> Result<bool> {
    match field.value {
        RawBsonRef::Null | RawBsonRef::Undefined => return Ok(true),
        RawBsonRef::String("") => {}
        RawBsonRef::String(_) | RawBsonRef::Document(_) => return Ok(false),
        value => {
            let Some(number) = Number::from_raw(value) else {
                let found = field.type_name();
                let message = format!("w has to be a number, string, or object; found: {found}");
                return Err(Error::failed_to_parse(message));
            };
            let number = number.to_i64_lossy();
            if !(0..=W_MAX).contains(&number) {
                let message =
                    format!("w has to be a non-negative number and not greater than {W_MAX}; found: {number}");
                return Err(Error::failed_to_parse(message));
            }
            if number > 0 {
                return Ok(number == 1);
            }
        }
    }
    Err(Error::bad_value("Default write concern mode must wait for at least 1 member"))
}
