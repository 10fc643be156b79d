//! From one configuration to the next, without a log.
//!
//! A new configuration is adopted as soon as it is on disk, travels by heartbeats, and is the newest by term, then version.
//! What keeps two majorities from deciding apart (Schultz, Dardik and Tripakis 2022):
//!
//! - Only a primary makes one, and it changes the vote of one member at the most.
//! - The present configuration is on a majority of its own voters first, and so is everything committed before it was made,
//!   and the primary has committed an entry of its own term.
//! - A new primary rewrites the configuration with its term, so that what a deposed one made is older.
//! - Voters refuse a candidate with an older configuration.
//!
//! `force` skips all of that, for sets that have lost their majority for good; such a configuration has no term, and a version
//! far above the last, so that it wins over any that was made apart from it.

use crate::configuration::{Configuration, ConfigurationVersion, Member, MemberId, UNKNOWN_TERM, VERSION_MAX};
use crate::consensus::{Consensus, Role};
use crate::message::MemberState;
use crate::mutant::Mutant;
use crate::peer::Peer;
use crate::step::Effect;
use baton_types::{Error, ErrorCode, Result};
use rand::Rng;
use std::collections::BTreeSet;

impl Consensus {
    /// The first configuration of the set, on the member that was told to initiate it.
    pub(crate) fn initiate(&mut self, mut configuration: Configuration) {
        if self.configuration.is_some() || self.configuration_in_progress.is_some() {
            let error = Error::new(ErrorCode::AlreadyInitialized, "already initialized");
            self.effects.push(Effect::Reconfigured(Err(error)));
            return;
        }
        // Of term 1, so that whatever is elected makes a newer one.
        configuration.version.term = self.term.max(1);
        self.persist_configuration(configuration, true);
    }

