//! Projections: parsing any document and applying what parses; what comes out is valid BSON.

use crate::grow;
use baton_document::validate;
use baton_query::projection::{Mode, Projection};
use baton_query::sort::SortPattern;
use bson::doc;

const WORDS: &[&str] =
    &["$slice", "$elemMatch", "$meta", "$add", "$cond", "$literal", "$gt", "a.$", "a.b", "a", "_id", "$first", "$map"];

/// Parses the input as a projection of both kinds, and as a sort; projects the samples.
pub fn run(data: &[u8]) {
    let Some(spec) = grow::document(data, WORDS) else { return };
    let context = super::context();
    let _ = SortPattern::parse(&spec);
    for mode in [Mode::Find, Mode::Aggregate] {
        let Ok(projection) = Projection::parse(&spec, None, &context, mode) else { continue };
        for document in grow::samples(data) {
            if let Ok(projected) = projection.apply(&document, None) {
                if let Err(e) = validate::document(projected.as_bytes()) {
                    panic!("a projection made invalid BSON: {e}");
                }
            }
        }
    }
}

/// Projections of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    super::bson_seeds(vec![
        doc! { "a": 1, "_id": 0 },
        doc! { "a.b": 0, "e": false },
        doc! { "a": { "b": 1 }, "e": { "$slice": [1, 2] } },
        doc! { "a": { "$elemMatch": { "b": 1 } } },
        doc! { "sum": { "$add": ["$a", 1] }, "l": { "$literal": "$a" } },
        doc! { "a": -1, "b.c": 1 },
    ])
}
