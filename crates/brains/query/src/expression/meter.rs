//! What the evaluation of one expression holds and does: bounds on memory and on how long nobody asks whether to go on.
//!
//! Invariants: a collection of values (an array, an object, the arguments of a call, the variables of a scope) holds on
//! the meter what its values take, as long as it grows or lives; so what lives at a time is never more than the bound
//! and the one value on its way from one owner to the next. What goes beyond [`FREE_BYTES`] is charged to the pool that
//! all requests share. Whoever looks at many values, or moves many bytes, counts steps.
//!
//! Not here: counting what an allocator does. Values are counted by [`value::size_bytes`].

use super::value;
use crate::Context;
use crate::interruption::{BYTES_PER_STEP, Interruption};
use baton_types::{Error, ErrorCode, MemoryAccount, Result};
use bson::{Bson, Document};
use std::cell::{Cell, RefCell};

/// What an evaluation may hold before it is charged to the pool: most never get there.
const FREE_BYTES: usize = 256 * 1024;

/// The pool is asked for so much at a time.
const CHARGE_BYTES: usize = 256 * 1024;

/// See the file's header. One for each evaluation, on its stack.
pub(crate) struct Meter<'c> {
    ctx: &'c Context,
    asked: &'c Interruption,
    /// What is held now.
    bytes: Cell<usize>,
    /// What may be held before the pool has to be asked.
    granted: Cell<usize>,
    account: RefCell<Option<MemoryAccount>>,
}

impl<'c> Meter<'c> {
    pub fn new(ctx: &'c Context) -> Self {
        Self::asking(ctx, &ctx.interruption)
    }

    /// One that asks somebody else than the context does.
    pub fn asking(ctx: &'c Context, asked: &'c Interruption) -> Self {
        Self { ctx, asked, bytes: Cell::new(0), granted: Cell::new(FREE_BYTES), account: RefCell::new(None) }
    }

    /// Counts a step, and asks now and then whether to go on.
    pub fn step(&self) -> Result<()> {
        self.asked.step()
    }

    /// Whom it asks.
    pub fn asked(&self) -> &'c Interruption {
        self.asked
    }

    /// Counts steps.
    pub fn steps(&self, steps: usize) -> Result<()> {
        self.asked.steps(steps)
    }

    /// Counts the steps that so many bytes take.
    pub fn move_bytes(&self, bytes: usize) -> Result<()> {
        if bytes < BYTES_PER_STEP { Ok(()) } else { self.steps(bytes / BYTES_PER_STEP) }
    }

    fn take(&self, name: &str, bytes: usize) -> Result<()> {
        self.move_bytes(bytes)?;
        let held = self.bytes.get().saturating_add(bytes);
        if held > self.granted.get() {
            self.charge(name, held)?;
        }
        self.bytes.set(held);
        Ok(())
    }

    #[cold]
    fn charge(&self, name: &str, held: usize) -> Result<()> {
        let bytes_max = Context::EVALUATION_BYTES_MAX;
        let mut account = self.account.borrow_mut();
        let account = account.get_or_insert_with(|| self.ctx.memory.account(usize::MAX));
        let wanted = held.next_multiple_of(CHARGE_BYTES);
        if held > bytes_max || !account.set(wanted) {
            let message = if held > bytes_max {
                format!("{name} would use too much memory and cannot spill: more than {bytes_max} bytes")
            } else {
                format!("{name} would use more than is left of the memory that all requests share, and cannot spill")
            };
            return Err(Error::new(ErrorCode::ExceededMemoryLimit, message));
        }
        self.granted.set(wanted);
        Ok(())
    }

    /// Holds nothing yet, on behalf of `name`.
    pub fn hold(&self, name: &'static str) -> Held<'_> {
        Held { meter: self, name, bytes: 0 }
    }
}

/// Bytes held on a meter; given back when dropped.
pub(crate) struct Held<'m> {
    meter: &'m Meter<'m>,
    name: &'static str,
    bytes: usize,
}

