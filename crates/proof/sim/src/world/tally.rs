//! Counts of what a world went through.

use baton_consensus::MemberId;
use baton_leadership::Rule;
use std::time::Duration;

/// What a world went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Steps of any member.
    pub steps: u64,
    /// Elections won.
    pub elections: u64,
    /// Entries written by clients.
    pub writes: u64,
    /// Of them acknowledged by a majority.
    pub acknowledged: u64,
    /// Rollbacks.
    pub rollbacks: u64,
    /// Crashes.
    pub crashes: u64,
    /// Configurations installed.
    pub configurations: u64,
    /// Step-downs that came about on request.
    pub step_downs: u64,
    /// Sources that lacked what followed a member's log.
    pub too_stale: u64,
    /// Attempts to apply an entry that failed.
    pub refused: u64,
    /// Copies of all data, or of a collection.
    pub copies: u64,
    /// Of them by file.
    pub copies_by_file: u64,
    /// Attempts at one that failed.
    pub failed_copies: u64,
    /// Collections that were dropped while they were copied.
    pub gone_collections: u64,
    /// Tasks that asked whether they may begin.
    pub tasks: u64,
    /// Times that one was told to wait, and why.
    pub deferred: u64,
    /// Claims on the heavy slot.
    pub claims: u64,
    /// Moves of leadership before a task, away from a disk, or back.
    pub moves: u64,
    /// Index builds begun.
    pub builds_begun: u64,
    /// Index builds completed, as often as a primary logged that.
    pub builds_completed: u64,
    /// Index builds given up, likewise.
    pub builds_given_up: u64,
    /// The rules by which leadership has decided: a bit for each place in [`Rule::ALL`].
    pub rules: u64,
    /// Of who took a step when, in the order of the steps: two worlds that differ in it were not the same.
    pub fingerprint: u64,
}

impl Tally {
    /// Adds another world's.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.elections += other.elections;
        self.writes += other.writes;
        self.acknowledged += other.acknowledged;
        self.rollbacks += other.rollbacks;
        self.crashes += other.crashes;
        self.configurations += other.configurations;
        self.step_downs += other.step_downs;
        self.too_stale += other.too_stale;
        self.refused += other.refused;
        self.copies += other.copies;
        self.copies_by_file += other.copies_by_file;
        self.failed_copies += other.failed_copies;
        self.gone_collections += other.gone_collections;
        self.tasks += other.tasks;
        self.deferred += other.deferred;
        self.claims += other.claims;
        self.moves += other.moves;
        self.builds_begun += other.builds_begun;
        self.builds_completed += other.builds_completed;
        self.builds_given_up += other.builds_given_up;
        self.rules |= other.rules;
        // In whatever order worlds are added.
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }

    /// A machine of this member takes a step.
    pub(super) fn stepped(&mut self, at: Duration, member: MemberId) {
        /// An odd number whose bits are as good as drawn (that of `rustc-hash`).
        const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
        for part in [at.as_nanos() as u64, u64::from(member.0.unsigned_abs())] {
            self.fingerprint = (self.fingerprint.rotate_left(5) ^ part).wrapping_mul(FACTOR);
        }
    }

    pub(super) fn decided(&mut self, rule: Rule) {
        self.rules |= Rule::ALL.iter().position(|known| *known == rule).map_or(0, |place| 1 << place);
    }

    /// Whether leadership has decided by this rule.
    pub fn has_decided(&self, rule: Rule) -> bool {
        Rule::ALL.iter().position(|known| *known == rule).is_some_and(|place| self.rules >> place & 1 == 1)
    }
}
