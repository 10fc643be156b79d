//! `$bitsAllSet $bitsAllClear $bitsAnySet $bitsAnyClear`.
//!
//! Invariants: positions are distinct and ascending; a number is read as 64 bits in two's complement, so that a position
//! beyond 63 reads its sign; a position beyond the end of binary data reads zero.

use super::integer;
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// Which test on the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOperator {
    /// `$bitsAllSet`
    AllSet,
    /// `$bitsAllClear`
    AllClear,
    /// `$bitsAnySet`
    AnySet,
    /// `$bitsAnyClear`
    AnyClear,
}

impl BitOperator {
    /// The operator as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllSet => "$bitsAllSet",
            Self::AllClear => "$bitsAllClear",
            Self::AnySet => "$bitsAnySet",
            Self::AnyClear => "$bitsAnyClear",
        }
    }
}

/// A test on some bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitTest {
    /// Which test.
    pub operator: BitOperator,
    /// The bits it looks at.
    pub positions: Vec<u32>,
    mask: u64,
}

impl BitTest {
    /// Parses a mask (a number or binary data) or an array of positions.
    pub fn parse(operator: BitOperator, value: RawBsonRef<'_>) -> Result<Self> {
        let name = operator.name();
        let mut positions = match value {
            RawBsonRef::Array(array) => {
                let mut positions = Vec::new();
                for (i, element) in array.into_iter().enumerate() {
                    positions.push(position(i, element?)?);
                }
                positions
            }
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
                let mask = integer::parse_non_negative(name, value)?;
                (0..63).filter(|bit| mask >> bit & 1 == 1).collect()
            }
            RawBsonRef::Binary(binary) => (0..u32::try_from(binary.bytes.len() * 8).unwrap_or(u32::MAX))
                .filter(|bit| bit_of(binary.bytes, *bit))
                .collect(),
            other => {
                return Err(Error::bad_value(format!(
                    "{name} takes an Array, a number, or a BinData but received: {name}: {}",
                    integer::display(other)
                )));
            }
        };
        positions.sort_unstable();
        positions.dedup();
        let mask = positions.iter().fold(0, |mask, position| mask | 1 << (*position).min(63));
        Ok(Self { operator, positions, mask })
    }

    /// Whether a value passes.
    pub fn test(&self, value: Option<RawBsonRef<'_>>) -> bool {
        match value {
            Some(RawBsonRef::Binary(binary)) => {
                let set = |position: &u32| bit_of(binary.bytes, *position);
                match self.operator {
                    BitOperator::AllSet => self.positions.iter().all(set),
                    BitOperator::AllClear => !self.positions.iter().any(set),
                    BitOperator::AnySet => self.positions.iter().any(set),
                    BitOperator::AnyClear => !self.positions.iter().all(set),
                }
            }
            Some(number) => {
                let Some(bits) = integer::exact(number) else { return false };
                let masked = bits as u64 & self.mask;
                match self.operator {
                    BitOperator::AllSet => masked == self.mask,
                    BitOperator::AllClear => masked == 0,
                    BitOperator::AnySet => masked != 0,
                    BitOperator::AnyClear => masked != self.mask,
                }
            }
            None => false,
        }
    }
}

fn bit_of(bytes: &[u8], position: u32) -> bool {
    bytes.get(position as usize / 8).is_some_and(|byte| byte >> (position % 8) & 1 == 1)
}

fn position(index: usize, value: RawBsonRef<'_>) -> Result<u32> {
    let position = integer::parse_non_negative(&index.to_string(), value)
        .map_err(|e| Error::bad_value(format!("Failed to parse bit position. {}", e.message)))?;
    u32::try_from(position).ok().filter(|position| *position <= i32::MAX as u32).ok_or_else(|| {
        Error::bad_value(format!(
            "Failed to parse bit position. Cannot represent as a 32-bit integer: {index}: {}",
            integer::display(value)
        ))
    })
}
