//! What a member says of its heavy tasks: the field `leadership` of both halves of a heartbeat. Not MongoDB's.
//!
//! Times are microseconds, all of them ages but `madeAt`, which is of the sender's own clock and comes back to it in a grant.
//!
//! Invariants: what one side encodes the other decodes as the same, to the microsecond; lists are bounded; every number is one that can
//! be counted with, but for measurements, which [`Figures::bounded`] brings within their bounds.
//! What it does not do: judge whether it is old, or true.

use super::fields;
use baton_consensus::configuration::type_name;
use baton_document::Number;
use baton_leadership::{Claim, Figures, Gossip, GossipedTask, Grant, HeardPrimary};
use baton_types::{Error, ErrorCode, Result, TaskKind};
use bson::raw::CStr;
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::time::Duration;

/// Tasks that one message tells of, at most.
const TASKS_MAX: usize = 16;
/// Confirmed claims that one message tells of, at most: a set has seven voters.
const GRANTS_MAX: usize = 16;

pub(crate) fn encode(gossip: &Gossip) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("incarnation"), gossip.incarnation.cast_signed());
    document.append(cstr!("sequence"), number(gossip.sequence));
    document.append(cstr!("madeAt"), micros(gossip.made_at));
    document.append(cstr!("term"), gossip.term);
    document.append(cstr!("primary"), gossip.is_primary);
    let mut tasks = RawArrayBuf::new();
    gossip.tasks.iter().take(TASKS_MAX).for_each(|task| tasks.push(encode_task(task)));
    document.append(cstr!("tasks"), tasks);
    append_duration(&mut document, cstr!("lastTaskEnd"), gossip.last_task_end);
    document.append(cstr!("servedAsPrimary"), micros(gossip.served_as_primary));
    document.append(cstr!("figures"), encode_figures(&gossip.figures));
    if let Some(HeardPrimary { incarnation, made_at }) = gossip.heard_primary {
        let heard = rawdoc! { "incarnation": incarnation.cast_signed(), "madeAt": micros(made_at) };
        document.append(cstr!("heardPrimary"), heard);
    }
    if let Some(claim) = gossip.claim {
        document.append(cstr!("claim"), rawdoc! { "number": number(claim.number), "confirmed": claim.is_confirmed });
    }
    if !gossip.grants.is_empty() {
        let mut grants = RawArrayBuf::new();
        gossip.grants.iter().take(GRANTS_MAX).for_each(|grant| grants.push(encode_grant(grant)));
        document.append(cstr!("grants"), grants);
    }
    if let Some(preferred) = gossip.preferred {
        document.append(cstr!("preferred"), preferred);
    }
    if let Some(member) = gossip.asks_to_end {
        document.append(cstr!("asksToEnd"), member);
    }
    document.append(cstr!("termsLastHour"), i64::from(gossip.terms_last_hour));
    document.append(cstr!("movedIn"), gossip.moved_in);
    document
}

pub(crate) fn decode(document: &RawDocument) -> Result<Gossip> {
    let tasks = list(document, "tasks", TASKS_MAX)?.into_iter().map(decode_task).collect::<Result<_>>()?;
    let grants = match document.get("grants")? {
        Some(_) => list(document, "grants", GRANTS_MAX)?.into_iter().map(decode_grant).collect::<Result<_>>()?,
        None => Vec::new(),
    };
    let claim = match document.get("claim")? {
        Some(_) => Some(decode_claim(fields::object(document, "claim")?)?),
        None => None,
    };
    let heard_primary = match document.get("heardPrimary")? {
        Some(_) => Some(decode_heard_primary(fields::object(document, "heardPrimary")?)?),
        None => None,
    };
    Ok(Gossip {
        incarnation: fields::integer(document, "incarnation")?.cast_unsigned(),
        sequence: count(document, "sequence")?,
        made_at: duration(document, "madeAt")?,
        term: fields::term(document, "term")?,
        is_primary: fields::boolean(document, "primary")?,
        tasks,
        last_task_end: duration_if_any(document, "lastTaskEnd")?,
        served_as_primary: duration(document, "servedAsPrimary")?,
        figures: decode_figures(fields::object(document, "figures")?)?,
        heard_primary,
        claim,
        grants,
        preferred: fields::member_if_any(document, "preferred")?.map(|member| member.0),
        asks_to_end: fields::member_if_any(document, "asksToEnd")?.map(|member| member.0),
        terms_last_hour: u32::try_from(count(document, "termsLastHour")?).unwrap_or(u32::MAX),
        moved_in: fields::term(document, "movedIn")?,
    })
}

