//! The binary as an operator meets it: exit codes, refusals, a clean stop.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Serving, free_port, output};
use mongodb::bson::doc;
use mongodb::sync::Client;
use std::io::Read;
use std::net::TcpListener;

fn client(port: &str) -> Client {
    Client::with_uri_str(format!("mongodb://127.0.0.1:{port}/?replicaSet=rs0")).unwrap()
}

#[test]
fn a_second_start_on_the_same_directory_is_refused_with_the_reason() {
    let data = tempfile::tempdir().unwrap();
    let first = Serving::start(&free_port(), data.path(), &[]);
    let second = output(&["serve", "--port", &free_port(), "--dbpath", data.path().to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(100));
    let reason = String::from_utf8(second.stderr).unwrap();
    assert!(reason.contains(&format!("process {}", first.0.id())), "{reason}");
    assert_eq!(first.terminate(), 0);
}

#[test]
fn sigterm_stops_cleanly_and_the_next_start_goes_on() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let pid_file = data.path().join("pid");
    let serving = Serving::start(&port, data.path(), &["--pidfilepath", pid_file.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap().trim(), serving.0.id().to_string());
    client(&port).database("admin").run_command(doc! { "ping": 1 }).run().unwrap();
    assert_eq!(serving.terminate(), 0);
    assert!(!pid_file.exists());
    assert_eq!(std::fs::read_to_string(data.path().join("mongod.lock")).unwrap(), "");
    let again = Serving::start(&port, data.path(), &[]);
    client(&port).database("admin").run_command(doc! { "ping": 1 }).run().unwrap();
    assert_eq!(again.terminate(), 0);
}

#[test]
fn the_shutdown_command_ends_the_process() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut serving = Serving::start(&port, data.path(), &[]);
    client(&port).database("admin").run_command(doc! { "shutdown": 1 }).run().unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
}

#[test]
fn the_status_page_the_metrics_and_the_health_are_served() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let serving = Serving::start(&port, data.path(), &[]);
    let http_port: u32 = port.parse::<u32>().unwrap() + 1000;
    if http_port > 65_535 {
        return;
    }
    let get = |path: &str| {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{http_port}")).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/").contains("PRIMARY of <code>rs0</code>"));
    assert!(get("/metrics").contains("baton_connections_total"));
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(serving.terminate(), 0);
}

#[test]
fn status_shows_the_member_and_says_so_when_there_is_none() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let serving = Serving::start(&port, data.path(), &["--http", "false"]);
    let uri = format!("mongodb://127.0.0.1:{port}");
    let text = String::from_utf8(output(&["status", &uri]).stdout).unwrap();
    assert!(text.contains("set rs0") && text.contains("PRIMARY"), "{text}");
    assert_eq!(serving.terminate(), 0);
    assert_eq!(output(&["status", &uri]).status.code(), Some(1));
}

#[test]
fn an_unknown_flag_or_key_is_refused_by_name_with_exit_code_2() {
    let flag = output(&["serve", "--frobnicate"]);
    assert_eq!(flag.status.code(), Some(2));
    assert!(String::from_utf8(flag.stderr).unwrap().contains("--frobnicate"));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("baton.yaml");
    std::fs::write(&file, "net:\n  prot: 1\n").unwrap();
    let key = output(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(key.status.code(), Some(2));
    assert!(String::from_utf8(key.stderr).unwrap().contains("Unrecognized option: net.prot"));

    let data = directory.path().join("data");
    let parameter = output(&["serve", "--port", "0", "--dbpath", data.to_str().unwrap(), "--setParameter", "frob=1"]);
    assert_eq!(parameter.status.code(), Some(2));
    assert!(String::from_utf8(parameter.stderr).unwrap().contains("frob"));
}

#[test]
fn a_taken_port_is_exit_code_48() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = tempfile::tempdir().unwrap();
    let refused =
        output(&["serve", "--port", &port, "--dbpath", data.path().to_str().unwrap(), "--unixSocket", "false"]);
    assert_eq!(refused.status.code(), Some(48));
    assert!(String::from_utf8(refused.stderr).unwrap().contains(&port));
}

#[test]
fn help_teaches_with_examples() {
    let top = String::from_utf8(output(&["--help"]).stdout).unwrap();
    assert!(top.contains("baton up") && top.contains("mongosh"));
    let serve = String::from_utf8(output(&["serve", "--help"]).stdout).unwrap();
    assert!(serve.contains("Examples:") && serve.contains("--replSet"));
}
