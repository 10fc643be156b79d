//! When a member stands: how long it waits, for whom, and what cuts that short.

use super::*;
use crate::configuration::{Configuration, Member};
use crate::consensus::Start;
use crate::message::{Gossip, HeartbeatRequest, Position};
use crate::step::{Input, Occupation, RequestKind};
use baton_types::Timestamp;
use bson::oid::ObjectId;

const PRIMARY: MemberId = MemberId(0);
const HEIR: MemberId = MemberId(1);
const BEGINNING: Moment = Duration::from_secs(1);
/// More than equals wait before a prompt election that owes nobody a courtesy.
const PROMPT_MAX: Duration = PROMPT_CHANCE.saturating_add(PROMPT_STEP);

/// Member 2 of a set of three that has just heard of both others, at [`BEGINNING`].
fn follower(seed: u64) -> Consensus {
    let mut configuration = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap();
    configuration.members = (0..3).map(|id| Member::new(MemberId(id), format!("a:10{id}"))).collect();
    let start = Start {
        protocol_version: crate::PROTOCOL_VERSION,
        host: "a:102".into(),
        set_name: "rs0".into(),
        configuration: Some(configuration),
        vote: LastVote::default(),
        position: end_of_log(),
        commit_point: OpTime::ZERO,
        data: DataState::Ready,
        given_up: OpTime::ZERO,
        seed,
    };
    let mut consensus = Consensus::new(Duration::ZERO, start);
    tell(&mut consensus, PRIMARY, Some(PRIMARY));
    tell(&mut consensus, HEIR, Some(PRIMARY));
    assert_eq!(consensus.primary, Some(PRIMARY));
    consensus
}

fn end_of_log() -> Position {
    let entry = OpTime { term: 1, timestamp: Timestamp { seconds: 5, increment: 1 } };
    Position { written: entry, applied: entry, durable: entry }
}

/// A heartbeat comes from a member that knows of that primary.
fn tell(consensus: &mut Consensus, from: MemberId, primary: Option<MemberId>) {
    let configuration = consensus.configuration.clone().unwrap();
    let heartbeat = HeartbeatRequest {
        set_name: configuration.set_name,
        set_id: configuration.settings.set_id,
        from: Some(from),
        from_host: format!("a:10{from}"),
        gossip: Gossip {
            protocol_version: crate::PROTOCOL_VERSION,
            term: 1,
            primary,
            state: if primary == Some(from) { MemberState::Primary } else { MemberState::Secondary },
            position: end_of_log(),
            commit_point: OpTime::ZERO,
            sync_source: primary.filter(|primary| *primary != from),
            configuration_version: configuration.version,
            leadership: None,
        },
    };
    consensus.step(BEGINNING, Input::Request { id: 1, request: Request::Heartbeat(heartbeat) });
}

/// A member's process is gone.
fn lose(consensus: &mut Consensus, member: MemberId) {
    consensus.step(BEGINNING, Input::Unreachable { to: member, gone: true, request: RequestKind::Heartbeat });
}

fn ask_for_vote(consensus: &mut Consensus, at: Moment, dry_run: bool, last_written: OpTime) -> Vec<Effect> {
    let configuration = consensus.configuration.clone().unwrap();
    let request = VoteRequest {
        set_id: configuration.settings.set_id,
        set_name: configuration.set_name,
        dry_run,
        term: if dry_run { 1 } else { 2 },
        candidate: HEIR,
        last_written,
        configuration_version: configuration.version,
        reason: if dry_run { ElectionReason::ElectionTimeout } else { ElectionReason::Handoff },
    };
    consensus.step(at, Input::Request { id: 2, request: Request::RequestVotes(request) })
}

fn vote_for_heir(consensus: &mut Consensus, at: Moment) {
    let effects = ask_for_vote(consensus, at, false, end_of_log().written);
    let vote = LastVote { term: 2, candidate: Some(HEIR) };
    assert!(effects.iter().any(|effect| matches!(effect, Effect::PersistVote(v) if *v == vote)), "{effects:?}");
    consensus.step(at, Input::VotePersisted(vote));
}

/// Whether it has stood by then. Time passes as the machine asks for it.
fn stands_by(consensus: &mut Consensus, until: Moment) -> bool {
    while consensus.next_deadline() <= until {
        consensus.step(consensus.next_deadline(), Input::Tick);
    }
    consensus.standing_reason().is_some()
}

