//! Sets that build an index together, in simulated time: primaries that change, members that die and return, votes that are lost,
//! repeated and late, configurations that change, documents that the index does not allow. After that the faults end, and so must the
//! build.
//!
//! The log is one list that only the primary of the moment adds to: what is lost with an old primary's entries is storage's matter.

use super::{BuildInput, BuildPass, BuildSet, BuildTask, CommitQuorum, IndexBuild, Wrong};
use crate::configuration::{Configuration, Member, MemberId};
use baton_replay::{Bounds, FORMAT, Header, Recorder, Recording, read, replay, write};
use baton_types::{Error, ErrorCode, Term};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::Duration;

/// Steps with faults, and without, after which the build must be over.
const STEPS_WITH_FAULTS: usize = 150;
const STEPS_QUIET: usize = 400;
const SEEDS: u64 = 4_000;
const SEEDS_LONG: u64 = 100_000;
/// Those of which everything is recorded.
const SEEDS_REPLAYED: u64 = 400;

#[derive(Clone, Debug, PartialEq)]
enum End {
    Committed,
    Aborted,
}

/// A machine, and what is kept of its steps.
struct Build {
    machine: IndexBuild,
    recorder: Recorder<IndexBuild>,
}

impl Build {
    fn new(machine: IndexBuild) -> Self {
        Self { recorder: Recorder::new(&machine, Duration::ZERO, Bounds::default()), machine }
    }

    fn step(&mut self, input: BuildInput) {
        self.recorder.step(&mut self.machine, Duration::ZERO, input);
    }

    fn recording(&mut self) -> Recording<IndexBuild> {
        self.recorder.recording(&self.machine)
    }
}

impl Deref for Build {
    type Target = IndexBuild;

    fn deref(&self) -> &IndexBuild {
        &self.machine
    }
}

/// A member, while it runs.
struct Node {
    id: MemberId,
    is_up: bool,
    build: Build,
    /// The pass it makes.
    passing: Option<BuildPass>,
    /// Some of what is in its index was put in without being asked.
    has_facts: bool,
    /// It has applied the end.
    is_over: bool,
    /// It has had everything in its index once.
    has_built: bool,
    has_voted: bool,
}

struct World {
    random: StdRng,
    wrong: Option<Wrong>,
    configuration: Configuration,
    quorum: CommitQuorum,
    nodes: Vec<Node>,
    primary: Option<usize>,
    term: Term,
    /// Some document is not what the index allows.
    is_violated: bool,
    end: Option<End>,
    votes: Vec<MemberId>,
    /// Of processes that are gone.
    recordings: Vec<Recording<IndexBuild>>,
}

impl World {
    fn new(seed: u64, wrong: Option<Wrong>) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let members = random.random_range(1..=5);
        let set_id = bson::oid::ObjectId::from_bytes([1; 12]);
        let mut configuration = Configuration::initial("rs", "a:1", set_id).unwrap_or_else(|e| panic!("{e}"));
        configuration.members = (0..members).map(|n| Member::new(MemberId(n), format!("m{n}:1"))).collect();
        let quorum = match random.random_range(0..5) {
            0 => CommitQuorum::Majority,
            1 => CommitQuorum::Members(random.random_range(0..=members as u32)),
            _ => CommitQuorum::VotingMembers,
        };
        // What a member does first is to look what it is.
        let leads = |member: &Member| (member.id == MemberId(0)).then_some(1);
        let nodes = configuration
            .members
            .iter()
            .map(|member| Node::new(member.id, &quorum, false, wrong).told(leads(member)))
            .collect();
        let is_violated = random.random_bool(0.15);
        Self {
            random,
            wrong,
            configuration,
            quorum,
            nodes,
            primary: Some(0),
            term: 1,
            is_violated,
            end: None,
            votes: Vec::new(),
            recordings: Vec::new(),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }

    fn one(&mut self) -> usize {
        self.random.random_range(0..self.nodes.len())
    }

