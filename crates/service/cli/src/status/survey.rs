//! What the members of a set say of themselves, and what one of them says of those that say nothing.
//!
//! Invariant: nobody who is silent keeps the others waiting: all are asked at once.
//! Not here: what it means (`report`).

use crate::connection::Connection;
use crate::topology::{self, Asked};
use crate::uri::Uri;
use bson::{Bson, Document, Timestamp, doc};
use std::collections::BTreeSet;
use std::time::Duration;

const APP_NAME: &str = "baton status";
/// How long a member that lacks the primary's newest entry has to fetch it before it counts as behind.
const CATCH_UP: Duration = Duration::from_millis(300);

/// What one host says.
#[derive(Debug)]
pub struct Told {
    /// The name that its set has for it, or the address that it was asked at.
    pub name: String,
    /// The address that it was asked at.
    pub host: String,
    /// `hello`, or why there is none.
    pub hello: Result<Document, String>,
    /// `replSetGetStatus`, or why it has none.
    pub status: Result<Document, String>,
    /// `serverStatus`.
    pub server: Document,
}

/// What all say.
#[derive(Debug, Default)]
pub struct Survey {
    /// Everybody who was asked.
    pub told: Vec<Told>,
    /// The newest configuration that anybody has, `None` without a set.
    pub configuration: Option<Document>,
}

/// Asks everybody.
///
/// # Errors
/// If nobody answers, or nobody of the set that is meant.
pub fn take(uri: &Uri) -> Result<Survey, String> {
    let mut asked = topology::discover(uri, APP_NAME);
    if asked.iter().all(|one| one.hello.is_err()) {
        let reasons: Vec<&str> = asked.iter().filter_map(|one| one.hello.as_ref().err()).map(String::as_str).collect();
        return Err(reasons.join("; "));
    }
    refuse_other_sets(&asked, uri)?;
    // The primary first: whoever is asked after it can have what it had then.
    asked.sort_by_key(|one| !one.is_primary());
    let mut survey = Survey::default();
    let (primaries, others): (Vec<Asked>, Vec<Asked>) = asked.into_iter().partition(Asked::is_primary);
    survey.told.extend(ask_all(primaries, uri));
    survey.told.extend(ask_all(others, uri));
    survey.configuration = newest_configuration(&survey.told, uri);
    if !uri.direct {
        ask_hidden(&mut survey, uri);
    }
    ask_again(&mut survey, uri);
    Ok(survey)
}

fn refuse_other_sets(asked: &[Asked], uri: &Uri) -> Result<(), String> {
    let Some(wanted) = &uri.replica_set else { return Ok(()) };
    let names: BTreeSet<&str> =
        asked.iter().filter_map(|one| one.hello.as_ref().ok()?.get_str("setName").ok()).collect();
    if names.is_empty() || names.contains(wanted.as_str()) {
        return Ok(());
    }
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Err(format!("these are members of the replica set {names}, not of '{wanted}' (replicaSet)"))
}

fn ask_all(asked: Vec<Asked>, uri: &Uri) -> Vec<Told> {
    std::thread::scope(|scope| {
        let asking: Vec<_> = asked
            .into_iter()
            .map(|one| {
                let (name, host) = (one.name().to_owned(), one.host.clone());
                (name, host, scope.spawn(move || ask(one, uri)))
            })
            .collect();
        let told = asking.into_iter().map(|(name, host, thread)| {
            thread.join().unwrap_or_else(|_| silent(name, host, "was not asked: the thread for it died".into()))
        });
        told.collect()
    })
}

fn silent(name: String, host: String, why: String) -> Told {
    Told { name, host, hello: Err(why), status: Err(String::new()), server: Document::new() }
}

