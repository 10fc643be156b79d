//! One member of the set: the machine, and a disk that carries out what it asks for.

use crate::words::name;
use baton_consensus::{
    Configuration, Consensus, DataState, LastVote, MemberId, Moment, Mutant, PROTOCOL_VERSION, Position, Start,
};
use baton_types::{OpTime, Timestamp};

/// What survives a crash, but for the entries that were not synced.
#[derive(Clone, Default)]
pub struct Disk {
    pub configuration: Option<Configuration>,
    pub vote: LastVote,
    pub log: Vec<OpTime>,
    /// How many entries are synced.
    pub durable: usize,
    /// How many of the oldest entries are dropped.
    pub dropped: usize,
    pub commit_point: OpTime,
    pub data: Option<DataState>,
}

impl Disk {
    pub fn last(&self) -> OpTime {
        self.log.last().copied().unwrap_or(OpTime::ZERO)
    }

    pub fn oldest(&self) -> Timestamp {
        self.log.get(self.dropped).map_or(Timestamp::ZERO, |entry| entry.timestamp)
    }

    pub fn position(&self) -> Position {
        let durable = self.durable.checked_sub(1).map_or(OpTime::ZERO, |at| self.log[at]);
        Position { written: self.last(), applied: self.last(), durable }
    }

    /// The entries from a timestamp on, that one included.
    pub fn from(&self, timestamp: Timestamp) -> Vec<OpTime> {
        self.log[self.dropped..].iter().filter(|entry| entry.timestamp >= timestamp).copied().collect()
    }

    /// How many entries two logs have in common from the beginning.
    pub fn common(&self, other: &Self) -> usize {
        self.log.iter().zip(&other.log).take_while(|(mine, theirs)| mine == theirs).count()
    }
}

/// Something that is being written.
pub enum Write {
    Vote(LastVote),
    Configuration(Box<Configuration>),
    /// The entries that the log has.
    Log,
}

pub struct Member {
    pub id: MemberId,
    pub disk: Disk,
    /// Absent while the process is down.
    pub machine: Option<Consensus>,
    /// How often the process began.
    pub boot: u32,
    /// What is written is on disk only with a line `persisted`.
    pub is_slow: bool,
    pub unwritten: Vec<Write>,
    pub mutant: Mutant,
    seed: u64,
}

impl Member {
    pub fn new(id: MemberId, seed: u64) -> Self {
        Self {
            id,
            disk: Disk::default(),
            machine: None,
            boot: 0,
            is_slow: false,
            unwritten: Vec::new(),
            mutant: Mutant::None,
            seed,
        }
    }

    pub fn host(id: MemberId) -> String {
        format!("{}:1", name(id))
    }

    /// The process begins, with what is on disk.
    pub fn start(&mut self, now: Moment) {
        self.boot += 1;
        let start = Start {
            host: Self::host(self.id),
            set_name: "rs0".into(),
            protocol_version: PROTOCOL_VERSION,
            configuration: self.disk.configuration.clone(),
            vote: self.disk.vote,
            position: self.disk.position(),
            commit_point: self.disk.commit_point,
            data: self.disk.data.unwrap_or(match self.disk.log.is_empty() {
                true => DataState::InitialSync,
                false => DataState::Ready,
            }),
            given_up: OpTime::ZERO,
            seed: self.seed + u64::from(self.boot),
        };
        let mut machine = Consensus::new(now, start);
        machine.mutate(self.mutant);
        self.machine = Some(machine);
    }

    /// The process is gone, and with it what was not synced.
    pub fn crash(&mut self) {
        self.machine = None;
        self.unwritten.clear();
        self.disk.log.truncate(self.disk.durable);
    }

    pub fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    pub fn machine(&self) -> &Consensus {
        self.machine.as_ref().unwrap_or_else(|| unreachable!("{} is down", name(self.id)))
    }
}