    /// One fault, or none.
    fn disturb(&mut self) {
        let at = self.one();
        match self.random.random_range(0..100) {
            0..4 => self.elect(at),
            4..7 => self.primary = None,
            7..10 => {
                self.nodes[at].is_up = false;
                if self.primary == Some(at) {
                    self.primary = None;
                }
            }
            10..20 if !self.nodes[at].is_up => self.restart(at),
            20..24 => self.reconfigure(at),
            // A primary that has not built lets in what only a whole index would tell.
            24..27 if self.primary.is_some_and(|at| !self.nodes[at].build.is_filled()) && self.end.is_none() => {
                self.is_violated = true;
            }
            27 => {
                self.nodes[at].build.step(BuildInput::Killed(Error::new(ErrorCode::Interrupted, "killed")));
            }
            28..40 if !self.votes.is_empty() => {
                let vote = self.random.random_range(0..self.votes.len());
                if self.random.random_bool(0.5) {
                    self.votes.swap_remove(vote);
                } else {
                    self.votes.push(self.votes[vote]);
                }
            }
            _ => {}
        }
    }

    fn elect(&mut self, at: usize) {
        let is_member = self.configuration.member(self.nodes[at].id).is_some();
        if self.nodes[at].is_up && is_member {
            self.primary = Some(at);
            self.term += 1;
        }
    }

    fn restart(&mut self, at: usize) {
        let id = self.nodes[at].id;
        let (is_over, has_built) = (self.nodes[at].is_over, self.nodes[at].has_built);
        self.recordings.push(self.nodes[at].build.recording());
        self.nodes[at] = Node { is_over, has_built, ..Node::new(id, &self.quorum, true, self.wrong).told(None) };
    }

    /// A member that is not primary leaves, or one that left comes back.
    fn reconfigure(&mut self, at: usize) {
        let id = self.nodes[at].id;
        if self.configuration.member(id).is_none() {
            self.configuration.members.push(Member::new(id, format!("m{}:1", id.0)));
        } else if self.primary != Some(at) && self.configuration.members.len() > 1 {
            self.configuration.members.retain(|member| member.id != id);
        }
        if self.configuration.check_commit_quorum(&self.quorum).is_err() {
            // Who takes members away gives the build another quorum.
            self.quorum = CommitQuorum::Majority;
            let quorum = &self.quorum;
            self.nodes.iter_mut().for_each(|node| node.build.step(BuildInput::Quorum(quorum.clone())));
        }
    }

    /// A member does what is next.
    fn act(&mut self, at: usize) {
        if !self.nodes[at].is_up || self.nodes[at].is_over {
            return;
        }
        // What a member believes of itself is late; what it may log is decided by what it is.
        let leads = self.primary == Some(at);
        if self.chance(50) {
            self.nodes[at].build.step(BuildInput::Leads(leads.then_some(self.term)));
        }
        if self.end == Some(End::Committed) {
            self.nodes[at].build.step(BuildInput::Committed);
        }
        if let Some(end) = self.end.clone()
            && (end == End::Aborted || self.nodes[at].build.is_filled())
        {
            self.nodes[at].is_over = true;
            return;
        }
        let node = &mut self.nodes[at];
        if !node.build.knows(Some(node.id), Some(&self.configuration)) {
            let set = BuildSet { me: Some(node.id), configuration: Some(self.configuration.clone()) };
            node.build.step(BuildInput::Set(Box::new(set)));
        }
        let task = node.build.task();
        node.passing = node.passing.filter(|passing| matches!(&task, BuildTask::Pass(pass) if pass == passing));
        match task {
            BuildTask::Pass(pass) => self.pass(at, pass),
            BuildTask::Vote => {
                let node = &mut self.nodes[at];
                assert!(node.build.is_filled(), "a member votes for what it has not built");
                if !(self.wrong == Some(Wrong::VotesOnce) && node.has_voted) {
                    self.votes.push(node.id);
                }
                node.has_voted = true;
            }
            BuildTask::Object(error) => {
                if let Some(primary) = self.primary {
                    self.nodes[primary].build.step(BuildInput::Objection(error));
                }
            }
            BuildTask::Commit(_) | BuildTask::Abort(_) if !leads || self.end.is_some() => {
                self.nodes[at].build.step(BuildInput::Refused);
            }
            BuildTask::Commit(term) if term != self.term => self.nodes[at].build.step(BuildInput::Refused),
            BuildTask::Abort(_) => self.end = Some(End::Aborted),
            BuildTask::Commit(_) => {
                self.judge_commit(at);
                self.end = Some(End::Committed);
            }
            BuildTask::AwaitVotes => {}
        }
    }