#[test]
fn who_refuses_a_shorter_log_stands_next() {
    for seed in 0..20 {
        let mut consensus = follower(seed);
        let term = consensus.term;
        lose(&mut consensus, PRIMARY);
        ask_for_vote(
            &mut consensus,
            BEGINNING,
            true,
            OpTime { term: 1, timestamp: Timestamp { seconds: 4, increment: 1 } },
        );
        assert!(stands_by(&mut consensus, BEGINNING + TURN_CHANCE), "seed {seed}");
        assert_eq!(consensus.term, term, "seed {seed}: without asking first");
        // Not while a primary is known.
        let mut consensus = follower(seed);
        ask_for_vote(&mut consensus, BEGINNING, true, OpTime::ZERO);
        assert!(!stands_by(&mut consensus, BEGINNING + PROMPT_MAX), "seed {seed}: against a primary");
    }
}

#[test]
fn who_was_refused_for_a_shorter_log_stands_again_as_soon_as_it_has_the_rest() {
    for seed in 0..20 {
        let mut consensus = follower(seed);
        lose(&mut consensus, PRIMARY);
        assert!(stands_by(&mut consensus, BEGINNING + PROMPT_MAX), "seed {seed}");
        let now = consensus.now;
        let mut longer = end_of_log();
        longer.written.timestamp.increment += 1;
        let refusal = VoteResponse {
            term: 1,
            dry_run: true,
            granted: false,
            reason: "candidate's data is staler than mine".into(),
            last_written: longer.written,
        };
        let response = Response::RequestVotes(refusal);
        consensus.step(now, Input::Response { from: HEIR, response, round_trip: Duration::from_millis(1) });
        let to = PRIMARY;
        consensus.step(now, Input::Unreachable { to, gone: true, request: RequestKind::RequestVotes });
        assert_eq!(consensus.standing_reason(), None, "seed {seed}: it may still win");
        let mut left_alone = consensus.clone();
        assert!(!stands_by(&mut left_alone, now + TURN_CHANCE), "seed {seed}: with the same log");
        consensus.step(now, Input::Log(longer));
        assert!(stands_by(&mut consensus, now + TURN_CHANCE), "seed {seed}");
    }
}

#[test]
fn when_a_primary_has_resigned_others_leave_its_heir_the_time_to_stand() {
    for seed in 0..20 {
        let mut consensus = follower(seed);
        tell(&mut consensus, PRIMARY, None);
        assert_eq!(consensus.primary, None);
        assert!(!stands_by(&mut consensus, BEGINNING + COURTESY), "seed {seed}");
        assert!(stands_by(&mut consensus, BEGINNING + COURTESY + PROMPT_MAX), "seed {seed}: no heir came");
        // Nor does who has voted for the heir, in a moment when nobody knows of a primary.
        let mut consensus = follower(seed);
        tell(&mut consensus, PRIMARY, None);
        tell(&mut consensus, HEIR, None);
        let voted_at = BEGINNING + COURTESY / 2;
        vote_for_heir(&mut consensus, voted_at);
        assert!(!stands_by(&mut consensus, voted_at + COURTESY), "seed {seed}: a voter");
        assert!(stands_by(&mut consensus, voted_at + COURTESY + PROMPT_MAX), "seed {seed}: the heir has not won");
        // To one whose process is gone nobody owes that.
        let mut consensus = follower(seed);
        lose(&mut consensus, PRIMARY);
        assert!(stands_by(&mut consensus, BEGINNING + PROMPT_MAX), "seed {seed}");
    }
}

#[test]
fn heavy_work_bars_a_takeover_by_priority_and_puts_one_by_a_longer_log_off() {
    let busy = Input::Occupied(Occupation { stands_last: true, leaves_primary_alone: true });
    let planned = |change: fn(&mut Consensus)| {
        let mut consensus = follower(1);
        change(&mut consensus);
        consensus.step(BEGINNING, Input::Tick);
        let free = consensus.takeover.map(|(reason, _)| reason);
        consensus.takeover = None;
        consensus.step(BEGINNING, busy.clone());
        (free, consensus.takeover)
    };
    let (free, occupied) = planned(|consensus| consensus.configuration.as_mut().unwrap().members[2].priority = 2.0);
    assert_eq!((free, occupied), (Some(ElectionReason::PriorityTakeover), None));

    // The primary of term 2 waits for what only this member has.
    let (free, occupied) = planned(|consensus| {
        consensus.term = 2;
        consensus.primary = Some(PRIMARY);
        consensus.position.written.timestamp.seconds += 1;
    });
    let delay = Configuration::initial("rs0", "a:100", ObjectId::from_bytes([1; 12])).unwrap().settings;
    let delay = delay.catch_up_takeover_delay.unwrap() + 2 * delay.election_timeout;
    assert_eq!(free, Some(ElectionReason::CatchUpTakeover));
    assert_eq!(occupied, Some((ElectionReason::CatchUpTakeover, BEGINNING + delay)));
}
