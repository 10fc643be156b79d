//! The door: a request takes its class's niceness, and may have to wait for its turn.
//!
//! Invariant: whoever waits here holds nothing that others could wait for: it has begun nothing but its operation.

use crate::call::Call;
use crate::priority::{self, Visitor};
use crate::table::Flags;
use baton_machine::take_long_slices;
use baton_types::{Class, Error, ErrorCode, Result};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

/// Of commands and names, to tell kinds of requests apart.
static KINDS: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);

/// Returns when the request may begin.
pub(super) fn admit(call: &mut Call<'_>, collection: &str) -> Result<()> {
    let class = call.operation.class;
    if call.envelope.class.is_some() {
        priority::check_privilege(call.client, class)?;
    }
    let server = call.server;
    let between_members = class_between_members(call);
    let served_as = class.max(between_members);
    let differs = class == Class::Background || server.priority.served_as(class) != Class::Normal;
    if differs || between_members == Class::High || call.envelope.oplog_query_data {
        // The threads that others share are as nice as those of normal clients, and a member that follows waits for most of its time.
        call.client.be_alone();
    }
    server.priority.serve_as(served_as);
    if !call.spec.flags.has(Flags::ADMITTED) || class == Class::Background || call.envelope.db == "local" {
        return Ok(());
    }
    let operation = &call.operation;
    // Asked ten times a second of one who waits.
    let check = || {
        operation.check_interrupt()?;
        match (call.client.connection.is_connected)() {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorCode::ClientDisconnect, "operation was interrupted because a client disconnected"))
            }
        }
    };
    let waits = || operation.waits_at_door();
    let visitor = Visitor {
        class,
        deadline: operation.deadline(),
        kind: &|| kind_of(call, collection),
        check: &check,
        waits: &waits,
    };
    let Some(pass) = server.priority.door.enter(&visitor)? else { return Ok(()) };
    if pass.is_long() {
        // Whoever comes meanwhile is not kept from saying how urgent he is.
        take_long_slices();
    }
    let waited = operation.started.elapsed();
    call.operation.let_in(pass, waited);
    Ok(())
}

/// What it is served as at least because another member asks it.
fn class_between_members(call: &Call<'_>) -> Class {
    if call.spec.flags.has(Flags::BETWEEN_MEMBERS) {
        Class::High
    } else if call.envelope.oplog_query_data {
        call.server.storage.queue().urgency().class()
    } else {
        Class::Background
    }
}

/// Requests that have the same command and collection take about the same time, unless others say more of theirs.
fn kind_of(call: &Call<'_>, collection: &str) -> u64 {
    let mut hasher = KINDS.build_hasher();
    call.spec.name.hash(&mut hasher);
    call.envelope.db.hash(&mut hasher);
    collection.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use crate::testing::Member;
    use baton_admission::{Mode, Settings};
    use bson::doc;

    #[test]
    fn a_request_is_counted_until_its_reply_is_sent_or_its_client_does_not_take_it() {
        let member = Member::new();
        let present = || member.server.priority.door.look().0.present;
        // Of other collections nothing is known yet, so that each of them is counted.
        let find = |collection| member.begin("shop", doc! { "find": collection, "priority": "high" });
        find("carts");
        assert_eq!(present(), [0, 0, 1]);
        member.client.release_reply();
        assert_eq!(present(), [0; 3]);
        find("orders");
        assert_eq!(present(), [0, 0, 1]);
        member.client.leave_before_reply();
        assert_eq!(present(), [0; 3]);
    }

    #[test]
    fn where_all_are_served_alike_nobody_has_a_thread_of_his_own_for_his_class() {
        let member = Member::new();
        for (mode, is_alone) in [(Mode::Off, false), (Mode::Full, true)] {
            member.server.priority.configure(&Settings { mode, ..Settings::default() });
            member.begin("shop", doc! { "find": "carts", "priority": "high" });
            member.client.release_reply();
            assert_eq!(member.client.is_alone(), is_alone, "{}", mode.name());
        }
    }
}
