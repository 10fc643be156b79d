//! Which configurations make sense: the rules between a member's fields, between members, and of the set as a whole.
//!
//! Invariants: the checks only read; a configuration that passes writes a document that parses to itself.
//! What it deliberately does not do: compare with the configuration before (`crate::reconfiguration`), or find this member.

use super::bounds;
use super::host::HostAndPort;
use super::leadership;
use super::priority;
use super::{Configuration, MEMBERS_MAX, Member, Settings, VOTERS_MAX};
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use std::collections::BTreeSet;
use std::time::Duration;

impl Configuration {
    /// `BadValue` (2), MongoDB's code, for what makes no sense; a number out of its range, which [`Configuration::parse`]
    /// would not have let pass, gives 51024, and a mode's tag that no member has `NoSuchKey` (4).
    pub fn validate(&self) -> Result<()> {
        self.check_name()?;
        bounds::check("version", self.version.version, &bounds::VERSION)?;
        bounds::check("term", self.version.term, &bounds::TERM)?;
        self.settings.check()?;
        if self.members.is_empty() || self.members.len() > MEMBERS_MAX {
            return Err(Error::bad_value(format!(
                "Replica set configuration contains {} members, but must have at least 1 and no more than  {MEMBERS_MAX}",
                self.members.len()
            )));
        }
        self.members.iter().try_for_each(Member::check)?;
        self.check_members_are_distinct()?;
        self.check_localhost()?;
        self.check_votes()?;
        self.check_arbiters()?;
        self.check_tags_of_write_modes()?;
        self.check_write_modes_can_be_met()
    }

    /// The set's name must not be empty.
    pub(super) fn check_name(&self) -> Result<()> {
        if self.set_name.is_empty() {
            return Err(Error::bad_value("Replica set configuration must have non-empty _id field"));
        }
        Ok(())
    }

    /// A mode that counts a tag which no member has is a misspelling.
    pub(super) fn check_tags_of_write_modes(&self) -> Result<()> {
        for tag in self.settings.write_modes.values().flat_map(|tags| tags.keys()) {
            if !self.members.iter().any(|member| member.tags.contains_key(tag)) {
                let message = format!("No replica set tag key {tag} in config");
                return Err(Error::new(ErrorCode::NoSuchKey, message));
            }
        }
        Ok(())
    }

    fn check_members_are_distinct(&self) -> Result<()> {
        for (i, member) in self.members.iter().enumerate() {
            for (j, other) in self.members.iter().enumerate().skip(i + 1) {
                let (field, value) = if member.id == other.id {
                    ("_id", member.id.to_string())
                } else if member.host == other.host {
                    ("host", member.host.clone())
                } else {
                    continue;
                };
                return Err(Error::bad_value(format!(
                    "Found two member configurations with same {field} field, \
                     members.{i}.{field} == members.{j}.{field} == {value}"
                )));
            }
        }
        Ok(())
    }

    /// What is localhost to one member is another place to the next, unless all are on one machine.
    fn check_localhost(&self) -> Result<()> {
        let is_localhost = |member: &&Member| HostAndPort::parse(&member.host).is_ok_and(|host| host.is_localhost());
        let (locals, all) = (self.members.iter().filter(is_localhost).count(), self.members.len());
        if locals != 0 && locals != all {
            return Err(Error::bad_value(format!(
                "Either all host names in a replica set configuration must be localhost references, \
                 or none must be; found {locals} out of {all}"
            )));
        }
        Ok(())
    }

    fn check_votes(&self) -> Result<()> {
        // Those that were newly added will vote: they count towards the most there may be, not yet towards the least.
        let (now, later) = (self.voters().count(), self.members.iter().filter(|member| member.votes).count());
        if now == 0 || later > VOTERS_MAX {
            let voters = if now == 0 { now } else { later };
            return Err(Error::bad_value(format!(
                "Replica set configuration contains {voters} voting members, \
                 but must be at least 1 and no more than {VOTERS_MAX}"
            )));
        }
        if !self.members.iter().any(Member::is_electable) {
            return Err(Error::bad_value(
                "Replica set configuration must contain at least one non-arbiter member with priority > 0",
            ));
        }
        Ok(())
    }

    fn check_arbiters(&self) -> Result<()> {
        match self.members.iter().find(|member| member.arbiter && member.priority != 0.0) {
            None => Ok(()),
            Some(Member { host, priority, .. }) => Err(Error::new(
                ErrorCode::InvalidReplicaSetConfig,
                format!("Member {host} is an arbiter but has priority {priority}. Arbiter priority must be 0."),
            )),
        }
    }

