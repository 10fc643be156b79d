//! `arrayFilters`: which elements `$[identifier]` selects.
//!
//! Each filter is an ordinary filter on one top-level name, the identifier; an element is selected if the document
//! `{identifier: element}` matches. Every filter must be used by some path, and every identifier must have a filter.

use crate::by_name::ByName;
use crate::raw;
use crate::{Context, matcher::Matcher, show};
use baton_types::{Error, Result};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};

/// The filters of one update, by identifier.
#[derive(Debug, Default)]
pub(super) struct ArrayFilters {
    filters: ByName<ArrayFilter>,
}

#[derive(Debug)]
struct ArrayFilter {
    matcher: Box<Matcher>,
    used: bool,
}

impl ArrayFilters {
    /// Parses the command's `arrayFilters`.
    pub fn parse<D: AsRef<RawDocument>>(filters: &[D], ctx: &Context) -> Result<Self> {
        let mut parsed = ByName::default();
        for filter in filters {
            let filter = filter.as_ref();
            let identifier = identifier_of(filter)?;
            let matcher = Box::new(Matcher::parse(filter, ctx).map_err(in_filter)?);
            let letters = identifier.chars().all(|c| c.is_ascii_alphanumeric());
            if !letters || !identifier.starts_with(|c: char| c.is_ascii_lowercase()) {
                return Err(in_filter(Error::bad_value(format!(
                    "The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '{identifier}'"
                ))));
            }
            if parsed.position(identifier).is_some() {
                return Err(Error::failed_to_parse(format!(
                    "Found multiple array filters with the same top-level field name {identifier}"
                )));
            }
            parsed.push(identifier, ArrayFilter { matcher, used: false });
        }
        Ok(Self { filters: parsed })
    }

    /// Notes that `path` uses the identifier; `$[]` needs no filter.
    pub fn mark_used(&mut self, identifier: &str, path: &str) -> Result<()> {
        if identifier.is_empty() {
            return Ok(());
        }
        match self.filters.position(identifier) {
            Some(at) => {
                self.filters.at_mut(at).used = true;
                Ok(())
            }
            None => {
                Err(Error::bad_value(format!("No array filter found for identifier '{identifier}' in path '{path}'")))
            }
        }
    }

    /// Fails if a filter is used by no path of `update`.
    pub fn check_all_used(&self, update: &RawDocument) -> Result<()> {
        match self.filters.iter().find(|(_, filter)| !filter.used) {
            None => Ok(()),
            Some((identifier, _)) => Err(Error::failed_to_parse(format!(
                "The array filter for identifier '{identifier}' was not used in the update {}",
                show::document(update)
            ))),
        }
    }

    /// Whether `$[identifier]` selects the element.
    pub fn selects(&self, identifier: &str, kind: ElementType, value: &[u8]) -> Result<bool> {
        if identifier.is_empty() {
            return Ok(true);
        }
        let Some(filter) = self.filters.get(identifier) else {
            // Parsing has checked that every identifier has its filter.
            return Ok(false);
        };
        let mut out = Vec::with_capacity(value.len() + identifier.len() + 8);
        let start = raw::begin(&mut out);
        raw::put_bytes(&mut out, kind, identifier, value);
        raw::end(&mut out, start);
        filter.matcher.matches(RawDocument::from_bytes(&out)?)
    }
}

fn in_filter(mut error: Error) -> Error {
    error.message = format!("Error parsing array filter :: caused by :: {}", error.message);
    error
}

/// The one top-level name a filter is about, looking through `$and`, `$or` and `$nor`.
fn identifier_of(filter: &RawDocument) -> Result<&str> {
    let mut found: Option<&str> = None;
    let mut open = vec![filter];
    while let Some(doc) = open.pop() {
        for field in doc {
            let (key, value) = field?;
            let key = key.as_str();
            if let (true, RawBsonRef::Array(list)) = (key.starts_with('$'), value) {
                // Pushed in reverse, so that names are found in the order they are written.
                let clauses: Vec<&RawDocument> =
                    list.into_iter().filter_map(|v| v.ok().and_then(|v| v.as_document())).collect();
                open.extend(clauses.into_iter().rev());
                continue;
            }
            if key.starts_with('$') {
                continue;
            }
            let name = key.split('.').next().unwrap_or_default();
            match found {
                Some(first) if first != name => {
                    return Err(in_filter(Error::failed_to_parse(format!(
                        "Expected a single top-level field name, found '{first}' and '{name}'"
                    ))));
                }
                _ => found = Some(name),
            }
        }
    }
    found.ok_or_else(|| {
        Error::failed_to_parse("Cannot use an expression without a top-level field name in arrayFilters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{DateTime, rawdoc};

    fn parse(filters: &[bson::RawDocumentBuf]) -> Result<ArrayFilters> {
        ArrayFilters::parse(filters, &Context::new(DateTime::from_millis(0), 0))
    }

    #[test]
    fn filters_that_cannot_name_an_element_are_refused() {
        for (filter, code, message) in [
            (rawdoc! {}, 9, "Cannot use an expression without a top-level field name in arrayFilters"),
            (
                rawdoc! { "a": 1, "b": 1 },
                9,
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'a' and 'b'",
            ),
            (
                rawdoc! { "$or": [{ "a.x": 1 }, { "b": 1 }] },
                9,
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'a' and 'b'",
            ),
            (
                rawdoc! { "A": 1 },
                2,
                "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found 'A'",
            ),
        ] {
            let error = parse(&[filter]).unwrap_err();
            assert_eq!((error.code.0, error.message.as_str()), (code, message));
        }
        let twice = parse(&[rawdoc! { "i": 1 }, rawdoc! { "i": 2 }]).unwrap_err();
        assert_eq!(twice.message, "Found multiple array filters with the same top-level field name i");
    }

    #[test]
    fn a_filter_sees_the_element_under_its_identifier() {
        let filters = parse(&[rawdoc! { "i": { "$gt": 3 } }]).unwrap();
        assert!(filters.selects("i", ElementType::Int32, &5_i32.to_le_bytes()).unwrap());
        assert!(!filters.selects("i", ElementType::Int32, &3_i32.to_le_bytes()).unwrap());
        assert!(filters.selects("", ElementType::Int32, &3_i32.to_le_bytes()).unwrap());
    }
}
