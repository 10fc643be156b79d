//! A build is completed only when those have built whom its commit quorum asks for, in the configuration by which the primary decided
//! that. Who had built once may have lost that since, with its disk's unsynced end or with all its data.

use super::Checker;
use crate::catalog::BuildId;
use crate::world::World;
use baton_consensus::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// See the file's header.
#[derive(Default)]
pub struct QuorumHasBuilt {
    built: BTreeMap<BuildId, BTreeSet<MemberId>>,
}

impl Checker for QuorumHasBuilt {
    fn name(&self) -> &'static str {
        "a build is completed once its commit quorum has built"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            for index in world.disk(id).catalog.indexes().iter().filter(|index| index.is_filled()) {
                self.built.entry(index.build).or_default().insert(id);
            }
        }
        for ended in world.builds_ended().iter().filter(|ended| ended.is_commit) {
            let built = self.built.entry(ended.build).or_default();
            let quorum = ended.quorum.to_commit_quorum();
            let is_met = |set: &baton_consensus::Configuration| set.is_commit_quorum_met(&quorum, built);
            if !ended.set.configuration.as_ref().is_some_and(is_met) {
                let (member, build) = (ended.member, ended.build);
                return Err(format!("member {member} completes build {build} of {quorum:?}, built by {built:?}"));
            }
        }
        Ok(())
    }
}
