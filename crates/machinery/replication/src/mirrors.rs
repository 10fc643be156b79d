//! Reads of the primary's clients, carried out once more by members that may follow it, so that their caches have what it reads.
//!
//! One way to each such member: a thread with a connection, and a short queue. A member that copies, recovers or cannot be reached
//! answers with an error or not at all, and nobody minds.
//!
//! Invariants:
//! - [`Mirrors::send`] never waits: not for the network, not for a member, not for room in a queue.
//! - So many commands are on their way to a member at most, whatever is sent; those beyond are dropped, and counted.
//!
//! What it deliberately does not do: choose what is mirrored, or how much of it.

use baton_consensus::View;
use baton_net::{CallError, Outgoing};
use bson::{RawDocumentBuf, rawdoc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Commands that wait for one member.
const WAITING_MAX: usize = 64;
/// How long a member may take to take a connection, and how long it is left alone after it has not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer may take beyond what the command says, so that the member is heard if it gives up.
const GRACE: Duration = Duration::from_secs(1);
/// A thread reads and writes small messages.
const STACK_SIZE_BYTES: usize = 512 * 1024;

#[derive(Debug)]
struct Job {
    command: RawDocumentBuf,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    erred: AtomicU64,
    dropped: AtomicU64,
    pending: AtomicU64,
    resolved: AtomicU64,
    succeeded: AtomicU64,
}

/// What was mirrored since the start. A command that goes to two members counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorFigures {
    /// Sent.
    pub sent: u64,
    /// Not to be sent, or not answered.
    pub erred: u64,
    /// Not sent because too many were on their way.
    pub dropped: u64,
    /// On their way.
    pub pending: u64,
    /// Answered.
    pub resolved: u64,
    /// Answered with success.
    pub succeeded: u64,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    ways: Mutex<BTreeMap<String, SyncSender<Arc<Job>>>>,
    counters: Arc<Counters>,
}

/// The hosts of the other members that may become primary.
fn electable(view: &View) -> impl Iterator<Item = &str> {
    let members = view.configuration.iter().flat_map(|configuration| &configuration.members);
    members
        .filter(|member| view.me != Some(member.id) && !member.arbiter && member.priority > 0.0)
        .map(|member| member.host.as_str())
}

impl Mirrors {
    /// Sends a command to every other member that may become primary. It says itself how long it may take there; 0 is without end.
    pub fn send(&self, view: &View, command: RawDocumentBuf, time: Duration) {
        let timeout = if time.is_zero() { Duration::from_secs(60) } else { time + GRACE };
        let job = Arc::new(Job { command, timeout });
        let mut ways = self.ways.lock();
        ways.retain(|host, _| electable(view).any(|other| other == host));
        for host in electable(view) {
            if !ways.contains_key(host) {
                match self.start(host) {
                    Ok(way) => _ = ways.insert(host.to_owned(), way),
                    Err(error) => {
                        tracing::warn!(target: "REPL", host, error = %error, "No thread to mirror reads by");
                        self.counters.erred.fetch_add(1, Relaxed);
                        continue;
                    }
                }
            }
            let Some(way) = ways.get(host) else { continue };
            self.counters.pending.fetch_add(1, Relaxed);
            if let Err(error) = way.try_send(Arc::clone(&job)) {
                self.counters.pending.fetch_sub(1, Relaxed);
                let counter = match error {
                    TrySendError::Full(_) => &self.counters.dropped,
                    TrySendError::Disconnected(_) => &self.counters.erred,
                };
                counter.fetch_add(1, Relaxed);
            }
        }
    }

    /// The thread ends some time after its sender is dropped.
    fn start(&self, host: &str) -> std::io::Result<SyncSender<Arc<Job>>> {
        let (sender, jobs) = sync_channel(WAITING_MAX);
        let way =
            Way { host: host.to_owned(), counters: Arc::clone(&self.counters), connection: None, failed_at: None };
        let name = "mirror".to_owned();
        std::thread::Builder::new().name(name).stack_size(STACK_SIZE_BYTES).spawn(move || way.run(&jobs))?;
        Ok(sender)
    }

    /// See [`MirrorFigures`].
    pub fn figures(&self) -> MirrorFigures {
        let counters = &self.counters;
        MirrorFigures {
            sent: counters.sent.load(Relaxed),
            erred: counters.erred.load(Relaxed),
            dropped: counters.dropped.load(Relaxed),
            pending: counters.pending.load(Relaxed),
            resolved: counters.resolved.load(Relaxed),
            succeeded: counters.succeeded.load(Relaxed),
        }
    }
}

