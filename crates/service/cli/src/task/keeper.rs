//! Looks after the connection that a task lives by while its program runs.
//!
//! Invariants:
//! - The task is ended by whoever began it, once its program has ended.
//! - If the connection breaks, the member has ended the task; who looks is told so, and it is begun again on the same member as soon as
//!   that lets it: the program is at work there.
//! - If the member says that the task is to end before it is done, because it is needed as primary, the program is to stop.
//!
//! What it deliberately does not do: hold the program up otherwise. That goes on whatever becomes of the connection.

use super::{Begun, Request};
use crate::connection::Connection;
use crate::topology;
use crate::uri::Uri;
use bson::{Bson, Document, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the connection is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the member may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// `InterruptedDueToReplStateChange`.
const TO_END: i32 = 11602;
/// How long one asking for a task that runs already waits.
const BEGIN_MAX: Duration = Duration::from_secs(1);

/// See the file's header.
pub struct Keeper {
    over: Sender<()>,
    thread: JoinHandle<()>,
}

struct Kept {
    host: String,
    uri: Uri,
    request: Request,
    /// The connection and the task; none while it is broken.
    open: Option<(Connection, i64)>,
    program_is_to_stop: Arc<AtomicBool>,
}

impl Keeper {
    /// Looks after this task from now on; sets the flag if the program is to stop.
    pub fn start(begun: Begun, uri: Uri, request: Request, program_is_to_stop: &Arc<AtomicBool>) -> Self {
        let id = begun.id();
        let mut connection = begun.connection;
        let open = connection.wait_for_answers(Some(ANSWER_MAX)).is_ok().then_some((connection, id));
        let kept = Kept { host: begun.host, uri, request, open, program_is_to_stop: Arc::clone(program_is_to_stop) };
        let (over, is_over) = channel();
        let thread = std::thread::spawn(move || kept.keep(&is_over));
        Self { over, thread }
    }

    /// The program has ended.
    pub fn end(self) {
        let _ = self.over.send(());
        // A panic there has been printed; the task ends with this process.
        let _ = self.thread.join();
    }
}

impl Kept {
    fn keep(mut self, is_over: &Receiver<()>) {
        loop {
            match is_over.recv_timeout(LOOK_INTERVAL) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            match &mut self.open {
                None if self.program_is_to_stop.load(Ordering::Relaxed) => {}
                None => self.begin_again(),
                Some((connection, id)) => {
                    let answer = connection.ask("admin", doc! { "ping": 1 });
                    let id = *id;
                    self.look_at(id, answer);
                }
            }
        }
    }

    fn look_at(&mut self, id: i64, answer: Result<Document, String>) {
        let host = &self.host;
        match answer {
            Ok(answer) if answer.get("code").and_then(Bson::as_i32) == Some(TO_END) => {
                let why = answer.get_str("errmsg").unwrap_or_default();
                eprintln!("baton task: {host}: {why}. The program is sent SIGTERM");
                self.program_is_to_stop.store(true, Ordering::Relaxed);
                self.open = None;
            }
            Ok(_) => {}
            Err(why) => {
                eprintln!("baton task: {host}: {why}. Task {id} has ended with its connection; the program goes on");
                self.open = None;
            }
        }
    }

    fn begin_again(&mut self) {
        if let Ok((connection, answer)) = self.try_begin() {
            let id = answer.get_i64("taskId").unwrap_or_default();
            eprintln!("baton task: {}: the program is task {id} now", self.host);
            self.open = Some((connection, id));
        }
    }

    fn try_begin(&self) -> Result<(Connection, Document), String> {
        let (mut connection, _) = topology::open(&self.host, &self.uri, "baton task")?;
        connection.wait_for_answers(Some(ANSWER_MAX))?;
        let answer = connection.run(self.request.command(Some(BEGIN_MAX)))?;
        Ok((connection, answer))
    }

    fn end(mut self) {
        let Some((connection, id)) = &mut self.open else {
            return eprintln!("baton task: {}: the program ended as nobody's task", self.host);
        };
        if let Err(why) = connection.run(doc! { "replSetEndTask": 1, "taskId": *id }) {
            eprintln!("baton task: {}: {why}. Task {id} has ended with its connection", self.host);
        }
    }
}
