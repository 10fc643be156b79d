//! The HTTP pages: `/` the status, `/metrics` for Prometheus, `/healthz` for whoever restarts things.
//!
//! Small enough to be ours: libraries at hand read header lines without a bound and wait for them without a limit. One
//! request a connection, GET and HEAD only, no body is read.
//!
//! Invariants, whatever a client sends: at most [`CONNECTION_COUNT_MAX`] connections at once, each for at most
//! [`REQUEST_TIMEOUT`] each way and 8 KiB of head; a page that panics costs its own connection.
//! What it does not do: TLS, authentication, anything that changes the member.

use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// More connections at once are closed unanswered.
pub const CONNECTION_COUNT_MAX: usize = 64;
/// How long a client may take to send its request, and again to take the answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

const HEAD_SIZE_MAX_BYTES: usize = 8 * 1024;
const STACK_SIZE_BYTES: usize = 512 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the pages show. Each is called on a thread of its own, for each request.
pub struct Pages {
    /// The status page, HTML.
    pub status: Box<dyn Fn() -> String + Send + Sync>,
    /// The metrics, in Prometheus' text form.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Whether the member is well; if not, why.
    pub health: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// A running HTTP server.
pub struct HttpServer {
    stopping: Arc<AtomicBool>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Arc<TcpListener>>,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
}

impl HttpServer {
    /// Binds the addresses and serves.
    ///
    /// # Errors
    /// If an address cannot be bound.
    pub fn start(addresses: &[SocketAddr], pages: Pages) -> io::Result<Self> {
        let listeners: Vec<_> = addresses
            .iter()
            .map(|address| {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot serve HTTP on {address}: {e}"));
                TcpListener::bind(address).map(Arc::new).map_err(named)
            })
            .collect::<io::Result<_>>()?;
        let addresses = listeners.iter().map(|l| l.local_addr()).collect::<io::Result<_>>()?;
        let server = Self {
            stopping: Arc::new(AtomicBool::new(false)),
            addresses,
            listeners,
            acceptors: Mutex::new(Vec::new()),
        };
        let (pages, open) = (Arc::new(pages), Arc::new(AtomicUsize::new(0)));
        for listener in &server.listeners {
            let (listener, pages, open) = (listener.clone(), pages.clone(), open.clone());
            let stopping = server.stopping.clone();
            let acceptor = std::thread::Builder::new()
                .name("http".into())
                .spawn(move || accept_all(&listener, &stopping, &pages, &open))?;
            server.acceptors.lock().push(acceptor);
        }
        Ok(server)
    }

    /// Where it listens, with the ports the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops accepting. Answers under way are finished.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
        for listener in &self.listeners {
            let _ = rustix::net::shutdown(&**listener, rustix::net::Shutdown::Both);
        }
        for acceptor in self.acceptors.lock().drain(..) {
            let _ = acceptor.join();
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Counts a connection while it lives, also through a panic.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn one_more(count: &Arc<AtomicUsize>) -> Option<Self> {
        let open = Self(count.clone());
        (count.fetch_add(1, Relaxed) < CONNECTION_COUNT_MAX).then_some(open)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn accept_all(listener: &TcpListener, stopping: &AtomicBool, pages: &Arc<Pages>, count: &Arc<AtomicUsize>) {
    while !stopping.load(Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            // Stopping, or out of descriptors.
            if !stopping.load(Relaxed) {
                std::thread::sleep(ACCEPT_PAUSE);
            }
            continue;
        };
        // Turned away by dropping the stream.
        let Some(open) = Open::one_more(count) else { continue };
        let pages = pages.clone();
        let _ = std::thread::Builder::new().name("http".into()).stack_size(STACK_SIZE_BYTES).spawn(move || {
            let _open = open;
            // A client that breaks off is its own affair.
            let _ = serve(stream, &pages);
        });
    }
}

fn serve(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let answer = match read_head(&mut stream, Instant::now() + REQUEST_TIMEOUT)? {
        Head::Whole(head) => route(&head, pages),
        Head::TooLong => Answer::plain("431 Request Header Fields Too Large", "the request's head is too long\n"),
    };
    answer.send(&mut stream, Instant::now() + REQUEST_TIMEOUT)?;
    // What the client still sends is read for a moment: closing over unread bytes would reset the connection, and the
    // reset could overtake the answer.
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut sink = [0; 4096];
    for _ in 0..16 {
        if !matches!(stream.read(&mut sink), Ok(1..)) {
            break;
        }
    }
    Ok(())
}

enum Head {
    Whole(Vec<u8>),
    TooLong,
}

fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Head> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
        // A first line without an end that cannot become a request needs no waiting for one.
        let hopeless = head.len() >= 4 && !head[..4].is_ascii();
        if hopeless || head.windows(4).any(|w| w == b"\r\n\r\n") || head.windows(2).any(|w| w == b"\n\n") {
            return Ok(Head::Whole(head));
        }
        if head.len() > HEAD_SIZE_MAX_BYTES {
            return Ok(Head::TooLong);
        }
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
    with_body: bool,
}

impl Answer {
    fn plain(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into(), with_body: true }
    }

    fn send(&self, stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        if self.with_body {
            bytes.push_str(&self.body);
        }
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            stream.set_write_timeout(Some(remaining(deadline)?))?;
            let count = stream.write(rest)?;
            rest = &rest[count.min(rest.len())..];
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

fn route(head: &[u8], pages: &Pages) -> Answer {
    let line = head.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default().trim_end();
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Answer::plain("400 Bad Request", "this is not HTTP\n");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::plain("400 Bad Request", "HTTP/1.0 or HTTP/1.1, please\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Answer::plain("405 Method Not Allowed", "GET or HEAD, please\n");
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut answer = match path {
        "/" => Answer { content_type: "text/html; charset=utf-8", ..Answer::plain("200 OK", (pages.status)()) },
        "/metrics" => Answer {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..Answer::plain("200 OK", (pages.metrics)())
        },
        "/healthz" => match (pages.health)() {
            Ok(()) => Answer::plain("200 OK", "ok\n"),
            Err(reason) => Answer::plain("503 Service Unavailable", format!("{reason}\n")),
        },
        _ => Answer::plain("404 Not Found", "there are /, /metrics and /healthz\n"),
    };
    answer.with_body = method == "GET";
    answer
}
