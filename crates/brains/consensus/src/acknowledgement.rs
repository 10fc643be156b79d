//! How far a write has spread: write concerns other than a majority.
//!
//! What it deliberately does not do: commit. A write that so many members have may still be rolled back, unless they are a
//! majority; that is the commit point's matter (`crate::positions`).

use crate::configuration::{Configuration, Member};
use crate::consensus::{Consensus, Role};
use crate::message::{MemberState, Position};
use baton_types::{Error, ErrorCode, OpTime, Result, Term};
use std::collections::{BTreeMap, BTreeSet};

/// Who must have a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demand {
    /// So many members, this one among them.
    Members(usize),
    /// A majority of the voters: those whose having it makes it last. For a client that asks this of their disks where the
    /// configuration does not (`writeConcernMajorityJournalDefault: false`).
    Majority,
    /// Members with so many different values of each tag.
    Tags(BTreeMap<String, u32>),
}

impl Demand {
    pub(crate) fn is_met_by<'m>(
        &self,
        configuration: &Configuration,
        having: impl Iterator<Item = &'m Member>,
    ) -> bool {
        match self {
            Self::Members(count) => having.count() >= *count,
            Self::Majority => having.filter(|member| member.is_voter()).count() >= configuration.majority_of_writes(),
            Self::Tags(tags) => {
                let having: Vec<&Member> = having.collect();
                tags.iter().all(|(tag, count)| {
                    let values: BTreeSet<&String> = having.iter().filter_map(|member| member.tags.get(tag)).collect();
                    values.len() >= *count as usize
                })
            }
        }
    }
}

impl Configuration {
    /// What the mode of that name in `settings.getLastErrorModes` asks for; `UnknownReplWriteConcern` (79) if there is none.
    pub fn write_mode(&self, name: &str) -> Result<Demand> {
        self.settings.write_modes.get(name).map(|tags| Demand::Tags(tags.clone())).ok_or_else(|| {
            let message = format!("No write concern mode named '{name}' found in replica set configuration");
            Error::new(ErrorCode::UnknownReplWriteConcern, message)
        })
    }

    /// `UnsatisfiableWriteConcern` (100) if all members together cannot meet the demand, `UnknownReplWriteConcern` (79) if no
    /// member has a tag that it names.
    pub fn check_demand(&self, demand: &Demand) -> Result<()> {
        if let Demand::Tags(tags) = demand
            && let Some(tag) = tags.keys().find(|tag| !self.members.iter().any(|member| member.tags.contains_key(*tag)))
        {
            let message = format!("No replica set tag key {tag} in config");
            return Err(Error::new(ErrorCode::UnknownReplWriteConcern, message));
        }
        if demand.is_met_by(self, self.members.iter().filter(|member| member.bears_data())) {
            return Ok(());
        }
        let message = match demand {
            Demand::Members(_) | Demand::Majority => "Not enough data-bearing nodes",
            Demand::Tags(_) => "Not enough nodes match write concern mode",
        };
        Err(Error::new(ErrorCode::UnsatisfiableWriteConcern, message))
    }

    /// Whether a write of a client that names no write concern waits for a majority. Not where arbiters leave no more voters
    /// with data than a majority is: then the loss of one of these would stop all writes.
    pub fn majority_is_default(&self) -> bool {
        let with_data = self.voters().filter(|member| member.bears_data()).count();
        !self.members.iter().any(|member| member.arbiter) || with_data > self.majority_of_votes()
    }
}

impl Consensus {
    /// Whether those whom `demand` asks for have everything up to `optime`; on their disks, if `durable`.
    pub fn is_acknowledged(&self, demand: &Demand, optime: OpTime, durable: bool) -> bool {
        let Some(configuration) = &self.configuration else { return false };
        let has = |position: &Position| if durable { position.durable } else { position.applied } >= optime;
        demand.is_met_by(
            configuration,
            configuration.members.iter().filter(|member| {
                member.bears_data()
                    && match self.peers.get(&member.id) {
                        Some(peer) => has(&peer.position) && peer.state() != MemberState::Startup2,
                        None => Some(member.id) == self.me && has(&self.position),
                    }
            }),
        )
    }

    /// The term that this member is primary of.
    pub fn leading_term(&self) -> Option<Term> {
        matches!(self.role, Role::Leader(_)).then_some(self.term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::MemberId;
    use bson::oid::ObjectId;

    /// Members with these tags `dc`; an empty one is an arbiter.
    fn set(tags: &[&str]) -> Configuration {
        let mut configuration = Configuration::initial("rs0", "a:1", ObjectId::from_bytes([1; 12])).unwrap();
        configuration.members = tags
            .iter()
            .enumerate()
            .map(|(i, dc)| {
                let mut member = Member::new(MemberId(i as i32), format!("a:{i}"));
                member.arbiter = dc.is_empty();
                if !member.arbiter {
                    member.tags.insert("dc".into(), (*dc).into());
                }
                member
            })
            .collect();
        configuration
    }

    fn tags(count: u32) -> Demand {
        Demand::Tags([("dc".to_owned(), count)].into())
    }

    #[test]
    fn members_are_counted_and_arbiters_are_not() {
        let set = set(&["x", "x", ""]);
        set.check_demand(&Demand::Members(2)).unwrap();
        let refused = set.check_demand(&Demand::Members(3)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::UnsatisfiableWriteConcern);
    }

    #[test]
    fn a_majority_is_of_voters_with_data() {
        let mut set = set(&["x", "x", "x", "x"]);
        set.members[3].votes = false;
        set.members[3].priority = 0.0;
        set.check_demand(&Demand::Majority).unwrap();
        assert!(Demand::Majority.is_met_by(&set, set.members[1..].iter()));
        assert!(!Demand::Majority.is_met_by(&set, set.members[2..].iter()), "who does not vote does not count");
    }

    #[test]
    fn a_tag_counts_its_different_values() {
        let set = set(&["x", "x", "y"]);
        set.check_demand(&tags(2)).unwrap();
        assert_eq!(set.check_demand(&tags(3)).unwrap_err().code, ErrorCode::UnsatisfiableWriteConcern);
        assert!(!tags(2).is_met_by(&set, set.members[..2].iter()));
        let unknown = Demand::Tags([("rack".to_owned(), 1)].into());
        assert_eq!(set.check_demand(&unknown).unwrap_err().code, ErrorCode::UnknownReplWriteConcern);
    }

    #[test]
    fn a_mode_is_looked_up_by_its_name() {
        let mut set = set(&["x", "y"]);
        set.settings.write_modes.insert("both".into(), [("dc".to_owned(), 2)].into());
        assert_eq!(set.write_mode("both").unwrap(), tags(2));
        assert_eq!(set.write_mode("none").unwrap_err().code, ErrorCode::UnknownReplWriteConcern);
    }

    #[test]
    fn the_default_is_a_majority_unless_arbiters_leave_no_voter_to_spare() {
        assert!(set(&["x"]).majority_is_default());
        assert!(set(&["x", "x", "x"]).majority_is_default());
        assert!(!set(&["x", "x", ""]).majority_is_default());
        assert!(set(&["x", "x", "x", "x", ""]).majority_is_default());
    }
}