    fn pass(&mut self, at: usize, pass: BuildPass) {
        let goes_on = self.nodes[at].passing.replace(pass) == Some(pass);
        self.nodes[at].has_facts |= pass == BuildPass::Follow;
        if !goes_on || !self.chance(30) {
            return;
        }
        let is_violated = self.is_violated;
        let node = &mut self.nodes[at];
        node.passing = None;
        // What lies before the place where a pass goes on is not looked at again.
        let sees_all = match pass {
            BuildPass::Decide => !node.has_facts,
            BuildPass::Follow => false,
            BuildPass::Verify => true,
        };
        if is_violated && sees_all {
            node.build.step(BuildInput::Failed(Error::new(ErrorCode::DuplicateKey, "twice")));
        } else {
            node.build.step(BuildInput::Passed(pass));
            node.has_built |= node.build.is_filled();
        }
    }

    fn judge_commit(&self, at: usize) {
        assert!(self.primary == Some(at), "who is not primary commits");
        assert!(!self.is_violated, "what the index does not allow is committed");
        let built: BTreeSet<MemberId> = self.nodes.iter().filter(|node| node.has_built).map(|node| node.id).collect();
        assert!(
            self.configuration.is_commit_quorum_met(&self.quorum, &built),
            "committed before those had built whom {:?} asks for",
            self.quorum
        );
    }

    fn deliver(&mut self) {
        if self.votes.is_empty() {
            return;
        }
        let vote = self.random.random_range(0..self.votes.len());
        let vote = self.votes.swap_remove(vote);
        if let Some(primary) = self.primary {
            self.nodes[primary].build.step(BuildInput::Vote(vote));
        }
    }

    /// Returns what every process was told, and was to do.
    fn run(mut self) -> Vec<Recording<IndexBuild>> {
        for _ in 0..STEPS_WITH_FAULTS {
            self.disturb();
            let at = self.one();
            self.act(at);
            if self.chance(40) {
                self.deliver();
            }
        }
        for at in 0..self.nodes.len() {
            if !self.nodes[at].is_up {
                self.restart(at);
            }
        }
        if self.primary.is_none() {
            let members: Vec<usize> =
                (0..self.nodes.len()).filter(|at| self.configuration.member(self.nodes[*at].id).is_some()).collect();
            self.primary = Some(members[self.random.random_range(0..members.len())]);
        }
        for _ in 0..STEPS_QUIET {
            let at = self.one();
            self.act(at);
            self.deliver();
        }
        let left: Vec<_> = self.nodes.iter().filter(|node| !node.is_over).map(|node| node.id).collect();
        assert!(left.is_empty(), "the build goes on for ever on {left:?}; it ended: {:?}", self.end);
        self.recordings.extend(self.nodes.iter_mut().map(|node| node.build.recording()));
        self.recordings
    }
}

impl Node {
    fn new(id: MemberId, quorum: &CommitQuorum, is_resumed: bool, wrong: Option<Wrong>) -> Self {
        let build = Build::new(IndexBuild::new(quorum.clone(), is_resumed).going_wrong(wrong));
        Self {
            id,
            is_up: true,
            build,
            passing: None,
            has_facts: is_resumed,
            is_over: false,
            has_built: false,
            has_voted: false,
        }
    }
}

impl Node {
    fn told(mut self, leads: Option<Term>) -> Self {
        self.build.step(BuildInput::Leads(leads));
        self
    }
}

fn simulate(seeds: u64) {
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| World::new(seed, None).run());
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn every_build_ends_alike_on_all_members_and_only_as_the_quorum_allows() {
    simulate(SEEDS);
}

#[test]
#[ignore = "takes a minute: cargo test -p baton-consensus -- --ignored"]
fn a_hundred_thousand_builds_end_alike() {
    simulate(SEEDS_LONG);
}

/// The file of a world: each process as a build of its own.
fn file_of(recordings: &[Recording<IndexBuild>]) -> String {
    let mut file = Vec::new();
    Header { format: FORMAT, baton: String::new(), member: String::new(), written_secs: 0 }.write(&mut file).unwrap();
    for (process, recording) in recordings.iter().enumerate() {
        write(recording, Some(&process.to_string()), &mut file).unwrap();
    }
    String::from_utf8(file).unwrap()
}

/// Steps through all that is in a file; how many steps that were.
fn replayed(file: &str) -> Result<usize, String> {
    let steps = read(file.as_bytes()).unwrap();
    let again = |(_, of)| replay::<IndexBuild>(&steps, of, &mut |_| {}).map(|replayed| replayed.steps);
    steps.machines().into_iter().map(again).sum::<Result<_, _>>().map_err(|difference| difference.to_string())
}

