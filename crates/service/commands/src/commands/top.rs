//! `top`: the time each collection has taken.

use crate::call::{Call, Reply};
use crate::server::counters::{CollectionUsage, UsageSum};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::Kind;
use baton_types::Result;
use baton_wire::DocumentWriter;
use bson::cstr;
use bson::raw::{CStr, CString};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "top",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the time spent on each collection, in microseconds.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    reply.begin_document(cstr!("totals"));
    reply.append(cstr!("note"), "all times in microseconds");
    for (name, usage) in call.server.counters.collections() {
        let Ok(name) = CString::try_from(&*name) else { continue };
        reply.begin_document(&name);
        append(reply, &usage);
        reply.end();
    }
    reply.end();
    Ok(())
}

fn append(writer: &mut DocumentWriter<'_>, usage: &CollectionUsage) {
    let of = |kinds: &[Kind]| {
        kinds
            .iter()
            .map(|kind| usage.of(*kind))
            .fold((0, 0), |(time_us, count), sum| (time_us + sum.time_us, count + sum.count))
    };
    let reads = [Kind::Query, Kind::GetMore];
    let writes = [Kind::Insert, Kind::Update, Kind::Delete];
    let all = [Kind::Query, Kind::GetMore, Kind::Insert, Kind::Update, Kind::Delete, Kind::Command];
    let rows: [(&CStr, &[Kind]); 9] = [
        (cstr!("total"), &all),
        (cstr!("readLock"), &reads),
        (cstr!("writeLock"), &writes),
        (cstr!("queries"), &[Kind::Query]),
        (cstr!("getmore"), &[Kind::GetMore]),
        (cstr!("insert"), &[Kind::Insert]),
        (cstr!("update"), &[Kind::Update]),
        (cstr!("remove"), &[Kind::Delete]),
        (cstr!("commands"), &[Kind::Command]),
    ];
    for (key, kinds) in rows {
        let (time_us, count) = of(kinds);
        writer.begin_document(key);
        writer.append(cstr!("time"), time_us as i64);
        writer.append(cstr!("count"), count as i64);
        writer.end();
    }
}

/// A usage as `{latency, ops}`, the form of serverStatus.
pub fn append_latency(writer: &mut DocumentWriter<'_>, key: &CStr, usage: UsageSum) {
    writer.begin_document(key);
    writer.append(cstr!("latency"), usage.time_us as i64);
    writer.append(cstr!("ops"), usage.count as i64);
    writer.end();
}