fn encode_task(task: &GossipedTask) -> RawDocumentBuf {
    let mut document = rawdoc! { "kind": task.kind.name(), "running": task.is_running, "age": micros(task.age) };
    append_duration(&mut document, cstr!("endsIn"), task.ends_in);
    document
}

fn decode_task(document: &RawDocument) -> Result<GossipedTask> {
    let name = fields::text(document, "kind")?;
    let kind = TaskKind::ALL.into_iter().find(|kind| kind.name() == name);
    let unknown = || Error::bad_value(format!("\"kind\" is no kind of task: {name:.40}"));
    Ok(GossipedTask {
        kind: kind.ok_or_else(unknown)?,
        is_running: fields::boolean(document, "running")?,
        age: duration(document, "age")?,
        ends_in: duration_if_any(document, "endsIn")?,
    })
}

fn decode_claim(document: &RawDocument) -> Result<Claim> {
    Ok(Claim { number: count(document, "number")?, is_confirmed: fields::boolean(document, "confirmed")? })
}

fn decode_heard_primary(document: &RawDocument) -> Result<HeardPrimary> {
    let incarnation = fields::integer(document, "incarnation")?.cast_unsigned();
    Ok(HeardPrimary { incarnation, made_at: duration(document, "madeAt")? })
}

fn encode_grant(grant: &Grant) -> RawDocumentBuf {
    rawdoc! {
        "member": grant.member,
        "incarnation": grant.incarnation.cast_signed(),
        "number": number(grant.number),
        "heardMadeAt": micros(grant.heard_made_at),
    }
}

fn decode_grant(document: &RawDocument) -> Result<Grant> {
    Ok(Grant {
        member: fields::member(document, "member")?.0,
        incarnation: fields::integer(document, "incarnation")?.cast_unsigned(),
        number: count(document, "number")?,
        heard_made_at: duration(document, "heardMadeAt")?,
    })
}

fn encode_figures(figures: &Figures) -> RawDocumentBuf {
    rawdoc! {
        "debtBytes": number(figures.debt_bytes),
        "debtLevels": i64::from(figures.debt_levels),
        "stallNearness": figures.stall_nearness,
        "cacheHitRatio": figures.cache_hit_ratio,
        "cacheHotBytes": number(figures.cache_hot_bytes),
        "syncLatency": micros(figures.sync_latency),
        "diskFree": figures.disk_free,
        "load": figures.load,
        "cpus": figures.cpus,
        "diskBytesPerSec": figures.disk_bytes_per_sec,
    }
}

fn decode_figures(document: &RawDocument) -> Result<Figures> {
    Ok(Figures {
        debt_bytes: count(document, "debtBytes")?,
        debt_levels: u32::try_from(count(document, "debtLevels")?).unwrap_or(u32::MAX),
        stall_nearness: measurement(document, "stallNearness")?,
        cache_hit_ratio: measurement(document, "cacheHitRatio")?,
        cache_hot_bytes: count(document, "cacheHotBytes")?,
        sync_latency: duration(document, "syncLatency")?,
        disk_free: measurement(document, "diskFree")?,
        load: measurement(document, "load")?,
        cpus: measurement(document, "cpus")?,
        disk_bytes_per_sec: measurement(document, "diskBytesPerSec")?,
        ..Figures::default()
    }
    .bounded())
}

