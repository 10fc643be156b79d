//! The types of values, as MongoDB names and numbers them: in messages, in `$type`, in `$convert`.
//!
//! Invariant: this is the only table of them.
//! Source: MongoDB manual, "BSON Types".

use bson::spec::ElementType;

/// Every type with its name and number, in the order of numbers.
pub const TYPES: [(ElementType, &str, i32); 21] = [
    (ElementType::MinKey, "minKey", -1),
    (ElementType::Double, "double", 1),
    (ElementType::String, "string", 2),
    (ElementType::EmbeddedDocument, "object", 3),
    (ElementType::Array, "array", 4),
    (ElementType::Binary, "binData", 5),
    (ElementType::Undefined, "undefined", 6),
    (ElementType::ObjectId, "objectId", 7),
    (ElementType::Boolean, "bool", 8),
    (ElementType::DateTime, "date", 9),
    (ElementType::Null, "null", 10),
    (ElementType::RegularExpression, "regex", 11),
    (ElementType::DbPointer, "dbPointer", 12),
    (ElementType::JavaScriptCode, "javascript", 13),
    (ElementType::Symbol, "symbol", 14),
    (ElementType::JavaScriptCodeWithScope, "javascriptWithScope", 15),
    (ElementType::Int32, "int", 16),
    (ElementType::Timestamp, "timestamp", 17),
    (ElementType::Int64, "long", 18),
    (ElementType::Decimal128, "decimal", 19),
    (ElementType::MaxKey, "maxKey", 127),
];

/// The name of a type.
pub const fn type_name(kind: ElementType) -> &'static str {
    // Those of 1 to 19 stand at their numbers.
    let at = match kind {
        ElementType::MinKey => 0,
        ElementType::MaxKey => TYPES.len() - 1,
        other => other as usize,
    };
    TYPES[at].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_name_and_the_number_of_its_row() {
        for (kind, name, number) in TYPES {
            assert_eq!(type_name(kind), name);
            let byte = kind as u8;
            assert_eq!(i32::from(byte as i8), number, "{name}: a type's number is its byte in BSON, {byte:#x}");
        }
        assert!(TYPES.is_sorted_by_key(|(.., number)| *number));
    }
}
