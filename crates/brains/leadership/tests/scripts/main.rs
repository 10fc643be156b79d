//! Golden scripts: one member, what it learns line by line, and what it answers below each line, after `>`. The machine's own words.
//!
//! A line is `SECONDS COMMAND`; time may be left out. Gossip that the machine asks to be sent is not shown. To change a script, change
//! its lines, run the test, and take over what it prints once it is right.

use baton_leadership::{
    Claim, Days, Decision, Effect, Figures, Follower, Gossip, GossipedTask, Grant, HandoffOutcome, HeardPrimary, Input,
    Leadership, Member, MemberId, Mode, Obstacle, Ranking, Role, Set, Start, TimeOfDay, Window, Work,
};
use baton_types::TaskKind;
use std::collections::BTreeMap;
use std::time::Duration;

const ME: MemberId = 0;
const INCARNATION: u64 = 7;

struct Script {
    machine: Leadership,
    now: Duration,
    term: i64,
    set: Set,
    figures: Figures,
    heard: BTreeMap<MemberId, Gossip>,
    followers: BTreeMap<MemberId, Follower>,
}

/// The words of a line: plain ones, and `name=value`.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.value(name).map(parse)
    }

    fn secs(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_secs_f64)
    }

    fn kind(&self, name: &str) -> Option<TaskKind> {
        self.value(name).map(kind)
    }
}

fn parse<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| unreachable!("{word} is no number"))
}

fn time_of_day(text: &str) -> Duration {
    let (hours, minutes) = text.split_once(':').unwrap_or_else(|| unreachable!("{text} is no time of day"));
    Duration::from_secs(20_000 * 86_400 + parse::<u64>(hours) * 3600 + parse::<u64>(minutes) * 60)
}

fn kind(name: &str) -> TaskKind {
    let found = TaskKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.unwrap_or_else(|| unreachable!("{name} is no kind of task"))
}

impl Script {
    fn new() -> Self {
        Self {
            machine: Leadership::new(Start { incarnation: INCARNATION, seed: 1 }),
            now: Duration::ZERO,
            term: 1,
            set: Set::new(ME, (0..3).map(Member::new).collect()),
            figures: Figures {
                load: 0.8,
                cache_hit_ratio: 0.95,
                cache_hot_bytes: 1 << 30,
                sync_latency: Duration::from_millis(1),
                ..Figures::default()
            },
            heard: BTreeMap::new(),
            followers: BTreeMap::new(),
        }
    }

