//! Attempts at one statement, where another writer may come first.
//!
//! Invariants: between two attempts the caller is asked whether to go on, so a deadline or a kill ends a statement that
//! never succeeds; who has lost often pauses, so losing keeps no core busy; an upsert gives up after
//! [`UPSERT_ATTEMPTS_MAX`].
//! What it deliberately does not do: bound how often an update may lose its document to another writer. Each time, that
//! writer got on.

use super::UpdateStatement;
use crate::Interrupt;
use baton_document::order::compare_raw_bson;
use baton_machine::about_to_wait;
use baton_types::{Error, ErrorCode, Result};
use bson::RawDocument;
use std::time::Duration;

/// How often an upsert is tried: then the client is told which key was in the way.
const UPSERT_ATTEMPTS_MAX: u32 = 100;
/// So many attempts follow each other at once: what was in the way is usually gone by then.
const ATTEMPTS_AT_ONCE: u32 = 8;
/// The first pause; each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_micros(20);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// How often a statement was tried.
#[derive(Default)]
pub(super) struct Attempts {
    count: u32,
    upserts: u32,
}

impl Attempts {
    /// Begins another attempt, after a pause if there were many.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn begin(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        interrupt()?;
        let pause = self.pause();
        if !pause.is_zero() {
            let _waiting = about_to_wait();
            std::thread::sleep(pause);
        }
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn pause(&self) -> Duration {
        match self.count.checked_sub(ATTEMPTS_AT_ONCE) {
            None => Duration::ZERO,
            Some(further) => (PAUSE_MIN * 2_u32.saturating_pow(further.min(16))).min(PAUSE_MAX),
        }
    }

    /// Whether an upsert that failed on `error` is to be tried again: somebody inserted what it looks for.
    pub fn may_repeat_upsert(&mut self, statement: &UpdateStatement, error: &Error) -> bool {
        self.upserts += 1;
        self.upserts < UPSERT_ATTEMPTS_MAX && !statement.multi && is_what_it_looks_for(statement, error)
    }
}

/// Whether the key in the way is the whole filter. Where the filter asks for more than the key, the document that has the
/// key may fail to match: then the next attempt would fail as this one did, and so on without end.
///
/// Source: MongoDB, `write_ops_exec::shouldRetryDuplicateKeyException`.
fn is_what_it_looks_for(statement: &UpdateStatement, error: &Error) -> bool {
    if error.code != ErrorCode::DuplicateKey {
        return false;
    }
    let document = |name| error.info.as_ref().and_then(|info| info.get_document(name).ok());
    let (Some(pattern), Some(values)) = (document("keyPattern"), document("keyValue")) else { return false };
    let Some(equalities) = statement.filter.sole_equalities() else { return false };
    field_count(pattern) == equalities.len()
        && field_count(values) == equalities.len()
        && pattern.iter().zip(values).all(|pair| {
            let (Ok((path, _)), Ok((_, value))) = pair else { return false };
            let wanted = equalities.iter().find(|(wanted, _)| wanted == path.as_str());
            wanted.is_some_and(|(_, wanted)| compare_raw_bson(value, wanted).is_eq())
        })
}

fn field_count(document: &RawDocument) -> usize {
    document.iter().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_query::Context;
    use baton_query::matcher::Matcher;
    use baton_query::update::Update;
    use bson::{Document, RawBsonRef, RawDocumentBuf, doc};
    use std::cell::Cell;
    use std::sync::Arc;

    fn upsert(filter: Document) -> UpdateStatement {
        let context = Context::new(bson::DateTime::from_millis(0), 0);
        let filter = Matcher::parse(&RawDocumentBuf::try_from(&filter).unwrap(), &context).unwrap();
        let set = bson::rawdoc! { "$set": { "b": 1 } };
        let none: [RawDocumentBuf; 0] = [];
        let update = Update::parse(RawBsonRef::Document(&set), &none, &context).unwrap();
        UpdateStatement { upsert: true, ..UpdateStatement::one(Arc::new(filter), update) }
    }

    fn taken(pattern: Document, values: Document) -> Error {
        let info = RawDocumentBuf::try_from(&doc! { "keyPattern": pattern, "keyValue": values }).unwrap();
        Error::new(ErrorCode::DuplicateKey, "E11000").with_info(info)
    }

    #[test]
    fn only_a_filter_that_is_nothing_but_the_key_in_the_way_is_worth_another_attempt() {
        let id = |value: i32| taken(doc! { "_id": 1 }, doc! { "_id": value });
        let pair = || taken(doc! { "k": 1, "l": -1 }, doc! { "k": 1, "l": 2.0 });
        for (filter, error, expected) in [
            (doc! { "_id": 1 }, id(1), true),
            (doc! { "_id": { "$eq": 1_i64 } }, id(1), true),
            (doc! { "_id": { "$in": [1] } }, id(1), true),
            (doc! { "$and": [{ "l": 2 }, { "k": 1 }] }, pair(), true),
            // It asks for more than the key.
            (doc! { "_id": 1, "a": 2 }, id(1), false),
            (doc! { "_id": 1, "until": { "$lt": 5 } }, id(1), false),
            (doc! { "_id": 1, "deleted": { "$exists": false } }, id(1), false),
            (doc! { "_id": 1, "$expr": { "$eq": ["$a", 1] } }, id(1), false),
            (doc! { "k": 1, "l": 2, "m": 3 }, pair(), false),
            // It asks for less.
            (doc! { "k": 1 }, pair(), false),
            (doc! {}, id(1), false),
            // The update made the key what it is.
            (doc! { "_id": 2 }, id(1), false),
            (doc! { "k": 1, "l": 3 }, pair(), false),
            // Another unique index is in the way.
            (doc! { "_id": 1 }, taken(doc! { "k": 1 }, doc! { "k": 1 }), false),
            (doc! { "$or": [{ "_id": 1 }, { "_id": 2 }] }, id(1), false),
            (doc! { "_id": { "$gte": 1 } }, id(1), false),
        ] {
            assert_eq!(is_what_it_looks_for(&upsert(filter.clone()), &error), expected, "{filter}");
        }
        let other = Error::new(ErrorCode::BadValue, "x");
        assert!(!is_what_it_looks_for(&upsert(doc! { "_id": 1 }), &other));
    }

    #[test]
    fn an_upsert_is_tried_a_bounded_number_of_times_and_one_of_many_documents_once() {
        let error = taken(doc! { "_id": 1 }, doc! { "_id": 1 });
        let mut attempts = Attempts::default();
        let repeats = std::iter::repeat_with(|| attempts.may_repeat_upsert(&upsert(doc! { "_id": 1 }), &error));
        assert_eq!(repeats.take(1000).filter(|again| *again).count(), 99);
        let many = UpdateStatement { multi: true, ..upsert(doc! { "_id": 1 }) };
        assert!(!Attempts::default().may_repeat_upsert(&many, &error));
    }

    #[test]
    fn attempts_pause_longer_and_longer_and_end_when_interrupted() {
        let asked = Cell::new(0);
        let interrupt = || {
            asked.set(asked.get() + 1);
            if asked.get() > 20 { Err(Error::new(ErrorCode::Interrupted, "killed")) } else { Ok(()) }
        };
        let mut attempts = Attempts::default();
        let mut pauses = Vec::new();
        while attempts.begin(&interrupt).is_ok() {
            pauses.push(attempts.pause());
        }
        assert_eq!(pauses.len(), 20);
        assert!(pauses.is_sorted() && pauses[0].is_zero() && pauses[19] == PAUSE_MAX, "{pauses:?}");
    }
}