/// The thread of one member.
struct Way {
    host: String,
    counters: Arc<Counters>,
    connection: Option<Outgoing>,
    failed_at: Option<Instant>,
}

impl Way {
    fn run(mut self, jobs: &Receiver<Arc<Job>>) {
        while let Ok(job) = jobs.recv() {
            if let Err(error) = self.carry_out(&job) {
                self.connection = None;
                self.counters.erred.fetch_add(1, Relaxed);
                tracing::debug!(target: "REPL", host = self.host, error = %error, "A read was not mirrored");
            }
            self.counters.pending.fetch_sub(1, Relaxed);
        }
    }

    fn carry_out(&mut self, job: &Job) -> Result<(), CallError> {
        if self.connection.is_none() {
            self.connection = Some(self.connect()?);
        }
        let Some(connection) = &mut self.connection else { return Err(CallError::Closed) };
        self.counters.sent.fetch_add(1, Relaxed);
        let reply = connection.call(&job.command, job.timeout)?;
        self.counters.resolved.fetch_add(1, Relaxed);
        if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            self.counters.succeeded.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<Outgoing, CallError> {
        if self.failed_at.is_some_and(|at| at.elapsed() < CONNECT_TIMEOUT) {
            return Err(CallError::Closed);
        }
        let connected =
            Outgoing::connect(&self.host, CONNECT_TIMEOUT).map_err(CallError::from).and_then(|mut connection| {
                // Nobody waits for what comes here.
                connection.call(&rawdoc! { "batonYieldToClients": 1, "$db": "admin" }, CONNECT_TIMEOUT)?;
                Ok(connection)
            });
        self.failed_at = connected.is_err().then(Instant::now);
        connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_consensus::{Configuration, MemberId};
    use bson::rawdoc;
    use std::net::TcpListener;

    fn view(hosts: &[(&str, f64, bool)]) -> View {
        let members = hosts.iter().enumerate().map(|(id, (host, priority, arbiter))| {
            rawdoc! { "_id": id as i32, "host": *host, "priority": *priority, "arbiterOnly": *arbiter }
        });
        let members: bson::RawArrayBuf = members.collect();
        let configuration = rawdoc! { "_id": "rs", "version": 1, "members": members };
        let configuration = Configuration::parse(&configuration).unwrap();
        View { me: Some(MemberId(0)), configuration: Some(configuration), ..View::of_nobody() }
    }

    #[test]
    fn those_who_may_follow_are_sent_to_and_nobody_else() {
        let view = view(&[("a:1", 1.0, false), ("b:1", 1.0, false), ("c:1", 0.0, false), ("d:1", 0.0, true)]);
        assert_eq!(electable(&view).collect::<Vec<_>>(), ["b:1"]);
        assert_eq!(electable(&View::of_nobody()).count(), 0);
    }

    #[test]
    fn who_does_not_answer_holds_nobody_up_and_holds_no_more_than_the_bound() {
        // It takes connections and never says anything.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = silent.local_addr().unwrap().to_string();
        let (mirrors, view) = (Mirrors::default(), view(&[("a:1", 1.0, false), (&host, 1.0, false)]));
        let begun = Instant::now();
        for _ in 0..1000 {
            mirrors.send(&view, rawdoc! { "find": "c", "$db": "test" }, Duration::from_millis(100));
        }
        assert!(begun.elapsed() < CONNECT_TIMEOUT, "nobody waits");
        let figures = mirrors.figures();
        assert!(figures.pending <= WAITING_MAX as u64 + 1, "{figures:?}");
        assert!(figures.dropped >= 1000 - 2 * (WAITING_MAX as u64 + 1), "{figures:?}");
        assert_eq!((figures.sent, figures.resolved, figures.succeeded), (0, 0, 0));
        let deadline = Instant::now() + Duration::from_secs(20);
        while mirrors.figures().pending > 0 {
            assert!(Instant::now() < deadline, "{:?}", mirrors.figures());
            std::thread::sleep(Duration::from_millis(10));
        }
        let figures = mirrors.figures();
        assert_eq!(figures.erred + figures.dropped, 1000, "{figures:?}");
    }
}