    /// One line, and the lines that answer it.
    fn run(&mut self, line: &str) -> Vec<String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let Ok(secs) = words[0].parse::<f64>() {
            self.now = Duration::from_secs_f64(secs);
            words.remove(0);
        }
        let (command, words) = (words[0], Words(words.split_off(1)));
        let mut answers = Vec::new();
        let (confirmed, asks) = (self.confirmed(), self.asks());
        for input in self.inputs(command, &words) {
            answers.extend(self.machine.step(self.now, input).iter().flat_map(|effect| self.show(effect)));
        }
        if self.confirmed() != confirmed {
            answers.push(format!("confirmed: {:?}", self.confirmed()));
        }
        if self.asks() != asks {
            answers.push(match self.asks() {
                Some(member) => format!("asks {member} to end its tasks"),
                None => "asks nobody to end anything".to_owned(),
            });
        }
        match command {
            "stand" | "takeover" => {
                let obstacle = match command {
                    "stand" => self.machine.standing_obstacle(words.secs("silence").unwrap_or_default()),
                    _ => self.machine.takeover_obstacle(),
                };
                answers.push(obstacle.map_or("yes".into(), |obstacle: Obstacle| format!("no: {obstacle}")));
            }
            "explain" => answers.extend(self.machine.explain(self.now).iter().flat_map(Self::standings)),
            "history" => {
                let history = self.machine.history();
                for decision in history.stays().chain(history.moves()) {
                    let (trigger, times) = (decision.trigger.name(), decision.count);
                    answers.push(format!("{trigger}, {times}x: {}: {:?}", decision.rule, decision.outcome));
                }
            }
            _ => {}
        }
        answers
    }

    /// The members whose claims this one has confirmed.
    fn confirmed(&mut self) -> Vec<MemberId> {
        self.machine.gossip(self.now).grants.iter().map(|grant| grant.member).collect()
    }

    /// Who is to end its tasks, as this one says.
    fn asks(&mut self) -> Option<MemberId> {
        self.machine.gossip(self.now).asks_to_end
    }

    fn inputs(&mut self, command: &str, words: &Words<'_>) -> Vec<Input> {
        let first = || words.0.first().copied().unwrap_or_default();
        let work = |kind| Work { kind, subject: 1, expected: 0, expected_duration: words.secs("takes") };
        match command {
            "set" => vec![self.configure(words)],
            "primary" => {
                self.term += 1;
                vec![Input::Role { role: Role::Primary { handed_by: words.number("from") }, term: self.term }]
            }
            "secondary" => {
                self.term += i64::from(words.0.contains(&"deposed"));
                vec![Input::Role { role: Role::Secondary, term: self.term }]
            }
            "other" => vec![Input::Role { role: Role::Other, term: self.term }],
            "measure" => {
                let figures = &mut self.figures;
                figures.load = words.number("load").unwrap_or(figures.load);
                figures.disk_free = words.number("free").unwrap_or(figures.disk_free);
                figures.undone_secs = words.number("undone").unwrap_or(figures.undone_secs);
                figures.stall_nearness = words.number("stall").unwrap_or(figures.stall_nearness);
                figures.debt_bytes = words.number("debt").unwrap_or(figures.debt_bytes);
                figures.cache_hit_ratio = words.number("hits").unwrap_or(figures.cache_hit_ratio);
                figures.sync_latency = words.secs("sync").unwrap_or(figures.sync_latency);
                vec![Input::Figures(Box::new(self.figures))]
            }
            "hear" => {
                let from = words.0.iter().filter_map(|word| word.parse().ok());
                let mut inputs: Vec<Input> = from.map(|from| self.hear(from, words)).collect();
                inputs.insert(0, Input::Followers(self.followers.clone()));
                inputs
            }
            "want" => vec![Input::Wanted {
                task: parse(first()),
                work: work(kind(words.0[1])),
                wait_max: words.secs("within"),
            }],
            "begin" => vec![Input::Begun { task: parse(first()), work: work(kind(words.0[1])) }],
            "end" => vec![Input::Ended { task: parse(first()), cost: None }],
            "moved" => {
                let gap = words.secs("gap").unwrap_or(Duration::from_millis(15));
                vec![Input::Handoff(HandoffOutcome::Done { to: parse(first()), gap })]
            }
            "failed" => {
                vec![Input::Handoff(HandoffOutcome::Failed { to: parse(first()), why: "it did not catch up".into() })]
            }
            "tick" => vec![Input::Tick],
            // The time of this moment, on some day.
            "wall" => vec![Input::WallClock(time_of_day(first()))],
            "stand" | "takeover" | "explain" | "history" => Vec::new(),
            _ => unreachable!("{command} is no command"),
        }
    }

    fn configure(&mut self, words: &Words<'_>) -> Input {
        let members: i32 = words.number("members").unwrap_or(3);
        self.set.members = (0..members).map(Member::new).collect();
        if let Some(favoured) = words.number::<MemberId>("favoured") {
            self.set.members[favoured as usize].priority = 2.0;
        }
        let settings = &mut self.set.settings;
        settings.mode = words.value("mode").and_then(Mode::from_name).unwrap_or(settings.mode);
        settings.ranking = words.value("ranking").and_then(Ranking::from_name).unwrap_or(settings.ranking);
        settings.postpone_max = words.secs("postpone").unwrap_or(settings.postpone_max);
        if let Some((from, to)) = words.value("window").and_then(|window| window.split_once('-')) {
            let time = |text| TimeOfDay::parse(text).unwrap_or_else(|| unreachable!("{text} is no time of day"));
            settings.windows.push(Window { kind: words.kind("for"), days: Days::ALL, from: time(from), to: time(to) });
        }
        settings.validate().unwrap_or_else(|error| unreachable!("{error:?}"));
        Input::Configured(Box::new(self.set.clone()))
    }

    /// A member says how it is: free unless the line says otherwise, level, and as warm as this one.
    fn hear(&mut self, from: MemberId, words: &Words<'_>) -> Input {
        let sequence = self.heard.get(&from).map_or(1, |gossip| gossip.sequence + 1);
        let task = |kind, is_running| GossipedTask { kind, is_running, age: Duration::ZERO, ends_in: None };
        let running = words.kind("runs").map(|kind| task(kind, true));
        let waiting = words.kind("waits").map(|kind| task(kind, false));
        let heard_made_at = words.secs("heard").unwrap_or(self.now);
        let grant = |number| Grant { member: ME, incarnation: INCARNATION, number, heard_made_at };
        let gossip = Gossip {
            incarnation: from as u64,
            sequence,
            made_at: self.now,
            term: words.number("term").unwrap_or(self.term),
            is_primary: words.0.contains(&"primary"),
            tasks: running.into_iter().chain(waiting).collect(),
            last_task_end: words.secs("ended"),
            served_as_primary: words.secs("served").unwrap_or_default(),
            figures: Figures {
                cache_hit_ratio: words.number("hits").unwrap_or(0.95),
                sync_latency: words.secs("sync").unwrap_or(Duration::from_millis(1)),
                cpus: words.number("cpus").unwrap_or(Figures::default().cpus),
                ..Figures::default()
            },
            heard_primary: (!words.0.contains(&"deaf"))
                .then_some(HeardPrimary { incarnation: INCARNATION, made_at: heard_made_at }),
            claim: words.number("claims").map(|number| Claim { number, is_confirmed: false }),
            grants: words.number("confirms").map(grant).into_iter().collect(),
            preferred: words.number("prefers"),
            asks_to_end: words.number("asks"),
            terms_last_hour: words.number("terms").unwrap_or(0),
            moved_in: words.number("moved").unwrap_or(0),
        };
        self.heard.insert(from, gossip.clone());
        let lag = words.secs("lag").unwrap_or_default();
        let is_secondary = !gossip.is_primary;
        self.followers.insert(from, Follower { is_reachable: true, is_secondary, lag });
        Input::Gossip { from, gossip: Box::new(gossip), heard_at: self.now }
    }

    fn show(&self, effect: &Effect) -> Vec<String> {
        match effect {
            Effect::Admit { task, pace, why } => vec![format!("admit {task} at {pace:?} pace: {why}")],
            Effect::Defer { task, why, until } => vec![format!("defer {task} until {} s: {why}", until.as_secs())],
            Effect::HandOver { to, decision } => self.show_move("hand over", *to, decision),
            Effect::Resume { to, decision } => self.show_move("give back", *to, decision),
            Effect::Claim { number } => vec![format!("claim {number}")],
            Effect::End { task, why } => vec![format!("end {task}: {why}")],
            Effect::Release { number } => vec![format!("release {number}")],
            Effect::Transition(transition) => vec![format!("{transition:?}, then {}", self.machine.state().name())],
            Effect::Gossip => Vec::new(),
        }
    }

    fn show_move(&self, what: &str, to: MemberId, decision: &Decision) -> Vec<String> {
        let mut lines = vec![format!("{what} to {to}: {}", decision.rule)];
        if let (Some(staying), Some(moving)) = (decision.staying_secs, decision.moving_secs) {
            lines.push(format!("  staying would cost {staying:.1} s of service, moving {moving:.1} s"));
        }
        lines.extend(Self::standings(decision));
        lines
    }

    fn standings(decision: &Decision) -> Vec<String> {
        let standing = |(place, candidate): (usize, &baton_leadership::Candidate)| match candidate.obstacle {
            Some(obstacle) => format!("  out: {}, {obstacle}", candidate.member),
            None => format!("  {}. {}", place + 1, candidate.member),
        };
        decision.candidates.iter().enumerate().map(standing).collect()
    }
}

/// Runs a script's lines and compares the answers with those in it.
fn holds(text: &str) {
    let mut script = Script::new();
    let mut actual = String::new();
    for line in text.lines().filter(|line| !line.starts_with('>')) {
        actual.push_str(line);
        actual.push('\n');
        let command = line.split('#').next().unwrap_or_default().trim();
        if !command.is_empty() {
            script.run(command).iter().for_each(|answer| actual.push_str(&format!("> {answer}\n")));
        }
    }
    assert!(actual == text, "the machine answers differently; with its answers the script is:\n{actual}");
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            holds(include_str!(concat!(stringify!($name), ".txt")));
        })*
    };
}

scripts! {
    awaited
    figure1_reconfiguration
    figure1_postponement
    figure1_begin_anyway
    figure1_preferred_primary
    figure1_secondary
    claims_grow_old
    claims_in_turn
    claims_of_a_new_primary
    claims_of_a_primary_that_was_paused
    costs
    debt_and_disk
    disk_fills_while_others_work
    limits
    priorities
    smaller_members
    statement_under_way
    windows
}
