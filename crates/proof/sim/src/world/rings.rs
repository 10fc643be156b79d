//! What the members' machines were told, as a real member keeps it: for the test that all of it can be written down and replayed.

use super::World;
use super::building::Builder;
use crate::catalog::BuildId;
use baton_consensus::index_build::IndexBuild;
use baton_consensus::{Consensus, MemberId};
use baton_following::Following;
use baton_leadership::Leadership;
use baton_replay::{Bounds, FORMAT, Header, Machine, Recorder, Recording, write};
use std::collections::BTreeMap;
use std::time::Duration;

/// One machine's recorders, by member.
pub(super) type Of<M> = BTreeMap<MemberId, Recorder<M>>;

/// See the file's header.
#[derive(Default)]
pub(super) struct Rings {
    pub consensus: Of<Consensus>,
    pub following: Of<Following>,
    pub leadership: Of<Leadership>,
    /// Of builds whose work has ended, by the member; each by its name, which no two have.
    builds: BTreeMap<MemberId, Vec<(String, Recording<IndexBuild>)>>,
    /// Of processes that have ended.
    files: Vec<Vec<u8>>,
}

fn begin<M: Machine>(of: &mut Of<M>, id: MemberId, machine: &M, now: Duration) {
    of.insert(id, Recorder::new(machine, now, Bounds::default()));
}

fn end<M: Machine>(of: &mut Of<M>, id: MemberId, machine: Option<&M>, file: &mut Vec<u8>) {
    if let Some((mut recorder, machine)) = of.remove(&id).zip(machine) {
        // A vector takes what it is given.
        let _ = write(&recorder.recording(machine), None, file);
    }
}

impl Rings {
    /// The work at a build ends in a member.
    pub fn build_ended(&mut self, id: MemberId, build: BuildId, builder: Builder) {
        let builds = self.builds.entry(id).or_default();
        let name = format!("{}-{build}", builds.len());
        builds.extend(builder.recording().map(|recording| (name, recording)));
    }
}

impl World {
    /// A process begins.
    pub(super) fn begin_rings(&mut self, id: MemberId) {
        let (Some(rings), Some(member)) = (&mut self.rings, self.members.get(&id)) else { return };
        if let Some(consensus) = &member.consensus {
            begin(&mut rings.consensus, id, consensus, self.now);
        }
        begin(&mut rings.following, id, &member.follower.machine, self.now);
        if let Some(brain) = &member.brain {
            begin(&mut rings.leadership, id, &brain.machine, Duration::ZERO);
        }
    }

    /// A process ends.
    pub(super) fn end_rings(&mut self, id: MemberId) {
        let (Some(rings), Some(member)) = (&mut self.rings, self.members.get_mut(&id)) else { return };
        if member.consensus.is_none() {
            return;
        }
        let header = Header { format: FORMAT, baton: String::new(), member: id.0.to_string(), written_secs: 0 };
        let mut file = Vec::new();
        let _ = header.write(&mut file);
        end(&mut rings.consensus, id, member.consensus.as_ref(), &mut file);
        end(&mut rings.following, id, Some(&member.follower.machine), &mut file);
        end(&mut rings.leadership, id, member.brain.as_ref().map(|brain| &brain.machine), &mut file);
        for (build, builder) in std::mem::take(&mut member.builders) {
            rings.build_ended(id, build, builder);
        }
        for (name, recording) in rings.builds.remove(&id).unwrap_or_default() {
            let _ = write(&recording, Some(&name), &mut file);
        }
        rings.files.push(file);
    }

    /// The file of every process so far, if the weather has it that they are kept. Ends the recording.
    pub fn recordings(&mut self) -> Vec<Vec<u8>> {
        let ids: Vec<MemberId> = self.members.ids().collect();
        ids.into_iter().for_each(|id| self.end_rings(id));
        self.rings.take().map_or_else(Vec::new, |rings| rings.files)
    }
}
