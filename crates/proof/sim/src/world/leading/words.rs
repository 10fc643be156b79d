//! What members say of their tasks: carried by heartbeats, as far as these are believed. And what liars say.
//!
//! In a message there is only a number; the word itself stays here. So what is simulated is who hears what when, not how it is encoded.

use super::observing::Known;
use super::{Input, MemberId, World};
use baton_consensus::{Request, Response};
use baton_leadership::{Call, CallOutcome, Claim, Figures, Gossip, GossipedTask, Grant};
use baton_types::TaskKind;
use bson::{RawDocument, RawDocumentBuf};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// More are never on their way.
const WORDS_MAX: usize = 8192;

/// What was said, and how many moves its speaker had taken part in or was told of: what an honest one's hearer knows then, too.
struct Word {
    gossip: Rc<Gossip>,
    moves_known: usize,
}

#[derive(Default)]
pub(super) struct Words {
    kept: VecDeque<Word>,
    /// The number of the first that is kept.
    first: i64,
}

impl Words {
    fn keep(&mut self, word: Word) -> i64 {
        if self.kept.len() == WORDS_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(word);
        self.first + self.kept.len() as i64 - 1
    }

    fn get(&self, number: i64) -> Option<&Word> {
        self.kept.get(usize::try_from(number - self.first).ok()?)
    }
}

/// `{word: NumberLong}` up to the number: a document's length, the type of its only field, and that one's name.
const BEFORE_NUMBER: [u8; 10] = *b"\x13\0\0\0\x12word\0";

/// The document that stands for a word. It is made and read so often that it is written down by the byte.
fn numbered(number: i64) -> Option<RawDocumentBuf> {
    RawDocumentBuf::from_bytes([BEFORE_NUMBER.as_slice(), &number.to_le_bytes(), &[0]].concat()).ok()
}

fn number_of(said: &RawDocument) -> Option<i64> {
    let number = said.as_bytes().strip_prefix(&BEFORE_NUMBER)?;
    Some(i64::from_le_bytes(*number.first_chunk()?))
}

impl World {
    /// Has a request carry the sender's word, if it is a heartbeat.
    pub(in crate::world) fn speak_in_request(&mut self, id: MemberId, request: &mut Request) {
        if let Request::Heartbeat(heartbeat) = request {
            heartbeat.gossip.leadership = self.speak(id);
        }
    }

    /// The same with an answer.
    pub(in crate::world) fn speak_in_response(&mut self, id: MemberId, response: &mut Response) {
        if let Response::Heartbeat(heartbeat) = response {
            heartbeat.gossip.leadership = self.speak(id);
        }
    }

    fn speak(&mut self, id: MemberId) -> Option<RawDocumentBuf> {
        let now = self.now;
        let duties = self.leading.duties.as_ref()?;
        let lies = duties.liars.contains(&id) && !self.healed;
        let brain = self.members.get_mut(&id)?.brain.as_mut()?;
        let clock = brain.clock(now);
        let gossip = match self.rings.as_mut().and_then(|rings| rings.leadership.get_mut(&id)) {
            Some(recorder) => {
                let said = |gossip: &Gossip| vec![CallOutcome::Said(Box::new(gossip.clone()))];
                recorder.observe(&mut brain.machine, clock, Call::Gossip, |machine| machine.gossip(clock), said)
            }
            None => brain.machine.gossip(clock),
        };
        let word = if lies && self.leading.random.random_bool(0.7) {
            Word { gossip: Rc::new(lie(&mut self.leading.random, gossip)), moves_known: 0 }
        } else {
            Word { gossip: Rc::new(gossip), moves_known: brain.moves_known }
        };
        let number = self.leading.words.keep(word);
        numbered(number)
    }

