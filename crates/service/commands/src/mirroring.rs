//! Mirrored reads: a share of what a primary's clients ask is asked of those who may follow it, too, so that their caches are warm when
//! they lead. Source: MongoDB manual, "mirrorReads" and "Mirrored Reads".
//!
//! What a command reads is what its row in the table says ([`crate::table::CommandSpec::mirrored_as`]): the query of a find, a count, a
//! distinct, a findAndModify and of the first statement of an update. A secondary carries it out for nobody: it answers that it is done.
//!
//! Invariants:
//! - Whether a command is mirrored depends on the rate and on a draw, and on nothing else; the draws follow from a seed.
//! - Who asked never waits for it.
//!
//! What it deliberately does not do: send (replication does); mirror what was mirrored.

use crate::call::Call;
use baton_document::type_name;
use baton_request::Fields;
use baton_request::fields::{number_as_f64, number_as_i64};
use baton_types::{Error, Result, Striped};
use bson::raw::CStr;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The parameter `mirrorReads`.
#[derive(Debug)]
pub struct Mirroring {
    /// The bits of a number from 0 to 1.
    sampling_rate: AtomicU64,
    max_time_ms: AtomicI64,
    draws: Draws,
    /// Commands that could have been mirrored.
    seen: Striped<AtomicU64>,
    /// Commands that another member had mirrored to this one.
    processed: AtomicU64,
}

/// What MongoDB has by default.
const SAMPLING_RATE: f64 = 0.01;
const MAX_TIME_MS: i64 = 1000;

impl Mirroring {
    /// Mirrors by draws that follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            sampling_rate: AtomicU64::new(SAMPLING_RATE.to_bits()),
            max_time_ms: AtomicI64::new(MAX_TIME_MS),
            draws: Draws::new(seed),
            seen: Striped::new(AtomicU64::default),
            processed: AtomicU64::new(0),
        }
    }

    /// The parameter's value.
    pub fn get(&self) -> Bson {
        let rate = f64::from_bits(self.sampling_rate.load(Relaxed));
        let time = self.max_time_ms.load(Relaxed);
        Bson::Document(doc! { "samplingRate": rate, "maxTimeMS": i32::try_from(time).unwrap_or(i32::MAX) })
    }

    /// Sets the parameter. What it does not name becomes what it is by default, as in MongoDB. On the command line it is text.
    ///
    /// # Errors
    /// 40415 for a field that is none of it, `TypeMismatch` (14) for one of another type, `BadValue` (2) for one out of its range.
    pub fn set(&self, value: RawBsonRef<'_>) -> Result<()> {
        let from_text;
        let document = match value {
            RawBsonRef::Document(document) => document,
            RawBsonRef::String(text) => {
                from_text = parse_text(text)?;
                &from_text
            }
            other => {
                let found = type_name(other.element_type());
                return Err(Error::type_mismatch(format!(
                    "BSON field 'mirrorReads' is the wrong type '{found}', expected type 'object'"
                )));
            }
        };
        let mut fields = Fields::of("mirrorReads", document)?;
        let number = |name: &str, value: RawBsonRef<'_>| {
            number_as_f64(value).ok_or_else(|| {
                let found = type_name(value.element_type());
                Error::type_mismatch(format!(
                    "BSON field 'mirrorReads.{name}' is the wrong type '{found}', expected types '[long, int, decimal, double]'"
                ))
            })
        };
        let rate = match fields.take("samplingRate") {
            Some(value) => number("samplingRate", value)?,
            None => SAMPLING_RATE,
        };
        let max_time_ms = match fields.take("maxTimeMS") {
            Some(value) => {
                number("maxTimeMS", value)?;
                number_as_i64(value).unwrap_or(-1)
            }
            None => MAX_TIME_MS,
        };
        fields.finish()?;
        if !(0.0..=1.0).contains(&rate) {
            return Err(Error::bad_value(format!(
                "BSON field 'mirrorReads.samplingRate' value must be between 0 and 1, actual value '{rate}'"
            )));
        }
        if !(0..=i64::from(i32::MAX)).contains(&max_time_ms) {
            return Err(Error::bad_value(format!(
                "BSON field 'mirrorReads.maxTimeMS' value must be a whole number from 0 to {}",
                i32::MAX
            )));
        }
        self.sampling_rate.store(rate.to_bits(), Relaxed);
        self.max_time_ms.store(max_time_ms, Relaxed);
        Ok(())
    }

    /// Commands that could have been mirrored.
    pub fn seen(&self) -> u64 {
        self.seen.all().map(|seen| seen.load(Relaxed)).sum()
    }

    /// Commands that another member had mirrored to this one.
    pub fn processed(&self) -> u64 {
        self.processed.load(Relaxed)
    }

    /// A mirrored command was carried out here.
    pub(crate) fn note_processed(&self) {
        self.processed.fetch_add(1, Relaxed);
    }
}

