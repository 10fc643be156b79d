//! The plain runner: every target over its seeds, kept inputs and random mutations of them, for some seconds each.
//!
//! `mutate SECONDS [NAME…]` runs; `mutate replay NAME FILE` runs one input; `mutate seeds FOLDER` writes the seeds out, a
//! folder a target, for cargo-fuzz to start from. A failing input is written to `artifacts/NAME/`. `FUZZ_SEED` repeats a run; `FUZZ_TRACE`
//! keeps each input in `artifacts/last` before it is tried.
//!
//! What it does not do: follow coverage; cargo-fuzz does, with the same targets.

use baton_fuzz::{TARGETS, Target};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An input that takes longer is a failure: the parsers bound their work.
const SLOW: Duration = Duration::from_secs(5);
/// A connection thread has no more, so neither have the targets.
const STACK_SIZE_BYTES: usize = 1024 * 1024;
const INPUT_SIZE_MAX_BYTES: usize = 4096;
/// Found inputs are no better than others without coverage, so a few generations are enough.
const POOL_COUNT_MAX: usize = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        ["replay", name, file] => replay(name, Path::new(file)),
        ["seeds", folder] => write_seeds(Path::new(folder)),
        [seconds, names @ ..] => match seconds.parse::<u64>() {
            Ok(seconds) => run(Duration::from_secs(seconds), names),
            Err(_) => usage(),
        },
        [] => usage(),
    }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!("mutate SECONDS [NAME…] | replay NAME FILE | seeds FOLDER\ntargets: {}", names.join(" "));
    ExitCode::FAILURE
}

fn run(duration: Duration, names: &[&str]) -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now);
    println!("FUZZ_SEED={seed}");
    let chosen: Vec<&Target> = TARGETS.iter().filter(|t| names.is_empty() || names.contains(&t.name)).collect();
    if chosen.is_empty() {
        return usage();
    }
    let failed: Vec<&str> = chosen.iter().filter(|target| !survives(target, duration, seed)).map(|t| t.name).collect();
    // The closing line that says how many there were.
    println!("{} passed, {} failed", chosen.len() - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a target for so long, on a thread with the stack that it will have in production.
fn survives(target: &'static Target, duration: Duration, seed: u64) -> bool {
    let worker = std::thread::Builder::new()
        .name(target.name.into())
        .stack_size(STACK_SIZE_BYTES)
        .spawn(move || fuzz(target, duration, seed));
    worker.is_ok_and(|worker| worker.join().unwrap_or(false))
}

fn fuzz(target: &Target, duration: Duration, seed: u64) -> bool {
    let mut pool = (target.seeds)();
    pool.extend(kept_inputs(target.name));
    let started = Instant::now();
    let mut random = Random(seed | 1);
    let (mut count, kept) = (0u64, pool.len());
    for input in &pool {
        if !try_input(target, input) {
            return false;
        }
    }
    while started.elapsed() < duration {
        let mut input = pool[random.below(pool.len())].clone();
        let other = &pool[random.below(pool.len())];
        mutate(&mut input, other, &mut random);
        if !try_input(target, &input) {
            return false;
        }
        count += 1;
        // Some mutants live on, so that mutations add up.
        if random.below(16) == 0 {
            if pool.len() < POOL_COUNT_MAX {
                pool.push(input);
            } else {
                let at = kept + random.below(pool.len() - kept);
                pool[at] = input;
            }
        }
    }
    println!("{:<14} {count} mutations of {kept} inputs in {:.1} s", target.name, started.elapsed().as_secs_f64());
    true
}

fn try_input(target: &Target, input: &[u8]) -> bool {
    // A stack overflow cannot be caught: repeat the run with FUZZ_SEED and this, and the last input is on disk.
    if std::env::var_os("FUZZ_TRACE").is_some() {
        let _ = std::fs::write(folder_of("artifacts", "last"), input);
    }
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = started.elapsed();
    if outcome.is_ok() && took < SLOW {
        return true;
    }
    let what = if outcome.is_err() { "crash" } else { "slow" };
    match write_artifact(target.name, what, input) {
        Ok(path) => eprintln!("{}: {what} after {took:?}; the input is in {}", target.name, path.display()),
        Err(e) => eprintln!("{}: {what} after {took:?}; the input could not be written ({e}): {input:?}", target.name),
    }
    false
}

fn folder_of(kind: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(name)
}

fn write_artifact(name: &str, what: &str, input: &[u8]) -> std::io::Result<PathBuf> {
    // FNV-1a: the same input has the same name.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    let folder = folder_of("artifacts", name);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{what}-{hash:016x}"));
    std::fs::File::create(&path)?.write_all(input)?;
    Ok(path)
}

fn kept_inputs(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = ["regressions", "corpus"]
        .iter()
        .filter_map(|kind| std::fs::read_dir(folder_of(kind, name)).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .collect();
    // The file system's order would make a run depend on the machine.
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn replay(name: &str, file: &Path) -> ExitCode {
    let (Some(target), Ok(input)) = (TARGETS.iter().find(|t| t.name == name), std::fs::read(file)) else {
        return usage();
    };
    (target.run)(&input);
    println!("{name}: passed");
    ExitCode::SUCCESS
}

fn write_seeds(folder: &Path) -> ExitCode {
    for target in TARGETS {
        let folder = folder.join(target.name);
        let written = std::fs::create_dir_all(&folder).and_then(|()| {
            (target.seeds)()
                .iter()
                .enumerate()
                .try_for_each(|(n, s)| std::fs::write(folder.join(format!("seed-{n}")), s))
        });
        if let Err(e) = written {
            eprintln!("{}: {e}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// xorshift64*: enough for choosing mutations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) as usize) % bound.max(1)
    }
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..1 + random.below(6) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 | 1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 | 3 if at < input.len() => input[at] = random.next() as u8,
            4 if at < input.len() => input[at] = [0, 1, 2, 0x7f, 0x80, 0xff, b'$', b'.'][random.below(8)],
            5 if at + 4 <= input.len() => {
                // A length that is a little off, or wildly.
                let field: [u8; 4] = input[at..at + 4].try_into().unwrap_or_default();
                let off = [1, -1, 4, -4, 255, 1 << 24, i32::MIN][random.below(7)];
                input[at..at + 4].copy_from_slice(&i32::from_le_bytes(field).wrapping_add(off).to_le_bytes());
            }
            6 => input.insert(at, random.next() as u8),
            7 => input.truncate(input.len() - random.below(input.len().min(16) + 1)),
            8 if !input.is_empty() => {
                // A part of it once more.
                let from = random.below(input.len());
                let part = input[from..(from + random.below(64)).min(input.len())].to_vec();
                input.splice(at..at, part);
            }
            _ if !other.is_empty() => {
                // A part of another over it.
                let from = random.below(other.len());
                let part = other[from..(from + 1 + random.below(64)).min(other.len())].to_vec();
                let end = (at + part.len()).min(input.len());
                input.splice(at..end, part);
            }
            _ => {}
        }
    }
    input.truncate(INPUT_SIZE_MAX_BYTES);
}
