//! Brings the parts that are explored here, from where they stand, and makes mutants of them.
//!
//! A part is its files without their tests, with what threads meet at (locks, conditions, atomics, parking, time) taken from
//! `crate::shuttled`; behind it stand the scenarios that it is put through. A mutant is the same with one text put in another's place. Each
//! is a module of `OUT_DIR/parts.rs`.
//!
//! Invariant: what is replaced stands in the file, once. Who changes that line is told here.

use std::fmt::Write as _;
use std::path::Path;

/// Where the parts take what threads meet at.
const SHUTTLED: [(&str, &str); 5] = [
    ("parking_lot::", "crate::shuttled::parking_lot::"),
    ("std::sync::atomic::", "crate::shuttled::atomic::"),
    ("std::thread", "crate::shuttled::thread"),
    ("std::time::", "crate::shuttled::time::"),
    ("baton_machine::", "crate::shuttled::machine::"),
];

/// And where those of storage take what lies around the commit queue.
const AROUND_THE_QUEUE: &[(&str, &str)] = &[
    ("crate::documents::", "super::documents::"),
    ("crate::machine", "super::machine"),
    ("crate::log::author::", "super::author::"),
    ("baton_types::", "super::types::"),
];

/// A fault that is to be found.
struct Mutant {
    name: &'static str,
    /// In which module, what is replaced, and by what.
    edits: &'static [(&'static str, &'static str, &'static str)],
    /// Which scenario finds it.
    found_by: &'static str,
}

/// What is explored.
struct Part {
    name: &'static str,
    /// Each with the module that it is; one without a name is the part's own.
    files: &'static [(&'static str, &'static str)],
    scenarios: &'static str,
    replaces: &'static [(&'static str, &'static str)],
    mutants: &'static [Mutant],
}

