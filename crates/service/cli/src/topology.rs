//! Which member of a set to ask: every host that a connection string names is asked who it is, and so is every host that these
//! name; among those that answer one is chosen.
//!
//! Invariants: a host that is down keeps nobody from the others. A member of another set than `replicaSet` names is never used.
//! Not here: watching a set; whoever needs another member later chooses again.

use crate::connection::{Connection, Timeouts};
use crate::uri::Uri;
use bson::{Bson, Document};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a member may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before everybody is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What a member is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To read from, as the connection string's `readPreference` has it.
    Reads,
    /// To write to.
    Writes,
}

/// A host that was asked who it is.
#[derive(Debug)]
pub struct Asked {
    /// The address that it was asked at.
    pub host: String,
    /// What it says of itself, or why it says nothing.
    pub hello: Result<Document, String>,
    /// How long it took to answer.
    pub took: Duration,
}

impl Asked {
    fn says(&self, key: &str) -> bool {
        self.hello.as_ref().is_ok_and(|hello| hello.get_bool(key).unwrap_or(false))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.hello.as_ref().ok()?.get_str(key).ok()
    }

    /// The address that its set knows it by, or the one it was asked at.
    pub fn name(&self) -> &str {
        self.text("me").unwrap_or(&self.host)
    }

    /// Whether it takes writes; so does a standalone.
    pub fn is_primary(&self) -> bool {
        self.says("isWritablePrimary")
    }

    /// Whether it is a secondary that can be read from.
    pub fn is_secondary(&self) -> bool {
        self.says("secondary")
    }

    /// Whether it belongs to the set that is meant; why not otherwise.
    fn belongs(&self, uri: &Uri) -> Result<(), String> {
        let Some(wanted) = &uri.replica_set else { return Ok(()) };
        match self.text("setName") {
            Some(name) if name == wanted => Ok(()),
            Some(name) => {
                Err(format!("{} belongs to the replica set '{name}', not to '{wanted}' (replicaSet)", self.host))
            }
            None if self.says("isreplicaset") => Err(format!("{} is in no replica set yet: rs.initiate()", self.host)),
            None => Err(format!("{} is in no replica set, and '{wanted}' is wanted (replicaSet)", self.host)),
        }
    }
}

/// Asks every host, and every host that those name unless one is meant whatever it is. Hosts that are one member count once.
pub fn discover(uri: &Uri, app_name: &str) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    let mut known: BTreeSet<String> = uri.hosts.iter().cloned().collect();
    let mut next = uri.hosts.clone();
    while !next.is_empty() {
        let asked = ask_all(&next, uri, app_name);
        next.clear();
        for answer in asked {
            if answer.hello.is_ok() && all.iter().any(|other| other.hello.is_ok() && other.name() == answer.name()) {
                continue;
            }
            if !uri.direct && answer.belongs(uri).is_ok() {
                next.extend(members_of(&answer).filter(|host| known.insert(host.clone())));
            }
            all.push(answer);
        }
    }
    // A member may have answered at another address than its set knows.
    let names: BTreeSet<String> = all.iter().filter(|a| a.hello.is_ok()).map(|a| a.name().to_owned()).collect();
    all.retain(|asked| asked.hello.is_ok() || !names.contains(&asked.host));
    all
}

/// The hosts of the set that a member is in, hidden ones aside, of which it does not tell.
fn members_of(answer: &Asked) -> impl Iterator<Item = String> {
    let lists = ["hosts", "passives", "arbiters"].map(|key| {
        let list = answer.hello.as_ref().ok().and_then(|hello| hello.get_array(key).ok());
        list.map(Vec::as_slice).unwrap_or_default().iter().filter_map(Bson::as_str).map(str::to_owned)
    });
    lists.into_iter().flatten().collect::<Vec<_>>().into_iter()
}

fn ask_all(hosts: &[String], uri: &Uri, app_name: &str) -> Vec<Asked> {
    let ask = |host: &String| {
        let began = Instant::now();
        let hello = open(host, uri, app_name).map(|(_, hello)| hello);
        Asked { host: host.clone(), hello, took: began.elapsed() }
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = hosts.iter().map(|host| (host, scope.spawn(move || ask(host)))).collect();
        let died = |host: &String| Asked {
            host: host.clone(),
            hello: Err(format!("{host} was not asked: the thread for it died")),
            took: Duration::ZERO,
        };
        asking.into_iter().map(|(host, thread)| thread.join().unwrap_or_else(|_| died(host))).collect()
    })
}

