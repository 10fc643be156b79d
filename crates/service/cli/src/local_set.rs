//! `baton up --members N`: a replica set of several members on this machine, each a process of its own.
//!
//! The processes are `baton serve`, so that a member can be killed, watched and started again like any other. One that ends by
//! itself is started again after a moment: whoever kills a member sees it return.
//!
//! Invariant: every process that was started is stopped before this ends, secondaries first. If this is killed, the kernel tells
//! each of them to stop.

use crate::connection::{Connection, Timeouts};
use crate::shares::Shares;
use baton_node::contents;
use baton_node::signals::Signals;
use bson::{Bson, Document, doc};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the members may take to begin to answer, and then to elect a primary.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the processes are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a member that ended stays away; twice as long after each start that came to nothing, up to so many times.
const RETURN_AFTER: Duration = Duration::from_secs(3);
const DOUBLINGS_MAX: u32 = 4;
/// How long a member that was started again may take to answer a look.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);
/// How long a member may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

struct Process {
    port: u16,
    data: PathBuf,
    child: Option<Child>,
    ended_at: Option<Instant>,
    /// Whether the process has answered since it was started.
    has_answered: bool,
    /// Starts in a row that came to nothing.
    failed_starts: u32,
}

/// What members are started with.
struct Order<'a> {
    set_name: &'a str,
    shares: Shares,
}

/// A local set.
pub struct LocalSet {
    name: String,
    shares: Shares,
    members: Vec<Process>,
}

impl LocalSet {
    /// Starts `count` members on ports from `port` on, with their data below `data`, and makes a set of them if they are in none yet.
    ///
    /// # Errors
    /// With a text for the operator; nothing is left running then.
    pub fn start(name: &str, count: u16, port: u16, data: &Path) -> Result<Self, String> {
        check_folder(count, data)?;
        let mut set = Self { name: name.to_owned(), shares: Shares::of(count, data), members: Vec::new() };
        for index in 0..count {
            let port = port.checked_add(index).ok_or("the ports do not fit below 65536")?;
            let data = data.join(format!("member{index}"));
            set.members.push(Process::new(port, data));
        }
        match set.begin() {
            Ok(()) => Ok(set),
            Err(why) => {
                set.stop();
                Err(why)
            }
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        let order = Order { set_name: &self.name, shares: self.shares };
        for member in &mut self.members {
            member.spawn(&order)?;
        }
        let deadline = Instant::now() + PATIENCE;
        for member in &mut self.members {
            member.await_answer(deadline)?;
        }
        self.initiate()?;
        self.await_primary(deadline)
    }

    /// The hosts, as a connection string has them.
    fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect()
    }

    /// The connection string.
    pub fn connection_string(&self) -> String {
        format!("mongodb://{}/?replicaSet={}", self.hosts().join(","), self.name)
    }

    /// Each member's address, process id and folder.
    pub fn describe(&self) -> Vec<String> {
        let line = |member: &Process| {
            let pid = member.child.as_ref().map_or(0, Child::id);
            format!("127.0.0.1:{}  process {pid}  {}", member.port, member.data.display())
        };
        self.members.iter().map(line).collect()
    }

    /// What each member has taken of the machine, by its own word.
    pub fn describe_sizes(&self) -> String {
        let sizes = |index: usize| {
            let status = self.connect(index).ok()?.run(doc! { "serverStatus": 1 }).ok()?;
            let rocksdb = status.get_document("rocksdb").ok()?;
            let size = |section: &str| rocksdb.get_document(section).ok()?.get_i64("maxBytes").ok();
            Some(format!("cache {} MB, oplog {} MB", size("cache")? >> 20, size("oplog")? >> 20))
        };
        let mut all: Vec<String> = (0..self.members.len()).filter_map(sizes).collect();
        all.dedup();
        match all.as_slice() {
            [one] => format!("{one} each"),
            _ => all.join("; "),
        }
    }