const WAITERS: Part = Part {
    name: "waiters",
    files: &[("", "machinery/replication/src/waiters.rs")],
    scenarios: "waiters.rs",
    replaces: &[],
    mutants: &[
        Mutant {
            name: "tells_and_then_says_so",
            edits: &[
                (
                    "",
                    "if self.has_ended.swap(false, Ordering::AcqRel) {",
                    "if self.has_ended.load(Ordering::Acquire) {",
                ),
                (
                    "",
                    "ended.sort_by_key(",
                    "self.has_ended.store(false, Ordering::Release);
                    ended.sort_by_key(",
                ),
            ],
            found_by: "two_bring_news",
        },
        Mutant {
            name: "asks_for_the_era_before_the_lock",
            edits: &[(
                "",
                "let mut state = self.state.lock();
        if self.era() != era {",
                "let is_over = self.era() != era;
                let mut state = self.state.lock();
                if is_over {",
            )],
            found_by: "an_era_ends",
        },
        Mutant {
            name: "ends_the_era_after_its_waits",
            edits: &[(
                "",
                "let mut state = self.state.lock();
            self.era.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut state.waiting)",
                "let waiting = std::mem::take(&mut self.state.lock().waiting);
                self.era.fetch_add(1, Ordering::AcqRel);
                waiting",
            )],
            found_by: "an_era_ends",
        },
        Mutant {
            name: "says_so_before_it_has_ended_them",
            edits: &[(
                "",
                "self.ended.lock().extend(waits.map(|waiting| (waiting, outcome.clone())));
            self.has_ended.store(true, Ordering::Release);",
                "self.has_ended.store(true, Ordering::Release);
                self.ended.lock().extend(waits.map(|waiting| (waiting, outcome.clone())));",
            )],
            found_by: "two_bring_news",
        },
    ],
};

const DOOR: Part = Part {
    name: "door",
    files: &[("", "service/commands/src/priority/door.rs")],
    scenarios: "door.rs",
    replaces: &[],
    mutants: &[
        Mutant {
            name: "forgets_without_looking_again",
            edits: &[("", "if self.last_ms.load(SeqCst) != last_ms {", "if false {")],
            found_by: "one_comes_as_the_last_is_forgotten",
        },
        Mutant {
            name: "tells_after_it_is_open_again",
            edits: &[
                ("", "*waiter.told.lock() = Some(tell);\n", ""),
                ("", "for (waiter, _) in told {", "for (waiter, tell) in told { *waiter.told.lock() = Some(tell);"),
            ],
            found_by: "some_give_up",
        },
        Mutant {
            name: "waits_without_looking",
            edits: &[(
                "",
                "if told.is_none() {\n                waiter.heard",
                "if true {\n                waiter.heard",
            )],
            found_by: "the_lower_wait",
        },
        Mutant {
            name: "forgets_who_was_let_in_and_does_not_come",
            edits: &[(
                "",
                "Some(Told::Begin) => Input::Leaves { class: visitor.class, paused: false },",
                "Some(Told::Begin) => return Err(error),",
            )],
            found_by: "some_give_up",
        },
        Mutant {
            // Of faults that panic in a destructor the process would end.
            name: "does_not_leave_if_it_has_paused",
            edits: &[(
                "",
                "let paused = *self.paused.get_mut();",
                "let paused = *self.paused.get_mut();
                if paused { return; }",
            )],
            found_by: "the_lower_wait",
        },
    ],
};

const COMMIT: Part = Part {
    name: "commit",
    files: &[
        ("gate", "devices/storage/src/log/commit/gate.rs"),
        ("lead", "devices/storage/src/log/commit/lead.rs"),
        ("leading", "devices/storage/src/log/commit/leading.rs"),
        ("placing", "devices/storage/src/log/commit/placing.rs"),
        ("roles", "devices/storage/src/log/commit/roles.rs"),
        ("state", "devices/storage/src/log/commit/state.rs"),
        ("waiter", "devices/storage/src/log/commit/waiter.rs"),
    ],
    scenarios: "commit.rs",
    replaces: AROUND_THE_QUEUE,
    mutants: &[
        Mutant {
            name: "has_one_lead_that_has_left",
            edits: &[("leading", "waiters.position(|waiter| waiter.is_here())", "waiters.position(|_| true)")],
            found_by: "everybody_is_served",
        },
        Mutant {
            name: "leaves_with_the_lead",
            edits: &[("waiter", "return self.waiter.take_role()", "return WAITING")],
            found_by: "everybody_is_served",
        },
        Mutant {
            name: "leads_what_was_left_beside_another",
            edits: &[("leading", "state.roles.take_writing(standing)", "standing != super::roles::Standing::Nothing")],
            found_by: "several_are_left_in_a_row",
        },
        Mutant {
            name: "calls_durable_what_came_during_the_sync",
            edits: &[(
                "leading",
                "self.batches_synced.fetch_max(written, Ordering::AcqRel);",
                "let target = self.applied.load(Ordering::Acquire);",
            )],
            found_by: "everybody_is_served",
        },
        Mutant {
            name: "forgets_that_a_sync_was_wanted_meanwhile",
            edits: &[("roles", "if self.is_sync_wanted && !self.syncing {", "if false {")],
            found_by: "helpers_come_and_go",
        },
        Mutant {
            name: "asks_for_a_sync_and_does_not_say_so",
            edits: &[("roles", "self.is_sync_wanted = true;", "")],
            found_by: "helpers_come_and_go",
        },
        Mutant {
            name: "closes_without_waiting",
            edits: &[(
                "gate",
                "state.gate = WriteGate::Closed;
        }
        self.drain();",
                "state.gate = WriteGate::Closed;
                }",
            )],
            found_by: "the_gate_closes_at_once",
        },
        Mutant {
            name: "turns_and_tells_nobody",
            edits: &[("gate", "self.gate_turned.notify_all();", "")],
            found_by: "the_gate_opens_again",
        },
    ],
};

const POOL: Part = Part {
    name: "pool",
    files: &[("seat", "devices/net/src/seat.rs"), ("staff", "devices/net/src/staff.rs")],
    scenarios: "pool.rs",
    replaces: &[],
    mutants: &[
        Mutant {
            name: "forgets_news_while_it_is_served",
            edits: &[("seat", "is_more || matches!(*state, State::Served { has_news: true })", "is_more")],
            found_by: "news_comes_at_any_moment",
        },
        Mutant {
            name: "looks_before_it_works",
            edits: &[(
                "staff",
                "self.idle.fetch_sub(1, SeqCst) == 1 && self.is_short()",
                "let is_short = self.idle.load(SeqCst) == 1 && self.at_work.load(SeqCst) < self.wanted;
                self.idle.fetch_sub(1, SeqCst);
                is_short",
            )],
            found_by: "the_last_to_work_or_to_wait_sees_to_it",
        },
        Mutant {
            name: "hires_a_spare_and_does_not_call",
            edits: &[(
                "staff",
                "called.notify_one();
                Hired::Spare",
                "Hired::Spare",
            )],
            found_by: "a_spare_is_called",
        },
    ],
};

