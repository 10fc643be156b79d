//! Warming who is to lead: before a planned handoff the primary names the documents that its clients look up most, and the successor
//! reads those that it does not have in memory.
//!
//! Clients are served meanwhile as before, by the primary. What the successor reads is bounded in time and bytes by who asks.
//!
//! Invariants: whatever goes wrong, the handoff goes on; what is named by a member is read strictly, and a document that is not there
//! is passed over.
//! What it deliberately does not do: choose the bounds (the brain does); warm blocks of indexes, which no key of a document names.

use baton_consensus::{MemberId, View};
use baton_leadership::Warming;
use baton_net::{CallError, Outgoing};
use baton_storage::{HotRecords, Storage, Warmed};
use baton_types::{Error, Result};
use bson::spec::BinarySubtype;
use bson::{Binary, RawArray, RawArrayBuf, RawDocumentBuf, rawdoc};
use std::time::{Duration, Instant};

/// Documents that are named: as many as can be read in that time at the best, from the system's memory; and the bytes of their names.
const RECORDS_PER_MILLI: usize = 200;
const RECORDS_MAX: usize = 200_000;
const NAMES_BYTES_MAX: usize = 8 << 20;
/// How long the successor may take to take a connection, and to answer beyond the time that it may read.
const GRACE: Duration = Duration::from_millis(500);

/// Has the member at `host` read the hottest documents of this one.
///
/// # Errors
/// Why nothing is known to have come of it, in words.
pub fn warm(storage: &Storage, host: &str, bounds: Warming) -> Result<Warmed, String> {
    let records = (bounds.time.as_millis() as usize).saturating_mul(RECORDS_PER_MILLI).min(RECORDS_MAX);
    let hot = storage.hottest(bounds.bytes, records);
    if hot.records.is_empty() || bounds.time.is_zero() {
        return Ok(Warmed::default());
    }
    let say = |error: CallError| error.to_string();
    let mut connection = Outgoing::connect(host, GRACE).map_err(|error| error.to_string())?;
    let reply = connection.call(&encode(&hot, bounds), bounds.time + GRACE).map_err(say)?;
    if !reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
        return Err(reply.get_str("errmsg").unwrap_or("it refused").to_owned());
    }
    let count = |name: &str| reply.get_i64(name).ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    Ok(Warmed { read: count("read"), read_bytes: count("readBytes"), had: count("had"), missing: count("missing") })
}

/// Has the one who is to lead warmed, whoever that is; by `view`, if nobody says. What comes of it is logged, and changes nothing.
pub(crate) fn before_handoff(storage: &Storage, view: &View, to: Option<MemberId>, bounds: Warming) {
    let first = || view.succession.iter().find(|candidate| candidate.obstacle.is_none());
    let Some(to) = to.or_else(|| Some(first()?.member)) else { return };
    let Some(host) = view.configuration.as_ref().and_then(|configuration| Some(&configuration.member(to)?.host)) else {
        return;
    };
    let begun = Instant::now();
    match warm(storage, host, bounds) {
        Ok(Warmed { read, read_bytes, had, missing }) => tracing::info!(
            target: "REPL", id = 9_100_020, host, read, readBytes = read_bytes, had, missing, millis = begun.elapsed().as_millis(),
            "The member that is to lead has read what clients look up most"
        ),
        Err(why) => {
            tracing::info!(target: "REPL", id = 9_100_021, host, why, "The member that is to lead was not warmed")
        }
    }
}

fn encode(hot: &HotRecords, bounds: Warming) -> RawDocumentBuf {
    let collections: RawArrayBuf =
        hot.collections.iter().map(|uuid| Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() }).collect();
    let mut names = Vec::new();
    for (collection, record) in &hot.records {
        if names.len() + record.len() > NAMES_BYTES_MAX {
            break;
        }
        names.extend_from_slice(&collection.to_le_bytes());
        names.extend_from_slice(&(record.len() as u32).to_le_bytes());
        names.extend_from_slice(record);
    }
    rawdoc! {
        "batonWarm": 1,
        "collections": collections,
        "records": Binary { subtype: BinarySubtype::Generic, bytes: names },
        "timeMS": i64::try_from(bounds.time.as_millis()).unwrap_or(i64::MAX),
        "bytes": i64::try_from(bounds.bytes).unwrap_or(i64::MAX),
        "$db": "admin",
    }
}

/// What a primary named: see [`warm`].
///
/// # Errors
/// `BadValue` (2) if it is not what it should be.
pub fn decode(collections: &RawArray, mut names: &[u8]) -> Result<HotRecords> {
    let wrong = |what: &str| Error::bad_value(format!("batonWarm: {what}"));
    let uuid = |value: bson::RawBsonRef<'_>| {
        let binary = value.as_binary().filter(|binary| binary.subtype == BinarySubtype::Uuid)?;
        <[u8; 16]>::try_from(binary.bytes).ok()
    };
    let mut hot = HotRecords::default();
    for value in collections {
        hot.collections.push(uuid(value?).ok_or_else(|| wrong("'collections' must be UUIDs"))?);
    }
    while let Some((head, rest)) = names.split_at_checked(8) {
        let figure = |at: usize| head[at..at + 4].try_into().map_or(u32::MAX, u32::from_le_bytes);
        let (collection, length) = (figure(0), figure(4) as usize);
        let (record, rest) = rest.split_at_checked(length).ok_or_else(|| wrong("'records' ends within one"))?;
        if collection as usize >= hot.collections.len() {
            return Err(wrong("a record is of no collection"));
        }
        hot.records.push((collection, record.into()));
        names = rest;
    }
    if names.is_empty() { Ok(hot) } else { Err(wrong("'records' ends within one")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a `batonWarm`.
    fn fields(command: &RawDocumentBuf) -> (&RawArray, &[u8]) {
        (command.get_array("collections").unwrap(), command.get_binary("records").unwrap().bytes)
    }

    const BOUNDS: Warming = Warming { time: Duration::from_millis(250), bytes: 1 << 20 };

    #[test]
    fn what_is_named_is_what_is_read() {
        let hot = HotRecords {
            collections: vec![[1; 16], [2; 16]],
            records: vec![(1, b"second".as_slice().into()), (0, b"".as_slice().into()), (1, b"x".as_slice().into())],
        };
        let command = encode(&hot, BOUNDS);
        let (collections, records) = fields(&command);
        assert_eq!(decode(collections, records).unwrap(), hot);
        assert_eq!(command.get_i64("timeMS").unwrap(), 250);
        for cut in 1..records.len() {
            let whole = [0, 14, 22].contains(&cut);
            assert_eq!(decode(collections, &records[..cut]).is_ok(), whole, "{cut}");
        }
        assert!(decode(&RawArrayBuf::new(), records).is_err(), "a record of no collection");
        let not_uuids: RawArrayBuf = ["a"].into_iter().collect();
        assert!(decode(&not_uuids, &[]).is_err());
    }

    #[test]
    fn the_names_of_too_much_are_cut() {
        let record: std::sync::Arc<[u8]> = vec![7; 1 << 20].into();
        let records = (0..20).map(|_| (0, record.as_ref().into())).collect();
        let command = encode(&HotRecords { collections: vec![[1; 16]], records }, BOUNDS);
        let (collections, records) = fields(&command);
        assert!(records.len() <= NAMES_BYTES_MAX + 64);
        assert_eq!(decode(collections, records).unwrap().records.len(), 7);
    }
}
