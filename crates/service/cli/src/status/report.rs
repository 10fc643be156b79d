//! What a survey of a set means: the verdict, what is wrong, and a line for each member; as text and as JSON.
//!
//! Invariants: pure. The verdict is the first thing told. What a member has not said of itself is never told as if it had.

use super::priorities;
use super::survey::{Survey, Told, whole};
use bson::{Bson, Document};
use serde_json::{Value, json};

/// How far a secondary may be behind before that is a fault, in seconds.
const LAG_SECS_MAX: i64 = 10;
/// The newest moves that are told.
const MOVES_TOLD: usize = 5;

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is a primary, and nothing is wrong.
    Ok,
    /// There is a primary, and something is wrong.
    Degraded,
    /// No member takes writes.
    NoPrimary,
    /// The member waits for `rs.initiate()`.
    NotInitiated,
    /// It is no set.
    Standalone,
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
            Self::NoPrimary => "NO PRIMARY",
            Self::NotInitiated => "NOT INITIATED",
            Self::Standalone => "STANDALONE",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::NoPrimary => "noPrimary",
            Self::NotInitiated => "notInitiated",
            Self::Standalone => "standalone",
        }
    }
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    name: String,
    role: String,
    answers: bool,
    uptime_secs: Option<i64>,
    lag_secs: Option<i64>,
    source: Option<String>,
    tasks: Vec<String>,
    notes: Vec<String>,
    connections: Option<i64>,
    resident_mb: Option<i64>,
    is_voter: bool,
    bears_data: bool,
}

/// What is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    set: Option<String>,
    verdict: Verdict,
    summary: String,
    problems: Vec<String>,
    term: i64,
    primary: Option<String>,
    lines: Vec<Line>,
    moves: Vec<Move>,
    priorities: Vec<String>,
    facts: Vec<String>,
}

/// A time that leadership moved, or was to.
#[derive(Clone, Debug, PartialEq)]
struct Move {
    at_ms: i64,
    from: String,
    to: Option<String>,
    trigger: String,
    why: Option<String>,
    gap_ms: Option<f64>,
    error: Option<String>,
}

impl Report {
    /// Judges a survey.
    pub fn of(survey: &Survey) -> Self {
        match &survey.configuration {
            Some(configuration) => of_set(survey, configuration),
            None => of_lone_hosts(survey),
        }
    }

    /// Whether somebody takes writes.
    pub fn has_primary(&self) -> bool {
        matches!(self.verdict, Verdict::Ok | Verdict::Degraded | Verdict::Standalone)
    }

    /// Whether there is no primary, and enough voters answer to elect one.
    pub fn may_elect(&self) -> bool {
        let votes = Votes::of(&self.lines);
        self.verdict == Verdict::NoPrimary && votes.answer >= votes.needed
    }

    /// For eyes.
    pub fn to_text(&self) -> String {
        let who = self.set.as_ref().map_or_else(String::new, |set| format!("set {set}: "));
        let mut text = format!("{who}{}: {}\n", self.verdict.text(), self.summary);
        for problem in &self.problems {
            text.push_str(&format!("  ! {problem}\n"));
        }
        let width = self.lines.iter().map(|line| line.name.len()).max().unwrap_or(0).max(20);
        text.push_str(&format!("{:<width$}  {:<10} {:>10} {:>7}  tasks\n", "member", "role", "uptime s", "lag s"));
        let number = |n: Option<i64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for line in &self.lines {
            let mut tail = line.tasks.clone();
            tail.extend(line.notes.iter().cloned());
            text.push_str(&format!(
                "{:<width$}  {:<10} {:>10} {:>7}  {}\n",
                line.name,
                line.role,
                number(line.uptime_secs),
                number(line.lag_secs),
                if tail.is_empty() { "none".to_owned() } else { tail.join(", ") },
            ));
        }
        text.push_str(&sync_tree(&self.lines));
        if !self.moves.is_empty() {
            text.push_str("leadership moved\n");
        }
        for one in self.moves.iter().rev().take(MOVES_TOLD).rev() {
            text.push_str(&format!("  {}\n", describe_move(one)));
        }
        if !self.priorities.is_empty() {
            text.push_str("requests by class\n");
        }
        for line in self.priorities.iter().chain(&self.facts) {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "name": line.name, "role": line.role, "answers": line.answers, "uptimeSecs": line.uptime_secs,
                "lagSecs": line.lag_secs, "syncSource": line.source, "tasks": line.tasks, "notes": line.notes,
                "connections": line.connections, "residentMB": line.resident_mb,
            })
        };
        let moved = |one: &Move| {
            json!({
                "date": bson::DateTime::from_millis(one.at_ms).to_string(), "from": one.from, "to": one.to,
                "trigger": one.trigger, "why": one.why, "writeGapMs": one.gap_ms, "error": one.error,
            })
        };
        json!({
            "set": self.set, "verdict": self.verdict.name(), "summary": self.summary, "problems": self.problems,
            "term": self.term, "primary": self.primary, "members": self.lines.iter().map(line).collect::<Vec<_>>(),
            "moves": self.moves.iter().map(moved).collect::<Vec<_>>(), "priorities": self.priorities,
        })
    }
}

