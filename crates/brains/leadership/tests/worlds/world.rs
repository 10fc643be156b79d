//! One world: members that gossip with delays and losses, want tasks, die, return, are cut off; elections and handoffs as consensus
//! would do them. Time is in milliseconds and goes in steps.

use crate::checkers::{Checkers, Failure, Known};
use crate::weather::Weather;
use baton_leadership::{
    Effect, Figures, Follower, Gossip, HandoffOutcome, Input, Leadership, Mutant, Role, Set, Start, TaskId, Work,
};
use baton_types::TaskKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

pub const STEP_MS: u64 = 250;
const LENGTH_MS: u64 = 80 * 60 * 1000;
const HEARTBEAT_MS: u64 = 2_000;
pub const ELECTION_TIMEOUT_MS: u64 = 10_000;

/// A task, as it is.
#[derive(Clone, Copy, Debug)]
pub struct SimTask {
    pub work: Work,
    pub deadline_ms: u64,
    /// When it begins, once it may.
    pub begins_ms: Option<u64>,
    pub ends_ms: Option<u64>,
    /// It may begin by a confirmed claim, or by the primary's own.
    pub is_in_slot: bool,
}

/// A member.
pub struct Node {
    pub id: i32,
    pub is_up: bool,
    pub machine: Leadership,
    pub started_ms: u64,
    /// Its clock is ahead of the world's by so much.
    offset_ms: u64,
    pub term: i64,
    /// Since when it takes itself for primary.
    pub leads_since: Option<u64>,
    /// Since when it has not reached a majority, as primary.
    pub lost_since: Option<u64>,
    pub tasks: BTreeMap<TaskId, SimTask>,
    pub is_cut: bool,
    pub lag_ms: u64,
    pub is_sick: bool,
    pub is_recovering: bool,
    pub is_nonsense: bool,
    /// What it was told of the others.
    pub known: BTreeMap<i32, Known>,
    pub followers: BTreeMap<i32, Follower>,
}

pub enum Message {
    Gossip {
        made_ms: u64,
        gossip: Box<Gossip>,
    },
    /// Consensus tells of a term.
    Term(i64),
    Outcome(HandoffOutcome),
}

pub struct World {
    pub random: StdRng,
    pub weather: Weather,
    mutant: Mutant,
    pub now_ms: u64,
    pub nodes: Vec<Node>,
    pub term: i64,
    pub primary: Option<usize>,
    /// Since when no primary reaches a majority.
    pub headless_since: Option<u64>,
    messages: BTreeMap<(u64, u64), (Option<usize>, usize, Message)>,
    sent: u64,
    pub handoffs: Vec<(u64, usize, usize)>,
    next_task: TaskId,
    pub checkers: Checkers,
}

/// Runs the world of a seed to its end, or to the first property that does not hold.
pub fn run(seed: u64, mutant: Mutant, is_stormy: bool) -> Result<Checkers, Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    let weather = Weather::draw(&mut random);
    let weather = if is_stormy { weather.stormy() } else { weather };
    let members = weather.members.len();
    let mut world = World {
        random,
        weather,
        mutant,
        now_ms: 0,
        nodes: Vec::new(),
        term: 0,
        primary: None,
        headless_since: Some(0),
        messages: BTreeMap::new(),
        sent: 0,
        handoffs: Vec::new(),
        next_task: 1,
        checkers: Checkers::default(),
    };
    for at in 0..members {
        let node = world.fresh(at);
        world.nodes.push(node);
    }
    for at in 0..members {
        world.start(at);
    }
    while world.now_ms < LENGTH_MS && world.checkers.failure.is_none() {
        world.now_ms += STEP_MS;
        world.luck();
        world.deliver();
        world.resolve_handoffs();
        world.resign_if_cut_off();
        world.elect_if_due();
        for at in 0..members {
            if world.nodes[at].is_up {
                world.live(at);
            }
        }
        world.check();
    }
    match world.checkers.failure.take() {
        Some(property) => Err(Failure { seed, property, at_ms: world.now_ms }),
        None => Ok(world.checkers),
    }
}

