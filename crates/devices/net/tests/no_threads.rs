//! A process that may start no more threads: connections that have rested are not lost for that.
//!
//! A test binary of its own, because it bounds the memory of the whole process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use baton_net::{Options, STACK_SIZE_BYTES, Server};
use baton_wire::Flags;
use baton_wire::client::encode_command;
use bson::rawdoc;
use common::Ok1;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn ask(stream: &mut TcpStream) {
    let mut ping = Vec::new();
    encode_command(&mut ping, 1, Flags(0), &rawdoc! { "ping": 1 }, None);
    stream.write_all(&ping).unwrap();
}

fn is_answered(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    match stream.read_exact(&mut [0; 38]) {
        Ok(()) => true,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(e) => panic!("the connection was given up: {e}"),
    }
}

fn virtual_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn who_wakes_up_where_no_thread_can_be_started_waits_for_one_and_is_answered_then() {
    let options = Options { port: 0, rest_after: Duration::from_millis(20), ..Options::default() };
    let server = Server::start(&options, Arc::new(Ok1)).unwrap();
    let mut all: Vec<_> = (0..3).map(|_| TcpStream::connect(server.addresses()[0]).unwrap()).collect();
    for stream in &mut all {
        ask(stream);
        assert!(is_answered(stream, Duration::from_secs(30)));
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.counters().snapshot().resting < 3 {
        assert!(Instant::now() < deadline, "they do not rest");
        std::thread::sleep(Duration::from_millis(2));
    }

    let before = getrlimit(Resource::As);
    let bound = virtual_bytes() + STACK_SIZE_BYTES as u64 / 2;
    setrlimit(Resource::As, Rlimit { current: Some(bound), maximum: before.maximum }).unwrap();
    // Stacks of threads that have ended are there still, and are taken first.
    let mut kept = Vec::new();
    while let Ok(thread) = {
        let (release, end) = channel::<()>();
        let builder = std::thread::Builder::new().stack_size(STACK_SIZE_BYTES);
        builder.spawn(move || end.recv().is_ok()).map(|thread| (release, thread))
    } {
        kept.push(thread);
    }
    all.iter_mut().for_each(ask);
    for stream in &mut all {
        assert!(!is_answered(stream, Duration::from_millis(150)), "there was a thread for it");
    }
    assert_eq!(server.counters().snapshot().current, 3);

    setrlimit(Resource::As, before).unwrap();
    for stream in &mut all {
        assert!(is_answered(stream, Duration::from_secs(30)));
    }
    for (release, thread) in kept {
        drop(release);
        thread.join().unwrap();
    }
    assert!(server.stop(Duration::from_secs(30)));
}
