//! `baton task --uri URI --kind backup -- PROGRAM …`: runs any program as a task of a member.
//!
//! ```text
//!  choose a member ─▶ replSetBeginTask ─▶ run the program ─▶ replSetEndTask ─▶ its exit code
//!                       (`asking`)          │ signals are passed on to it
//!                                           └ a thread looks after the connection (`keeper`)
//! ```
//!
//! Invariants:
//! - The program runs only once the member has let the task begin, and is told which member that is.
//! - The task ends with the program, however that ends, and with this process, however that ends: it is the connection's.
//! - This ends as the program does: with its exit code, or 128 and the number of the signal that ended it. What comes of this itself has
//!   codes of its own, those of timeout(1).
//!
//! What it deliberately does not do: stop the program, unless the member needs to lead in the place of one whose disk fills: then it is
//! sent SIGTERM. Who can end only with the member may ask for that by a signal.

mod asking;
mod keeper;

use crate::connection::Connection;
use crate::topology::{self, Wanted};
use crate::uri::Uri;
pub use asking::Asking;
use baton_node::signals::{Relay, ask_to_stop};
use bson::{Bson, Document, doc};
use clap::{Arg, ArgMatches, Command, value_parser};
use keeper::Keeper;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  baton task --uri mongodb://127.0.0.1:27017 --kind backup -- \\
      sh -c 'mongodump --oplog --uri \"$BATON_TASK_URI\" --out dump'
      Asks the primary. It hands leadership over first, if that is worth it: the dump is then of a secondary.
  baton task --uri 'mongodb://127.0.0.1:27017/?readPreference=secondary' --kind backup --max-wait-secs 600 -- ./backup.sh
      Asks a secondary, and gives up if that may not be busy within ten minutes.

The program finds in its environment:
  BATON_TASK_HOST   the member that it is a task of, HOST:PORT
  BATON_TASK_URI    a connection string of that member and no other
  BATON_TASK_ROLE   what that member is: primary, secondary or standalone
  BATON_TASK_ID     the number of the task, as in currentOp
  BATON_TASK_KIND, BATON_TASK_NAME

The exit code is the program's, or 128 and the number of the signal that ended it. 124: the task could not begin within
--max-wait-secs. 125: it could not begin at all. 126: the program could not be run. 127: there is no such program.";

/// The task could not begin within the time given.
const NOT_IN_TIME: u8 = 124;
/// The task could not begin.
const NOT_BEGUN: u8 = 125;
/// The program could not be run.
const NOT_RUN: u8 = 126;
/// There is no such program.
const NOT_FOUND: u8 = 127;
/// How often the program is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// `ExceededTimeLimit`.
const EXCEEDED_TIME_LIMIT: i32 = 262;
/// `CommandNotFound`.
const COMMAND_NOT_FOUND: i32 = 59;

/// The description of `baton task`.
pub fn command() -> Command {
    let command = Command::new("task")
        .about("Run a program as a task of a member: when that may be busy, after leadership has moved if it is the primary")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("kind")
                .long("kind")
                .value_name("KIND")
                .default_value("backup")
                .help("What the program does: backup, checkpoint, compaction, indexBuild, initialSyncSource or validate"),
        )
        .arg(Arg::new("name").long("name").value_name("NAME").help(
            "What the task is called where tasks are shown; no two of a kind have one name [default: the program's]",
        ))
        .arg(
            Arg::new("max-wait-secs")
                .long("max-wait-secs")
                .value_name("SECONDS")
                .value_parser(value_parser!(u32))
                .help("Give up if the task may not begin within this time"),
        )
        .arg(
            Arg::new("expected-bytes")
                .long("expected-bytes")
                .value_name("BYTES")
                .value_parser(clap::value_parser!(i64).range(0..))
                .help("How much the program will read"),
        )
        .arg(
            Arg::new("expected-secs")
                .long("expected-secs")
                .value_name("SECONDS")
                .value_parser(value_parser!(u32))
                .help("How long the program will run"),
        );
    crate::uri_argument::add_to(
        command,
        "mongodb://host:port of a member, or of several; meant is the primary, unless readPreference says otherwise",
    )
    .arg(
        Arg::new("program")
            .value_name("PROGRAM")
            .required(true)
            .num_args(1..)
            .last(true)
            .value_parser(value_parser!(std::ffi::OsString))
            .help("The program and its arguments"),
    )
}

