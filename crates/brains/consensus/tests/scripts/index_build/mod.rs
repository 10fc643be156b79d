//! Golden scripts of the votes on an index: the members of a set build it together, line by line, and below each line, after `>`, what
//! each is to do next.
//!
//! The machines are the real ones ([`baton_consensus::index_build::IndexBuild`]). What a driver does for them a line does: passes over
//! documents end, votes are sent and arrive, entries are logged and applied, when a line says so.
//!
//! | line | does |
//! |---|---|
//! | `set members=3 quorum=majority primary=a` | members `a` to `c`; all have applied the entry that begins the build |
//! | `… arbiter=c` `nonvoting=c` `indexless=c` `tags=a:x,b:y` `mode=two:2` | members of other kinds; a mode of so many values of the tag |
//! | `built a b` | those members have made the pass that they are to make |
//! | `refuse a` | its pass meets a document that the index does not allow |
//! | `vote b` `vote b late` | its vote arrives at the primary; is on its way until `arrive b` |
//! | `object b` | its objection arrives at the primary |
//! | `kill b` | an operator asks this member to end the build |
//! | `lead b` `lead b unheard=a` | it is primary of the next term; all hear of it, or all but one |
//! | `resign a` | no member is primary |
//! | `log a` | it logs the entry that it is to log, and it is applied here; refused if it is not primary of that term |
//! | `apply b` | the entry that ends the build reaches this member |
//! | `crash c` `restart c` | the process is gone; begins anew, with what it had put in |
//! | `quorum 2` | another quorum is set |
//! | `remove c` `add c` | the member leaves the configuration; comes back |
//!
//! Not here: documents and the index (storage), the order of entries in the log, when a member looks again.

use crate::words::{Words, member, name, parse};
use baton_consensus::index_build::{BuildInput, BuildPass, BuildSet, BuildTask, CommitQuorum, IndexBuild};
use baton_consensus::{Configuration, Member, MemberId};
use baton_types::{Error, ErrorCode, Term};
use bson::RawBsonRef;
use std::collections::{BTreeMap, BTreeSet};

/// A member's build, and what it was to do when that was told last.
struct Builder {
    build: IndexBuild,
    told: String,
}

/// How the build ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Commit,
    Abort,
}

#[derive(Default)]
pub struct World {
    configuration: Option<Configuration>,
    quorum: Option<CommitQuorum>,
    /// Those that run, and have not applied the end.
    builders: BTreeMap<MemberId, Builder>,
    /// Those that left, to come back.
    removed: BTreeMap<MemberId, Member>,
    primary: Option<MemberId>,
    term: Term,
    /// Votes on their way.
    votes: BTreeSet<MemberId>,
    end: Option<End>,
}

impl World {
    /// What is told below the line.
    pub fn run_line(&mut self, line: &str) -> Vec<String> {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap_or_default();
        let words = Words(words.collect());
        let mut told = self.run(command, &words);
        self.tell_configuration();
        told.extend(self.changes());
        told
    }

    fn run(&mut self, command: &str, words: &Words<'_>) -> Vec<String> {
        match command {
            "set" => self.set(words),
            "quorum" => return self.set_quorum(words.plain(0).unwrap_or_default()),
            "lead" => self.lead(words.member(), words.value("unheard").map(member)),
            "resign" => {
                assert_eq!(self.primary, Some(words.member()), "who resigns is primary");
                self.primary = None;
                self.hear(words.member());
            }
            "built" => words.0.iter().for_each(|word| self.end_pass(member(word))),
            "refuse" => {
                self.pass_of(words.member());
                let twice = Error::new(ErrorCode::DuplicateKey, "two documents with a: 1");
                self.step(words.member(), BuildInput::Failed(twice));
            }
            "vote" => return self.vote(words),
            "arrive" => {
                assert!(self.votes.remove(&words.member()), "a vote is on its way");
                return self.take_vote(words.member());
            }
            "object" => {
                let BuildTask::Object(error) = self.task(words.member()) else { unreachable!("it does not object") };
                return self.tell_primary(BuildInput::Objection(error));
            }
            "kill" => {
                self.step(
                    words.member(),
                    BuildInput::Killed(Error::new(ErrorCode::Interrupted, "dropIndexes was run")),
                );
            }
            "log" => return self.log(words.member()),
            "apply" => return self.apply(words.member()),
            "crash" => self.crash(words.member()),
            "restart" => self.begin(words.member(), true),
            "remove" => {
                let members = &mut self.configuration_mut().members;
                let place = members.iter().position(|one| one.id == words.member()).expect("it is a member");
                let member = members.remove(place);
                self.removed.insert(member.id, member);
            }
            "add" => {
                let member = self.removed.remove(&words.member()).expect("it was a member");
                self.configuration_mut().members.push(member);
            }
            other => unreachable!("{other} is no command"),
        }
        Vec::new()
    }

