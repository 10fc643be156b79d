//! What a world is like: how many members with which rights, which settings, and which faults and works befall them.

use baton_leadership::{Member, Mode, Ranking, Settings};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::time::Duration;

/// See the file's header. Chances are per member and second.
#[derive(Clone, Debug)]
pub struct Weather {
    pub members: Vec<Member>,
    pub settings: Settings,
    /// Share of messages that are lost.
    pub loss: f64,
    /// Share of messages that come twice.
    pub twice: f64,
    pub delay_ms_max: u64,
    pub crash: f64,
    pub cut: f64,
    pub heavy: f64,
    /// How busy clients keep a primary.
    pub load: f64,
    /// Seconds between the moments at which every member is due; 0: never.
    pub all_due_secs: u64,
    /// Heavy tasks that cannot wait.
    pub unasked: f64,
    pub sick_disk: f64,
    /// Members that lag for a while.
    pub lag: f64,
    /// Figures that mean nothing.
    pub nonsense: f64,
}

impl Weather {
    /// That of a world of this seed.
    pub fn draw(random: &mut StdRng) -> Self {
        let count = *[2, 3, 3, 3, 4, 5, 5].choose(random).unwrap_or(&3);
        let mut members: Vec<Member> = (0..count).map(Member::new).collect();
        for member in members.iter_mut().skip(1) {
            match random.random_range(0..20) {
                0 => (member.is_voter, member.priority) = (false, 0.0),
                1 => (member.is_arbiter, member.priority) = (true, 0.0),
                2 => member.priority = 0.0,
                3 => member.priority = 2.0,
                _ => {}
            }
        }
        if random.random_bool(0.05) {
            members.iter_mut().skip(1).for_each(|member| member.priority = 0.0);
        }
        let settings = Settings {
            mode: *[Mode::Always, Mode::Always, Mode::CostBased, Mode::CostBased, Mode::Off]
                .choose(random)
                .unwrap_or(&Mode::Off),
            ranking: *Ranking::ALL.choose(random).unwrap_or(&Ranking::Mrc),
            postpone_max: secs(*[0, 20, 120, 600].choose(random).unwrap_or(&600)),
            cooldown: secs(*[0, 30, 120].choose(random).unwrap_or(&120)),
            tenure_min: secs(*[10, 60].choose(random).unwrap_or(&60)),
            moves_per_hour_max: *[3, 6, 12].choose(random).unwrap_or(&12),
            is_lab: true,
            ..Settings::default()
        };
        let is_quiet = random.random_bool(0.2);
        let mut sometimes = |chance: f64, value: f64| if random.random_bool(chance) { value } else { 0.0 };
        let (loss, twice) = (sometimes(0.6, 0.3), sometimes(0.5, 0.1));
        let (crash, cut) = (sometimes(0.4, 0.001), sometimes(0.5, 0.004));
        let heavy = if is_quiet { 0.0 } else { 0.001 + sometimes(0.4, 0.003) + sometimes(0.2, 0.03) };
        let unasked = if is_quiet { 0.0 } else { sometimes(0.3, 0.002) };
        let sick_disk = if is_quiet { 0.0 } else { sometimes(0.3, 0.001) };
        let (lag, nonsense) = (sometimes(0.5, 0.004), sometimes(0.2, 0.05));
        let all_due_secs = if !is_quiet && random.random_bool(0.2) { 900 } else { 0 };
        let load = *[0.8, 0.8, 0.8, 0.01].choose(random).unwrap_or(&0.8);
        let delay_ms_max = *[20, 500, 3000, 8000].choose(random).unwrap_or(&20);
        Self {
            members,
            settings,
            loss,
            twice,
            delay_ms_max,
            crash,
            cut,
            heavy,
            load,
            all_due_secs,
            unasked,
            sick_disk,
            lag,
            nonsense,
        }
    }

    /// Many elections and moves, many claims, and messages that arrive long after they were sent.
    pub fn stormy(mut self) -> Self {
        self.members = (0..5).map(Member::new).collect();
        let (mode, ranking) = (Mode::Always, Ranking::Mrc);
        let (cooldown, tenure_min, moves_per_hour_max) = (secs(0), secs(5), 3600);
        self.settings = Settings { mode, ranking, cooldown, tenure_min, moves_per_hour_max, ..Settings::default() };
        self.loss = if self.loss > 0.0 { 0.5 } else { 0.0 };
        (self.crash, self.cut, self.heavy, self.delay_ms_max) = (0.002, 0.0, 0.01, 6000);
        self
    }

    /// Whether nothing heavy ever happens, and no disk fails.
    pub fn is_quiet(&self) -> bool {
        self.heavy == 0.0 && self.unasked == 0.0 && self.sick_disk == 0.0 && self.all_due_secs == 0
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
