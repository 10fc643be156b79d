//! A server that the benchmark starts, waits for, and stops.
//!
//! Invariant: it does not outlive the benchmark, however that ends: it is stopped on drop, and killed by the kernel if
//! the benchmark dies first. Its output goes to a file, whose end is shown when it does not start.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

const START_WAIT_MAX: Duration = Duration::from_secs(60);
const STOP_WAIT_MAX: Duration = Duration::from_secs(60);

/// A running server.
pub struct Process {
    child: Child,
    name: String,
    /// Its port on loopback.
    pub port: u16,
}

/// A port that nothing listens on now.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16, Failure> {
    Ok(free_ports(1)?[0])
}

/// So many of them, each another one.
///
/// # Errors
/// If there are too few.
pub fn free_ports(count: usize) -> Result<Vec<u16>, Failure> {
    // Each is held until the last is known: one that was let go might be given again.
    let held = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

impl Process {
    /// Starts `command`, which will listen on `port`, and waits until it does. `directory` takes its output.
    ///
    /// # Errors
    /// With the end of its output, if it does not come to listen.
    pub fn start(name: &str, command: Command, port: u16, directory: &Path) -> Result<Self, Failure> {
        let mut process = Self::begin(name, command, port, directory)?;
        process.await_listening(directory)?;
        Ok(process)
    }

    /// Starts `command` without waiting. It ends with the thread that called this: the kernel takes that for the parent.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(name: &str, mut command: Command, port: u16, directory: &Path) -> Result<Self, Failure> {
        let log = directory.join(format!("{name}.out"));
        let output = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // SAFETY: prctl only sets a flag of the new process.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let program = command.get_program().display().to_string();
        let child = command.spawn().map_err(|e| format!("{name}: {program}: {e}"))?;
        Ok(Self { child, name: name.to_owned(), port })
    }

    /// Waits until it listens.
    ///
    /// # Errors
    /// With the end of its output, if it does not come to that.
    pub fn await_listening(&mut self, directory: &Path) -> Result<(), Failure> {
        let log = directory.join(format!("{}.out", self.name));
        let deadline = Instant::now() + START_WAIT_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let output = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
                let tail: Vec<&str> = output.lines().rev().take(5).collect();
                let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                let what = ended.map_or("does not listen".to_owned(), |status| format!("ended: {status}"));
                return Err(format!("{} {what}; its last words:\n{tail}", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its address as a connection string.
    pub fn uri(&self) -> String {
        format!("mongodb://{}", self.address())
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the id is still its own.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(self.child.id() as i32, signal);
        }
    }

    /// Stops its clock (SIGSTOP), or lets it go on.
    pub fn freeze(&self, on: bool) {
        self.signal(if on { libc::SIGSTOP } else { libc::SIGCONT });
    }

    /// Kills it at once, as a crash would.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + STOP_WAIT_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