/// Numbers as if drawn by chance, which follow from a seed (splitmix64).
#[derive(Debug)]
struct Draws(Striped<AtomicU64>);

impl Draws {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new(seed: u64) -> Self {
        let next = AtomicU64::new(seed);
        Self(Striped::new(|| AtomicU64::new(mixed(next.fetch_add(Self::STEP, Relaxed)))))
    }

    fn draw(&self) -> u64 {
        mixed(self.0.mine().fetch_add(Self::STEP, Relaxed))
    }
}

fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Whether this draw is within the rate.
fn is_sampled(rate: f64, draw: u64) -> bool {
    // The highest 53 bits, as a number from 0 to below 1.
    ((draw >> 11) as f64) * (1.0 / (1_u64 << 53) as f64) < rate
}

/// Has the command mirrored, if it is to be: this member is primary, and the draw falls on it.
pub(crate) fn mirror(call: &Call<'_>) {
    let Some(mirrored_as) = call.spec.mirrored_as.filter(|_| !call.envelope.is_mirrored) else { return };
    let server = call.server;
    if !server.topology.is_writable_primary() || matches!(call.envelope.db, "local" | "config") {
        return;
    }
    let Some(replication) = server.replication() else { return };
    let mirroring = &server.mirroring;
    mirroring.seen.mine().fetch_add(1, Relaxed);
    if !is_sampled(f64::from_bits(mirroring.sampling_rate.load(Relaxed)), mirroring.draws.draw()) {
        return;
    }
    let Some(mut command) = mirrored_as(call) else { return };
    let max_time_ms = mirroring.max_time_ms.load(Relaxed);
    if max_time_ms > 0 {
        command.append(cstr!("maxTimeMS"), i32::try_from(max_time_ms).unwrap_or(i32::MAX));
    }
    command.append(cstr!("mirrored"), true);
    command.append(cstr!("readConcern"), rawdoc! { "level": "local" });
    command.append(cstr!("$readPreference"), rawdoc! { "mode": "secondaryPreferred" });
    command.append(cstr!("$db"), call.envelope.db);
    replication.mirror(command, Duration::from_millis(max_time_ms.unsigned_abs()));
}

/// The fields of these names that the command has.
fn copy(call: &Call<'_>, to: &mut RawDocumentBuf, names: &[&CStr]) {
    for name in names {
        if let Some(value) = call.fields.peek(name.as_str()) {
            to.append(*name, value);
        }
    }
}

/// One document is enough: what is read to find it is in memory then.
fn first_only(command: &mut RawDocumentBuf) {
    command.append(cstr!("singleBatch"), true);
    command.append(cstr!("batchSize"), 1);
}

/// A find.
pub fn find(call: &Call<'_>) -> Option<RawDocumentBuf> {
    // What follows a collection's end reads nothing that would be read again.
    if call.fields.peek("tailable").is_some_and(baton_request::fields::is_truthy) {
        return None;
    }
    let mut command = rawdoc! { "find": call.envelope.value };
    let names = [
        cstr!("filter"),
        cstr!("sort"),
        cstr!("hint"),
        cstr!("min"),
        cstr!("max"),
        cstr!("let"),
        cstr!("skip"),
        cstr!("limit"),
        cstr!("collation"),
    ];
    copy(call, &mut command, &names);
    first_only(&mut command);
    Some(command)
}

/// A count.
pub fn count(call: &Call<'_>) -> Option<RawDocumentBuf> {
    let mut command = rawdoc! { "count": call.envelope.value };
    copy(call, &mut command, &[cstr!("query"), cstr!("hint"), cstr!("skip"), cstr!("limit"), cstr!("collation")]);
    Some(command)
}

/// A distinct.
pub fn distinct(call: &Call<'_>) -> Option<RawDocumentBuf> {
    let mut command = rawdoc! { "distinct": call.envelope.value };
    copy(call, &mut command, &[cstr!("key"), cstr!("query"), cstr!("hint"), cstr!("collation")]);
    Some(command)
}