    fn set(&mut self, words: &Words<'_>) {
        let set_id = bson::oid::ObjectId::from_bytes([1; 12]);
        let mut configuration = Configuration::initial("rs", "a:1", set_id).expect("a configuration");
        let new = |at| Member::new(MemberId(at), format!("{}:1", name(MemberId(at))));
        configuration.members = (0..words.number("members").unwrap_or(3)).map(new).collect();
        let tags: BTreeMap<MemberId, String> = words.by_member("tags").into_iter().collect();
        for member in &mut configuration.members {
            member.arbiter = words.members("arbiter").contains(&member.id);
            member.builds_indexes = !words.members("indexless").contains(&member.id);
            member.votes = !words.members("nonvoting").contains(&member.id);
            if member.arbiter || !member.builds_indexes || !member.votes {
                member.priority = 0.0;
            }
            member.tags.extend(tags.get(&member.id).map(|tag| ("rack".to_owned(), tag.clone())));
        }
        if let Some((mode, count)) = words.value("mode").and_then(|mode| mode.split_once(':')) {
            configuration.settings.write_modes.insert(mode.to_owned(), [("rack".to_owned(), parse(count))].into());
        }
        configuration.validate().expect("a sound configuration");
        let data: Vec<MemberId> = configuration
            .members
            .iter()
            .filter(|one| one.bears_data() && one.builds_indexes)
            .map(|one| one.id)
            .collect();
        self.configuration = Some(configuration);
        self.quorum = Some(quorum_of(words.value("quorum").unwrap_or("votingMembers")));
        (self.primary, self.term) = (words.value("primary").map(member), 1);
        data.into_iter().for_each(|id| self.begin(id, false));
    }

    fn configuration_mut(&mut self) -> &mut Configuration {
        self.configuration.as_mut().expect("the script begins with `set`")
    }

    /// All that run know it at once.
    fn tell_configuration(&mut self) {
        for (id, builder) in &mut self.builders {
            let set = BuildSet { me: Some(*id), configuration: self.configuration.clone() };
            builder.build.step(BuildInput::Set(Box::new(set)));
        }
    }

    fn begin(&mut self, id: MemberId, is_resumed: bool) {
        let quorum = self.quorum.clone().expect("the script begins with `set`");
        let build = IndexBuild::new(quorum, is_resumed);
        assert!(self.builders.insert(id, Builder { build, told: String::new() }).is_none(), "it runs already");
        self.hear(id);
    }

    fn crash(&mut self, id: MemberId) {
        self.builders.remove(&id).expect("it runs");
        self.primary = self.primary.filter(|primary| *primary != id);
    }

    fn set_quorum(&mut self, word: &str) -> Vec<String> {
        let quorum = quorum_of(word);
        if let Err(error) = self.configuration_mut().check_commit_quorum(&quorum) {
            return vec![format!("refused: {error}")];
        }
        for builder in self.builders.values_mut() {
            builder.build.step(BuildInput::Quorum(quorum.clone()));
        }
        self.quorum = Some(quorum);
        Vec::new()
    }

    fn lead(&mut self, id: MemberId, unheard: Option<MemberId>) {
        self.primary = Some(id);
        self.term += 1;
        let hearing: Vec<_> = self.builders.keys().copied().filter(|one| Some(*one) != unheard).collect();
        hearing.into_iter().for_each(|one| self.hear(one));
    }

    fn hear(&mut self, id: MemberId) {
        let term = (self.primary == Some(id)).then_some(self.term);
        self.step(id, BuildInput::Leads(term));
    }