fn number(document: &Document, key: &str) -> Option<i64> {
    document.get(key).map(whole)
}

/// Milliseconds of a date field.
fn date_ms(document: &Document, key: &str) -> Option<i64> {
    document.get_datetime(key).ok().map(|d| d.timestamp_millis())
}

fn documents<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a Document> {
    document.get_array(key).map(Vec::as_slice).unwrap_or_default().iter().filter_map(Bson::as_document)
}

/// Hosts that are in no set: standalones, and members that nobody has initiated.
fn of_lone_hosts(survey: &Survey) -> Report {
    let waits = |told: &Told| told.hello.as_ref().is_ok_and(|hello| hello.get_bool("isreplicaset").unwrap_or(false));
    let is_initiated = !survey.told.iter().any(waits);
    let lines: Vec<Line> = survey
        .told
        .iter()
        .map(|told| {
            let mut line = line_of_server(told);
            line.role = match &told.hello {
                Err(_) => "DOWN".into(),
                Ok(_) if waits(told) => "STARTUP".into(),
                Ok(_) => "STANDALONE".into(),
            };
            line
        })
        .collect();
    let problems = survey.told.iter().filter_map(|told| told.hello.as_ref().err().cloned()).collect();
    let (verdict, summary) = if is_initiated {
        (Verdict::Standalone, "a member of no replica set".to_owned())
    } else {
        (Verdict::NotInitiated, "the member is in no configuration yet; make the set with rs.initiate()".to_owned())
    };
    Report {
        set: None,
        verdict,
        summary,
        problems,
        term: 0,
        primary: None,
        lines,
        moves: Vec::new(),
        priorities: priorities::lines(&survey.told),
        facts: Vec::new(),
    }
}

/// What a host's process says, whatever its role.
fn line_of_server(told: &Told) -> Line {
    let section = |name: &str| told.server.get_document(name).cloned().unwrap_or_default();
    Line {
        name: told.name.clone(),
        answers: told.hello.is_ok(),
        uptime_secs: number(&told.server, "uptime"),
        connections: number(&section("connections"), "current"),
        resident_mb: number(&section("mem"), "resident"),
        ..Line::default()
    }
}