const ROOM: Part = Part {
    name: "room",
    files: &[("", "devices/net/src/room.rs")],
    scenarios: "room.rs",
    replaces: &[],
    mutants: &[
        Mutant {
            name: "tells_before_it_makes_room",
            edits: &[(
                "",
                "self.served.fetch_sub(1, SeqCst);
        self.tell();",
                "self.tell();
                self.served.fetch_sub(1, SeqCst);",
            )],
            found_by: "urgent_ones_come_and_go",
        },
        Mutant {
            name: "tells_who_does_not_sleep_yet",
            edits: &[("", "drop(self.lock.lock());", "")],
            found_by: "urgent_ones_come_and_go",
        },
        Mutant {
            name: "looks_before_it_takes",
            edits: &[(
                "",
                "self.turns.fetch_add(1, SeqCst) + 1 + self.served.load(SeqCst);",
                "self.turns.load(SeqCst) + 1 + self.served.load(SeqCst);
                self.turns.fetch_add(1, SeqCst);",
            )],
            found_by: "urgent_ones_come_and_go",
        },
    ],
};

/// The file without its tests and its header.
fn product(source: &str) -> String {
    let product = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(source);
    product.lines().filter(|line| !line.starts_with("//!")).fold(String::new(), |text, line| text + line + "\n")
}

/// A module of that part, with its files as they are given.
fn module(text: &mut String, name: &str, part: &Part, products: &[(&str, String)], scenarios: &Path) {
    let _ = writeln!(text, "pub mod {name} {{");
    for (module, product) in products {
        let shuttled =
            SHUTTLED.iter().chain(part.replaces).fold(product.clone(), |text, (from, to)| text.replace(from, to));
        let _ = match *module {
            "" => writeln!(text, "{shuttled}"),
            module => writeln!(text, "pub mod {module} {{\n{shuttled}\n}}"),
        };
    }
    let _ = writeln!(text, "include!({scenarios:?});\n}}");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::var("CARGO_MANIFEST_DIR")?;
    let crates = Path::new(&own).join("../..");
    let (mut text, mut mutants, mut all) = (String::new(), String::new(), String::new());
    for part in [WAITERS, DOOR, COMMIT, POOL, ROOM] {
        let scenarios = Path::new(&own).join("src/scenarios").join(part.scenarios);
        println!("cargo::rerun-if-changed={}", scenarios.display());
        let products: Vec<_> = part
            .files
            .iter()
            .map(|(module, file)| {
                let file = crates.join(file);
                println!("cargo::rerun-if-changed={}", file.display());
                let source = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                Ok((*module, product(&source)))
            })
            .collect::<Result<_, String>>()?;
        module(&mut text, part.name, &part, &products, &scenarios);
        let _ = writeln!(all, "(\"{0}\", {0}::SCENARIOS),", part.name);
        for Mutant { name, edits, found_by } in part.mutants {
            let mut products = products.clone();
            for (of, from, to) in *edits {
                let (_, product) =
                    products.iter_mut().find(|(module, _)| module == of).expect("it is one of the part's");
                let count = product.matches(from).count();
                assert!(count == 1, "{}: {count} of what the mutant {name} replaces: {from}", part.name);
                *product = product.replacen(from, to, 1);
            }
            let module_name = format!("{}_{name}", part.name);
            module(&mut text, &module_name, &part, &products, &scenarios);
            let _ = writeln!(mutants, "(\"{module_name}\", {module_name}::{found_by} as fn()),");
        }
    }
    let _ = writeln!(
        text,
        "/// Every part, with what it is put through.\npub const PARTS: &[(&str, &[(&str, fn())])] = &[{all}];"
    );
    let _ = writeln!(
        text,
        "/// Every mutant, and the scenario that is to find it.\npub const MUTANTS: &[(&str, fn())] = &[{mutants}];"
    );
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("parts.rs"), text)?;
    Ok(())
}