/// A connection to one host, and what that says of itself. It waits for answers as long as the connection string has it, or ten
/// seconds.
///
/// # Errors
/// With a text for the operator.
pub fn open(host: &str, uri: &Uri, app_name: &str) -> Result<(Connection, Document), String> {
    let answer = uri.answer_timeout.unwrap_or(HELLO_TIMEOUT);
    let timeouts = Timeouts { connect: uri.connect_timeout, answer: Some(answer).filter(|time| !time.is_zero()) };
    let mut connection = Connection::open(host, timeouts)?;
    let hello =
        connection.hello(uri.app_name.as_deref().unwrap_or(app_name)).map_err(|why| format!("{host}: {why}"))?;
    connection.read_in_mode(uri.read_mode());
    Ok((connection, hello))
}

/// A connection to a member that is good for what is wanted, the member's address, and what it says of itself.
///
/// Where a set's members answer, but none that can be used, it waits for one: as long as `serverSelectionTimeoutMS` says, or half a
/// minute. Otherwise it waits only if that option is given. Answers to commands are waited for without end, unless `socketTimeoutMS` is given.
///
/// # Errors
/// With a text for the operator.
pub fn connect(uri: &Uri, wanted: Wanted, app_name: &str) -> Result<(Connection, String, Document), String> {
    let deadline = Instant::now() + uri.selection_time();
    loop {
        let all = discover(uri, app_name);
        let why = match choose(&all, uri, wanted) {
            Ok(host) => match open(host, uri, app_name) {
                Ok((mut connection, hello)) => {
                    connection.wait_for_answers(uri.answer_time())?;
                    return Ok((connection, host.to_owned(), hello));
                }
                Err(why) => why,
            },
            Err(why) => why,
        };
        // A set that has members has a primary again in a moment; a lone host will not change.
        let has_set = all.iter().any(|asked| asked.text("setName").is_some() && asked.belongs(uri).is_ok());
        let is_worth_waiting = (has_set && !uri.direct) || uri.selection_timeout.is_some();
        if !is_worth_waiting || Instant::now() + ASK_AGAIN_AFTER >= deadline {
            return Err(why);
        }
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
}

/// The member for what is wanted, the nearest where several are; otherwise why there is none.
fn choose<'a>(all: &'a [Asked], uri: &Uri, wanted: Wanted) -> Result<&'a str, String> {
    let answering: Vec<&Asked> = all.iter().filter(|asked| asked.hello.is_ok()).collect();
    if answering.is_empty() {
        let reasons: Vec<&str> =
            all.iter().filter_map(|asked| asked.hello.as_ref().err()).map(String::as_str).collect();
        return Err(reasons.join("; "));
    }
    let ours: Vec<&Asked> = answering.iter().copied().filter(|asked| asked.belongs(uri).is_ok()).collect();
    if ours.is_empty() {
        let reasons: Vec<String> = answering.iter().filter_map(|asked| asked.belongs(uri).err()).collect();
        return Err(reasons.join("; "));
    }
    if uri.direct && wanted == Wanted::Reads {
        return Ok(&ours[0].host);
    }
    let nearest = |is: &dyn Fn(&Asked) -> bool| ours.iter().filter(|asked| is(asked)).min_by_key(|asked| asked.took);
    let primary = nearest(&Asked::is_primary);
    let secondary = nearest(&Asked::is_secondary);
    let mode = if wanted == Wanted::Writes { "primary" } else { uri.read_mode().unwrap_or("primary") };
    let chosen = match mode {
        "primary" => primary,
        "primaryPreferred" => primary.or(secondary),
        "secondary" => secondary,
        "secondaryPreferred" => secondary.or(primary),
        _ => nearest(&|asked| asked.is_primary() || asked.is_secondary()),
    };
    chosen.map(|asked| asked.host.as_str()).ok_or_else(|| nobody_suits(all, &ours, uri, mode))
}

