//! A process that may start no more threads: who has spoken while all that there are take long waits for one, and is not lost.
//!
//! A test binary of its own, because it bounds the memory of the whole process.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_net::{After, ConnectionInfo, Handler, Options, STACK_SIZE_BYTES, Server, Service};
use baton_wire::client::encode_command;
use baton_wire::{Flags, ReplyBuilder, Request};
use bson::rawdoc;
use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Answers when three requests are there.
#[derive(Default)]
struct Gate {
    count: Mutex<usize>,
    came: Condvar,
}

#[derive(Clone, Default)]
struct Waits(Arc<Gate>);

impl Service for Waits {
    type Handler = Self;

    fn opened(&self, _: ConnectionInfo) -> Self {
        self.clone()
    }
}

impl Handler for Waits {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let mut count = self.0.count.lock();
        *count += 1;
        self.0.came.notify_all();
        while *count < 3 {
            self.0.came.wait(&mut count);
        }
        let mut builder = ReplyBuilder::new(out, request);
        builder.document(&rawdoc! { "ok": 1.0 });
        builder.finish();
        After::Reply
    }
}

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
fn who_speaks_where_no_thread_can_be_started_waits_for_one_and_is_answered_then() {
    let options = Options { port: 0, worker_count: 1, ..Options::default() };
    let server = Server::start(&options, Arc::new(Waits::default())).unwrap();
    let mut all: Vec<_> = (0..3).map(|_| TcpStream::connect(server.addresses()[0]).unwrap()).collect();

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
    // The first has the only thread.
    all.iter_mut().for_each(ask);
    for stream in &mut all {
        assert!(!is_answered(stream, Duration::from_millis(150)), "there was a thread for it");
    }
    assert_eq!(server.counters().snapshot().current, 3);

    setrlimit(Resource::As, before).unwrap();
    // Each waits for as long as there are not three of them.
    for stream in &mut all {
        assert!(is_answered(stream, Duration::from_secs(30)));
    }
    for (release, thread) in kept {
        drop(release);
        thread.join().unwrap();
    }
    assert!(server.stop(Duration::from_secs(30)));
}
