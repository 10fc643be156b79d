//! The members that the experiments start, and the options by which all of them are told where.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::client::initiate_alone;
use crate::process::{Process, free_port};

/// What every experiment wants to know.
#[derive(Clone, Debug, clap::Args)]
pub struct PlaceArgs {
    /// The binary whose members are measured [default: this one]
    #[arg(long)]
    pub baton: Option<PathBuf>,
    /// Where the servers keep their data; a folder of its own is made there, and removed at the end
    #[arg(long, default_value = "baton-bench-data")]
    pub dir: PathBuf,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the result as JSON to a file, too
    #[arg(long)]
    pub output: Option<PathBuf>,
}

impl PlaceArgs {
    /// An empty folder for the experiment `name`; only a folder of our own making is ever emptied.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn fresh(&self, name: &str) -> Result<Scratch, Failure> {
        let path = self.dir.join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        // A server may have another working directory.
        Ok(Scratch(path.canonicalize()?))
    }
}

/// A folder that goes when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A member to be started: a replica set of one.
#[derive(Clone, Debug)]
pub struct MemberSpec {
    /// The binary; `None` for the one that is running.
    pub binary: Option<PathBuf>,
    /// Where its data is (made if it is not there) and its output goes.
    pub dir: PathBuf,
    /// Memory for its cache.
    pub cache_gb: f64,
    /// Whether it has its status page.
    pub http: bool,
    /// Where it listens.
    pub port: u16,
}

impl MemberSpec {
    /// On a free port, without a status page.
    ///
    /// # Errors
    /// If no port is free.
    pub fn new(place: &PlaceArgs, dir: &Path, cache_gb: f64) -> Result<Self, Failure> {
        let port = free_port()?;
        Ok(Self { binary: place.baton.clone(), dir: dir.to_owned(), cache_gb, http: false, port })
    }

    /// Starts it, makes a set of it unless it is one already, and waits until it takes writes.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(&self) -> Result<Process, Failure> {
        let process = self.start_spare(&[])?;
        initiate_alone(&format!("127.0.0.1:{}", self.port))?;
        Ok(process)
    }

    /// Starts it with these parameters and leaves it as it is: in a set if it was in one.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_spare(&self, parameters: &[(&str, &str)]) -> Result<Process, Failure> {
        let binary = match &self.binary {
            Some(path) => path.clone(),
            None => this_binary()?,
        };
        let data = self.dir.join("baton");
        std::fs::create_dir_all(&data)?;
        let mut command = Command::new(binary);
        command.args(["serve", "--replSet", "rs0", "--http", if self.http { "true" } else { "false" }]);
        command.args(["--port", &self.port.to_string(), "--wiredTigerCacheSizeGB", &self.cache_gb.to_string()]);
        command.arg("--dbpath").arg(&data);
        for (name, value) in parameters {
            command.arg("--setParameter").arg(format!("{name}={value}"));
        }
        Process::start("baton", command, self.port, &self.dir)
    }
}

/// The binary whose members are measured.
///
/// # Errors
/// If it is not named and this is another program.
pub fn binary_of(place: &PlaceArgs) -> Result<PathBuf, Failure> {
    match &place.baton {
        Some(path) => Ok(path.clone()),
        None => this_binary(),
    }
}

fn this_binary() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?;
    if path.file_name().is_some_and(|name| name == "baton") {
        return Ok(path);
    }
    Err("--baton PATH: this program is not the binary whose members are to be measured".into())
}
