//! `$slice` in `find`'s projections: the first or last elements of an array, or a window of it.

use crate::raw::{self, ArrayBuilder, Element};
use baton_document::Number;
use baton_document::type_name;
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// Which elements stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slice {
    /// The first ones, or the last ones if negative.
    Limit(i64),
    /// From an offset, which counts from the end if negative, at most so many.
    Window { skip: i64, limit: i64 },
}

impl Slice {
    /// Parses `n` or `[skip, limit]`: 31272, 31257, 31258, 31259, 31273.
    pub fn parse(argument: RawBsonRef<'_>) -> Result<Self> {
        let number = |value| Number::from_raw(value).map(clamped);
        if let Some(limit) = number(argument) {
            return Ok(Self::Limit(limit));
        }
        let RawBsonRef::Array(list) = argument else {
            return Err(Error::location(31273, "$slice only supports numbers and [skip, limit] arrays"));
        };
        let list = list.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        let [skip, limit] = list[..] else {
            return Err(Error::location(31272, "$slice array argument should be of form [skip, limit]"));
        };
        let kind = |value: RawBsonRef<'_>| type_name(value.element_type());
        let skip = number(skip).ok_or_else(|| {
            Error::location(31257, format!("$slice expects the skip argument to be a number, got {}", kind(skip)))
        })?;
        let limit = number(limit).ok_or_else(|| {
            Error::location(31258, format!("$slice expects the limit argument to be a number, got {}", kind(limit)))
        })?;
        if limit <= 0 {
            return Err(Error::location(31259, format!("$slice limit must be positive, got {limit}")));
        }
        Ok(Self::Window { skip, limit })
    }

    /// Writes an array's remaining elements; anything else stays as it is.
    pub fn write(self, element: &Element<'_>, key: &str, out: &mut Vec<u8>) -> Result<()> {
        let Some(inner) = element.container()?.filter(|_| element.is_array()) else {
            raw::put_renamed(out, key, element);
            return Ok(());
        };
        let items = raw::elements(inner).collect::<Result<Vec<_>>>()?;
        let length = items.len() as i64;
        let (start, end) = match self {
            Self::Limit(n) if n < 0 => ((length + n).max(0), length),
            Self::Limit(n) => (0, n.min(length)),
            Self::Window { skip, limit } => {
                let start = if skip < 0 { (length + skip).max(0) } else { skip.min(length) };
                (start, (start + limit).min(length))
            }
        };
        let mut array = ArrayBuilder::new();
        for item in &items[start as usize..end as usize] {
            array.push(item.element_type(), item.value_bytes());
        }
        let array = array.finish();
        raw::put_bytes(out, array.element_type(), key, array.bytes());
        Ok(())
    }
}

/// A number cut to a 32-bit integer, as MongoDB reads these arguments.
fn clamped(n: Number) -> i64 {
    n.to_i64_lossy().clamp(i32::MIN.into(), i32::MAX.into())
}