fn ask(asked: Asked, uri: &Uri) -> Told {
    let (name, host) = (asked.name().to_owned(), asked.host);
    let (mut connection, hello) = match asked.hello.and_then(|_| topology::open(&host, uri, APP_NAME)) {
        Ok(opened) => opened,
        Err(why) => return silent(name, host, why),
    };
    let server = connection.run(doc! { "serverStatus": 1, "metrics": 0 }).unwrap_or_default();
    let status = status_of(&mut connection);
    Told { name, host, hello: Ok(hello), status, server }
}

fn status_of(connection: &mut Connection) -> Result<Document, String> {
    connection.run(doc! { "replSetGetStatus": 1 })
}

fn newest_configuration(told: &[Told], uri: &Uri) -> Option<Document> {
    let version = |configuration: &Document| {
        let number = |key| configuration.get(key).map_or(0, whole);
        (number("term"), number("version"))
    };
    let members = told.iter().filter(|one| one.hello.as_ref().is_ok_and(|hello| hello.contains_key("setName")));
    let ask = |one: &Told| {
        let (mut connection, _) = topology::open(&one.host, uri, APP_NAME).ok()?;
        let reply = connection.run(doc! { "replSetGetConfig": 1 }).ok()?;
        reply.get_document("config").ok().cloned()
    };
    members.filter_map(ask).max_by_key(version)
}

/// Asks members that no `hello` names: hidden ones.
fn ask_hidden(survey: &mut Survey, uri: &Uri) {
    let Some(configuration) = &survey.configuration else { return };
    let members = configuration.get_array("members").map(Vec::as_slice).unwrap_or_default();
    let hosts = members.iter().filter_map(|member| member.as_document()?.get_str("host").ok());
    let unasked: Vec<Asked> = hosts
        .filter(|host| survey.told.iter().all(|one| one.name != *host))
        .map(|host| Asked { host: host.to_owned(), hello: Ok(Document::new()), took: Duration::ZERO })
        .collect();
    survey.told.extend(ask_all(unasked, uri));
}

/// Asks those once more who lack the primary's newest entry: it may have been written between the questions.
fn ask_again(survey: &mut Survey, uri: &Uri) {
    let Some(newest) = survey.told.iter().find(|one| one.is_primary()).and_then(Told::optime) else { return };
    let is_behind = |one: &Told| one.optime().is_some_and(|own| own < newest);
    if !survey.told.iter().any(is_behind) {
        return;
    }
    std::thread::sleep(CATCH_UP);
    for one in survey.told.iter_mut().filter(|one| is_behind(one)) {
        if let Ok((mut connection, _)) = topology::open(&one.host, uri, APP_NAME)
            && let Ok(status) = status_of(&mut connection)
        {
            one.status = Ok(status);
        }
    }
}

/// A number of any of BSON's kinds, as a whole one.
pub fn whole(value: &Bson) -> i64 {
    match value {
        Bson::Int32(n) => i64::from(*n),
        Bson::Int64(n) => *n,
        Bson::Double(n) => *n as i64,
        _ => 0,
    }
}

impl Told {
    /// Whether it takes writes.
    pub fn is_primary(&self) -> bool {
        self.hello.as_ref().is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
    }

    /// What it says of itself among the set's members.
    pub fn own_entry(&self) -> Option<&Document> {
        let members = self.status.as_ref().ok()?.get_array("members").ok()?;
        members.iter().filter_map(Bson::as_document).find(|member| member.get_bool("self").unwrap_or(false))
    }

    /// The term and time of the newest entry that it has applied; none where it has nothing yet.
    pub fn optime(&self) -> Option<(i64, Timestamp)> {
        optime_of(self.own_entry()?)
    }
}

/// The `optime` of a member's entry, unless it has none yet.
pub fn optime_of(member: &Document) -> Option<(i64, Timestamp)> {
    let optime = member.get_document("optime").ok()?;
    let ts = optime.get_timestamp("ts").ok().filter(|ts| ts.time > 0)?;
    Some((optime.get("t").map_or(0, whole), ts))
}
