//! How often a request makes a member allocate: of what every application does all day, few times, and no more than before.
//!
//! Counted is what Rust's allocator is asked for by any thread but the client's, from the request to its reply; the least of many
//! requests, for what goes on beside them is none of theirs. What RocksDB allocates is not among it.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(unsafe_code, reason = "an allocator is unsafe to implement; this one passes everything on")]

mod common;

use bson::{RawDocumentBuf, doc};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_CLIENT.try_with(|is_client| !is_client.get()).unwrap_or(false) {
            COUNT.fetch_add(1, Relaxed);
        }
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if IS_CLIENT.try_with(|is_client| !is_client.get()).unwrap_or(false) {
            COUNT.fetch_add(1, Relaxed);
        }
        // SAFETY: as the caller has promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const REQUESTS: usize = 300;

/// The least that one of many such requests allocates.
fn least(client: &mut common::Client, command: bson::Document) -> u64 {
    let body = RawDocumentBuf::try_from(&command).unwrap();
    let one = |_| {
        let before = COUNT.load(Relaxed);
        let reply = client.raw(&body);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        COUNT.load(Relaxed) - before
    };
    (0..REQUESTS).map(one).min().unwrap()
}

#[test]
fn a_look_up_and_an_update_by_id_allocate_few_times() {
    IS_CLIENT.set(true);
    let member = common::start();
    let mut client = member.client();
    let text = "x".repeat(100);
    let document = doc! { "_id": "user1", "field0": &text, "field1": &text, "field2": &text, "n": 0, "m": 0 };
    client.run("shop", doc! { "insert": "carts", "documents": [document] });
    let lsid = doc! { "id": bson::Uuid::from_bytes([7; 16]) };
    let found = least(
        &mut client,
        doc! {
            "find": "carts", "filter": { "_id": "user1" }, "limit": 1, "singleBatch": true, "lsid": lsid.clone(), "$db": "shop",
        },
    );
    let set = doc! { "q": { "_id": "user1" }, "u": { "$set": { "field0": &text } }, "multi": false, "upsert": false };
    let updated = least(&mut client, doc! { "update": "carts", "updates": [set], "lsid": lsid.clone(), "$db": "shop" });
    let add = doc! { "q": { "_id": "user1" }, "u": { "$inc": { "n": 1 } }, "multi": false, "upsert": false };
    let added = least(&mut client, doc! { "update": "carts", "updates": [add], "lsid": lsid.clone(), "$db": "shop" });
    let add = doc! { "q": { "_id": "user1" }, "u": { "$inc": { "n": 1, "m": 1 } }, "multi": false, "upsert": false };
    let added_both = least(&mut client, doc! { "update": "carts", "updates": [add], "lsid": lsid, "$db": "shop" });
    println!(
        "allocations: a find {found}, a $set of what is there {updated}, an $inc {added}, of two fields {added_both}"
    );
    assert!(
        found == 0 && updated <= 4 && added <= 10 && added_both <= 12,
        "a find {found}, updates {updated}, {added} and {added_both}"
    );
}
