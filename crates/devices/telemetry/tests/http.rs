//! The pages, and what hostile clients get instead.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_telemetry::{HttpServer, Pages};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CONNECTION_COUNT_MAX: usize = 64;

fn serve() -> (HttpServer, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(true));
    let asked = well.clone();
    let pages = Pages {
        status: Box::new(|| "<h1>Baton</h1>".repeat(20_000)),
        metrics: Box::new(|| panic!("a broken page")),
        health: Box::new(move || if asked.load(SeqCst) { Ok(()) } else { Err("stopping".into()) }),
        names: Box::new(|| vec!["db1.example:27017".into()]),
    };
    (HttpServer::start(&["127.0.0.1:0".parse().unwrap()], CONNECTION_COUNT_MAX, pages).unwrap(), well)
}

fn ask(server: &HttpServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may have hung up on a long request before all of it was written.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(server: &HttpServer, path: &str) -> String {
    ask(server, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

#[test]
fn the_pages_are_served_whole() {
    let (server, well) = serve();
    let status = get(&server, "/?x=1");
    assert!(status.starts_with("HTTP/1.1 200 OK\r\n") && status.ends_with("<h1>Baton</h1>"));
    assert!(status.contains(&format!("Content-Length: {}\r\n", 14 * 20_000)));
    assert!(get(&server, "/healthz").ends_with("\r\n\r\nok\n"));
    well.store(false, SeqCst);
    let unwell = get(&server, "/healthz");
    assert!(unwell.starts_with("HTTP/1.1 503 ") && unwell.ends_with("stopping\n"));
    let head = ask(&server, b"HEAD / HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"));
    assert!(get(&server, "/etc/passwd").starts_with("HTTP/1.1 404"));
}

#[test]
fn what_is_not_a_simple_get_is_refused() {
    let (server, _) = serve();
    for (request, status) in [
        (&b"POST / HTTP/1.1\r\nHost: [::1]:28017\r\n\r\n"[..], "405"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET /\r\n\r\n", "400"),
        (b"GET / a HTTP/1.1\r\n\r\n", "400"),
        (b"GET / HTTP/2\r\n\r\n", "400"),
        (b"\x3a\x00\x00\xff\x01\x00\x00\x00", "400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", "400"),
    ] {
        let answer = ask(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
}

#[test]
fn an_endless_header_is_cut_off() {
    let (server, _) = serve();
    let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'x'; 1 << 20]].concat();
    let answer = ask(&server, &endless);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(get(&server, "/healthz").ends_with("ok\n"));
}

#[test]
fn a_page_that_panics_costs_its_own_connection() {
    let (server, _) = serve();
    for _ in 0..2 * CONNECTION_COUNT_MAX {
        assert_eq!(get(&server, "/metrics"), "");
    }
    assert!(get(&server, "/healthz").ends_with("ok\n"));
}

/// A page of another origin whose name was made to point here: the browser sends that name. Fails if it is answered.
#[test]
fn nothing_is_shown_under_a_name_that_is_not_the_members() {
    let (server, _) = serve();
    let under = |name: &str| ask(&server, format!("GET /healthz HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes());
    for name in ["evil.example", "evil.example:28017", "localhost.evil.example", "db1.example.evil.example"] {
        let answer = under(name);
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("\r\n\r\nok"), "{name}: {answer}");
    }
    for name in ["127.0.0.1", "10.1.2.3:28017", "[::1]:28017", "localhost", "db1.example", "DB1.example:28017"] {
        assert!(under(name).ends_with("ok\n"), "{name}");
    }
}

/// As many clients as you like begin a request and never finish it. Fails if they keep out one who does.
#[test]
fn half_sent_requests_do_not_keep_out_whole_ones() {
    let (server, _) = serve();
    let half: Vec<_> = (0..10 * CONNECTION_COUNT_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: local");
            stream
        })
        .collect();
    for _ in 0..20 {
        assert!(get(&server, "/healthz").ends_with("ok\n"));
    }
    let begun = Instant::now();
    drop(half);
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(TcpStream::connect(server.addresses()[0]).is_err());
}