/// The documents of a list, of which there are no more than that.
fn list<'a>(document: &'a RawDocument, name: &str, most: usize) -> Result<Vec<&'a RawDocument>> {
    let mut entries = Vec::new();
    for entry in fields::array(document, name)? {
        let entry = entry?;
        let Some(entry) = entry.as_document() else {
            let found = type_name(entry);
            return Err(Error::type_mismatch(format!("Expected \"{name}\" to hold objects, but found {found}")));
        };
        if entries.len() == most {
            return Err(Error::bad_value(format!("\"{name}\" has more than {most} entries")));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn append_duration(document: &mut RawDocumentBuf, name: &CStr, duration: Option<Duration>) {
    if let Some(duration) = duration {
        document.append(name, micros(duration));
    }
}

/// A whole number that is not negative.
fn count(document: &RawDocument, name: &str) -> Result<u64> {
    let number = fields::integer(document, name)?;
    u64::try_from(number)
        .map_err(|_| Error::location(51024, format!("BSON field '{name}' value must be >= 0, actual value '{number}'")))
}

fn duration(document: &RawDocument, name: &str) -> Result<Duration> {
    count(document, name).map(Duration::from_micros)
}

fn duration_if_any(document: &RawDocument, name: &str) -> Result<Option<Duration>> {
    document.get(name)?.map(|_| duration(document, name)).transpose()
}

fn measurement(document: &RawDocument, name: &str) -> Result<f64> {
    let missing = || Error::new(ErrorCode::NoSuchKey, format!("Missing expected field \"{name}\""));
    let value: RawBsonRef<'_> = document.get(name)?.ok_or_else(missing)?;
    Number::from_raw(value).map(Number::to_f64).ok_or_else(|| {
        let found = type_name(value);
        Error::type_mismatch(format!("Expected field \"{name}\" to have numeric type, but found {found}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, Document, doc};
    use proptest::option::of;
    use proptest::prelude::*;

    fn any_duration() -> impl Strategy<Value = Duration> {
        (0..1u64 << 62).prop_map(Duration::from_micros)
    }

    fn any_count() -> impl Strategy<Value = u64> {
        0..=i64::MAX as u64
    }

    fn any_task() -> impl Strategy<Value = GossipedTask> {
        let kind = prop::sample::select(TaskKind::ALL.to_vec());
        (kind, any::<bool>(), any_duration(), of(any_duration()))
            .prop_map(|(kind, is_running, age, ends_in)| GossipedTask { kind, is_running, age, ends_in })
    }

    fn any_figures() -> impl Strategy<Value = Figures> {
        let shares = [0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0_f64];
        (any_count(), any::<u32>(), any_count(), any_duration(), shares, 0.1..=4096.0, 1e5..=1e12).prop_map(
            |(debt_bytes, debt_levels, cache_hot_bytes, sync_latency, shares, cpus, disk_bytes_per_sec)| {
                let [stall_nearness, cache_hit_ratio, disk_free, load] = shares;
                Figures {
                    debt_bytes,
                    debt_levels,
                    stall_nearness,
                    cache_hit_ratio,
                    cache_hot_bytes,
                    sync_latency,
                    disk_free,
                    load,
                    cpus,
                    disk_bytes_per_sec,
                    ..Figures::default()
                }
            },
        )
    }

    fn any_gossip() -> impl Strategy<Value = Gossip> {
        let grant = (0..=255, any::<u64>(), any_count(), any_duration()).prop_map(
            |(member, incarnation, number, heard_made_at)| Grant { member, incarnation, number, heard_made_at },
        );
        let claim = (any_count(), any::<bool>()).prop_map(|(number, is_confirmed)| Claim { number, is_confirmed });
        let said = (any::<u64>(), any_count(), any_duration(), -1..1i64 << 31, any::<bool>());
        let done = (of(any_duration()), any_duration(), any::<u32>(), -1..1i64 << 31);
        let lists = (prop::collection::vec(any_task(), 0..=TASKS_MAX), prop::collection::vec(grant, 0..=GRANTS_MAX));
        let heard =
            (any::<u64>(), any_duration()).prop_map(|(incarnation, made_at)| HeardPrimary { incarnation, made_at });
        let asked = (of(claim), of(heard), of(0..=255), of(0..=255));
        (said, done, lists, any_figures(), asked).prop_map(
            |(
                (incarnation, sequence, made_at, term, is_primary),
                (last_task_end, served_as_primary, terms_last_hour, moved_in),
                (tasks, grants),
                figures,
                (claim, heard_primary, preferred, asks_to_end),
            )| Gossip {
                incarnation,
                sequence,
                made_at,
                term,
                is_primary,
                tasks,
                last_task_end,
                served_as_primary,
                figures,
                heard_primary,
                claim,
                grants,
                preferred,
                asks_to_end,
                terms_last_hour,
                moved_in,
            },
        )
    }

    proptest! {
        #[test]
        fn what_one_side_encodes_the_other_decodes_as_the_same(gossip in any_gossip()) {
            prop_assert_eq!(decode(&encode(&gossip)).unwrap(), gossip);
        }

        #[test]
        fn no_document_gives_a_panic(gossip in any_gossip(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = encode(&gossip).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(document) = RawDocument::from_bytes(&bytes) {
                let _ = decode(document);
            }
        }
    }

    fn plain() -> Document {
        let task = GossipedTask { kind: TaskKind::Backup, is_running: true, age: Duration::ZERO, ends_in: None };
        let gossip = Gossip {
            incarnation: 1,
            sequence: 1,
            made_at: Duration::ZERO,
            term: 1,
            is_primary: false,
            tasks: vec![task],
            last_task_end: None,
            served_as_primary: Duration::ZERO,
            figures: Figures::default(),
            heard_primary: None,
            claim: None,
            grants: Vec::new(),
            preferred: None,
            asks_to_end: None,
            terms_last_hour: 0,
            moved_in: 0,
        };
        Document::try_from(&*encode(&gossip)).unwrap()
    }

    fn code_with(field: &str, value: impl Into<Bson>) -> i32 {
        let mut document = plain();
        document.insert(field, value);
        decode(&RawDocumentBuf::try_from(&document).unwrap()).unwrap_err().code.0
    }

    #[test]
    fn what_is_missing_out_of_range_or_too_much_is_refused() {
        let task = plain().get_array("tasks").unwrap()[0].clone();
        let mut unknown = task.as_document().unwrap().clone();
        unknown.insert("kind", "mining");
        let mut before = task.as_document().unwrap().clone();
        before.insert("age", -1_i64);
        for (field, value, code) in [
            ("sequence", Bson::Int64(-1), 51024),
            ("sequence", Bson::String("1".into()), 14),
            ("madeAt", Bson::Double(f64::NAN), 2),
            ("term", Bson::Int64(1 << 31), 51024),
            ("primary", Bson::Int32(1), 14),
            ("tasks", Bson::Array(vec![task; TASKS_MAX + 1]), 2),
            ("tasks", Bson::Array(vec![Bson::Document(unknown)]), 2),
            ("tasks", Bson::Array(vec![Bson::Document(before)]), 51024),
            ("tasks", Bson::Array(vec![Bson::Int32(1)]), 14),
            ("figures", Bson::Document(doc! {}), 4),
            ("figures", Bson::Null, 14),
            ("claim", Bson::Document(doc! { "number": 1 }), 4),
            ("preferred", Bson::Int32(256), 2),
        ] {
            assert_eq!(code_with(field, value), code, "{field}");
        }
        for field in plain().keys() {
            let mut document = plain();
            document.remove(field);
            let decoded = decode(&RawDocumentBuf::try_from(&document).unwrap());
            assert_eq!(decoded.map_err(|error| error.code.0), Err(4), "{field}");
        }
    }

    #[test]
    fn measurements_that_are_none_become_the_worst() {
        let mut document = plain();
        let figures = document.get_document_mut("figures").unwrap();
        figures.insert("load", f64::NAN);
        figures.insert("cpus", -5.0);
        let figures = decode(&RawDocumentBuf::try_from(&document).unwrap()).unwrap().figures;
        assert_eq!((figures.load, figures.cpus), (1.0, 0.1));
    }
}
