//! Golden scripts: one member that follows others, what happens to it line by line, and what it asks for below each line, after `>`.
//! The machine's own words.
//!
//! A line is `SECONDS COMMAND`; time may be left out. An OpTime is written `TERM:SECONDS`, or `TERM:SECONDS.INCREMENT`. The wall clock shows the script's time. Where
//! this member's log ends follows from what it applied and took away; a copy's lines begin with a lane's name ([`copying`]); `here` sets it, and the rest of what it is. To change a script,
//! change its lines, run the test, and take over what it prints once it is right.

mod copying;

use baton_consensus::{Input as Told, MemberId, Position, SourceState};
use baton_following::{Attempt, Batch, Effect, Following, Here, Input, TakenAway};
use baton_types::{OpTime, Timestamp};
use std::time::Duration;

struct Script {
    machine: Following,
    now: Duration,
    here: Here,
    is_whole: bool,
    given_up: OpTime,
    /// What came last, and which part of it was to be applied last.
    batch: Vec<OpTime>,
    applying: (usize, usize),
    /// What is to be the end of the log.
    common: OpTime,
}

/// The words of a line: plain ones, and `name=value`.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    fn optimes(&self) -> Vec<OpTime> {
        self.0.iter().filter(|word| word.contains(':') && !word.contains('=')).map(|word| optime(word)).collect()
    }

    fn source(&self, last: OpTime) -> SourceState {
        SourceState {
            term: self.value("term").map_or(last.term, number),
            last: self.value("last").map_or(last, optime),
            oldest: self.value("oldest").map_or(at(1), |word| optime(word).timestamp),
        }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| unreachable!("{word} is no number"))
}

fn at(seconds: u32) -> Timestamp {
    Timestamp { seconds, increment: 1 }
}

fn optime(word: &str) -> OpTime {
    let (term, seconds) = word.split_once(':').unwrap_or_else(|| unreachable!("{word} is no OpTime"));
    let (seconds, increment) = seconds.split_once('.').unwrap_or((seconds, "1"));
    OpTime { term: number(term), timestamp: Timestamp { seconds: number(seconds), increment: number(increment) } }
}

fn show_optime(optime: OpTime) -> String {
    match optime.timestamp.increment {
        1 => format!("{}:{}", optime.term, optime.timestamp.seconds),
        increment => format!("{}:{}.{increment}", optime.term, optime.timestamp.seconds),
    }
}

impl Script {
    fn new() -> Self {
        let last = optime("1:5");
        let here = Here { last, term: 1, leads: false, committed: at(1), wall: Duration::ZERO };
        Self {
            machine: Following::default(),
            now: Duration::ZERO,
            here,
            is_whole: true,
            given_up: OpTime::ZERO,
            batch: Vec::new(),
            applying: (0, 0),
            common: last,
        }
    }

