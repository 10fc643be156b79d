//! The configuration as a document: what is refused, with which code and words, and that writing loses nothing.

mod any;
mod fields;
mod members;
mod round_trip;
mod settings;

use super::*;
use baton_leadership::{Days, Mode, Ranking, TimeOfDay, Window};
use baton_types::{Class, Error, ErrorCode, TaskKind};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use proptest::prelude::*;

fn parse(document: &Document) -> Result<Configuration> {
    Configuration::parse(&RawDocumentBuf::try_from(document).unwrap())
}

/// A set `rs0` of these members.
fn set_of(members: Vec<Document>) -> Document {
    doc! { "_id": "rs0", "version": 1, "members": members }
}

/// One member that says `fields` besides its `_id` and `host`.
fn set_with_member(fields: Document) -> Document {
    let mut member = doc! { "_id": 1, "host": "b" };
    member.extend(fields);
    set_of(vec![doc! { "_id": 0, "host": "a" }, member])
}

/// A set that says `fields` besides what it must.
fn set_with(fields: Document) -> Document {
    let mut document = set_of(vec![doc! { "_id": 0, "host": "a", "tags": { "dc": "x" } }]);
    document.extend(fields);
    document
}

fn set_with_settings(settings: Document) -> Document {
    set_with(doc! { "settings": settings })
}

fn validated(document: &Document) -> Result<Configuration> {
    let configuration = parse(document)?;
    configuration.validate()?;
    Ok(configuration)
}

/// `count` members, of which the first `voters` vote.
fn set_of_size(count: i32, voters: i32) -> Document {
    let member = |id| match id < voters {
        true => doc! { "_id": id, "host": format!("node{id}") },
        false => doc! { "_id": id, "host": format!("node{id}"), "votes": 0, "priority": 0 },
    };
    set_of((0..count).map(member).collect())
}

#[track_caller]
fn assert_refused(outcome: Result<Configuration>, code: i32, words: &str) {
    let Error { code: found, message, .. } = outcome.expect_err(words);
    assert!(found == ErrorCode(code) && message.contains(words), "{words} ({code}): {message} ({found:?})");
}

#[track_caller]
fn assert_unparsed(document: &Document, code: i32, words: &str) {
    assert_refused(parse(document), code, words);
}

/// Parses, so that nothing but the rule is broken, and is then refused.
#[track_caller]
fn assert_invalid(document: &Document, words: &str) {
    let configuration = parse(document).expect(words);
    assert_refused(configuration.validate().map(|()| configuration), ErrorCode::BadValue.0, words);
}