    fn initiate(&self) -> Result<(), String> {
        let mut connection = self.connect(0)?;
        let members: Vec<Bson> = self
            .hosts()
            .into_iter()
            .enumerate()
            .map(|(id, host)| Bson::Document(doc! { "_id": id as i32, "host": host }))
            .collect();
        let configuration = doc! { "_id": self.name.as_str(), "version": 1, "members": members };
        let reply = connection.ask("admin", doc! { "replSetInitiate": configuration })?;
        /// The members are in a set already: it is gone on with.
        const ALREADY_INITIALIZED: i32 = 23;
        if reply.get_f64("ok").unwrap_or_default() == 1.0 {
            return Ok(());
        }
        if reply.get_i32("code").ok() == Some(ALREADY_INITIALIZED) {
            return self.check_hosts(&mut connection);
        }
        Err(reply.get_str("errmsg").unwrap_or("the set was not initiated").to_owned())
    }

    /// Whether the set that the members are in is one of these hosts: no other port leads to it.
    fn check_hosts(&self, connection: &mut Connection) -> Result<(), String> {
        let reply = connection.ask("admin", doc! { "replSetGetConfig": 1 })?;
        let members = reply.get_document("config").and_then(|config| config.get_array("members"));
        let Ok(members) = members else { return Ok(()) };
        let host = |member: &Bson| member.as_document().and_then(|m| m.get_str("host").ok()).map(str::to_owned);
        let configured: BTreeSet<String> = members.iter().filter_map(host).collect();
        let wanted: BTreeSet<String> = self.hosts().into_iter().collect();
        if wanted.is_subset(&configured) {
            return Ok(());
        }
        let data = self.members[0].data.parent().unwrap_or(&self.members[0].data).display();
        let first = configured.iter().next().and_then(|host| host.rsplit_once(':')).map_or("?", |(_, port)| port);
        let advice = match configured.is_subset(&wanted) {
            true => format!("--members {}", configured.len()),
            false => format!("--port {first}"),
        };
        Err(format!(
            "{data} holds a set whose members are {}, and here they would be {}. Start it with {advice}, or another set with another --data",
            configured.iter().cloned().collect::<Vec<_>>().join(", "),
            wanted.iter().cloned().collect::<Vec<_>>().join(", ")
        ))
    }

    fn await_primary(&self, deadline: Instant) -> Result<(), String> {
        while Instant::now() < deadline {
            for index in 0..self.members.len() {
                let hello: Option<Document> =
                    self.connect(index).ok().and_then(|mut c| c.run(doc! { "hello": 1 }).ok());
                if hello.is_some_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false)) {
                    return Ok(());
                }
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Err("the members elected no primary; their logs say more".to_owned())
    }

    fn connect(&self, index: usize) -> Result<Connection, String> {
        self.members[index].connect(Timeouts::default())
    }

    /// Looks after the processes until somebody asks to stop.
    pub fn run(&mut self, signals: &Signals) {
        let order = Order { set_name: &self.name, shares: self.shares };
        while !signals.stop_asked() {
            for member in &mut self.members {
                if let Some(news) = member.look_after(&order) {
                    println!("  {news}");
                }
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Stops all members, the primary last, so that it need not be elected anew on the way.
    pub fn stop(&mut self) {
        let is_primary = |set: &Self, index: usize| {
            let hello = set.connect(index).ok().and_then(|mut c| c.run(doc! { "hello": 1 }).ok());
            hello.is_some_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))
        };
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|index| is_primary(self, *index));
        for index in order {
            self.members[index].stop();
        }
    }
}

/// Whether a set of so many members can be made in this folder, or goes on there.
fn check_folder(count: u16, data: &Path) -> Result<(), String> {
    let shown = data.display();
    if data.join(contents::DATABASE).exists() {
        return Err(format!(
            "{shown} holds the data of one member alone. Start it with --members 1, or a set with another --data; to give that member \
             others, see docs/replication.md"
        ));
    }
    let entries = std::fs::read_dir(data).into_iter().flatten().filter_map(Result::ok);
    let there = entries.filter(|entry| contents::is_member(&entry.path())).count();
    if there > usize::from(count) {
        return Err(format!(
            "{shown} holds a set of {there} members. Start it with --members {there}, or another with another --data"
        ));
    }
    if there == 0 { contents::check(data) } else { Ok(()) }
}

impl Process {
    fn new(port: u16, data: PathBuf) -> Self {
        Self { port, data, child: None, ended_at: None, has_answered: false, failed_starts: 0 }
    }