    /// One line, and the lines that answer it.
    fn run(&mut self, line: &str) -> Vec<String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let Ok(secs) = words[0].parse::<f64>() {
            self.now = Duration::from_secs_f64(secs);
            words.remove(0);
        }
        self.here.wall = self.now;
        if let Some(lane) = copying::lane(words[0]) {
            let answers = words.split_off(1).join(" ");
            return answers
                .split(';')
                .flat_map(|answer| {
                    let input = self.copied(lane, answer);
                    self.step(input)
                })
                .collect();
        }
        let (command, words) = (words[0], Words(words.split_off(1)));
        let Some(input) = self.input(command, &words) else {
            let state = self.machine.state();
            return match command {
                "state" => {
                    vec![state.obstacle.map_or(state.name.to_owned(), |why| format!("{}: {why}", state.name))]
                }
                _ => Vec::new(),
            };
        };
        self.step(input)
    }

    fn step(&mut self, input: Input) -> Vec<String> {
        self.machine.step(self.now, input).iter().map(|effect| self.show(effect)).collect()
    }

    fn input(&mut self, command: &str, words: &Words<'_>) -> Option<Input> {
        let first = || words.0.first().copied().unwrap_or_default();
        let here = self.here;
        let said = || words.0.join(" ");
        Some(match command {
            "state" => return None,
            "here" => {
                self.here.last = words.optimes().first().copied().unwrap_or(here.last);
                self.here.term = words.value("term").map_or(here.term, number);
                self.here.committed = words.value("committed").map_or(here.committed, |word| optime(word).timestamp);
                self.here.leads = words.has("primary");
                self.is_whole = !words.has("incomplete");
                self.given_up = words.value("given-up").map_or(self.given_up, optime);
                return None;
            }
            "source" => Input::Source(first().parse().ok().map(MemberId)),
            "delay" => Input::Delay(Duration::from_secs(number(first()))),
            "hold" => Input::Hold(true),
            "release" => Input::Hold(false),
            "rest" => Input::Rest,
            "tick" => Input::Tick { wall: self.now },
            "connected" => Input::Connected { here, is_whole: self.is_whole, given_up: self.given_up },
            "fetched" => {
                self.batch = words.optimes();
                let last = self.batch.last().copied().unwrap_or(here.last);
                let commit_point = words.value("committed").map_or(optime("1:1"), optime);
                let optimes = self.batch.clone();
                let batch = Batch { optimes, source: words.source(last), commit_point, is_open: !words.has("closed") };
                Input::Fetched { here, batch }
            }
            "failed" => Input::Failed { reason: said() },
            "applied" => {
                self.here.last = self.batch[self.applying.1 - 1];
                self.attempted(Attempt::Done)
            }
            "not-yet" => self.attempted(Attempt::NotYet),
            "stopping" => self.attempted(Attempt::Passing { reason: "this member stops".to_owned() }),
            "refused" => self.attempted(Attempt::Failed {
                reason: "there is no such document".to_owned(),
                is_of_collection: !words.has("of-many"),
            }),
            "spared" => Input::Spared(first() == "yes"),
            "own" => Input::LookedBack { own: words.optimes()[0], is_oldest: words.has("oldest") },
            "page" => {
                let theirs = words.optimes();
                let source = words.source(theirs.last().copied().unwrap_or(here.last));
                Input::Paged { here, source, theirs, known: words.value("known").map_or(0, number) }
            }
            // A page that is full, and all of it is here.
            "full-page" => {
                let first = words.optimes()[0];
                let next = |n| OpTime { timestamp: Timestamp { increment: n, ..first.timestamp }, ..first };
                let theirs: Vec<OpTime> = (1..=baton_following::ENTRIES_PER_LOOK as u32).map(next).collect();
                let known = theirs.len();
                Input::Paged { here, source: words.source(first), theirs, known }
            }
            "taken-away" => {
                self.here.last = self.common;
                let position = Position { written: self.common, applied: self.common, durable: self.common };
                Input::TakenAway { position, outcome: TakenAway::Done }
            }
            "not-taken-away" => {
                let position = Position { written: here.last, applied: here.last, durable: here.last };
                let reason = "history does not reach back so far".to_owned();
                Input::TakenAway { position, outcome: TakenAway::Unrecoverable { reason } }
            }
            _ => unreachable!("{command} is no command"),
        })
    }

    fn attempted(&self, attempt: Attempt) -> Input {
        Input::Applied { attempt, wall: self.now }
    }

    fn show(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Connect { source, .. } => format!("connect to {source}"),
            Effect::Copy { lane, task } => self.show_task(*lane, task),
            Effect::HangUp { lane } => copying::show_hang_up(*lane),
            Effect::Progress(progress) => copying::show_progress(progress),
            Effect::Open { after, .. } => format!("open a stream from {}", show_optime(*after)),
            Effect::Read { within } => format!("read on, for {} s at most", within.as_secs()),
            Effect::Apply { from, until } => {
                self.applying = (*from, *until);
                let entries: Vec<String> = self.batch[*from..*until].iter().map(|entry| show_optime(*entry)).collect();
                format!("apply {}", entries.join(" "))
            }
            Effect::Sync => "sync".to_owned(),
            Effect::AskToSpare => "ask whether the set can spare this copy".to_owned(),
            Effect::LookBack { secs } => format!("find the own entry {secs} s before the last"),
            Effect::Page { from, .. } if from.increment == 1 => format!("page from {}", from.seconds),
            Effect::Page { from, .. } => format!("page from {}, {}", from.seconds, from.increment),
            Effect::TakeAway { common } => {
                self.common = *common;
                format!("take away all after {}", show_optime(*common))
            }
            Effect::Close => "close".to_owned(),
            Effect::Rested => "at rest".to_owned(),
            Effect::NoteNotWhole => "note that the data are not whole".to_owned(),
            Effect::Tell(told) => format!("tell {}", show_told(told)),
            Effect::Stopped { source, reason } => format!("log: stopped fetching from {source}: {reason}"),
            Effect::Refused(refusal) => format!(
                "log: {} could not be applied, attempt {}: {}; {}",
                show_optime(refusal.optime),
                refusal.attempts,
                refusal.reason,
                refusal.remedy.name()
            ),
            Effect::Passed => "log: what could not be applied no longer stands in the way".to_owned(),
            Effect::NotRolledBack { source, reason, remedy } => {
                format!("log: not rolled back for {source}: {reason}; {}", remedy.name())
            }
        }
    }
}

fn show_told(told: &Told) -> String {
    match told {
        Told::Data(state) => format!("that the data are in {state:?}"),
        Told::Log(position) => format!("that the log ends at {}", show_optime(position.written)),
        Told::BatchTaken { source, commit_point, last, .. } => {
            format!(
                "that a batch of {source} is taken, committed {}, ends at {}",
                show_optime(*commit_point),
                show_optime(*last)
            )
        }
        Told::SourceFailed { source, avoid } => format!("that {source} failed, for {} s", avoid.as_secs()),
        Told::SourceTooStale { source, oldest } => format!("that the log of {source} begins at {}", oldest.seconds),
        other => unreachable!("{other:?} is nothing that it tells"),
    }
}

/// Runs a script's lines and compares the answers with those in it.
fn holds(name: &str, text: &str) {
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
    assert!(actual == text, "the machine answers differently; with its answers {name} is:\n{actual}");
}

macro_rules! scripts {
    ($folder:literal: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name), include_str!(concat!($folder, stringify!($name), ".txt")));
        })*
    };
}

scripts! {
    "":
    first_batch_matches
    parted_ours_ends_earlier
    parted_ours_ends_later
    source_ends_in_an_older_term
    too_stale
    source_lost
    stream_stalls
    source_changes_with_a_batch_in_hand
    delayed_member
    held
    rest_before_primary
    catching_up_as_primary
    refused_then_collection
    refused_then_everything
    refused_and_not_spared
    not_yet
    rollback_in_several_looks
    rollback_refused_for_committed
    source_rolled_back_meanwhile
    deposed_source_in_mid_rollback
    primary_in_mid_rollback
    unrecoverable
    disorder
}

mod initial_sync {
    use super::holds;

    scripts! {
        "initial_sync/":
        by_cloning
        by_file
        which_way
        connection_lost
        source_stays_away
        source_restarts
        source_behind
        checkpoint_behind
        source_rolled_back
        collection_dropped
        log_stream_lost
        log_outran
        buffer_full
        index_not_built
        one_collection
        one_collection_newer_entry
        damaged_part
        change_of_source
        change_of_source_at_the_end
        tenth_attempt
    }
}
