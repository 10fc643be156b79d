//! The official Rust driver finds the member, and gets MongoDB's answers from it.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Serving, free_port};
use mongodb::bson::doc;
use mongodb::error::ErrorKind;
use mongodb::sync::Client;
use tempfile::TempDir;

/// A member of its own, and its connection string.
fn start() -> (Serving, TempDir, String) {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let serving = Serving::start(&port, data.path(), &["--http", "false", "--setParameter", "enableTestCommands=1"]);
    (serving, data, format!("mongodb://127.0.0.1:{port}/?replicaSet=rs0"))
}

#[test]
fn the_driver_connects_to_the_set_and_runs_commands() {
    let (_member, _data, uri) = start();
    let client = Client::with_uri_str(&uri).unwrap();
    let admin = client.database("admin");
    assert_eq!(admin.run_command(doc! { "ping": 1 }).run().unwrap().get_f64("ok").unwrap(), 1.0);
    let info = admin.run_command(doc! { "buildInfo": 1 }).run().unwrap();
    assert!(info.get_str("version").unwrap().starts_with("7.0."));
}

#[test]
fn the_driver_speaks_every_compression() {
    let (_member, _data, uri) = start();
    for compressor in ["snappy", "zlib", "zstd"] {
        let uri = format!("{uri}&compressors={compressor}&appName=compressed");
        let client = Client::with_uri_str(uri).unwrap();
        let reply = client.database("admin").run_command(doc! { "getParameter": "*" }).run().unwrap();
        assert!(reply.get_bool("enableTestCommands").unwrap(), "{compressor}");
    }
}

#[test]
fn the_driver_reports_codes_and_names_of_errors() {
    let (_member, _data, uri) = start();
    let client = Client::with_uri_str(&uri).unwrap();
    let error = client.database("admin").run_command(doc! { "frobnicate": 1 }).run().unwrap_err();
    let ErrorKind::Command(command) = *error.kind else { panic!("{error}") };
    assert_eq!((command.code, command.code_name.as_str()), (59, "CommandNotFound"));
}

#[test]
fn sessions_of_the_driver_work_and_end() {
    let (_member, _data, uri) = start();
    let client = Client::with_uri_str(&uri).unwrap();
    let mut session = client.start_session().run().unwrap();
    client.database("admin").run_command(doc! { "ping": 1 }).session(&mut session).run().unwrap();
    assert!(session.cluster_time().is_some());
    let status = client.database("admin").run_command(doc! { "serverStatus": 1 }).run().unwrap();
    assert!(status.get_document("logicalSessionRecordCache").unwrap().get_i32("activeSessionsCount").unwrap() >= 1);
}

#[test]
fn a_user_is_refused_as_an_authentication_error_that_says_there_are_none() {
    let (_member, _data, uri) = start();
    let uri = uri.replacen("mongodb://", "mongodb://user:wrong@", 1);
    let client = Client::with_uri_str(uri).unwrap();
    let error = client.database("admin").run_command(doc! { "ping": 1 }).run().unwrap_err();
    assert!(matches!(*error.kind, ErrorKind::Authentication { .. }), "{error}");
    assert!(error.to_string().contains("users are not implemented yet"), "{error}");
}