    fn step(&mut self, id: MemberId, input: BuildInput) {
        self.builders.get_mut(&id).expect("it runs").build.step(input);
    }

    fn task(&self, id: MemberId) -> BuildTask {
        self.builders[&id].build.task()
    }

    fn pass_of(&self, id: MemberId) -> BuildPass {
        let BuildTask::Pass(pass) = self.task(id) else { unreachable!("{} makes no pass", name(id)) };
        pass
    }

    fn end_pass(&mut self, id: MemberId) {
        let pass = self.pass_of(id);
        self.step(id, BuildInput::Passed(pass));
    }

    fn vote(&mut self, words: &Words<'_>) -> Vec<String> {
        let id = words.member();
        assert!(matches!(self.task(id), BuildTask::Vote), "it is to vote");
        if words.has("late") {
            self.votes.insert(id);
            return Vec::new();
        }
        self.take_vote(id)
    }

    fn take_vote(&mut self, id: MemberId) -> Vec<String> {
        self.tell_primary(BuildInput::Vote(id))
    }

    fn tell_primary(&mut self, input: BuildInput) -> Vec<String> {
        match self.primary.filter(|primary| self.builders.contains_key(primary)) {
            Some(primary) => {
                self.step(primary, input);
                Vec::new()
            }
            None => vec!["nobody takes it".to_owned()],
        }
    }

    fn log(&mut self, id: MemberId) -> Vec<String> {
        let (end, of_term) = match self.task(id) {
            BuildTask::Commit(term) => (End::Commit, term == self.term),
            BuildTask::Abort(_) => (End::Abort, true),
            other => unreachable!("it logs nothing, but is to {}", tell(&other)),
        };
        if self.primary != Some(id) || !of_term || self.end.is_some() {
            self.step(id, BuildInput::Refused);
            return vec![format!("{}: the entry is refused", name(id))];
        }
        self.end = Some(end);
        self.apply(id)
    }

    fn apply(&mut self, id: MemberId) -> Vec<String> {
        let end = self.end.expect("an entry ends the build");
        if end == End::Commit {
            self.step(id, BuildInput::Committed);
            if !self.builders[&id].build.is_filled() {
                return vec![format!("{}: the entry waits until it has built", name(id))];
            }
        }
        self.builders.remove(&id);
        let what = if end == End::Commit { "has the index" } else { "has given the index up" };
        vec![format!("{}: {what}", name(id))]
    }

    /// What members are to do, of those to whom something else was told before. Those with the same are one line.
    fn changes(&mut self) -> Vec<String> {
        let mut changes: Vec<(String, String)> = Vec::new();
        for (id, builder) in &mut self.builders {
            let now = tell(&builder.build.task());
            if builder.told == now {
                continue;
            }
            match changes.iter_mut().find(|(_, what)| *what == now) {
                Some((who, _)) => who.push_str(&format!(" {}", name(*id))),
                None => changes.push((name(*id).to_string(), now.clone())),
            }
            builder.told = now;
        }
        changes.into_iter().map(|(who, what)| format!("{who}: {what}")).collect()
    }
}

fn quorum_of(word: &str) -> CommitQuorum {
    let number = word.parse().map(RawBsonRef::Int32);
    CommitQuorum::parse(number.unwrap_or(RawBsonRef::String(word))).expect("a quorum")
}

fn tell(task: &BuildTask) -> String {
    match task {
        BuildTask::Pass(BuildPass::Decide) => "puts entries in, and asks what the index demands".to_owned(),
        BuildTask::Pass(BuildPass::Follow) => "puts entries in".to_owned(),
        BuildTask::Pass(BuildPass::Verify) => "asks all documents what the index demands".to_owned(),
        BuildTask::Vote => "votes".to_owned(),
        BuildTask::Object(error) => format!("asks the primary to give up: {error}"),
        BuildTask::Commit(term) => format!("is to log commitIndexBuild in term {term}"),
        BuildTask::Abort(error) => format!("is to log abortIndexBuild: {error}"),
        BuildTask::AwaitVotes => "waits for votes".to_owned(),
    }
}
