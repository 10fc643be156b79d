//! `hostInfo`: the machine this member runs on.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_machine::host;
use baton_types::Result;
use bson::{DateTime, cstr};

/// The row in the table.
pub const SPEC: CommandSpec =
    CommandSpec { name: "hostInfo", flags: Flags::NONE, help: "Returns what is known of the machine.", run, ..DEFAULT };

fn mebibytes(bytes: Option<u64>) -> i64 {
    bytes.map_or(0, |b| (b / 1024 / 1024) as i64)
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (all, available) = host::processors();
    reply.begin_document(cstr!("system"));
    reply.append(cstr!("currentTime"), DateTime::now());
    reply.append(cstr!("hostname"), call.server.identity.host.as_str());
    reply.append(cstr!("cpuAddrSize"), usize::BITS as i32);
    reply.append(cstr!("memSizeMB"), mebibytes(host::memory_total_bytes()));
    reply.append(cstr!("memLimitMB"), mebibytes(baton_machine::memory_limit_bytes()));
    reply.append(cstr!("numCores"), all as i32);
    reply.append(cstr!("numCoresAvailableToProcess"), available as i32);
    reply.append(cstr!("cpuArch"), std::env::consts::ARCH);
    reply.append(cstr!("numaEnabled"), false);
    reply.end();
    let (distribution, version) = host::distribution();
    reply.begin_document(cstr!("os"));
    reply.append(cstr!("type"), "Linux");
    reply.append(cstr!("name"), distribution.as_str());
    reply.append(cstr!("version"), version.as_str());
    reply.end();
    reply.begin_document(cstr!("extra"));
    reply.append(cstr!("kernelVersion"), host::kernel_version().as_str());
    reply.append(cstr!("cpuString"), host::processor_name().as_str());
    reply.append(cstr!("pageSize"), rustix::param::page_size() as i64);
    reply.end();
    Ok(())
}
