//! Where the processors' time goes in a stretch of time: how long the threads of each name ran, and how long they were kept waiting for
//! a processor (`/proc/PID/task/TID/schedstat`), over all processes that this one has started, and itself.
//!
//! It is looked at four times a second, so a thread that ends is missed by what it did since. Names go without their numbers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::load::Stretch;

const INTERVAL: Duration = Duration::from_millis(250);
/// What the clients' own threads are called.
const CLIENTS: &str = "the clients";
/// What differs by less than so many seconds a second is not told.
const DIFFERENCE_MIN: f64 = 0.02;

/// What threads of one name used; in seconds a second, or in nanoseconds while it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// On a processor.
    pub ran: f64,
    /// Ready, and without one.
    pub waited: f64,
}

/// By name.
pub type ByName = BTreeMap<String, Used>;

/// What was used since the look before, by one name.
struct Step {
    at: u64,
    name: String,
    used: Used,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    steps: Mutex<Vec<Step>>,
}

/// Who looks. Dropped, it stops.
pub struct Threads {
    shared: Arc<Shared>,
    looker: Option<JoinHandle<()>>,
}

impl Threads {
    /// Looks from now on; times are counted from `begun`.
    pub fn watch(begun: Instant) -> Self {
        let shared = Arc::new(Shared::default());
        let looker = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut seen = HashMap::new();
                while !shared.stopping.load(Ordering::Relaxed) {
                    let at = begun.elapsed().as_nanos() as u64;
                    let used = look(&mut seen);
                    shared.steps.lock().extend(used.into_iter().map(|(name, used)| Step { at, name, used }));
                    std::thread::sleep(INTERVAL);
                }
            }
        });
        Self { shared, looker: Some(looker) }
    }

    /// What was used in these stretches of time, in seconds a second.
    pub fn used(&self, stretches: &[Stretch]) -> ByName {
        let secs = stretches.iter().copied().map(Stretch::secs).sum::<f64>().max(1e-9);
        let mut by_name = ByName::new();
        for step in self.shared.steps.lock().iter() {
            if stretches.iter().any(|stretch| (stretch.start..stretch.end).contains(&step.at)) {
                let used = by_name.entry(step.name.clone()).or_default();
                used.ran += step.used.ran / 1e9 / secs;
                used.waited += step.used.waited / 1e9 / secs;
            }
        }
        by_name
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            // One that panicked has seen nothing more.
            let _ = looker.join();
        }
    }
}

/// What the threads of all processes have used since they were `seen` last.
fn look(seen: &mut HashMap<u32, (String, Used)>) -> ByName {
    let own = std::process::id();
    let mut by_name = ByName::new();
    for pid in numbers("/proc").filter(|pid| *pid == own || parent(*pid) == Some(own)) {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            let Some(now) = schedstat(pid, tid) else { continue };
            let (name, before) = seen.entry(tid).or_insert_with(|| {
                let name = if pid == own { Some(CLIENTS.to_owned()) } else { name(pid, tid) };
                (name.unwrap_or_default(), Used::default())
            });
            let used = by_name.entry(name.clone()).or_default();
            used.ran += (now.ran - before.ran).max(0.0);
            used.waited += (now.waited - before.waited).max(0.0);
            *before = now;
        }
    }
    by_name
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

fn schedstat(pid: u32, tid: u32) -> Option<Used> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut fields = text.split_whitespace().map(|field| field.parse::<f64>().ok());
    Some(Used { ran: fields.next()??, waited: fields.next()?? })
}

fn name(pid: u32, tid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(name.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()).to_owned())
}

/// The mean of several rounds.
pub fn mean<'a>(rounds: impl ExactSizeIterator<Item = &'a ByName>) -> ByName {
    let count = rounds.len().max(1) as f64;
    let mut mean = ByName::new();
    for (name, used) in rounds.flatten() {
        let sum = mean.entry(name.clone()).or_default();
        sum.ran += used.ran / count;
        sum.waited += used.waited / count;
    }
    mean
}

/// Whose time differs most, in words; each name with how long it ran, and how long it waited, in hundredths of a second a second.
pub fn differences(quiet: &ByName, meanwhile: &ByName) -> String {
    let of = |by_name: &ByName, name: &str| by_name.get(name).copied().unwrap_or_default();
    let names: std::collections::BTreeSet<&String> = quiet.keys().chain(meanwhile.keys()).collect();
    let mut rows: Vec<_> = names.into_iter().map(|name| (name, of(quiet, name), of(meanwhile, name))).collect();
    rows.retain(|(_, quiet, meanwhile)| {
        (meanwhile.ran - quiet.ran).abs().max((meanwhile.waited - quiet.waited).abs()) >= DIFFERENCE_MIN
    });
    rows.sort_by(|(_, a, b), (_, c, d)| (d.ran - c.ran).total_cmp(&(b.ran - a.ran)));
    let words = rows.iter().map(|(name, quiet, meanwhile)| {
        let hundredths = |secs: f64| (100.0 * secs).round();
        format!(
            "{name} {}/{} → {}/{}",
            hundredths(quiet.ran),
            hundredths(quiet.waited),
            hundredths(meanwhile.ran),
            hundredths(meanwhile.waited),
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

/// For programs.
pub fn json(by_name: &ByName) -> Value {
    by_name.iter().map(|(name, used)| (name.clone(), json!({ "ran": used.ran, "waited": used.waited }))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_computes_is_seen() {
        let begun = Instant::now();
        let threads = Threads::watch(begun);
        let mut sum = 0_u64;
        while begun.elapsed() < 3 * INTERVAL {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let end = begun.elapsed().as_nanos() as u64;
        let used = threads.used(&[Stretch { start: 0, end }]);
        assert!(used[CLIENTS].ran > 0.0, "{used:?}");
        assert!(threads.used(&[Stretch { start: end + 1_000_000_000_000, end: end + 1_000_000_000_001 }]).is_empty());
    }

    #[test]
    fn what_grew_most_is_told_first_and_what_is_level_is_not() {
        let used = |ran, waited| Used { ran, waited };
        let by_name = |rows: &[(&str, f64, f64)]| -> ByName {
            rows.iter().map(|(name, ran, waited)| ((*name).to_owned(), used(*ran, *waited))).collect()
        };
        let quiet = by_name(&[("conn", 0.5, 0.1), ("apply", 0.2, 0.0)]);
        let meanwhile = by_name(&[("conn", 0.4, 0.3), ("apply", 0.21, 0.01), ("rocksdb:low", 0.25, 0.5)]);
        assert_eq!(differences(&quiet, &meanwhile), "rocksdb:low 0/0 → 25/50, conn 50/10 → 40/30");
        let mean = mean([&quiet, &meanwhile].into_iter());
        assert!((mean["conn"].ran - 0.45).abs() < 1e-9 && (mean["rocksdb:low"].waited - 0.25).abs() < 1e-9);
    }
}