impl Held<'_> {
    /// Holds so many more.
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.meter.take(self.name, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Holds what a value takes.
    pub fn add_value(&mut self, value: &Bson) -> Result<()> {
        self.add(value::size_bytes(value))
    }

    /// Holds what a value takes beyond its own place: nothing for a number.
    pub fn add_contents(&mut self, value: Option<&Bson>) -> Result<()> {
        match value {
            Some(
                container @ (Bson::Array(_)
                | Bson::Document(_)
                | Bson::String(_)
                | Bson::Symbol(_)
                | Bson::JavaScriptCode(_)
                | Bson::Binary(_)
                | Bson::RegularExpression(_)
                | Bson::JavaScriptCodeWithScope(_)),
            ) => self.add_value(container),
            _ => Ok(()),
        }
    }

    /// Holds so many, and no longer what it held.
    pub fn set(&mut self, bytes: usize) -> Result<()> {
        self.give_back();
        self.add(bytes)
    }

    fn give_back(&mut self) {
        self.meter.bytes.set(self.meter.bytes.get().saturating_sub(self.bytes));
        self.bytes = 0;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// An array that grows on a meter.
pub(crate) struct Elements<'m> {
    values: Vec<Bson>,
    held: Held<'m>,
}

impl<'m> Elements<'m> {
    /// An empty one, with room for at most so many.
    pub fn new(meter: &'m Meter<'m>, name: &'static str, room: usize) -> Self {
        /// Beyond that the array takes room as it grows: how many there will be may be more than there is memory for.
        const ROOM_MAX: usize = 1024;
        Self { values: Vec::with_capacity(room.min(ROOM_MAX)), held: meter.hold(name) }
    }

    pub fn push(&mut self, value: Bson) -> Result<()> {
        self.held.meter.step()?;
        self.held.add_value(&value)?;
        self.values.push(value);
        Ok(())
    }

    /// The array; whoever collects it holds it from now on.
    pub fn into_value(self) -> value::Value {
        Some(Bson::Array(self.values))
    }
}

/// An object that grows on a meter.
pub(crate) struct Fields<'m> {
    document: Document,
    held: Held<'m>,
}

impl<'m> Fields<'m> {
    pub fn new(meter: &'m Meter<'m>, name: &'static str) -> Self {
        Self { document: Document::new(), held: meter.hold(name) }
    }

    /// Sets a field. One that replaces another counts for both: the bound is not that narrow.
    pub fn insert(&mut self, name: &str, value: Bson) -> Result<()> {
        self.held.add(value::field_bytes(name, &value))?;
        self.document.insert(name, value);
        Ok(())
    }

    /// The object; whoever collects it holds it from now on.
    pub fn into_value(self) -> value::Value {
        Some(Bson::Document(self.document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::MemoryPool;
    use bson::DateTime;

    fn context(pool_bytes: usize) -> Context {
        let mut context = Context::new(DateTime::from_millis(0), 0);
        context.memory = MemoryPool::new(pool_bytes);
        context
    }

    #[test]
    fn what_is_held_goes_back_and_only_much_of_it_is_charged_to_the_pool() {
        let ctx = context(10 * CHARGE_BYTES);
        let meter = Meter::new(&ctx);
        let mut small = meter.hold("$map");
        small.add(FREE_BYTES).unwrap();
        assert_eq!(ctx.memory.bytes(), 0);
        let mut large = meter.hold("$map");
        large.add(5 * CHARGE_BYTES).unwrap();
        assert_eq!(ctx.memory.bytes(), 6 * CHARGE_BYTES);
        assert_eq!(large.add(5 * CHARGE_BYTES).unwrap_err().code, ErrorCode::ExceededMemoryLimit);
        drop(large);
        small.set(8 * CHARGE_BYTES).unwrap();
        drop(small);
        assert_eq!(meter.bytes.get(), 0);
        drop(meter);
        assert_eq!(ctx.memory.bytes(), 0);
    }

    #[test]
    fn no_pool_is_so_large_that_an_evaluation_has_no_bound() {
        let ctx = context(usize::MAX);
        let meter = Meter::new(&ctx);
        let mut held = meter.hold("$range");
        held.add(Context::EVALUATION_BYTES_MAX).unwrap();
        let error = held.add(1).unwrap_err();
        assert_eq!(error.code, ErrorCode::ExceededMemoryLimit);
        assert!(error.message.starts_with("$range would use too much memory and cannot spill"), "{}", error.message);
    }
}
