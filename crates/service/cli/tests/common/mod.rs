//! The binary as a process of its own.
#![allow(dead_code, clippy::unwrap_used, missing_docs)]

use mongodb::bson::doc;
use mongodb::sync::Client;
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

/// Makes a set of a member alone, unless it is in one, and waits until it takes writes.
fn initiate(port: &str) {
    let admin =
        Client::with_uri_str(format!("mongodb://127.0.0.1:{port}/?directConnection=true")).unwrap().database("admin");
    let began = Instant::now();
    loop {
        let hello = admin.run_command(doc! { "hello": 1 }).run().unwrap();
        if hello.get_bool("isWritablePrimary").unwrap() {
            return;
        }
        if !hello.contains_key("setName") {
            admin.run_command(doc! { "replSetInitiate": 1 }).run().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it does not become primary");
        std::thread::sleep(Duration::from_millis(5));
    }
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
        let serving = Self(child);
        initiate(port);
        serving
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