fn of_set(survey: &Survey, configuration: &Document) -> Report {
    // Of two that hold themselves for primary, the older has not heard of the newer yet.
    let term_of = |told: &Told| told.status.as_ref().ok().and_then(|status| number(status, "term")).unwrap_or(0);
    let primary = survey.told.iter().filter(|told| told.is_primary()).max_by_key(|told| term_of(told));
    let teller =
        primary.or_else(|| survey.told.iter().filter(|told| told.own_entry().is_some()).max_by_key(|t| term_of(t)));
    let mut problems = Vec::new();
    let mut lines = Vec::new();
    for member in documents(configuration, "members") {
        lines.push(line_of(member, survey, primary, teller, &mut problems));
    }
    let set = configuration.get_str("_id").unwrap_or("?").to_owned();
    let term = survey.told.iter().map(term_of).max().unwrap_or(0);
    judge_majority(&lines, &mut problems);
    for other in survey.told.iter().filter(|told| told.is_primary() && primary.is_some_and(|p| p.name != told.name)) {
        problems.push(format!("{} holds itself for primary of an older term", other.name));
    }
    let (verdict, summary) = match primary {
        Some(primary) => {
            let verdict = if problems.is_empty() { Verdict::Ok } else { Verdict::Degraded };
            (
                verdict,
                format!("primary {}, term {term}, {} of {} members are well", primary.name, well(&lines), lines.len()),
            )
        }
        None => (Verdict::NoPrimary, why_no_primary(&lines)),
    };
    let facts = teller.map(facts).unwrap_or_default();
    let primary = primary.map(|told| told.name.clone());
    let (moves, priorities) = (moves_of(survey), priorities::lines(&survey.told));
    Report { set: Some(set), verdict, summary, problems, term, primary, lines, moves, priorities, facts }
}

fn is_well(line: &Line) -> bool {
    line.answers && matches!(line.role.as_str(), "PRIMARY" | "SECONDARY" | "ARBITER")
}

fn well(lines: &[Line]) -> usize {
    lines.iter().filter(|line| is_well(line)).count()
}

/// Says so where majority writes wait though there is a primary.
fn judge_majority(lines: &[Line], problems: &mut Vec<String>) {
    let voters = lines.iter().filter(|line| line.is_voter);
    let (of, able) = (
        voters.clone().count(),
        voters.filter(|line| line.bears_data && matches!(line.role.as_str(), "PRIMARY" | "SECONDARY")).count(),
    );
    if able <= of / 2 && lines.iter().any(|line| line.role == "PRIMARY") {
        problems.push(format!("writes with w: \"majority\" wait: {able} of {of} voting members can take them"));
    }
}

/// How many voters there are, how many of them answer, and how many it takes to elect a primary.
struct Votes {
    of: usize,
    answer: usize,
    needed: usize,
}

impl Votes {
    fn of(lines: &[Line]) -> Self {
        let voters = lines.iter().filter(|line| line.is_voter);
        let (of, answer) = (voters.clone().count(), voters.filter(|line| line.answers).count());
        Self { of, answer, needed: of / 2 + 1 }
    }
}

fn why_no_primary(lines: &[Line]) -> String {
    let Votes { of, answer, needed } = Votes::of(lines);
    if answer < needed {
        return format!(
            "{answer} of {of} voting members answer, {needed} are needed to elect one; the set takes no writes"
        );
    }
    format!("{answer} of {of} voting members answer, which is enough to elect one; the set takes no writes until then")
}

/// A configured member, by its own word where it answers.
fn line_of(
    member: &Document,
    survey: &Survey,
    primary: Option<&Told>,
    teller: Option<&Told>,
    problems: &mut Vec<String>,
) -> Line {
    let host = member.get_str("host").unwrap_or("?");
    let told = survey.told.iter().find(|told| told.name == host);
    let mut line = told.map_or_else(|| Line { name: host.to_owned(), ..Line::default() }, line_of_server);
    line.is_voter = number(member, "votes").unwrap_or(1) > 0;
    line.bears_data = !member.get_bool("arbiterOnly").unwrap_or(false);
    let entry_by = |told: &'_ Told| {
        let status = told.status.as_ref().ok()?;
        documents(status, "members").find(|entry| entry.get_str("name").is_ok_and(|name| name == host)).cloned()
    };
    match told.and_then(Told::own_entry) {
        Some(own) => describe_by_own_word(&mut line, own, member, told, primary, problems),
        None => describe_by_others(&mut line, told, teller.and_then(entry_by), teller, problems),
    }
    line
}

