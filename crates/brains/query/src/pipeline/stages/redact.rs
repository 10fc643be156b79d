//! `$redact`: keeps, descends into or prunes each document and subdocument, by an expression.
//!
//! Source: MongoDB manual, "$redact (aggregation)". The expression sees the subdocument at hand as `$$CURRENT`
//! and yields one of the variables `$$KEEP`, `$$DESCEND` and `$$PRUNE`. Arrays are descended into element by element;
//! what is no document stays.

use crate::Context;
use crate::expression::Expression;
use crate::interruption::BYTES_PER_STEP;
use crate::pipeline::field::single;
use crate::pipeline::stage::{Flow, Stage};
use crate::raw::{self, Element};
use crate::show;
use baton_types::{Error, Result};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use std::collections::VecDeque;
use std::sync::Arc;

/// The variable under which the subdocument at hand is passed to the expression.
const LEVEL: &str = "redactLevel";
/// The variables that say what is to be done, and the values they carry.
const VERDICTS: [(&str, &str); 3] = [("KEEP", "keep"), ("DESCEND", "descend"), ("PRUNE", "prune")];

/// The argument of `$redact`.
#[derive(Clone, Debug)]
pub struct RedactSpec {
    expression: Expression,
    /// The expression as the client wrote it.
    pub spec: RawBson,
}

impl RedactSpec {
    /// Parses the expression.
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let vars = single("CURRENT", RawBsonRef::String("$$redactLevel"))?;
        let mut bound = RawDocumentBuf::new();
        bound.append(bson::raw::cstr!("vars"), &vars);
        bound.append(bson::raw::cstr!("in"), value);
        let wrapped = single("$let", (&*bound).into())?;
        let expression = Expression::parse((&*wrapped).into(), &with_verdicts(ctx)?)?;
        Ok(Self { expression, spec: value.into() })
    }

    pub(crate) fn start(self: &Arc<Self>, ctx: &Context) -> Result<RedactStage> {
        Ok(RedactStage { spec: Arc::clone(self), ctx: with_verdicts(ctx)? })
    }
}

/// `ctx` with the variables of `$redact`.
fn with_verdicts(ctx: &Context) -> Result<Context> {
    let mut ctx = ctx.clone();
    for (name, value) in VERDICTS {
        ctx.set_variable(name, Bson::String(value.to_owned()))?;
    }
    ctx.set_variable(LEVEL, Bson::Null)?;
    Ok(ctx)
}

/// `$redact` at work.
pub(crate) struct RedactStage {
    spec: Arc<RedactSpec>,
    ctx: Context,
}

impl RedactStage {
    /// What is left of `level`, a part of `root`; `None` if it is pruned.
    fn redact(&mut self, root: &RawDocument, level: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        self.ctx.interruption.steps(1 + level.as_bytes().len() / BYTES_PER_STEP)?;
        self.ctx.set_variable(LEVEL, Bson::Document(Document::try_from(level)?))?;
        let verdict = self.spec.expression.evaluate(root, &self.ctx)?;
        match verdict.as_ref().and_then(Bson::as_str) {
            Some("keep") => Ok(Some(level.to_owned())),
            Some("prune") => Ok(None),
            Some("descend") => self.descend(root, level).map(Some),
            _ => {
                let shown = match verdict {
                    Some(value) => show::value(RawBson::try_from(value)?.as_raw_bson_ref()),
                    None => "MISSING".to_owned(),
                };
                let message = format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and \
                     $$PRUNE, but returned {shown}"
                );
                Err(Error::location(17053, message))
            }
        }
    }

    fn descend(&mut self, root: &RawDocument, level: &RawDocument) -> Result<RawDocumentBuf> {
        let mut out = Vec::with_capacity(level.as_bytes().len());
        let start = raw::begin(&mut out);
        for element in raw::elements(level) {
            let element = element?;
            self.keep_element(root, &element, element.key(), &mut out)?;
        }
        raw::end(&mut out, start);
        raw::finish(out)
    }

    fn descend_array(&mut self, root: &RawDocument, array: &RawArray) -> Result<RawDocumentBuf> {
        let mut out = Vec::with_capacity(array.as_bytes().len());
        let start = raw::begin(&mut out);
        let mut digits = raw::Digits::default();
        let mut position = 0;
        for element in raw::elements(raw::array_fields(array)?) {
            if self.keep_element(root, &element?, digits.of(position), &mut out)? {
                position += 1;
            }
        }
        raw::end(&mut out, start);
        raw::finish(out)
    }

    /// Writes what is left of an element; whether anything is.
    fn keep_element(
        &mut self,
        root: &RawDocument,
        element: &Element<'_>,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let kept = match element.value()? {
            RawBsonRef::Document(inner) => self.redact(root, inner)?,
            RawBsonRef::Array(array) => Some(self.descend_array(root, array)?),
            _ => {
                raw::put_renamed(out, name, element);
                return Ok(true);
            }
        };
        if let Some(kept) = &kept {
            raw::put_bytes(out, element.element_type(), name, kept.as_bytes());
        }
        Ok(kept.is_some())
    }
}

impl Stage for RedactStage {
    fn push(&mut self, doc: RawDocumentBuf, out: &mut VecDeque<RawDocumentBuf>) -> Result<Flow> {
        if let Some(kept) = self.redact(&doc, &doc)? {
            out.push_back(kept);
        }
        Ok(Flow::More)
    }
}