    /// A mode that asks for more values of a tag than there are would let every write with it wait forever.
    fn check_write_modes_can_be_met(&self) -> Result<()> {
        for (mode, tags) in &self.settings.write_modes {
            for (tag, count) in tags {
                let values: BTreeSet<_> = self.members.iter().filter_map(|member| member.tags.get(tag)).collect();
                if usize::try_from(*count).is_ok_and(|count| (1..=values.len()).contains(&count)) {
                    continue;
                }
                return Err(Error::bad_value(format!(
                    "getLastErrorModes.{mode}.{tag} asks for {count} values of the tag, but must ask for at least 1 \
                     and no more than {}, which are the different ones that members have",
                    values.len()
                )));
            }
        }
        Ok(())
    }
}

impl Member {
    /// What concerns one member alone, but for an arbiter's priority, which MongoDB reports last.
    pub(super) fn check(&self) -> Result<()> {
        bounds::check_member_id(i64::from(self.id.0))?;
        if HostAndPort::parse(&self.host)?.to_string() != self.host {
            return Err(Error::bad_value(format!("The host {:?} is not written as name:port", self.host)));
        }
        bounds::check("priority", self.priority, &bounds::PRIORITY)?;
        bounds::check("secondaryDelaySecs", bounds::secs(self.delay), &bounds::DELAY_SECS)?;
        check_is_whole("secondaryDelaySecs", self.delay, Duration::from_secs(bounds::secs(self.delay).unsigned_abs()))?;
        let broken = [
            (self.arbiter && !self.votes, "Arbiter must vote (cannot have 0 votes)"),
            (self.arbiter && self.newly_added, "Arbiter cannot have newlyAdded field set"),
            (self.arbiter && !self.tags.is_empty(), "Cannot set tags on arbiters."),
            (self.priority != 0.0 && !self.votes, "priority must be 0 when non-voting (votes:0)"),
            (self.priority != 0.0 && !self.delay.is_zero(), "priority must be 0 when secondaryDelaySecs is used"),
            (self.priority != 0.0 && self.hidden, "priority must be 0 when hidden=true"),
            (self.priority != 0.0 && !self.builds_indexes, "priority must be 0 when buildIndexes=false"),
        ];
        match broken.into_iter().find(|(is_broken, _)| *is_broken) {
            None => Ok(()),
            Some((_, message)) => Err(Error::bad_value(message)),
        }
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        let timers = [
            ("heartbeatIntervalMillis", Some(self.heartbeat_interval), &bounds::TIMER),
            ("electionTimeoutMillis", Some(self.election_timeout), &bounds::TIMER),
            ("catchUpTimeoutMillis", self.catch_up_timeout, &bounds::TIMER_OR_NEVER),
            ("catchUpTakeoverDelayMillis", self.catch_up_takeover_delay, &bounds::TIMER_OR_NEVER),
        ];
        for (field, timer, bounds) in timers {
            let Some(timer) = timer else { continue };
            let millis = bounds::millis(timer);
            bounds::check(field, millis, bounds)?;
            check_is_whole(field, timer, Duration::from_millis(millis.unsigned_abs()))?;
        }
        let secs = bounds::secs(self.heartbeat_timeout);
        bounds::check("heartbeatTimeoutSecs", secs, &bounds::TIMER)?;
        check_is_whole("heartbeatTimeoutSecs", self.heartbeat_timeout, Duration::from_secs(secs.unsigned_abs()))?;
        self.leadership.validate()?;
        leadership::check_is_whole(&self.leadership)?;
        self.priority.validate()?;
        priority::check_is_whole(&self.priority)?;
        self.check_set_id()
    }

    /// An ObjectId of zeros is how MongoDB says that there is none.
    pub(super) fn check_set_id(&self) -> Result<()> {
        if self.set_id == Some(ObjectId::from_bytes([0; 12])) {
            return Err(Error::bad_value("replicaSetId field value cannot be null"));
        }
        Ok(())
    }
}

/// The document has no room for the fraction that `written` lacks: members would differ in what they take for the value.
pub(super) fn check_is_whole(field: &str, duration: Duration, written: Duration) -> Result<()> {
    if duration == written {
        return Ok(());
    }
    Err(Error::bad_value(format!("{field} cannot be {duration:?}: it is written as {written:?}")))
}