    pub(crate) fn reconfigure(&mut self, mut configuration: Configuration, force: bool) {
        if let Err(error) = self.check_reconfiguration(&configuration, force) {
            self.effects.push(Effect::Reconfigured(Err(error)));
            return;
        }
        if force {
            let leap = self.random.random_range(10_000..100_000);
            let version = configuration.version.version.max(self.configuration_version().version).saturating_add(leap);
            if version > VERSION_MAX {
                let message = format!(
                    "A forced configuration would have version {version}, beyond {VERSION_MAX}, the last there is"
                );
                let error = Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, message);
                self.effects.push(Effect::Reconfigured(Err(error)));
                return;
            }
            configuration.version = ConfigurationVersion { term: UNKNOWN_TERM, version };
        } else {
            configuration.version.term = self.term;
            self.mark_newly_added(&mut configuration);
        }
        self.persist_configuration(configuration, true);
    }

    fn check_reconfiguration(&self, new: &Configuration, force: bool) -> Result<()> {
        let Some(current) = &self.configuration else { return Err(Self::not_initiated()) };
        let incompatible =
            |message: String| Err(Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, message));
        if self.configuration_in_progress.is_some() {
            let message = "Cannot run replSetReconfig because the node is currently updating its configuration";
            return Err(Error::new(ErrorCode::ConfigurationInProgress, message));
        }
        if new.set_name != current.set_name {
            return incompatible(format!(
                "New and old configurations differ in replica set name; old was {}, and new is {}",
                current.set_name, new.set_name
            ));
        }
        let Some(me) = new.member_at(&self.host) else {
            return Err(Error::new(
                ErrorCode::NodeNotFound,
                format!(
                    "No host described in new configuration with {{version: {}, term: {}}} for replica set {} maps to this node",
                    new.version.version, new.version.term, new.set_name
                ),
            ));
        };
        if let Some(renamed) =
            new.members.iter().find(|member| current.member_at(&member.host).is_some_and(|old| old.id != member.id))
        {
            return incompatible(format!(
                "New and old configurations both have members with host of {} but in the new configuration the _id field is \
                 {} and in the old configuration it is {}; an _id never changes its owner",
                renamed.host,
                renamed.id,
                current.member_at(&renamed.host).map_or(MemberId(-1), |old| old.id)
            ));
        }
        if force {
            return Ok(());
        }
        let Role::Leader(leadership) = &self.role else {
            let message =
                "New config is rejected :: caused by :: replSetReconfig should only be run on a writable PRIMARY.";
            return Err(Error::new(ErrorCode::NotWritablePrimary, message));
        };
        if !leadership.takes_writes() {
            let message =
                "New config is rejected :: caused by :: replSetReconfig should only be run on a writable PRIMARY.";
            return Err(Error::new(ErrorCode::NotWritablePrimary, message));
        }
        if new.version.version <= current.version.version {
            return incompatible(format!(
                "New replica set configuration version must be greater than old, but {} is not greater than {}",
                new.version.version, current.version.version
            ));
        }
        if !me.is_electable() {
            return Err(Error::new(
                ErrorCode::NodeNotElectable,
                format!("This node, {}, with _id {} is not electable under the new configuration", me.host, me.id),
            ));
        }
        let votes = |configuration: &Configuration| -> BTreeSet<MemberId> {
            configuration.members.iter().filter(|member| member.votes).map(|member| member.id).collect()
        };
        if self.is_mutant(Mutant::AnyReconfiguration) {
            return Ok(());
        }
        if votes(current).symmetric_difference(&votes(new)).count() > 1 {
            return incompatible(
                "Non force replica set reconfig can only add or remove at most 1 voting member.".to_owned(),
            );
        }
        self.check_current_is_committed()?;
        self.check_next_has_what_is_committed(new)
    }

    /// Whether the voters of the next configuration have what is committed, where they may not meet those of the present one.
    fn check_next_has_what_is_committed(&self, next: &Configuration) -> Result<()> {
        let meet = self.configuration.as_ref().is_none_or(|present| present.writes_meet_votes_of(next));
        if meet || self.majority_position_in(next) >= Some(self.commit_point) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::CurrentConfigNotCommittedYet,
            "Cannot run replSetReconfig because the members of the new config do not have what is majority committed yet",
        ))
    }

    /// Whether the present configuration may be followed by another.
    fn check_current_is_committed(&self) -> Result<()> {
        let error = |message: String| Err(Error::new(ErrorCode::CurrentConfigNotCommittedYet, message));
        if !self.configuration_is_committed() {
            return error(format!(
                "Cannot run replSetReconfig because the current config: {:?} is not majority committed",
                self.configuration_version()
            ));
        }
        if self.commit_point.term != self.term || self.majority_position() < Some(self.committed_before_configuration) {
            return error(
                "Cannot run replSetReconfig because what was committed before the current config is not majority committed in it"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether a majority of its voters have the present configuration.
    pub fn configuration_is_committed(&self) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let mine = configuration.version;
        let having = configuration.voters().filter(|member| match self.peers.get(&member.id) {
            Some(peer) => peer.gossip.as_ref().is_some_and(|gossip| gossip.configuration_version == mine),
            None => Some(member.id) == self.me,
        });
        having.count() >= configuration.majority_of_votes()
    }

    /// A member that is to vote and has no data yet votes from when it has some: until then a majority would be harder to
    /// reach by one that cannot help.
    fn mark_newly_added(&self, configuration: &mut Configuration) {
        let Some(current) = &self.configuration else { return };
        for member in &mut configuration.members {
            match current.member(member.id) {
                Some(old) => member.newly_added = old.newly_added && member.votes,
                None => member.newly_added = member.votes && member.bears_data(),
            }
        }
    }

    /// Gives a newly added member its vote once it is a secondary: a reconfiguration of the primary's own.
    pub(crate) fn settle_newly_added(&mut self) {
        let ready = self.configuration.as_ref().and_then(|configuration| {
            configuration
                .members
                .iter()
                .find(|member| {
                    member.newly_added
                        && self.peers.get(&member.id).is_some_and(|peer| peer.state() == MemberState::Secondary)
                })
                .map(|member| member.id)
        });
        let Some(ready) = ready else { return };
        let writable = self.is_writable() && self.configuration_version().version < VERSION_MAX;
        if !writable || self.configuration_in_progress.is_some() || self.check_current_is_committed().is_err() {
            return;
        }
        let Some(mut next) = self.configuration.clone() else { return };
        next.version = ConfigurationVersion { term: self.term, version: next.version.version + 1 };
        for member in next.members.iter_mut().filter(|member| member.id == ready) {
            member.newly_added = false;
        }
        if self.check_next_has_what_is_committed(&next).is_err() {
            return;
        }
        self.persist_configuration(next, false);
    }

    /// A new primary's configuration carries its term. One that is being written meanwhile is stamped when it is there.
    pub(crate) fn stamp_configuration(&mut self) {
        let term = self.term;
        let Role::Leader(leadership) = &mut self.role else { return };
        if self.configuration_in_progress.is_some() || leadership.has_stamped {
            return;
        }
        let Some(mut configuration) = self.configuration.clone() else { return };
        leadership.has_stamped = configuration.version.term == term;
        if !leadership.has_stamped {
            configuration.version.term = term;
            self.persist_configuration(configuration, false);
        }
    }

    pub(crate) fn persist_configuration(&mut self, configuration: Configuration, asked: bool) {
        self.effects.push(Effect::PersistConfiguration(Box::new(configuration.clone())));
        self.configuration_in_progress = Some((configuration, asked));
    }

    pub(crate) fn take_persisted_configuration(&mut self, version: ConfigurationVersion) {
        let Some((configuration, asked)) = self.configuration_in_progress.take_if(|(c, _)| c.version == version) else {
            return;
        };
        self.install(configuration);
        if asked {
            self.effects.push(Effect::Reconfigured(Ok(())));
        }
        let is_forced = version.term == UNKNOWN_TERM;
        if let Role::Leader(leadership) = &mut self.role
            && leadership.has_begun_term()
        {
            leadership.has_stamped |= is_forced;
            self.stamp_configuration();
        }
        self.announce();
        self.advance_commit_point();
    }

    /// Makes a configuration that is on disk the present one.
    pub(crate) fn install(&mut self, configuration: Configuration) {
        let is_first = self.configuration.is_none();
        let version = configuration.version;
        self.committed_before_configuration = self.commit_point;
        // Of another set than it was started for this member is no part, whatever its data says.
        let is_mine = configuration.set_name == self.set_name;
        self.me = configuration.member_at(&self.host).filter(|_| is_mine).map(|member| member.id);
        let others: BTreeSet<MemberId> =
            configuration.members.iter().map(|member| member.id).filter(|id| Some(*id) != self.me).collect();
        self.peers.retain(|id| others.contains(id));
        for id in others {
            self.peers.insert_new(id, Peer { heartbeat_at: self.now, ..Peer::default() });
        }
        self.configuration = Some(configuration);
        if self.sync_source.is_some_and(|source| !self.peers.contains_key(&source)) {
            self.set_sync_source(None);
        }
        if self.primary.is_some_and(|primary| Some(primary) != self.me && !self.peers.contains_key(&primary)) {
            self.primary = None;
        }
        if matches!(self.role, Role::Candidate(_)) && !self.my_member().is_some_and(Member::is_electable) {
            self.end_campaign();
        }
        if is_first {
            self.first_term = self.first_term.max(version.term);
            self.postpone_election();
        }
    }
}