/// Carries it out.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match run_task(matches) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, why }) => {
            eprintln!("baton task: {why}");
            ExitCode::from(code)
        }
    }
}

/// Why the program was not run.
struct Failure {
    code: u8,
    why: String,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { code: NOT_BEGUN, why }
    }
}

/// What the member is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
    /// `expectedBytes`, if it is known.
    pub expected_bytes: Option<i64>,
    /// `expectedSecs`, if it is known.
    pub expected_secs: Option<u32>,
}

impl Request {
    /// The command; with the longest that an answer is to take.
    pub fn command(&self, wait_max: Option<Duration>) -> Document {
        let mut command = doc! { "replSetBeginTask": 1, "kind": &self.kind, "name": &self.name };
        if let Some(bytes) = self.expected_bytes {
            command.insert("expectedBytes", bytes);
        }
        if let Some(secs) = self.expected_secs {
            command.insert("expectedSecs", i64::from(secs));
        }
        if let Some(wait_max) = wait_max {
            command.insert("maxWaitSecs", wait_max.as_secs_f64());
        }
        command
    }
}

/// A task that the member has let begin.
pub struct Begun {
    /// By this it ends.
    pub connection: Connection,
    /// The member's address, as it was reached.
    pub host: String,
    /// The member's answer.
    pub answer: Document,
}

impl Begun {
    /// The task's number.
    pub fn id(&self) -> i64 {
        self.answer.get_i64("taskId").unwrap_or_default()
    }

    /// What the member is.
    pub fn role(&self) -> &str {
        self.answer.get_str("role").unwrap_or_default()
    }

    /// What an operator wants to know of it.
    pub fn summary(&self) -> String {
        summary_of(&self.host, &self.answer)
    }
}

/// What an operator wants to know of a task that the member at `host` has let begin.
pub fn summary_of(host: &str, answer: &Document) -> String {
    let waited = answer.get_i64("waitedMs").unwrap_or_default() as f64 / 1000.0;
    let moved = answer.get_document("handoff").ok().map(|handoff| {
        let to = handoff.get_str("to").unwrap_or("another member");
        let gap = handoff.get_f64("writeGapMs").map(|gap| format!(" (nobody took writes for {gap:.0} ms)"));
        format!("; leadership moved to {to} first{}", gap.unwrap_or_default())
    });
    let (id, role) = (answer.get_i64("taskId").unwrap_or_default(), answer.get_str("role").unwrap_or_default());
    format!("task {id} begins on {host}, a {role}, after {waited:.1} s{}", moved.unwrap_or_default())
}

fn run_task(matches: &ArgMatches) -> Result<u8, Failure> {
    let uri = Uri::parse(&crate::uri_argument::given(matches)?)?;
    let mut words = matches.get_many::<std::ffi::OsString>("program").into_iter().flatten();
    let program = words.next().ok_or_else(|| "needs a program: -- PROGRAM …".to_owned())?;
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let request = Request {
        kind: text("kind").unwrap_or_default(),
        name: text("name").unwrap_or_else(|| default_name(&program.to_string_lossy())),
        expected_bytes: matches.get_one::<i64>("expected-bytes").copied(),
        expected_secs: matches.get_one::<u32>("expected-secs").copied(),
    };
    let wait_max = matches.get_one::<u32>("max-wait-secs").map(|secs| Duration::from_secs(u64::from(*secs)));
    let begun = begin(&uri, &request, wait_max)?;
    eprintln!("baton task: {}", begun.summary());
    let relay = Relay::install().map_err(|error| format!("signals: {error}"))?;
    let mut command = std::process::Command::new(program);
    command
        .args(words)
        .env("BATON_TASK_HOST", &begun.host)
        .env("BATON_TASK_URI", format!("mongodb://{}/?directConnection=true", begun.host))
        .env("BATON_TASK_ROLE", begun.role())
        .env("BATON_TASK_ID", begun.id().to_string())
        .env("BATON_TASK_KIND", &request.kind)
        .env("BATON_TASK_NAME", &request.name);
    let child = command.spawn().map_err(|error| Failure {
        code: if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN },
        why: format!("{}: {error}", program.to_string_lossy()),
    })?;
    let is_to_stop = Arc::default();
    let keeper = Keeper::start(begun, uri, request, &is_to_stop);
    let status = wait(child, &relay, &is_to_stop);
    keeper.end();
    status.map(code_of).map_err(|error| Failure { code: NOT_RUN, why: format!("the program: {error}") })
}

