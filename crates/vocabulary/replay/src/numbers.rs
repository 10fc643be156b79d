//! Fractions that may be infinite or no number at all, for `#[serde(with)]`: JSON knows no such ones.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// As a number; as a word if it is none.
pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() { serializer.serialize_f64(*number) } else { serializer.serialize_str(&number.to_string()) }
}

/// What [`serialize`] made.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Word(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Number(number) => Ok(number),
        Written::Word(word) => word.parse().map_err(|_| D::Error::custom(format!("{word} is no number"))),
    }
}
