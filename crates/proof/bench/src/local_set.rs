//! Three members on this machine that are one set, for the experiments that need one.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};

use crate::Failure;
use crate::client::{Wire, primary_of};
use crate::member::{PlaceArgs, binary_of};
use crate::process::{Process, free_ports};

/// How long the members may take to settle.
const PATIENCE: Duration = Duration::from_secs(60);

/// The set. Its members stop when it is dropped.
pub struct LocalSet {
    binary: std::path::PathBuf,
    directory: std::path::PathBuf,
    cache_gb: f64,
    ports: Vec<u16>,
    members: Vec<Option<Process>>,
}

impl LocalSet {
    /// Starts and initiates `count` members with these settings, and waits until one is primary and the others secondaries.
    ///
    /// # Errors
    /// If a member does not start or the set does not settle.
    pub fn start(
        place: &PlaceArgs,
        directory: &Path,
        count: usize,
        cache_gb: f64,
        settings: &Document,
    ) -> Result<Self, Failure> {
        let ports = free_ports(count)?;
        let (binary, directory) = (binary_of(place)?, directory.to_owned());
        let mut set = Self { binary, directory, cache_gb, members: ports.iter().map(|_| None).collect(), ports };
        for index in 0..count {
            set.restart(index)?;
        }
        let members: Vec<Bson> = set
            .addresses()
            .into_iter()
            .enumerate()
            .map(|(id, host)| Bson::Document(doc! { "_id": id as i32, "host": host }))
            .collect();
        let configuration = doc! { "_id": "rs0", "version": 1, "members": members, "settings": settings.clone() };
        let reply = set.ask(0, &doc! { "replSetInitiate": configuration, "$db": "admin" })?;
        if !reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            return Err(format!("the set was not initiated: {reply}").into());
        }
        set.settle()?;
        Ok(set)
    }

    /// The members' addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// How many members there are, those that do not run included.
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The program that the members are.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A connection string.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?replicaSet=rs0", self.addresses().join(","))
    }

    /// The members that run.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().flatten().map(Process::pid).collect()
    }

    /// Asks one member.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(&self, index: usize, command: &Document) -> Result<Document, Failure> {
        Wire::connect(&format!("127.0.0.1:{}", self.ports[index]))?.command(command)
    }

    /// Which member is primary.
    ///
    /// # Errors
    /// If none is for half a minute.
    pub fn primary(&self) -> Result<usize, Failure> {
        let address = primary_of(&self.uri())?;
        self.addresses()
            .iter()
            .position(|known| *known == address)
            .ok_or_else(|| format!("{address} is no member").into())
    }

    /// Waits until one member is primary and all others are secondaries.
    ///
    /// # Errors
    /// If that does not come about.
    pub fn settle(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        let is = |hello: &Document, what: &str| hello.get_bool(what).unwrap_or(false);
        loop {
            let hellos: Vec<Document> = (0..self.ports.len())
                .filter_map(|index| self.ask(index, &doc! { "hello": 1, "$db": "admin" }).ok())
                .collect();
            let primaries = hellos.iter().filter(|hello| is(hello, "isWritablePrimary")).count();
            let secondaries = hellos.iter().filter(|hello| is(hello, "secondary")).count();
            if primaries == 1 && primaries + secondaries == self.ports.len() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the set does not settle: {hellos:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a member, as a crash would.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self, index: usize) -> Result<(), Failure> {
        match self.members[index].take() {
            Some(member) => member.kill(),
            None => Ok(()),
        }
    }

    /// Stops a member's clock, or lets it go on.
    pub fn freeze(&self, index: usize, on: bool) {
        if let Some(member) = &self.members[index] {
            member.freeze(on);
        }
    }

    /// Kills a member and takes its data away.
    ///
    /// # Errors
    /// If it cannot be waited for, or its data stays.
    pub fn empty(&mut self, index: usize) -> Result<(), Failure> {
        self.kill(index)?;
        Ok(std::fs::remove_dir_all(self.data_of(index))?)
    }

    /// Copies what the members have said since they were last started to a folder, which is made if it is missing.
    ///
    /// # Errors
    /// If one of them cannot be read, or written there.
    pub fn copy_logs(&self, to: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(to)?;
        for index in 0..self.ports.len() {
            let name = format!("member{index}.out");
            std::fs::copy(self.directory.join(&name), to.join(&name))?;
        }
        Ok(())
    }

    fn data_of(&self, index: usize) -> std::path::PathBuf {
        self.directory.join(format!("member{index}"))
    }

    /// Starts a member, with the data it has.
    ///
    /// # Errors
    /// If it does not come to listen.
    pub fn restart(&mut self, index: usize) -> Result<(), Failure> {
        self.restart_with(index, &[])
    }

    /// Starts a member with these parameters, and the data it has.
    ///
    /// # Errors
    /// If it does not come to listen.
    pub fn restart_with(&mut self, index: usize, parameters: &[(&str, &str)]) -> Result<(), Failure> {
        let (port, data) = (self.ports[index], self.data_of(index));
        std::fs::create_dir_all(&data)?;
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--replSet", "rs0", "--http", "false", "--unixSocket", "false"]);
        command.args(["--port", &port.to_string(), "--wiredTigerCacheSizeGB", &self.cache_gb.to_string()]);
        command.arg("--dbpath").arg(&data);
        for (name, value) in parameters {
            command.arg("--setParameter").arg(format!("{name}={value}"));
        }
        self.members[index] = Some(Process::start(&format!("member{index}"), command, port, &self.directory)?);
        Ok(())
    }
}
