//! What each line of a script does. The language is in `main.rs`.

use crate::fetching::show_all;
use crate::member::Member;
use crate::print::{show_configuration, show_member};
use crate::words::{Link, Words, member, name, optime};
use crate::world::{World, secs};
use baton_consensus::{Configuration, DataState, Input, LastVote, MemberId, Mutant, Occupation, StepDownRequest};
use baton_types::OpTime;
use bson::oid::ObjectId;
use std::time::Duration;

/// Lines that come before the members begin.
const PREPARATIONS: [&str; 4] = ["set", "disk", "distance", "mutant"];

impl World {
    /// One line; what is to stand below it.
    pub fn run_line(&mut self, line: &str) -> Vec<String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let Some(now) = secs(words[0]) {
            assert!(now >= self.now, "time goes back: {line}");
            self.now = now;
            words.remove(0);
        }
        let (command, words) = (words[0], Words(words.split_off(1)));
        let has_begun = self.members.values().any(|member| member.boot > 0);
        if !has_begun && !PREPARATIONS.contains(&command) {
            self.begin();
        }
        self.obey(command, &words);
        joined(&std::mem::take(&mut self.told))
    }

    fn begin(&mut self) {
        let all: Vec<MemberId> = self.members.keys().copied().collect();
        let now = self.now;
        all.iter().for_each(|id| self.member(*id).start(now));
        self.tick(None);
    }

    fn obey(&mut self, command: &str, words: &Words<'_>) {
        let link = || Link::parse(words.plain(0));
        match command {
            // ---- the set ----
            "set" => self.set(words),
            "disk" => self.prepare_disk(words),
            "distance" => {
                let (one, other) = (words.member(), member(words.plain(1).unwrap_or_default()));
                let round_trip = Duration::from_millis(words.number("ms").unwrap_or(1));
                self.network.set_distance(one, other, round_trip);
            }
            "mutant" => self.mutate(words),
            // ---- time ----
            "tick" => self.tick(words.plain(0).map(member)),
            "pass" => {
                let until = secs(words.plain(0).unwrap_or_default()).expect("pass says until when");
                self.pass(until);
            }
            // ---- the network ----
            "deliver" => {
                let has_some = self.deliver(link(), false);
                self.tell_if_nothing(has_some);
                while words.has("all") && self.deliver(link(), false) {}
            }
            "heartbeat" => {
                let has_some = self.heartbeat(link());
                self.tell_if_nothing(has_some);
            }
            "heartbeats" => {
                let has_some = self.heartbeats();
                self.tell_if_nothing(has_some);
            }
            "drop" => {
                let has_some = self.drop_messages(link());
                self.tell_if_nothing(has_some);
            }
            "duplicate" => {
                let has_some = self.network.duplicate(link());
                self.tell_if_nothing(has_some);
            }
            "overtake" => self.network.overtake(link()),
            "cut" => self.cut(words),
            "heal" => self.network.heal(),
            "settle" => self.settle(),
            // ---- processes and disks ----
            "crash" => self.crash(words.member()),
            "restart" => self.start(words.member()),
            "slow" => self.member(words.member()).is_slow = true,
            "persisted" => {
                self.sync(words.member());
                self.due_now();
            }
            // ---- the log ----
            "append" => self.append_as_primary(words),
            "fetch" => self.fetch(words.member(), words.number("most")),
            "copy" => self.copy(words.member()),
            "truncate" => {
                let oldest = optime(words.value("before").unwrap_or_default());
                let disk = self.disk(words.member());
                disk.dropped = disk.log.iter().position(|entry| *entry == oldest).expect("the log has that entry");
            }
            // ---- operators ----
            "show" => self.show(words),
            _ => {
                let input = self.wish(command, words);
                self.input(words.member(), input);
            }
        }
    }

    fn tell_if_nothing(&mut self, has_some: bool) {
        if !has_some {
            self.tell("nothing of that is under way".to_owned());
        }
    }

    /// What an operator, or the host, tells a member.
    fn wish(&mut self, command: &str, words: &Words<'_>) -> Input {
        match command {
            "stand" => Input::StandForElection { dry_run: words.has("dry") },
            "stepdown" => Input::StepDown(StepDownRequest {
                force: words.has("force"),
                catch_up: words.secs("within").unwrap_or(Duration::from_secs(10)),
                freeze: words.secs("freeze").unwrap_or(Duration::from_secs(60)),
                to: words.value("to").map(member),
                hand_off: !words.has("alone"),
            }),
            "interrupt" => Input::StepDownInterrupted,
            "freeze" => Input::Freeze(words.secs("for").unwrap_or_default()),
            "syncfrom" => Input::SyncFrom(member(words.value("source").unwrap_or_default())),
            "abort-catch-up" => Input::AbortCatchUp,
            "occupied" => Input::Occupied(Occupation { stands_last: true, leaves_primary_alone: true }),
            "data" => Input::Data(match words.plain(1) {
                Some("initial-sync") => DataState::InitialSync,
                Some("recovering") => DataState::Recovering,
                Some("rollback") => DataState::Rollback,
                _ => DataState::Ready,
            }),
            "reconfig" => {
                let configuration = Box::new(self.next_configuration(words));
                Input::Reconfigure { configuration, force: words.has("force") }
            }
            _ => unreachable!("{command} is no command"),
        }
    }

    fn set(&mut self, words: &Words<'_>) {
        let count: i32 = words.number("members").expect("set says how many members");
        let seed: u64 = words.number("seed").expect("set states its seed");
        let spare: i32 = words.number("spare").unwrap_or(0);
        let mut configuration =
            Configuration::initial("rs0", "a:1", ObjectId::from_bytes([1; 12])).expect("it is valid");
        configuration.members = (0..count).map(|id| configured(MemberId(id))).collect();
        configuration.majority_is_durable = words.value("majority") != Some("written");
        let settings = &mut configuration.settings;
        settings.chaining_allowed = words.value("chaining") != Some("no");
        settings.catch_up_timeout = words.secs("catchup");
        settings.catch_up_takeover_delay = words.secs("takeover").or(settings.catch_up_takeover_delay);
        for (id, priority) in words.by_member("priority") {
            configuration.members[id.0 as usize].priority = priority;
        }
        for id in words.members("arbiter") {
            configuration.members[id.0 as usize].arbiter = true;
            configuration.members[id.0 as usize].priority = 0.0;
        }
        for id in words.members("nonvoting") {
            configuration.members[id.0 as usize].votes = false;
            configuration.members[id.0 as usize].priority = 0.0;
        }
        configuration.validate().expect("the set can be configured so");
        for id in (0..count + spare).map(MemberId) {
            // Seeds lie apart, so that no two processes draw alike.
            let mut made = Member::new(id, seed * 1_000_000 + id.0 as u64 * 1000);
            if let Some(entry) = configuration.member(id) {
                made.disk.configuration = Some(configuration.clone());
                made.disk.log = if entry.arbiter { Vec::new() } else { vec![optime("0@1")] };
                made.disk.durable = made.disk.log.len();
                made.disk.data = entry.arbiter.then_some(DataState::Ready);
            }
            self.members.insert(id, made);
        }
        if let Some(primary) = words.value("primary").map(member) {
            self.is_quiet = true;
            self.begin();
            self.settle();
            self.input(primary, Input::StandForElection { dry_run: false });
            self.settle();
            self.is_quiet = false;
            assert!(self.members[&primary].machine().is_writable(), "the first primary is not elected");
        }
    }

    fn prepare_disk(&mut self, words: &Words<'_>) {
        assert!(self.members.values().all(|member| member.boot == 0), "the members have begun already");
        let log: Vec<OpTime> = words.value("log").map(|log| log.split(',').map(optime).collect()).unwrap_or_default();
        let term = words.number("term");
        let commit_point = words.value("committed").map(optime);
        for letter in words.0.iter().filter(|word| !word.contains('=')) {
            let disk = self.disk(member(letter));
            assert!(!log.is_empty(), "disk says the log");
            disk.log.clone_from(&log);
            disk.durable = log.len();
            disk.vote = LastVote { term: term.unwrap_or(disk.last().term), candidate: None };
            disk.commit_point = commit_point.unwrap_or(disk.commit_point);
        }
    }

    fn mutate(&mut self, words: &Words<'_>) {
        let mutant = match words.plain(0) {
            Some("AcknowledgementsOfAnyTerm") => Mutant::AcknowledgementsOfAnyTerm,
            Some("OlderTermsCommit") => Mutant::OlderTermsCommit,
            Some("CommitPointFromAnyHeartbeat") => Mutant::CommitPointFromAnyHeartbeat,
            other => unreachable!("no script has {other:?} built in"),
        };
        for member in self.members.values_mut() {
            member.mutant = mutant;
            if let Some(machine) = &mut member.machine {
                machine.mutate(mutant);
            }
        }
    }

    fn cut(&mut self, words: &Words<'_>) {
        let (first, second) = (words.plain(0).unwrap_or_default(), words.plain(1));
        if first.contains("->") {
            let link = Link::parse(Some(first));
            self.network.cut(link.from.expect("a direction"), link.to.expect("a direction"));
        } else {
            let others: Vec<MemberId> = match second {
                Some("all") => self.members.keys().copied().filter(|id| *id != member(first)).collect(),
                _ => words.0[1..].iter().map(|other| member(other)).collect(),
            };
            for other in others {
                self.network.cut(member(first), other);
                self.network.cut(other, member(first));
            }
        }
        self.due_now();
    }

    fn append_as_primary(&mut self, words: &Words<'_>) {
        let id = words.member();
        let machine = self.members[&id].machine();
        if !machine.is_writable() {
            self.tell(format!("{}: takes no writes", name(id)));
            return;
        }
        let term = machine.term();
        self.append(id, term, words.number("at"));
        self.due_now();
    }

    /// The configuration that an operator asks for: the member's present one, changed.
    fn next_configuration(&mut self, words: &Words<'_>) -> Configuration {
        let mut next = self.members[&words.member()].machine().configuration().cloned().expect("it is configured");
        next.version.version += 1;
        for id in words.members("add") {
            next.members.push(configured(id));
        }
        let removed = words.members("remove");
        next.members.retain(|member| !removed.contains(&member.id));
        for (id, priority) in words.by_member::<f64>("priority") {
            next.members.iter_mut().filter(|member| member.id == id).for_each(|member| member.priority = priority);
        }
        next
    }

    fn show(&mut self, words: &Words<'_>) {
        let named: Vec<MemberId> = words.0.iter().filter(|word| word.len() == 1).map(|word| member(word)).collect();
        let shown = if named.is_empty() { self.members.keys().copied().collect() } else { named };
        for id in shown {
            let member = &self.members[&id];
            let line = match &member.machine {
                None => "down".to_owned(),
                Some(machine) if words.has("configuration") => {
                    machine.configuration().map_or("no configuration".to_owned(), show_configuration)
                }
                Some(machine) => show_member(machine, &show_all(&member.disk.log)),
            };
            self.tell(format!("{}: {line}", name(id)));
        }
    }
}

/// What several members say one after the other is written once.
fn joined(lines: &[String]) -> Vec<String> {
    let mut joined: Vec<(String, &str)> = Vec::new();
    for line in lines {
        match line.split_once(": ").filter(|(who, _)| who.len() == 1) {
            Some((who, what)) if joined.last().is_some_and(|(_, before)| *before == what) => {
                joined.iter_mut().last().iter_mut().for_each(|(all, _)| all.push_str(&format!(" {who}")));
            }
            Some((who, what)) => joined.push((who.to_owned(), what)),
            None => joined.push((String::new(), line)),
        }
    }
    joined
        .iter()
        .map(|(who, what)| if who.is_empty() { (*what).to_owned() } else { format!("{who}: {what}") })
        .collect()
}

fn configured(id: MemberId) -> baton_consensus::Member {
    baton_consensus::Member::new(id, Member::host(id))
}