impl World {
    fn fresh(&mut self, at: usize) -> Node {
        let start = Start { incarnation: self.random.random(), seed: self.random.random() };
        let mut machine = Leadership::new(start);
        machine.mutate(self.mutant);
        Node {
            id: self.weather.members[at].id,
            is_up: true,
            machine,
            started_ms: self.now_ms,
            offset_ms: self.random.random_range(0..1000),
            term: 0,
            leads_since: None,
            lost_since: None,
            tasks: BTreeMap::new(),
            is_cut: false,
            lag_ms: 0,
            is_sick: false,
            is_recovering: true,
            is_nonsense: false,
            known: BTreeMap::new(),
            followers: BTreeMap::new(),
        }
    }

    fn start(&mut self, at: usize) {
        let mut set = Set::new(self.nodes[at].id, self.weather.members.clone());
        set.settings = self.weather.settings.clone();
        self.step(at, Input::Configured(Box::new(set)));
        // It recovers first.
        self.set_role(at, Role::Other, 0);
    }

    /// A process dies with all that it knew, and another begins.
    pub fn restart(&mut self, at: usize) {
        self.nodes[at] = Node { is_cut: self.nodes[at].is_cut, ..self.fresh(at) };
        self.checkers.restarted(self.now_ms);
        self.start(at);
    }

    /// One input, and what comes of it.
    pub fn step(&mut self, at: usize, input: Input) {
        let clock = self.clock(at);
        let effects = self.nodes[at].machine.step(clock, input);
        let mut gossips = false;
        for effect in &effects {
            self.check_effect(at, effect);
            match effect {
                Effect::Admit { task, why, .. } => self.admitted(at, *task, *why),
                Effect::HandOver { to, .. } | Effect::Resume { to, .. } => {
                    let takes = self.random.random_range(20..800);
                    if let Some(to) = self.nodes.iter().position(|node| node.id == *to) {
                        self.handoffs.push((self.now_ms + takes, at, to));
                    }
                }
                Effect::Gossip => gossips = true,
                Effect::Defer { .. } | Effect::Claim { .. } | Effect::Release { .. } | Effect::Transition(_) => {}
            }
        }
        if gossips {
            self.gossip(at);
        }
    }

    fn admitted(&mut self, at: usize, id: TaskId, why: baton_leadership::Rule) {
        use baton_leadership::Rule;
        let begins = self.now_ms + self.random.random_range(0..1000);
        if let Some(task) = self.nodes[at].tasks.get_mut(&id) {
            task.begins_ms = Some(begins);
            task.is_in_slot =
                matches!(why, Rule::SlotConfirmed | Rule::NotWorthwhile | Rule::NoMoveInTime | Rule::NoOtherMember);
        }
    }

    pub fn set_role(&mut self, at: usize, role: Role, term: i64) {
        let node = &mut self.nodes[at];
        node.term = node.term.max(term);
        node.leads_since = matches!(role, Role::Primary { .. }).then_some(self.now_ms);
        // An arbiter is neither primary nor secondary.
        let is_apart = self.weather.members[at].is_arbiter || node.is_recovering;
        let role = if is_apart { Role::Other } else { role };
        self.step(at, Input::Role { role, term });
    }

    // ---- messages ----

    pub fn send(&mut self, from: Option<usize>, to: usize, delay_ms: u64, message: Message) {
        self.sent += 1;
        self.messages.insert((self.now_ms + delay_ms, self.sent), (from, to, message));
    }

    fn gossip(&mut self, at: usize) {
        let clock = self.clock(at);
        let gossip = self.nodes[at].machine.gossip(clock);
        for to in (0..self.nodes.len()).filter(|to| *to != at) {
            let copies = 1 + usize::from(self.random.random_bool(self.weather.twice));
            for _ in 0..copies {
                if !self.random.random_bool(self.weather.loss) {
                    let delay = self.random.random_range(1..=self.weather.delay_ms_max);
                    let message = Message::Gossip { made_ms: self.now_ms, gossip: Box::new(gossip.clone()) };
                    self.send(Some(at), to, delay, message);
                }
            }
        }
    }