fn describe_by_own_word(
    line: &mut Line,
    own: &Document,
    member: &Document,
    told: Option<&Told>,
    primary: Option<&Told>,
    problems: &mut Vec<String>,
) {
    line.role = own.get_str("stateStr").unwrap_or("?").to_owned();
    line.source = own.get_str("syncSourceHost").ok().filter(|source| !source.is_empty()).map(str::to_owned);
    line.tasks = documents(own, "tasks").map(describe_task).collect();
    if line.bears_data {
        line.lag_secs = lag_secs(told, primary);
    }
    if let Some(progress) = told.and_then(|told| told.status.as_ref().ok()).and_then(initial_sync) {
        line.notes.push(progress);
    }
    let delay = number(member, "secondaryDelaySecs").unwrap_or(0);
    if delay > 0 {
        line.notes.push(format!("delayed by {delay} s"));
    }
    let info = own.get_str("infoMessage").unwrap_or_default();
    if !info.is_empty() {
        problems.push(format!("{} is {}: {info}", line.name, line.role));
    } else if !is_well(line) {
        let says = if line.notes.is_empty() { String::new() } else { format!(" ({})", line.notes.join(", ")) };
        problems.push(format!("{} is {}{says}", line.name, line.role));
    }
    if let Some(lag) = line.lag_secs.filter(|lag| *lag > LAG_SECS_MAX + delay && line.role == "SECONDARY") {
        problems.push(format!("{} is {lag} s behind", line.name));
    }
}

fn describe_by_others(
    line: &mut Line,
    told: Option<&Told>,
    entry: Option<Document>,
    teller: Option<&Told>,
    problems: &mut Vec<String>,
) {
    if let Some(told) = told
        && told.hello.is_ok()
    {
        let why = told.status.as_ref().err().map_or("it is not in its own configuration", String::as_str);
        line.role = "OUTSIDE".into();
        problems.push(format!("{} answers, but not as a member of the set: {why}", line.name));
        return;
    }
    let why = told.and_then(|told| told.hello.as_ref().err()).map_or("it was not asked", String::as_str).to_owned();
    /// As `replSetGetStatus` numbers it.
    const DOWN: i64 = 8;
    let heard = entry.filter(|entry| number(entry, "health") == Some(1) && number(entry, "state") != Some(DOWN));
    match (heard, teller) {
        (Some(entry), Some(teller)) => {
            let state = entry.get_str("stateStr").unwrap_or("?");
            line.role = format!("{state}?");
            problems.push(format!("{why} ({} hears it, as {state})", teller.name));
        }
        _ => {
            line.role = "DOWN".into();
            problems.push(why);
        }
    }
}

/// Seconds from a member's newest entry to the primary's; nothing where either has none.
fn lag_secs(told: Option<&Told>, primary: Option<&Told>) -> Option<i64> {
    let (own, newest) = (told?.optime()?, primary?.optime()?);
    if own >= newest {
        return Some(0);
    }
    Some((i64::from(newest.1.time) - i64::from(own.1.time)).max(0))
}

/// How far a member's copying is.
fn initial_sync(status: &Document) -> Option<String> {
    let sync = status.get_document("initialSyncStatus").ok()?;
    let (total, done) = (number(sync, "approxTotalDataSize")?, number(sync, "approxTotalBytesCopied")?);
    let mut text = format!("copies {}", sync.get_str("syncSource").unwrap_or("another member"));
    if total > 0 {
        text += &format!(", {} %", (done.saturating_mul(100) / total).min(100));
    }
    if let Some(left) = number(sync, "remainingInitialSyncEstimatedMillis") {
        text += &format!(", {} s left", left / 1000);
    }
    Some(text)
}

/// Who fetches from whom, drawn, of those that answer; nothing where only one does.
fn sync_tree(lines: &[Line]) -> String {
    let answering = lines.iter().filter(|line| line.answers && line.bears_data && line.role != "OUTSIDE");
    let edges: Vec<(&str, &str)> =
        answering.map(|line| (line.name.as_str(), line.source.as_deref().unwrap_or_default())).collect();
    if edges.len() < 2 {
        return String::new();
    }
    let mut text = String::from("fetching\n");
    let is_member = |name: &str| edges.iter().any(|(member, _)| *member == name);
    for (name, source) in edges.iter().filter(|(_, source)| !is_member(source)) {
        let from = if source.is_empty() { String::new() } else { format!(" (from {source}, which does not answer)") };
        text.push_str(&format!("  {name}{from}\n"));
        draw_below(name, "  ", &edges, edges.len(), &mut text);
    }
    text
}