fn nobody_suits(all: &[Asked], ours: &[&Asked], uri: &Uri, mode: &str) -> String {
    let names = ours.iter().map(|asked| asked.host.as_str()).collect::<Vec<_>>().join(", ");
    if uri.direct {
        return format!("{names} takes no writes, and directConnection=true means it alone; leave that out");
    }
    if ours.iter().all(|asked| asked.says("isreplicaset")) {
        return format!("{names}: in no replica set yet: rs.initiate()");
    }
    let what = if mode.starts_with("secondary") { "secondary to read from" } else { "primary" };
    let silent: Vec<&str> = all.iter().filter(|asked| asked.hello.is_err()).map(|asked| asked.host.as_str()).collect();
    let silent = if silent.is_empty() { String::new() } else { format!(", {} did not", silent.join(", ")) };
    format!("the set has no {what} now: {names} answered{silent}; `baton status` says more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    fn asked(host: &str, hello: Option<Document>, took_ms: u64) -> Asked {
        let hello = hello.ok_or_else(|| format!("cannot reach {host}"));
        Asked { host: host.into(), hello, took: Duration::from_millis(took_ms) }
    }

    fn set() -> Vec<Asked> {
        let is = |role: &str| Some(doc! { "setName": "rs0", role: true });
        vec![
            asked("a:1", None, 0),
            asked("b:1", is("secondary"), 5),
            asked("c:1", is("isWritablePrimary"), 9),
            asked("d:1", is("secondary"), 2),
            asked("e:1", is("arbiterOnly"), 1),
        ]
    }

    fn chosen(options: &str, wanted: Wanted) -> Result<String, String> {
        let uri = Uri::parse(&format!("mongodb://a:1,b:1/?{options}")).unwrap();
        choose(&set(), &uri, wanted).map(str::to_owned)
    }

    #[test]
    fn the_member_is_chosen_by_what_it_is_wanted_for_and_not_by_its_place_in_the_string() {
        assert_eq!(chosen("", Wanted::Writes).unwrap(), "c:1");
        assert_eq!(chosen("readPreference=secondary", Wanted::Writes).unwrap(), "c:1");
        assert_eq!(chosen("", Wanted::Reads).unwrap(), "c:1");
        assert_eq!(chosen("readPreference=secondary", Wanted::Reads).unwrap(), "d:1");
        assert_eq!(chosen("readPreference=secondaryPreferred", Wanted::Reads).unwrap(), "d:1");
        assert_eq!(chosen("readPreference=primaryPreferred", Wanted::Reads).unwrap(), "c:1");
        assert_eq!(chosen("readPreference=nearest", Wanted::Reads).unwrap(), "d:1");
        assert_eq!(chosen("replicaSet=rs0", Wanted::Reads).unwrap(), "c:1");
    }

    #[test]
    fn a_member_of_another_set_is_not_used() {
        let why = chosen("replicaSet=rs1", Wanted::Reads).unwrap_err();
        assert!(why.contains("b:1 belongs to the replica set 'rs0', not to 'rs1'"), "{why}");
    }

    #[test]
    fn where_there_is_nobody_the_reason_names_who_answered_and_who_did_not() {
        let uri = Uri::parse("mongodb://a:1").unwrap();
        let mut all = set();
        all.retain(|asked| !asked.is_primary());
        let why = choose(&all, &uri, Wanted::Writes).unwrap_err();
        assert!(why.contains("no primary now: b:1, d:1, e:1 answered, a:1 did not"), "{why}");
        assert_eq!(choose(&all[..1], &uri, Wanted::Writes).unwrap_err(), "cannot reach a:1");
        let fresh = [asked("a:1", Some(doc! { "isreplicaset": true }), 1)];
        assert!(choose(&fresh, &uri, Wanted::Reads).unwrap_err().contains("rs.initiate()"));
        let direct = Uri::parse("mongodb://b:1/?directConnection=true").unwrap();
        assert_eq!(choose(&set()[1..2], &direct, Wanted::Reads).unwrap(), "b:1");
        assert!(choose(&set()[1..2], &direct, Wanted::Writes).unwrap_err().contains("directConnection"));
    }
}