    pub fn are_connected(&self, one: usize, other: usize) -> bool {
        self.nodes[one].is_up && self.nodes[other].is_up && self.nodes[one].is_cut == self.nodes[other].is_cut
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= self.now_ms) {
            let (from, to, message) = entry.remove();
            if !self.nodes[to].is_up || from.is_some_and(|from| self.nodes[from].is_cut != self.nodes[to].is_cut) {
                continue;
            }
            match (from, message) {
                (Some(from), Message::Gossip { made_ms, gossip }) => self.hear(to, from, made_ms, gossip),
                (_, Message::Term(term)) if term > self.nodes[to].term => self.set_role(to, Role::Secondary, term),
                (_, Message::Outcome(outcome)) => self.step(to, Input::Handoff(outcome)),
                (_, Message::Gossip { .. } | Message::Term(_)) => {}
            }
        }
    }

    fn hear(&mut self, to: usize, from: usize, made_ms: u64, gossip: Box<Gossip>) {
        let (now_ms, id, heard_at) = (self.now_ms, self.nodes[from].id, self.clock(to));
        let node = &mut self.nodes[to];
        let is_news =
            node.known.get(&id).is_none_or(|known| (made_ms, gossip.sequence) > (known.made_ms, known.gossip.sequence));
        if is_news {
            node.known.insert(id, Known { made_ms, heard_ms: now_ms, gossip: (*gossip).clone() });
        }
        self.step(to, Input::Gossip { from: id, gossip, heard_at });
    }

    // ---- a member's own life ----

    fn live(&mut self, at: usize) {
        let is_second = self.now_ms.is_multiple_of(1000);
        if is_second {
            let figures = self.measure(at);
            self.step(at, Input::Figures(Box::new(figures)));
            let followers = self.followers(at);
            if followers != self.nodes[at].followers {
                self.nodes[at].followers = followers.clone();
                self.step(at, Input::Followers(followers));
            }
            self.tell_term();
            if self.nodes[at].is_recovering && self.random.random_bool(0.2) {
                self.nodes[at].is_recovering = false;
                self.set_role(at, Role::Secondary, self.term);
            }
        }
        if (self.now_ms + self.nodes[at].offset_ms / STEP_MS * STEP_MS).is_multiple_of(HEARTBEAT_MS) {
            self.gossip(at);
        }
        let now = self.now_ms;
        let begins = |task: &SimTask| task.ends_ms.is_none() && task.begins_ms.is_some_and(|begins| begins <= now);
        let due: Vec<_> =
            self.nodes[at].tasks.iter().filter(|(_, task)| begins(task)).map(|(id, task)| (*id, *task)).collect();
        for (id, task) in due {
            self.begin(at, id, task.work);
        }
        let ends = |task: &SimTask| task.ends_ms.is_some_and(|ends| ends <= now);
        let over: Vec<_> = self.nodes[at].tasks.iter().filter(|(_, task)| ends(task)).map(|(id, _)| *id).collect();
        for id in over {
            self.end(at, id);
        }
        // The driver steps a machine when that says so, and not before.
        if self.nodes[at].machine.next_deadline().is_some_and(|deadline| deadline <= self.clock(at)) {
            self.step(at, Input::Tick);
        }
    }

    /// What a member's clock says.
    fn clock(&self, at: usize) -> Duration {
        let node = &self.nodes[at];
        Duration::from_millis(self.now_ms - node.started_ms + node.offset_ms)
    }

    fn measure(&mut self, at: usize) -> Figures {
        let busy = self.nodes[at].tasks.values().filter(|task| task.ends_ms.is_some()).count();
        let (is_sick, is_nonsense) = (self.nodes[at].is_sick, self.nodes[at].is_nonsense);
        let (leads, load) = (self.nodes[at].leads_since.is_some(), self.weather.load);
        let random = &mut self.random;
        let nonsense = |sane: f64, random: &mut StdRng| match random.random_range(0..5) {
            0 if is_nonsense => f64::NAN,
            1 if is_nonsense => -1e9,
            2 if is_nonsense => f64::INFINITY,
            _ => sane,
        };
        let usual_us = random.random_range(800..1500) * (1 + busy as u64);
        Figures {
            debt_bytes: random.random_range(0..2 << 30) * if random.random_bool(0.01) { 8 } else { 1 },
            debt_levels: 1,
            stall_nearness: nonsense(0.2, random),
            cache_hit_ratio: nonsense(if leads { 0.95 } else { 0.8 }, random),
            cache_hot_bytes: 1 << 30,
            sync_latency: Duration::from_micros(if is_sick { 90_000 } else { usual_us }),
            disk_free: if self.weather.is_quiet() { 0.5 } else { nonsense(0.5, random) },
            load: nonsense(if leads { load } else { 0.0 }, random),
            cpus: 2.0,
            disk_bytes_per_sec: 2e8,
        }
    }

    fn followers(&self, at: usize) -> BTreeMap<i32, Follower> {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        others
            .map(|(other, node)| {
                let is_secondary =
                    node.leads_since.is_none() && !node.is_recovering && !self.weather.members[other].is_arbiter;
                let is_reachable = self.are_connected(at, other);
                (node.id, Follower { is_reachable, is_secondary, lag: Duration::from_millis(node.lag_ms) })
            })
            .collect()
    }

    pub fn want(&mut self, at: usize, work: Work, wait_max: Option<Duration>) {
        let id = self.next_task;
        self.next_task += 1;
        let postpone = self.weather.settings.postpone_max.min(wait_max.unwrap_or(Duration::MAX));
        let deadline_ms = self.now_ms + postpone.as_millis() as u64;
        let task = SimTask { work, deadline_ms, begins_ms: None, ends_ms: None, is_in_slot: false };
        self.nodes[at].tasks.insert(id, task);
        self.step(at, Input::Wanted { task: id, work, wait_max });
    }

    /// A task begins: one that may, or one that could not wait.
    pub fn begin(&mut self, at: usize, id: TaskId, work: Work) {
        if self.random.random_bool(0.03) && self.nodes[at].tasks.contains_key(&id) {
            // It does not want to any more.
            self.nodes[at].tasks.remove(&id);
            self.step(at, Input::Ended { task: id, cost: None });
            return;
        }
        let heavy = !matches!(work.kind, TaskKind::TtlDeletion | TaskKind::OplogTruncation | TaskKind::Flush);
        let takes = self.random.random_range(if heavy { 2_000..180_000 } else { 10..500 });
        let task = SimTask { work, deadline_ms: u64::MAX, begins_ms: None, ends_ms: None, is_in_slot: false };
        let task = self.nodes[at].tasks.entry(id).or_insert(task);
        task.ends_ms = Some(self.now_ms + takes);
        self.step(at, Input::Begun { task: id, work });
    }

    pub fn begin_unasked(&mut self, at: usize, work: Work) {
        let id = self.next_task;
        self.next_task += 1;
        self.begin(at, id, work);
    }

    fn end(&mut self, at: usize, id: TaskId) {
        let Some(task) = self.nodes[at].tasks.remove(&id) else { return };
        // About what is predicted, give or take.
        let factor = self.random.random_range(0.5..1.5);
        let predicted = self.nodes[at].machine.costs().predict(&task.work);
        let cost = baton_leadership::Cost {
            cpu_secs: predicted.cpu_secs * factor,
            read_bytes: predicted.read_bytes * factor,
            ..predicted
        };
        self.step(at, Input::Ended { task: id, cost: Some(cost) });
    }
}