    /// A word that consensus passed on.
    pub(in crate::world) fn hear(&mut self, id: MemberId, from: MemberId, said: &RawDocument) {
        let now = self.now;
        let Some(number) = number_of(said) else { return };
        let Some(Word { gossip, moves_known }) = self.leading.words.get(number) else { return };
        let (gossip, moves_known) = (Rc::clone(gossip), *moves_known);
        let Some(brain) = self.brain_mut(id) else { return };
        let is_of_set = brain.set.as_ref().is_some_and(|set| set.me != from.0 && set.member(from.0).is_some());
        let silence = brain.silence(from, now);
        if is_of_set {
            brain.note(from.0, &gossip, now);
            brain.moves_known = brain.moves_known.max(moves_known);
        }
        let heard_at = brain.clock(now);
        self.leading.silences.extend(silence);
        self.step_brain(id, Input::Gossip { from: from.0, gossip: Box::new(Gossip::clone(&gossip)), heard_at });
    }
}

impl super::Brain {
    /// What can be known of a member from then on: of two words the one that was said later.
    fn note(&mut self, from: i32, gossip: &Rc<Gossip>, now: Duration) {
        let said = |gossip: &Gossip| (gossip.incarnation, gossip.sequence);
        if self.known.get(&from).is_none_or(|known| said(gossip) > said(&known.gossip)) {
            self.known.insert(from, Known { gossip: Rc::clone(gossip), heard: now });
        }
    }
}

/// What nobody could honestly say, each part with a chance of its own.
fn lie(random: &mut StdRng, mut gossip: Gossip) -> Gossip {
    let strange = |random: &mut StdRng| [f64::NAN, f64::INFINITY, -1e9, 1e300, 0.0, 1.0][random.random_range(0..6)];
    let long = |random: &mut StdRng| [Duration::ZERO, Duration::from_secs(5), Duration::MAX][random.random_range(0..3)];
    let somebody = random.random_range(-1..8);
    for _ in 0..random.random_range(1..6) {
        match random.random_range(0..14) {
            0 => gossip.incarnation = [0, random.random_range(0..9), u64::MAX][random.random_range(0..3)],
            1 => gossip.sequence = [0, u64::MAX, random.random()][random.random_range(0..3)],
            2 => gossip.made_at = long(random),
            3 => gossip.term = [-1, 0, gossip.term.saturating_add(1), i64::MAX][random.random_range(0..4)],
            4 => gossip.is_primary = !gossip.is_primary,
            5 => {
                let kind = TaskKind::ALL[random.random_range(0..TaskKind::ALL.len())];
                let (age, ends_in) = (long(random), Some(long(random)));
                gossip.tasks = vec![GossipedTask { kind, is_running: random.random_bool(0.5), age, ends_in }; 9];
            }
            6 => gossip.tasks.clear(),
            7 => gossip.last_task_end = Some(long(random)),
            8 => gossip.served_as_primary = long(random),
            9 => {
                gossip.figures = Figures {
                    debt_bytes: u64::MAX,
                    stall_nearness: strange(random),
                    cache_hit_ratio: strange(random),
                    cache_hot_bytes: u64::MAX,
                    sync_latency: long(random),
                    disk_free: strange(random),
                    load: strange(random),
                    cpus: strange(random),
                    disk_bytes_per_sec: strange(random),
                    ..gossip.figures
                }
            }
            10 => {
                gossip.claim = Some(Claim { number: random.random_range(0..3), is_confirmed: random.random_bool(0.5) })
            }
            11 => {
                let grant = Grant {
                    member: somebody,
                    incarnation: random.random(),
                    number: random.random_range(0..3),
                    heard_made_at: long(random),
                };
                gossip.grants = vec![grant; 3];
            }
            12 => (gossip.preferred, gossip.asks_to_end) = (Some(somebody), Some(somebody)),
            _ => {
                gossip.terms_last_hour = [0, 1, u32::MAX][random.random_range(0..3)];
                gossip.moved_in = [0, gossip.term, i64::MAX][random.random_range(0..3)];
            }
        }
    }
    gossip
}