/// No two tasks of a kind have one name, and one program may run twice.
fn default_name(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    format!("{}, process {}", name.chars().take(32).collect::<String>(), std::process::id())
}

/// Asks a member that suits, and waits. If the connection breaks meanwhile, whoever suits then is asked.
fn begin(uri: &Uri, request: &Request, wait_max: Option<Duration>) -> Result<Begun, Failure> {
    let deadline = wait_max.map(|wait_max| Instant::now() + wait_max);
    loop {
        let (mut connection, host, _) = topology::connect(uri, Wanted::Reads, "baton task")?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let asking = Asking { program: "baton task", uri: uri.clone(), host: host.clone(), request: request.clone() };
        match asking.ask(&mut connection, left) {
            Ok(answer) if answer.get_f64("ok").is_ok_and(|ok| ok == 1.0) => {
                return Ok(Begun { connection, host, answer });
            }
            Ok(refusal) => return Err(refused(&host, &refusal)),
            Err(why) => {
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(Failure { code: NOT_IN_TIME, why: format!("{host}: {why}") });
                }
                eprintln!("baton task: {host}: {why}; asking again");
                std::thread::sleep(Duration::from_millis(250));
            }
        }
    }
}

fn refused(host: &str, refusal: &Document) -> Failure {
    let why = refusal.get_str("errmsg").unwrap_or("refused without a reason");
    match refusal.get("code").and_then(Bson::as_i32) {
        Some(EXCEEDED_TIME_LIMIT) => Failure { code: NOT_IN_TIME, why: format!("{host}: {why}") },
        Some(COMMAND_NOT_FOUND) => format!("{host}: {why}: no member of Baton, or an older one").into(),
        _ => format!("{host}: {why}").into(),
    }
}

/// Waits for the program, and passes on to it what signals come meanwhile; one that is to stop is asked to, once.
fn wait(mut child: Child, relay: &Relay, is_to_stop: &AtomicBool) -> std::io::Result<ExitStatus> {
    let mut was_asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if is_to_stop.load(Ordering::Relaxed) && !was_asked {
            was_asked = ask_to_stop(child.id());
        }
        relay.pass_on(child.id());
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// As shells tell it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_where_as_what_and_how_leadership_moved() {
        let answer = doc! {
            "taskId": 7_i64, "role": "secondary", "waitedMs": 340_i64, "handoff": { "to": "b:2", "writeGapMs": 11.4 },
        };
        assert_eq!(
            summary_of("a:1", &answer),
            "task 7 begins on a:1, a secondary, after 0.3 s; leadership moved to b:2 first (nobody took writes for 11 ms)"
        );
        let answer = doc! { "taskId": 8_i64, "role": "primary", "waitedMs": 0_i64, "handoff": null };
        assert_eq!(summary_of("a:1", &answer), "task 8 begins on a:1, a primary, after 0.0 s");
    }

    #[test]
    fn a_program_has_the_last_word_about_the_exit_code() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(15)), 143);
    }

    #[test]
    fn a_name_fits_whatever_the_program_is_called() {
        assert!(default_name(&format!("/bin/{}", "漢".repeat(500))).len() <= 128);
        assert!(default_name("/usr/bin/mongodump").starts_with("mongodump, process "));
    }
}
