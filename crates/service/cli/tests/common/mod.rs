//! The binary as a process of its own.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub fn baton(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn output(arguments: &[&str]) -> Output {
    baton(arguments).output().unwrap()
}

pub fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// A member started by `baton serve`; killed when the test fails before it stops.
pub struct Serving(pub Child);

impl Serving {
    pub fn start(port: &str, data: &Path, more: &[&str]) -> Self {
        let data = data.to_str().unwrap();
        let mut arguments =
            vec!["serve", "--port", port, "--dbpath", data, "--replSet", "rs0", "--unixSocket", "false"];
        arguments.extend_from_slice(more);
        let mut child = baton(&arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains("Waiting for connections"));
        assert!(ready, "it ended before it listened");
        // Read on, or the pipe fills up and blocks the member.
        std::thread::spawn(move || lines.count());
        Self(child)
    }

    pub fn terminate(mut self) -> i32 {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(began.elapsed() < Duration::from_secs(30), "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
