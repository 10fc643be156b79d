//! Asks a member to let a task begin, waits for as long as that takes, and says meanwhile what the task waits for.
//!
//! ```text
//!  the task's connection ── replSetBeginTask ───────────────── waits ─────────────────▶ answer
//!  one beside it          hello, serverStatus (once a second): what does the task wait for?
//! ```
//!
//! Invariants:
//! - The task's connection waits without end, whatever `socketTimeoutMS` says: that is for answers which should come at once, and the
//!   task has its place in the line by this connection alone.
//! - A member that answers nothing on a connection beside it, three times on end, is given up: the answer is an error then.
//! - What the task waits for is told when it is known, and again when it is something else.

use super::Request;
use crate::connection::{Connection, Hangup};
use crate::topology;
use crate::uri::Uri;
use bson::{Bson, Document};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

/// How often it is looked what the task waits for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often on end a member may answer nothing.
const SILENCES_MAX: u32 = 3;

/// Who asks whom for what.
#[derive(Clone)]
pub struct Asking {
    /// `baton task`, say.
    pub program: &'static str,
    /// By this the member is reached once more.
    pub uri: Uri,
    /// The member.
    pub host: String,
    /// The task.
    pub request: Request,
}

impl Asking {
    /// Asks by this connection, and waits for as long as the task does, or `wait_max`. The member's answer, whether it says yes or no.
    ///
    /// # Errors
    /// If the member could not be asked, or is gone.
    pub fn ask(&self, connection: &mut Connection, wait_max: Option<Duration>) -> Result<Document, String> {
        connection.wait_for_answers(None)?;
        let hangup = connection.hangup()?;
        let (over, is_over) = channel();
        let asking = self.clone();
        // Nobody waits for it: it may be waiting for a connection that the member does not answer on.
        std::thread::spawn(move || asking.watch(&is_over, &hangup));
        let answer = connection.ask("admin", self.request.command(wait_max));
        // There is nobody to tell where the one beside has given up.
        let _ = over.send(());
        let answer = answer?;
        connection.wait_for_answers(self.uri.answer_time())?;
        Ok(answer)
    }

    fn watch(&self, is_over: &Receiver<()>, hangup: &Hangup) {
        let (mut beside, mut told, mut silences) = (None, String::new(), 0);
        while is_over.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let looked = self.look(&mut beside);
            if is_over.try_recv() != Err(TryRecvError::Empty) {
                return;
            }
            match looked {
                Ok(why) => {
                    silences = 0;
                    if let Some(why) = why.filter(|why| *why != told) {
                        eprintln!("{}: {}: the task waits: {why}", self.program, self.host);
                        told = why;
                    }
                }
                Err(_) => {
                    beside = None;
                    silences += 1;
                }
            }
            if silences == SILENCES_MAX {
                return hangup.hang_up();
            }
        }
    }

    /// What the task waits for; none if it does not.
    fn look(&self, beside: &mut Option<Connection>) -> Result<Option<String>, String> {
        let connection = match beside {
            Some(connection) => connection,
            None => beside.insert(topology::open(&self.host, &self.uri, self.program)?.0),
        };
        let status = connection.ask("admin", bson::doc! { "serverStatus": 1 })?;
        let waiting = status.get_document("tasks").and_then(|tasks| tasks.get_array("waiting")).ok();
        let is_ours = |task: &&Document| {
            let says = |field: &str, text: &str| task.get_str(field).is_ok_and(|said| said == text);
            says("kind", &self.request.kind) && says("name", &self.request.name)
        };
        let ours = waiting.into_iter().flatten().filter_map(Bson::as_document).find(is_ours);
        Ok(ours.and_then(|task| task.get_str("why").ok()).filter(|why| !why.is_empty()).map(str::to_owned))
    }
}