#[test]
fn whatever_a_set_brings_about_is_replayed_as_recorded() {
    let mut kinds = BTreeSet::new();
    let mut steps = 0;
    for seed in 0..SEEDS_REPLAYED {
        let recordings = World::new(seed, None).run();
        let file = file_of(&recordings);
        steps += replayed(&file).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let words =
            ["Set", "Leads", "Passed", "Failed", "Vote", "Objection", "Killed", "Quorum", "Committed", "Refused"];
        let tasks = ["Abort", "Object", "Commit", "AwaitVotes", "Verify", "Follow", "Decide"];
        kinds.extend(words.iter().chain(&tasks).filter(|word| file.contains(&format!("\"{word}\""))).copied());
    }
    assert!(steps > 10_000 && kinds.len() == 17, "hardly anything happens: {steps}, {kinds:?}");
}

#[test]
fn a_task_that_is_another_than_recorded_and_a_vote_that_is_left_out_are_noticed() {
    let (mut noticed, mut votes) = (0, 0);
    for seed in 0..SEEDS_REPLAYED {
        let file = file_of(&World::new(seed, None).run());
        let changed = file.replacen(r#""effects":["AwaitVotes"]"#, r#""effects":["Vote"]"#, 1);
        if changed == file {
            continue;
        }
        noticed += 1;
        let why = replayed(&changed).unwrap_err();
        assert!(why.starts_with("index_build ") && why.ends_with("recorded \"Vote\", now \"AwaitVotes\""), "{why}");
        // A vote by which a quorum is met, before the member looks at what it is to do.
        let lines: Vec<&str> = file.lines().collect();
        let decides = |three: &[&str]| {
            three[0].contains("[\"AwaitVotes\"]")
                && (three[1].contains(r#""input":{"Vote":"#) && three[1].contains(r#"[{"Commit":"#))
                && (three[2].contains(r#""input":{"Leads":"#) && three[2].contains(r#"[{"Commit":"#))
        };
        if let Some(before) = lines.windows(3).position(decides) {
            let without = [&lines[..=before], &lines[before + 2..]].concat().join("\n");
            assert!(replayed(&without).is_err(), "seed {seed}");
            votes += 1;
        }
    }
    assert!(noticed > 10 && votes > 10, "{noticed}, {votes}");
}

/// The member kept asking for the end, and the entry waited for it for ever.
#[test]
fn a_member_that_is_asked_to_end_what_is_committed_builds_it() {
    let mut build = IndexBuild::new(CommitQuorum::Majority, false);
    build.step(BuildInput::Killed(Error::new(ErrorCode::Interrupted, "killed")));
    assert!(matches!(build.task(), BuildTask::Object(_)));
    build.step(BuildInput::Committed);
    build.step(BuildInput::Killed(Error::new(ErrorCode::Interrupted, "killed again")));
    assert!(matches!(build.task(), BuildTask::Pass(BuildPass::Follow)));
}

/// Another primary had let in what only a whole index tells, and this one never heard that it had not been primary.
#[test]
fn a_primary_of_another_term_asks_again_even_if_it_never_heard_of_the_one_between() {
    let mut build = IndexBuild::new(CommitQuorum::Members(1), false);
    build.step(BuildInput::Leads(Some(3)));
    build.step(BuildInput::Passed(BuildPass::Decide));
    assert!(matches!(build.task(), BuildTask::AwaitVotes), "it does not know yet who votes");
    build.step(BuildInput::Set(Box::new(BuildSet { me: Some(MemberId(0)), configuration: None })));
    assert!(matches!(build.task(), BuildTask::Commit(3)));
    build.step(BuildInput::Leads(Some(5)));
    assert!(matches!(build.task(), BuildTask::Pass(BuildPass::Verify)));
    build.step(BuildInput::Passed(BuildPass::Verify));
    assert!(matches!(build.task(), BuildTask::Commit(5)));
}

#[test]
fn every_way_to_be_wrong_is_found() {
    for wrong in [
        Wrong::QuorumUnasked,
        Wrong::FactsUnverified,
        Wrong::StaysChecked,
        Wrong::ForgetsHalfAPass,
        Wrong::VotesEarly,
        Wrong::StrangersCount,
        Wrong::EndsWhatIsCommitted,
        Wrong::VotesOnce,
    ] {
        let is_found = |seed| std::panic::catch_unwind(|| World::new(seed, Some(wrong)).run()).is_err();
        assert!((0..SEEDS).any(is_found), "{wrong:?} is not found");
    }
}
