//! What `create` and `collMod` set of a collection.

use baton_types::{Error, ErrorCode, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

/// What `create` and `collMod` set.
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    /// The options document, as `listCollections` shows it.
    pub document: RawDocumentBuf,
    /// Bytes and (if limited) documents of a capped collection.
    pub capped: Option<(i64, Option<i64>)>,
    /// Source collection and pipeline of a view.
    pub view: Option<(String, Vec<RawDocumentBuf>)>,
    /// The validator, and whether violations are errors (else warnings).
    pub validator: Option<(RawDocumentBuf, bool)>,
    /// Whether existing invalid documents may be updated (`validationLevel: "moderate"`).
    pub validation_moderate: bool,
    /// Whether it is the scratch of one operation (`temp: true`): a rename makes it lasting, a restart drops it.
    pub temporary: bool,
}

impl CollectionOptions {
    /// Reads and checks an options document.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let mut options = Self { document: document.to_owned(), ..Self::default() };
        options.temporary = matches!(document.get("temp")?, Some(RawBsonRef::Boolean(true)));
        let number = |name: &str| -> Result<Option<i64>> {
            match document.get(name)? {
                None => Ok(None),
                Some(RawBsonRef::Int32(n)) => Ok(Some(n.into())),
                Some(RawBsonRef::Int64(n)) => Ok(Some(n)),
                Some(RawBsonRef::Double(n)) => Ok(Some(n as i64)),
                Some(_) => Err(Error::type_mismatch(format!("BSON field 'create.{name}' must be a number"))),
            }
        };
        if matches!(document.get("capped")?, Some(RawBsonRef::Boolean(true))) {
            let Some(bytes) = number("size")?.filter(|bytes| *bytes > 0) else {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "the 'size' field is required when 'capped' is true",
                ));
            };
            options.capped = Some((bytes.max(4096), number("max")?.filter(|max| *max > 0)));
        }
        if let Some(on) = document.get("viewOn")? {
            let on = on.as_str().ok_or_else(|| Error::type_mismatch("'viewOn' must be a string"))?;
            let mut pipeline = Vec::new();
            if let Some(stages) = document.get("pipeline")? {
                let stages = stages.as_array().ok_or_else(|| Error::type_mismatch("'pipeline' must be an array"))?;
                for stage in stages {
                    let stage = stage?.as_document().ok_or_else(|| {
                        Error::type_mismatch("Each element of the 'pipeline' array must be an object")
                    })?;
                    pipeline.push(stage.to_owned());
                }
            }
            options.view = Some((on.to_owned(), pipeline));
        }
        if let Some(validator) = document.get("validator")?.and_then(|v| v.as_document())
            && !validator.is_empty()
            && document.get("validationLevel")?.and_then(|v| v.as_str()) != Some("off")
        {
            let strict = document.get("validationAction")?.and_then(|v| v.as_str()) != Some("warn");
            options.validator = Some((validator.to_owned(), strict));
            options.validation_moderate = document.get("validationLevel")?.and_then(|v| v.as_str()) == Some("moderate");
        }
        Ok(options)
    }

    /// The same for a collection that is temporary, or no longer is.
    pub fn with_temporary(&self, temporary: bool) -> Result<Self> {
        let mut document = RawDocumentBuf::new();
        for element in self.document.iter() {
            let (name, value) = element?;
            if name != "temp" {
                document.append(name, value);
            }
        }
        if temporary {
            document.append(cstr!("temp"), true);
        }
        Ok(Self { document, temporary, ..self.clone() })
    }
}

/// `document` with the fields of `changes` in place of its own of their names, or added, and without those in `removed`.
pub fn replaced(document: &RawDocument, changes: &RawDocument, removed: &[&str]) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    for element in document {
        let (name, value) = element?;
        if !removed.contains(&name.as_str()) {
            out.append(name, changes.get(name.as_str())?.unwrap_or(value));
        }
    }
    for element in changes {
        let (name, value) = element?;
        if document.get(name.as_str())?.is_none() {
            out.append(name, value);
        }
    }
    Ok(out)
}
