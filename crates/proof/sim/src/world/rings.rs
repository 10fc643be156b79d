//! What the members' machines were told, as a real member keeps it: for the test that all of it can be written down and replayed.

use super::World;
use baton_consensus::{Consensus, MemberId};
use baton_following::Following;
use baton_leadership::Leadership;
use baton_replay::{Bounds, FORMAT, Header, Machine, Recorder, write};
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
        let (Some(rings), Some(member)) = (&mut self.rings, self.members.get(&id)) else { return };
        if member.consensus.is_none() {
            return;
        }
        let header = Header { format: FORMAT, baton: String::new(), member: id.0.to_string(), written_secs: 0 };
        let mut file = Vec::new();
        let _ = header.write(&mut file);
        end(&mut rings.consensus, id, member.consensus.as_ref(), &mut file);
        end(&mut rings.following, id, Some(&member.follower.machine), &mut file);
        end(&mut rings.leadership, id, member.brain.as_ref().map(|brain| &brain.machine), &mut file);
        rings.files.push(file);
    }

    /// The file of every process so far, if the weather has it that they are kept. Ends the recording.
    pub fn recordings(&mut self) -> Vec<Vec<u8>> {
        let ids: Vec<MemberId> = self.members.ids().collect();
        ids.into_iter().for_each(|id| self.end_rings(id));
        self.rings.take().map_or_else(Vec::new, |rings| rings.files)
    }
}
