//! Counts of what a world went through.

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
    }
}
