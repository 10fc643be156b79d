//! What the members of simulated worlds were told is written down, read, and stepped through again, all of it as it was.
//!
//! Of index builds whatever sets bring about while they build; and two builds that are told here what a primary learns, of which each
//! line is known.

use baton_consensus::index_build::{BuildInput, BuildPass, BuildSet, CommitQuorum, IndexBuild};
use baton_consensus::{Configuration, Member, MemberId};
use baton_replay::{Bounds, FORMAT, Header, Machine, Recorder, write};
use baton_sim::replay::{MACHINES, replay_file};
use baton_sim::{Shape, Weather, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The files of all processes of a world.
fn files(seed: u64, weather: Weather) -> Result<Vec<Vec<u8>>, String> {
    let mut world = World::new(seed, Weather { records: true, ..weather });
    while world.step()? {}
    Ok(world.recordings())
}

/// Every kind of input, effect and state that worlds bring about comes back from the file as it was, and every machine does the same
/// again. Fails if a field is not written, or a machine is changed by anything but what is recorded.
#[test]
fn whatever_a_world_brings_about_is_replayed_as_recorded() {
    let mut steps = BTreeMap::new();
    let drawn = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    let shapes = [None, Some(Shape::Storm), Some(Shape::Together), Some(Shape::Claims)];
    for (n, shape) in (0..8).zip(shapes.into_iter().cycle()) {
        let seed = drawn.wrapping_mul(1_000_003).wrapping_add(n);
        for file in files(seed, Weather { leadership: Some(shape), ..Weather::default() }).unwrap() {
            for machine in MACHINES {
                match replay_file(file.as_slice(), Some(machine), &mut |_| {}) {
                    Ok(report) => *steps.entry(machine).or_insert(0) += report.steps,
                    Err(why) => panic!("seed {seed}: {why}"),
                }
            }
        }
    }
    // Not all worlds build indexes.
    for machine in MACHINES.into_iter().filter(|machine| *machine != IndexBuild::NAME) {
        assert!(steps[machine] > 1000, "hardly anything happens: {steps:?}");
    }
}

#[test]
fn whatever_a_set_brings_about_while_it_builds_is_replayed_as_recorded() {
    let inputs = ["Set", "Leads", "Passed", "Failed", "Vote", "Objection", "Killed", "Quorum", "Committed", "Refused"];
    let tasks = ["Abort", "Object", "Commit", "AwaitVotes", "Verify", "Follow", "Decide"];
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..400 {
        // Some of them are rare.
        if seed >= 60 && seen.len() == inputs.len() + tasks.len() {
            break;
        }
        for file in files(seed, Weather { leadership: None, ..Weather::default() }).unwrap() {
            replay_file(file.as_slice(), Some(IndexBuild::NAME), &mut |step| {
                let has = |text: &str, word: &str| text.contains(&format!("\"{word}\""));
                let (input, effects) = (step.input.to_string(), step.effects.to_string());
                seen.extend(inputs.iter().copied().filter(|word| has(&input, word)));
                seen.extend(tasks.iter().copied().filter(|word| has(&effects, word)));
            })
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
    assert_eq!(seen.len(), inputs.len() + tasks.len(), "hardly anything happens: {seen:?}");
}

/// Of each process the first step that had something told, applied, committed or said. Only a commit point may seldom be missed: two
/// messages tell of it.
#[test]
fn a_step_that_is_left_out_is_noticed() {
    let weather = Weather { members: Some(3), copies: false, builds: false, ..Weather::default() };
    let mut noticed = BTreeMap::new();
    for file in (3..7).flat_map(|seed| files(seed, weather).unwrap()) {
        let lines: Vec<&str> = std::str::from_utf8(&file).unwrap().lines().collect();
        for effect in ["{\"Apply\":", "{\"Committed\":", "{\"TermAdopted\":", "{\"Said\":"] {
            let is_of_effect =
                |line: &&str| line.split_once("\"effects\":").is_some_and(|(_, told)| told.contains(effect));
            let Some(at) = lines.iter().position(is_of_effect) else { continue };
            let left = [&lines[..at], &lines[at + 1..]].concat().join("\n");
            let is_noticed = replay_file(left.as_bytes(), None, &mut |_| {}).is_err();
            noticed.entry(effect).or_insert_with(Vec::new).push(is_noticed);
        }
    }
    assert_eq!(noticed.len(), 4, "{noticed:?}");
    for (effect, noticed) in noticed {
        let missed = noticed.iter().filter(|is_noticed| !**is_noticed).count();
        let missed_max = if effect == "{\"Committed\":" { noticed.len() / 4 } else { 0 };
        assert!(noticed.len() > 10 && missed <= missed_max, "{effect}: {noticed:?}");
    }
}

/// A file with two builds of a primary of three members: one that waits for the votes of a majority, one that waits for all.
fn file_of_builds() -> Result<String, Box<dyn std::error::Error>> {
    let mut configuration = Configuration::initial("rs", "a:1", bson::oid::ObjectId::from_bytes([1; 12]))?;
    configuration.members = (0..3).map(|n| Member::new(MemberId(n), format!("m{n}:1"))).collect();
    let set = BuildSet { me: Some(MemberId(0)), configuration: Some(configuration) };
    let mut file = Vec::new();
    let header = Header { format: FORMAT, baton: "1".into(), member: "a:1".into(), written_secs: 1 };
    header.write(&mut file)?;
    for (of, quorum) in [("1-1 shop.carts", CommitQuorum::Majority), ("2-2 shop.users", CommitQuorum::VotingMembers)] {
        let mut machine = IndexBuild::new(quorum, false);
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        let told = [
            BuildInput::Leads(Some(1)),
            BuildInput::Set(Box::new(set.clone())),
            BuildInput::Passed(BuildPass::Decide),
            BuildInput::Vote(MemberId(1)),
            BuildInput::Leads(Some(1)),
            BuildInput::Vote(MemberId(2)),
            BuildInput::Leads(Some(1)),
        ];
        for (second, input) in told.into_iter().enumerate() {
            recorder.step(&mut machine, Duration::from_secs(second as u64), input);
        }
        write(&recorder.recording(&machine), Some(of), &mut file)?;
    }
    Ok(String::from_utf8(file)?)
}

/// Each by itself, though they are of one kind.
#[test]
fn every_build_of_a_file_is_replayed() {
    let file = file_of_builds().unwrap();
    let report = replay_file(file.as_bytes(), None, &mut |_| {}).unwrap();
    assert_eq!(report.steps, 14);
    assert_eq!(report.machines, ["index_build 1-1 shop.carts", "index_build 2-2 shop.users"]);
    let mut last = BTreeMap::new();
    replay_file(file.as_bytes(), Some("index_build"), &mut |seen| {
        last.insert(seen.machine.to_owned(), (seen.number, seen.effects.to_string()));
    })
    .unwrap();
    assert!(last.values().all(|last| *last == (7, r#"[{"Commit":1}]"#.to_owned())), "{last:?}");
    assert_eq!(replay_file(file.as_bytes(), Some("consensus"), &mut |_| {}).unwrap().steps, 0);
}

#[test]
fn a_build_that_did_something_else_and_a_vote_that_is_left_out_are_noticed() {
    let file = file_of_builds().unwrap();
    let why = |file: &str| replay_file(file.as_bytes(), None, &mut |_| {}).unwrap_err();
    // The second build's: the first one has its quorum by then.
    let at = file.rfind(r#"["AwaitVotes"]"#).unwrap();
    let changed = format!("{}{}", &file[..at], file[at..].replacen("AwaitVotes", "Vote", 1));
    let found = why(&changed);
    assert!(found.starts_with("index_build 2-2 shop.users, step 5: told {\"Leads\":1}: "), "{found}");
    assert!(found.ends_with(r#"effects[0]: recorded "Vote", now "AwaitVotes""#), "{found}");
    let lines: Vec<&str> = file.lines().collect();
    let vote = lines.iter().position(|line| line.contains(r#""Vote":1"#)).unwrap();
    let found = why(&[&lines[..vote], &lines[vote + 1..]].concat().join("\n"));
    assert!(found.starts_with("index_build 1-1 shop.carts, step 4: "), "{found}");
    assert_eq!(why(&file.replace("\"format\":2", "\"format\":1")), "line 1: format 1, and this is for 2");
}
