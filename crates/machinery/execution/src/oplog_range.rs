//! The part of the oplog that a filter asks for. Entries lie in the order of `ts`, so what is outside of a filter's bounds on that
//! need not be read. (MongoDB's `minRecord` and `maxRecord` of a collection scan.)
//!
//! The range may be wider than the filter, never narrower: the filter is asked of each entry all the same.

use baton_query::matcher::{Matcher, Node, Operator, Predicate};
use baton_storage::{Bounds, Storage};
use baton_types::Timestamp;
use bson::RawBsonRef;

/// Where in the oplog entries that match may lie.
pub fn oplog_range(filter: &Matcher) -> Bounds {
    let (mut from, mut to) = (Timestamp::ZERO, None);
    narrow(filter.root(), &mut from, &mut to);
    let end = to.map(|to| Storage::oplog_from(Timestamp::from_u64(to)).from);
    Bounds { to: end, ..Storage::oplog_from(from) }
}

/// `from` is the first time inside, `to` the first one outside.
fn narrow(node: &Node, from: &mut Timestamp, to: &mut Option<u64>) {
    match node {
        Node::And(all) => all.iter().for_each(|node| narrow(node, from, to)),
        Node::Field(field) if field.path.as_str() == "ts" => {
            let Predicate::Compare(comparison) = &field.predicate else { return };
            let RawBsonRef::Timestamp(at) = comparison.value() else { return };
            let at = Timestamp::from(at);
            if matches!(comparison.operator, Operator::Eq | Operator::Gt | Operator::Gte) {
                *from = at.max(*from);
            }
            if matches!(comparison.operator, Operator::Eq | Operator::Lt | Operator::Lte) {
                // Of the greatest timestamp there is none behind it: then the end is left open.
                *to = at.as_u64().checked_add(1).map(|end| to.map_or(end, |to| to.min(end))).or(*to);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_query::Context;
    use bson::{RawDocumentBuf, rawdoc};

    fn range(filter: &RawDocumentBuf) -> (u64, Option<u64>) {
        let bounds = oplog_range(&Matcher::parse(filter, &Context::new(bson::DateTime::from_millis(0), 7)).unwrap());
        let time = |key: Vec<u8>| u64::from_be_bytes(key.try_into().unwrap());
        (time(bounds.from), bounds.to.map(time))
    }

    fn at(seconds: u32) -> bson::Timestamp {
        bson::Timestamp { time: seconds, increment: 1 }
    }

    fn key(seconds: u32) -> u64 {
        Timestamp::from(at(seconds)).as_u64()
    }

    #[test]
    fn comparisons_of_ts_bound_what_is_read() {
        assert_eq!(range(&rawdoc! {}), (0, None));
        assert_eq!(range(&rawdoc! { "ts": at(5) }), (key(5), Some(key(5) + 1)));
        assert_eq!(range(&rawdoc! { "ts": { "$gt": at(5) } }), (key(5), None));
        let both = rawdoc! { "ts": { "$gte": at(5), "$lte": at(7) }, "lsid": { "$exists": true } };
        assert_eq!(range(&both), (key(5), Some(key(7) + 1)));
        let twice = rawdoc! { "$and": [{ "ts": { "$gte": at(5) } }, { "ts": { "$gte": at(6), "$lt": at(9) } }] };
        assert_eq!(range(&twice), (key(6), Some(key(9) + 1)));
        let last = bson::Timestamp { time: u32::MAX, increment: u32::MAX };
        assert_eq!(range(&rawdoc! { "ts": { "$lte": last } }), (0, None));
    }

    #[test]
    fn what_says_nothing_of_ts_alone_bounds_nothing() {
        for filter in [
            rawdoc! { "$or": [{ "ts": at(5) }, { "op": "n" }] },
            rawdoc! { "ts": { "$not": { "$gte": at(5) } } },
            rawdoc! { "ts": { "$gte": 5 } },
            rawdoc! { "o.ts": { "$gte": at(5) } },
        ] {
            assert_eq!(range(&filter), (0, None), "{filter:?}");
        }
    }
}