/// `depth` ends a circle, which members' views of different moments can make.
fn draw_below(source: &str, indent: &str, edges: &[(&str, &str)], depth: usize, text: &mut String) {
    let below: Vec<&str> = edges.iter().filter(|(_, of)| *of == source).map(|(name, _)| *name).collect();
    for (place, name) in below.iter().enumerate().filter(|_| depth > 0) {
        let (branch, more) = if place + 1 == below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        text.push_str(&format!("{indent}{branch}{name}\n"));
        draw_below(name, &format!("{indent}{more}"), edges, depth - 1, text);
    }
}

/// What the primary, or who knows most without one, tells of the set: how far all is committed, its election.
fn facts(told: &Told) -> Vec<String> {
    let Ok(status) = &told.status else { return Vec::new() };
    let mut facts = Vec::new();
    let optimes = status.get_document("optimes").ok();
    if let Some(at) = optimes.and_then(|optimes| date_ms(optimes, "lastCommittedWallTime")).filter(|ms| *ms > 0) {
        facts.push(format!("committed up to {}", bson::DateTime::from_millis(at)));
    }
    if let Ok(election) = status.get_document("electionCandidateMetrics") {
        let when = election.get_datetime("lastElectionDate").map(ToString::to_string).unwrap_or_default();
        let why = election.get_str("lastElectionReason").unwrap_or("?");
        facts.push(format!("elected {when} ({why})"));
    }
    let section = |name: &str| told.server.get_document(name).cloned().unwrap_or_default();
    if let (Some(connections), Some(memory)) =
        (number(&section("connections"), "current"), number(&section("mem"), "resident"))
    {
        facts.push(format!("{}: {connections} connections, {memory} MB resident", told.name));
    }
    facts
}

/// Who handed over tells of it, and nobody else; by date.
fn moves_of(survey: &Survey) -> Vec<Move> {
    let of_member = |told: &Told| -> Vec<Move> {
        let Ok(status) = &told.status else { return Vec::new() };
        let text = |document: &Document, key: &str| document.get_str(key).ok().map(str::to_owned);
        let read = |handoff: &Document| Move {
            at_ms: date_ms(handoff, "date").unwrap_or_default(),
            from: told.name.clone(),
            to: text(handoff, "to").or_else(|| text(handoff, "failedTo")),
            trigger: text(handoff, "trigger").unwrap_or_else(|| "?".into()),
            why: text(handoff, "why"),
            gap_ms: handoff.get_f64("writeGapMs").ok(),
            error: text(handoff, "error"),
        };
        documents(status, "handoffs").map(read).collect()
    };
    let mut moves: Vec<Move> = survey.told.iter().flat_map(of_member).collect();
    moves.sort_by_key(|one| one.at_ms);
    moves
}

fn describe_move(one: &Move) -> String {
    let to = one.to.as_deref().unwrap_or("nobody yet");
    let why = one.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let end = match (&one.error, one.gap_ms) {
        (Some(error), _) => format!("; it did not: {error}"),
        (None, Some(gap)) => format!("; nobody took writes for {gap:.0} ms"),
        (None, None) => String::new(),
    };
    format!("{} from {} to {to} ({}{why}){end}", bson::DateTime::from_millis(one.at_ms), one.from, one.trigger)
}

fn describe_task(task: &Document) -> String {
    let kind = task.get_str("kind").unwrap_or("?");
    let state = task.get_str("state").unwrap_or("?");
    let why = task.get_str("why").map(|why| format!(": {why}")).unwrap_or_default();
    let share = match (number(task, "done"), number(task, "total")) {
        (Some(done), Some(total)) if total > 0 && task.get_str("why").is_err() => format!(", {} %", done * 100 / total),
        _ => String::new(),
    };
    let left = number(task, "etaSecs").map(|secs| format!(", {secs} s left")).unwrap_or_default();
    format!("{kind} ({state} {} s{share}{left}{why})", number(task, "sinceMs").unwrap_or(0) / 1000)
}

#[cfg(test)]
mod tests;
