//! Ten thousand connections that begin a message and never finish it: the server answers others, and each costs little.
//!
//! A test binary of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use baton_net::{Options, Server};
use baton_wire::Flags;
use baton_wire::client::encode_command;
use bson::rawdoc;
use common::Ok1;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WANTED: usize = 10_000;
/// The client's end and the server's end of each are in this process.
const DESCRIPTORS_EACH: usize = 2;
/// What one such connection may cost in resident memory, the kernel's part not counted.
const COST_BYTES_MAX: usize = 20 * 1024;

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// How many connections the machine's limits allow, at most the ten thousand.
fn affordable() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let descriptors = limit.current.unwrap_or(u64::MAX) as usize;
    let threads = std::fs::read_to_string("/proc/sys/kernel/threads-max").ok().and_then(|t| t.trim().parse().ok());
    // A little is left for the rest of the process.
    WANTED.min(descriptors.saturating_sub(200) / DESCRIPTORS_EACH).min(threads.unwrap_or(WANTED) / 2)
}

#[test]
fn ten_thousand_half_open_connections_cost_little_and_others_are_answered() {
    let count = affordable();
    let options = Options { port: 0, message_timeout: Duration::from_secs(600), ..Options::default() };
    let server = Server::start(&options, Arc::new(Ok1)).unwrap();
    let address = server.addresses()[0];
    let before = resident_bytes();
    // Half of them announce the largest message there is.
    let large = 48_000_000i32.to_le_bytes();
    let half_open: Vec<TcpStream> = (0..count)
        .map(|i| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(if i % 2 == 0 { &large[..] } else { &large[..2] }).unwrap();
            stream
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    while server.counters().snapshot().bytes_in < (count * 3) as u64 {
        assert!(Instant::now() < deadline, "not all were accepted: {:?}", server.counters().snapshot());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.counters().snapshot().current, count);

    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut ping = Vec::new();
    encode_command(&mut ping, 1, Flags(0), &rawdoc! { "ping": 1 }, None);
    client.write_all(&ping).unwrap();
    let mut reply = [0; 38];
    client.read_exact(&mut reply).unwrap();

    let each = resident_bytes().saturating_sub(before) / count;
    assert!(each < COST_BYTES_MAX, "{count} half-open connections cost {each} bytes each");
    drop((half_open, client));
    assert!(server.stop(Duration::from_secs(60)));
}
