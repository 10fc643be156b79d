//! Tables of expression, document, and the value or the error code that MongoDB documents for them.

mod arithmetic;
mod arrays;
mod conversions;
mod dates;
mod language;
mod strings;

use super::Expression;
use crate::Context;
use baton_types::Error;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};

/// 2024-02-29T12:34:56.789Z.
pub(super) const NOW_MS: i64 = 1_709_210_096_789;

pub(crate) fn context() -> Context {
    Context::new(DateTime::from_millis(NOW_MS), 7)
}

pub(super) fn parse(expression: impl Into<Bson>, ctx: &Context) -> Result<Expression, Error> {
    let holder = RawDocumentBuf::try_from(&doc! {"e": expression.into()}).unwrap();
    Expression::parse(holder.get("e").unwrap().unwrap(), ctx)
}

pub(super) fn evaluate(expression: impl Into<Bson>, document: Document) -> Result<Option<Bson>, Error> {
    let ctx = context();
    parse(expression, &ctx)?.evaluate(&RawDocumentBuf::try_from(&document).unwrap(), &ctx)
}

/// Each expression yields exactly its value, type included, for `document`; `None` is missing.
#[track_caller]
pub(super) fn yields(document: Document, cases: Vec<(Bson, Option<Bson>)>) {
    for (expression, expected) in cases {
        match evaluate(expression.clone(), document.clone()) {
            Ok(found) => assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{expression}"),
            Err(error) => panic!("{expression}: {error}"),
        }
    }
}

/// Each expression fails with its code for `document`, and the message has the text.
#[track_caller]
pub(super) fn fails(document: Document, cases: Vec<(Bson, i32, &str)>) {
    for (expression, code, text) in cases {
        match evaluate(expression.clone(), document.clone()) {
            Ok(found) => panic!("{expression}: {found:?}"),
            Err(error) => {
                assert_eq!(error.code.0, code, "{expression}: {error}");
                assert!(error.message.contains(text), "{expression}: {error}");
            }
        }
    }
}

/// Shorthand for a case of [`yields`].
macro_rules! cases {
    ($($expression:tt => $expected:tt),* $(,)?) => {
        vec![$((bson::bson!($expression), crate::expression::tests::expected!($expected))),*]
    };
}

/// `missing`, or a value.
macro_rules! expected {
    (missing) => {
        None
    };
    ($value:tt) => {
        Some(bson::bson!($value))
    };
}

/// Shorthand for a case of [`fails`].
macro_rules! failures {
    ($($expression:tt => $code:literal $text:literal),* $(,)?) => {
        vec![$((bson::bson!($expression), $code, $text)),*]
    };
}

pub(super) use {cases, expected, failures};
