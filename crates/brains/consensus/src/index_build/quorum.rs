//! `commitQuorum`: which members must have built an index before it is complete on any. Source: MongoDB manual, "createIndexes" and
//! "setIndexCommitQuorum".
//!
//! Votes of members count that vote in elections, hold data and build indexes. A tag's mode counts all that hold data.

use crate::acknowledgement::Demand;
use crate::configuration::{Configuration, Member, MemberId};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBson, RawBsonRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Who must have built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitQuorum {
    /// `"votingMembers"`.
    VotingMembers,
    /// `"majority"`: of the voting members with data.
    Majority,
    /// So many of them. 0: the primary waits for nobody.
    Members(u32),
    /// A mode of `settings.getLastErrorModes`.
    Mode(String),
}

impl CommitQuorum {
    /// Reads what a command or an entry says.
    ///
    /// # Errors
    /// `FailedToParse` (9) for what is neither a number nor text, and for numbers that no set reaches.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        /// More members no set has.
        const MEMBERS_MAX: i64 = 50;
        let number = match value {
            RawBsonRef::String("votingMembers") => return Ok(Self::VotingMembers),
            RawBsonRef::String("majority") => return Ok(Self::Majority),
            RawBsonRef::String("") => {
                return Err(Error::failed_to_parse("commitQuorum can't be an empty string"));
            }
            RawBsonRef::String(mode) => return Ok(Self::Mode(mode.to_owned())),
            RawBsonRef::Int32(n) => i64::from(n),
            RawBsonRef::Int64(n) => n,
            RawBsonRef::Double(n) => n as i64,
            _ => return Err(Error::failed_to_parse("commitQuorum has to be a number or a string")),
        };
        match u32::try_from(number) {
            Ok(n) if number <= MEMBERS_MAX => Ok(Self::Members(n)),
            _ => Err(Error::failed_to_parse(format!(
                "commitQuorum has to be a non-negative number and not greater than {MEMBERS_MAX}"
            ))),
        }
    }

    /// As entries and replies have it.
    pub fn to_bson(&self) -> RawBson {
        match self {
            Self::VotingMembers => RawBson::String("votingMembers".into()),
            Self::Majority => RawBson::String("majority".into()),
            Self::Members(n) => RawBson::Int32(*n as i32),
            Self::Mode(mode) => RawBson::String(mode.clone()),
        }
    }
}

impl Configuration {
    /// Those whose votes count.
    pub fn commit_voters(&self) -> impl Iterator<Item = &Member> {
        self.voters().filter(|member| member.bears_data() && member.builds_indexes)
    }

    /// Whether all members together can meet a quorum.
    ///
    /// # Errors
    /// `UnsatisfiableCommitQuorum` (278); `UnknownReplWriteConcern` (79) for a mode that is not there.
    pub fn check_commit_quorum(&self, quorum: &CommitQuorum) -> Result<()> {
        if let CommitQuorum::Mode(mode) = quorum {
            self.write_mode(mode)?;
        }
        // A voter with data that builds no indexes never says that it has.
        let lacks_voter = *quorum == CommitQuorum::VotingMembers
            && self.voters().any(|member| member.bears_data() && !member.builds_indexes);
        let all = self.members.iter().filter(|member| member.bears_data() && member.builds_indexes);
        if !lacks_voter && self.is_commit_quorum_met(quorum, &all.map(|member| member.id).collect()) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::UnsatisfiableCommitQuorum,
            "Commit quorum cannot be satisfied with the current replica set configuration",
        ))
    }

    /// Whether these members are enough.
    pub fn is_commit_quorum_met(&self, quorum: &CommitQuorum, built: &BTreeSet<MemberId>) -> bool {
        let voters = || self.commit_voters().filter(|member| built.contains(&member.id)).count();
        let all = self.commit_voters().count();
        match quorum {
            CommitQuorum::VotingMembers => voters() >= all,
            CommitQuorum::Majority => voters() > all / 2,
            CommitQuorum::Members(n) => voters() >= *n as usize,
            CommitQuorum::Mode(mode) => {
                let built = self.members.iter().filter(|member| built.contains(&member.id) && member.bears_data());
                self.write_mode(mode).is_ok_and(|demand: Demand| demand.is_met_by(self, built))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(members: u32) -> Configuration {
        let set_id = bson::oid::ObjectId::from_bytes([1; 12]);
        let mut configuration = Configuration::initial("rs", "a:1", set_id).unwrap_or_else(|e| panic!("{e}"));
        configuration.members = (0..members).map(|n| Member::new(MemberId(n as i32), format!("m{n}:1"))).collect();
        configuration
    }

    fn ids(ids: &[i32]) -> BTreeSet<MemberId> {
        ids.iter().map(|id| MemberId(*id)).collect()
    }

    #[test]
    fn each_quorum_counts_those_that_vote_hold_data_and_build() {
        let mut set = configuration(5);
        set.members[3].arbiter = true;
        set.members[4].votes = false;
        let met = |quorum, built: &[i32]| set.is_commit_quorum_met(&quorum, &ids(built));
        assert!(met(CommitQuorum::VotingMembers, &[0, 1, 2]) && !met(CommitQuorum::VotingMembers, &[0, 1, 3, 4]));
        assert!(met(CommitQuorum::Majority, &[0, 2]) && !met(CommitQuorum::Majority, &[0, 4]));
        assert!(met(CommitQuorum::Members(0), &[]) && met(CommitQuorum::Members(2), &[1, 2]));
        assert!(!met(CommitQuorum::Members(2), &[1, 4]));
    }

    #[test]
    fn what_all_together_cannot_meet_is_refused() {
        let mut set = configuration(3);
        let code = |set: &Configuration, quorum| set.check_commit_quorum(&quorum).map_err(|error| error.code.0);
        assert_eq!(code(&set, CommitQuorum::Members(3)), Ok(()));
        assert_eq!(code(&set, CommitQuorum::Members(4)), Err(278));
        assert_eq!(code(&set, CommitQuorum::Mode("none".into())), Err(79));
        set.members[2].builds_indexes = false;
        assert_eq!(code(&set, CommitQuorum::VotingMembers), Err(278));
        assert_eq!(code(&set, CommitQuorum::Majority), Ok(()));
    }

    #[test]
    fn what_is_read_is_what_is_written() {
        for quorum in [
            CommitQuorum::VotingMembers,
            CommitQuorum::Majority,
            CommitQuorum::Members(0),
            CommitQuorum::Members(50),
            CommitQuorum::Mode("twoPlaces".into()),
        ] {
            let written = quorum.to_bson();
            assert_eq!(CommitQuorum::parse(written.as_raw_bson_ref()).map_err(|e| e.message), Ok(quorum));
        }
        for wrong in [RawBsonRef::Int32(-1), RawBsonRef::Int32(51), RawBsonRef::Boolean(true), RawBsonRef::String("")] {
            assert_eq!(CommitQuorum::parse(wrong).map_err(|error| error.code), Err(ErrorCode::FailedToParse));
        }
    }
}