/// What a findAndModify looks for.
pub fn find_and_modify(call: &Call<'_>) -> Option<RawDocumentBuf> {
    let mut command = rawdoc! { "find": call.envelope.value };
    if let Some(query) = call.fields.peek("query") {
        command.append(cstr!("filter"), query);
    }
    copy(call, &mut command, &[cstr!("sort"), cstr!("hint"), cstr!("let"), cstr!("collation")]);
    first_only(&mut command);
    Some(command)
}

/// What the first statement of an update looks for.
pub fn update(call: &Call<'_>) -> Option<RawDocumentBuf> {
    let statement: &RawDocument = match call.request.sequence("updates") {
        Some(sequence) => sequence.iter().next()?,
        None => call.fields.peek("updates")?.as_array()?.into_iter().next()?.ok()?.as_document()?,
    };
    let mut command = rawdoc! { "find": call.envelope.value };
    for (name, of) in [(cstr!("filter"), "q"), (cstr!("hint"), "hint"), (cstr!("collation"), "collation")] {
        if let Some(value) = statement.get(of).ok()? {
            command.append(name, value);
        }
    }
    copy(call, &mut command, &[cstr!("let")]);
    first_only(&mut command);
    Some(command)
}

/// `{samplingRate: 0.1, maxTimeMS: 500}` as a command line has it: two numbers by their names, quoted or not.
fn parse_text(text: &str) -> Result<RawDocumentBuf> {
    let wrong =
        || Error::bad_value(format!("mirrorReads must be like {{samplingRate: 0.01, maxTimeMS: 1000}}, not '{text}'"));
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(wrong)?;
    let mut document = RawDocumentBuf::new();
    for part in inner.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, value) = part.split_once(':').ok_or_else(wrong)?;
        let name = name.trim().trim_matches(['"', '\'']);
        let value: f64 = value.trim().parse().map_err(|_| wrong())?;
        document.append(bson::raw::CString::try_from(name).map_err(|_| wrong())?, value);
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_samples_the_same_and_about_as_many_as_the_rate_says() {
        let of = |seed, rate| {
            let draws = Draws::new(seed);
            (0..100_000).map(|_| is_sampled(rate, draws.draw())).collect::<Vec<_>>()
        };
        let count = |sampled: &[bool]| sampled.iter().filter(|sampled| **sampled).count();
        let one_percent = of(7, 0.01);
        assert_eq!(one_percent, of(7, 0.01));
        assert_ne!(one_percent, of(8, 0.01));
        assert!((850..1150).contains(&count(&one_percent)), "{}", count(&one_percent));
        assert_eq!((count(&of(7, 0.0)), count(&of(7, 1.0))), (0, 100_000));
    }

    #[test]
    fn the_parameter_is_read_strictly_and_a_refused_one_changes_nothing() {
        let mirroring = Mirroring::new(1);
        let set =
            |document: RawDocumentBuf| mirroring.set(RawBsonRef::Document(&document)).map_err(|error| error.code.0);
        assert_eq!(mirroring.get(), Bson::Document(doc! { "samplingRate": 0.01, "maxTimeMS": 1000 }));
        assert_eq!(set(rawdoc! { "samplingRate": 0.5 }), Ok(()));
        let half = Bson::Document(doc! { "samplingRate": 0.5, "maxTimeMS": 1000 });
        assert_eq!(mirroring.get(), half);
        assert_eq!(set(rawdoc! { "samplingRate": 1.5 }), Err(2));
        assert_eq!(set(rawdoc! { "samplingRate": f64::NAN }), Err(2));
        assert_eq!(set(rawdoc! { "samplingRate": "much" }), Err(14));
        assert_eq!(set(rawdoc! { "samplingRate": 0.1, "maxTimeMS": -1 }), Err(2));
        assert_eq!(set(rawdoc! { "maxTimeMS": 1_i64 << 40 }), Err(2));
        assert_eq!(set(rawdoc! { "targetedMirroring": { "samplingRate": 0.1 } }), Err(40415));
        assert_eq!(mirroring.set(RawBsonRef::Int32(1)).map_err(|error| error.code.0), Err(14));
        assert_eq!(mirroring.get(), half);
        mirroring.set(RawBsonRef::String("{ \"samplingRate\": 0.25, maxTimeMS: 50 }")).unwrap();
        assert_eq!(mirroring.get(), Bson::Document(doc! { "samplingRate": 0.25, "maxTimeMS": 50 }));
        for text in ["", "{", "{samplingRate}", "{samplingRate: x}", "0.5"] {
            assert!(mirroring.set(RawBsonRef::String(text)).is_err(), "{text}");
        }
    }
}