    fn connect(&self, timeouts: Timeouts) -> Result<Connection, String> {
        Connection::open(&format!("127.0.0.1:{}", self.port), timeouts)
    }

    /// Starts the process again when it is time to; returns what there is to tell of it.
    fn look_after(&mut self, order: &Order<'_>) -> Option<String> {
        let port = self.port;
        if let Some(status) = self.look() {
            return Some(if self.failed_starts == 0 {
                format!("the member at 127.0.0.1:{port} ended ({status}); it returns in a moment")
            } else {
                let log = self.data.join("baton.log");
                let seconds = self.stays_away().as_secs();
                format!(
                    "the member at 127.0.0.1:{port} does not start ({status}), next try in {seconds} s: {} says why",
                    log.display()
                )
            });
        }
        if self.ended_at.is_some_and(|at| at.elapsed() >= self.stays_away()) {
            return self.spawn(order).err().map(|why| {
                self.failed();
                format!("the member at 127.0.0.1:{port} does not start: {why}")
            });
        }
        (!self.has_answered && self.answers()).then(|| {
            (self.has_answered, self.failed_starts) = (true, 0);
            format!("the member at 127.0.0.1:{port} is back")
        })
    }

    fn stays_away(&self) -> Duration {
        RETURN_AFTER * 2_u32.pow(self.failed_starts.min(DOUBLINGS_MAX))
    }

    fn failed(&mut self) {
        self.failed_starts += 1;
        self.ended_at = Some(Instant::now());
    }

    /// Whether it is this process that answers on its port, and no other.
    fn answers(&self) -> bool {
        let Some(child) = &self.child else { return false };
        let status = self
            .connect(Timeouts::both(LOOK_PATIENCE))
            .and_then(|mut connection| connection.run(doc! { "serverStatus": 1 }));
        status.is_ok_and(|status| status.get_i64("pid").is_ok_and(|pid| pid == i64::from(child.id())))
    }

    fn spawn(&mut self, order: &Order<'_>) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("a member on port {} cannot be started: {error}", self.port);
        std::fs::create_dir_all(&self.data).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg("--dbpath")
            .arg(&self.data)
            .args(["--port", &self.port.to_string(), "--replSet", order.set_name, "--logappend", "--logpath"])
            .arg(self.data.join("baton.log"))
            .args(["--cacheSizeGB", &order.shares.cache_gb()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C is this process's to pass on: the members stop one after the other.
            .process_group(0);
        // An oplog that is there keeps its size.
        if !self.data.join("rocksdb").exists() {
            command.args(["--oplogSize", &order.shares.oplog_mb()]);
        }
        end_with_this_thread(&mut command);
        self.child = Some(command.spawn().map_err(failed)?);
        (self.ended_at, self.has_answered) = (None, false);
        Ok(())
    }

    /// Whether the process has ended since the last look, and how.
    fn look(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        if self.has_answered {
            self.ended_at = Some(Instant::now());
        } else {
            self.failed();
        }
        Some(status)
    }

    fn await_answer(&mut self, deadline: Instant) -> Result<(), String> {
        loop {
            if let Some(status) = self.look() {
                let log = self.data.join("baton.log");
                return Err(format!("the member on port {} ended ({status}); see {}", self.port, log.display()));
            }
            match self.connect(Timeouts::default()).and_then(|mut connection| connection.run(doc! { "ping": 1 })) {
                Ok(_) => {
                    self.has_answered = true;
                    return Ok(());
                }
                Err(why) if Instant::now() >= deadline => return Err(why),
                Err(_) => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if !baton_node::signals::ask_to_stop(child.id()) {
            return;
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It had its time; what it acknowledged is on disk.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Has the process told to stop when the thread that starts it ends, which is the kernel's measure of a parent's end. It is the main
/// thread here, so that is when this process ends, in whatever way.
fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec these only set a flag of the new process, ask for its parent, and end it.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // It may have ended before the flag was set.
            if libc::getppid() as u32 != parent {
                libc::_exit(0);
            }
            Ok(())
        });
    }
}

impl Drop for LocalSet {
    fn drop(&mut self) {
        self.stop();
    }
}
