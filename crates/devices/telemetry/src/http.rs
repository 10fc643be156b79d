//! The HTTP pages: `/` the status, `/metrics` for Prometheus, `/healthz` for whoever restarts things.
//!
//! The server is ours: one request a connection, GET and HEAD only, no body is read. Its heads are parsed by `httparse`.
//!
//! Invariants, whatever a client sends: at most so many connections at once, each for at most [`REQUEST_TIMEOUT`] each way
//! and 8 KiB of head; who does not finish a request makes room for who does; a page that panics costs its own connection;
//! nothing is shown under a name that is not this member's.
//! What it does not do: TLS, authentication, anything that changes the member.

mod connections;
mod head;

use connections::{Connections, Place};
use head::{Head, Host, Request};
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client may take to send its request, and again to take the answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Names of this member, beside its addresses and localhost; with or without a port.
    pub names: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// A running HTTP server.
pub struct HttpServer {
    stopping: Arc<AtomicBool>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Arc<TcpListener>>,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
}

impl HttpServer {
    /// Binds the addresses and serves at most so many connections at once.
    ///
    /// # Errors
    /// If an address cannot be bound.
    pub fn start(addresses: &[SocketAddr], connection_count_max: usize, pages: Pages) -> io::Result<Self> {
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
        let (pages, open) = (Arc::new(pages), Connections::new(connection_count_max));
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

fn accept_all(listener: &TcpListener, stopping: &AtomicBool, pages: &Arc<Pages>, open: &Arc<Connections>) {
    while !stopping.load(Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            // Stopping, or out of descriptors.
            if !stopping.load(Relaxed) {
                std::thread::sleep(ACCEPT_PAUSE);
            }
            continue;
        };
        // Turned away by dropping the stream.
        let Some(place) = open.admit(stream) else { continue };
        let pages = pages.clone();
        let _ = std::thread::Builder::new().name("http".into()).stack_size(STACK_SIZE_BYTES).spawn(move || {
            // A client that breaks off is its own affair.
            let _ = serve(&place, &pages);
        });
    }
}

fn serve(place: &Place, pages: &Pages) -> io::Result<()> {
    let mut stream = place.stream();
    let head = head::read(stream, Instant::now() + REQUEST_TIMEOUT)?;
    if !place.complete() {
        return Ok(());
    }
    let answer = match head {
        Head::Request(request) => route(&request, pages),
        Head::TooLong => Answer::plain("431 Request Header Fields Too Large", "the request's head is too long\n"),
        Head::NotHttp => Answer::plain("400 Bad Request", "this is not HTTP\n"),
    };
    answer.send(stream, Instant::now() + REQUEST_TIMEOUT)?;
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

    fn send(&self, mut stream: &TcpStream, deadline: Instant) -> io::Result<()> {
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

fn route(request: &Request, pages: &Pages) -> Answer {
    if request.host == Host::Invalid {
        return Answer::plain("400 Bad Request", "exactly one Host header, please\n");
    }
    if !request.host.is_address() && !(pages.names)().iter().any(|name| request.host.is(name)) {
        return Answer::plain(
            "421 Misdirected Request",
            "this member has another name: ask by its address, as localhost, or by the host that its set knows it by\n",
        );
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::plain("405 Method Not Allowed", "GET or HEAD, please\n");
    }
    let mut answer = match request.path.as_str() {
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
    answer.with_body = request.method == "GET";
    answer
}
