//! The computed fields of `$group` and `$bucketAuto`: a name, an accumulator, and its state for one group.

use crate::Context;
use crate::accumulator::{Accumulator, AccumulatorSpec};
use crate::expression::Dependencies;
use crate::pipeline::field::{cstring, raw_value};
use crate::spill::damaged;
use baton_types::{Error, Result};
use bson::Bson;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// One field of the output.
#[derive(Clone, Debug)]
pub(crate) struct AccumulatedField {
    name: String,
    spec: AccumulatorSpec,
}

impl AccumulatedField {
    /// Parses `name: {$accumulator: …}`: 16414, 40234 to 40238.
    pub(crate) fn parse(name: &str, value: RawBsonRef<'_>, ctx: &Context) -> Result<Self> {
        let not_an_object = || Error::location(40234, format!("The field '{name}' must be an accumulator object"));
        let doc = value.as_document().ok_or_else(not_an_object)?;
        if name.contains('.') {
            let message = format!("The field name '{name}' cannot contain '.'");
            return Err(Error::location(40235, message));
        }
        if name.starts_with('$') {
            let message = format!("The field name '{name}' cannot be an operator name");
            return Err(Error::location(40236, message));
        }
        let mut elements = doc.iter();
        let first = elements.next().transpose()?;
        let Some((operator, argument)) = first.filter(|_| elements.next().is_none()) else {
            let message = format!("The field '{name}' must specify one accumulator");
            return Err(Error::location(40238, message));
        };
        Ok(Self { name: name.to_owned(), spec: AccumulatorSpec::parse(operator.as_str(), argument, ctx)? })
    }

    pub(crate) fn collect_dependencies(&self, into: &mut Dependencies) {
        into.merge(self.spec.dependencies());
    }
}

/// The states of all fields for one group.
pub(crate) struct Accumulators {
    states: Vec<Box<dyn Accumulator>>,
}

impl Accumulators {
    /// Fresh states for the group with the key `group`.
    pub(crate) fn start(fields: &[AccumulatedField], group: &Bson, ctx: &Context) -> Result<Self> {
        let states: Result<_> = fields.iter().map(|field| field.spec.start(group, ctx)).collect();
        Ok(Self { states: states? })
    }

    /// Takes one document into every field.
    pub(crate) fn accumulate(&mut self, fields: &[AccumulatedField], doc: &RawDocument, ctx: &Context) -> Result<()> {
        for (state, field) in self.states.iter_mut().zip(fields) {
            state.accumulate(field.spec.input(doc, ctx)?)?;
        }
        Ok(())
    }

    /// Bytes the states hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.states.iter().map(|state| state.memory_bytes()).sum()
    }

    /// The states as one value.
    pub(crate) fn state(self) -> Bson {
        Bson::Array(self.states.into_iter().map(|state| state.state()).collect())
    }

    /// Takes in the states of another group of the same key, whose documents came after its own.
    pub(crate) fn merge(&mut self, state: Bson) -> Result<()> {
        let Bson::Array(states) = state else { return Err(damaged()) };
        self.states.iter_mut().zip(states).try_for_each(|(own, state)| own.merge(state))
    }

    /// Appends the fields to `doc`.
    pub(crate) fn finish(self, fields: &[AccumulatedField], doc: &mut RawDocumentBuf) -> Result<()> {
        for (state, field) in self.states.into_iter().zip(fields) {
            doc.append(cstring(&field.name)?, raw_value(state.finish())?);
        }
        Ok(())
    }
}
