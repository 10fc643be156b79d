//! What PCRE2 finds, slow and fast, and that a search ends.

use super::*;
use crate::interruption::Check;
use baton_types::ErrorCode;
use std::sync::Arc;

fn pattern(text: &str, options: &str) -> Pattern {
    Pattern::compile(text, options).unwrap()
}

/// What PCRE2 says, the slow way and as machine code, which must be the same.
fn both<T: PartialEq + fmt::Debug>(pattern: &Pattern, search: impl Fn() -> Result<T, Failure>) -> Result<T, String> {
    let told = |outcome: Result<T, Failure>| {
        outcome.map_err(|failure| match failure {
            Failure::GivenUp(why) => why,
            Failure::Interrupted(error) => panic!("nobody interrupts: {error}"),
        })
    };
    let slow = told(search());
    assert!(pattern.fast.get().is_none_or(Option::is_some));
    pattern.bytes_searched.store(FAST_AFTER_BYTES, Ordering::Relaxed);
    let fast = told(search());
    assert!(pattern.fast.get().is_some_and(Option::is_some), "machine code");
    assert_eq!(slow, fast);
    fast
}

fn is_found(pattern: &Pattern, text: &str) -> Result<bool, String> {
    both(pattern, || pattern.is_found_in(text, &Interruption::default()))
}

fn find(text: &str, within: &str, from: usize) -> Result<Option<Spans>, String> {
    let pattern = pattern(text, "");
    both(&pattern, || pattern.find(within, from, &Interruption::default()))
}

fn refused(text: &str) -> String {
    Pattern::compile(text, "").err().unwrap()
}

#[test]
fn a_pattern_means_what_it_means_to_pcre() {
    for (text, options, found, not_found) in [
        // What the engines of Rust do not have, or read otherwise.
        (r"^(?:(\()|[^()])*+(?(1)\)|)$", "", "(a)", "(a"),
        (r"^(a|b(?1)c)+$", "", "abbacc", "abc"),
        (r"a(*SKIP)(*FAIL)|b", "", "ab", "a"),
        (r"^(?|(a)x|(b)y)\1$", "", "byb", "bya"),
        (r"(?<!a{2,3})b", "", "ab", "aab"),
        (r"^\R$", "", "\r\n", "\n\r"),
        (r"a++b", "", "aab", "aa"),
        (r"^\X$", "", "e\u{301}", "ee"),
        (r"(?i)STRASSE", "", "strasse", "straße"),
        (r"^[[:^digit:]]+$", "", "ab", "a1"),
        (r"(?x) a b # c", "", "ab", "a b"),
        (r"\Qa.b\E", "", "a.b", "axb"),
        // Without `(*UCP)` the classes are ASCII's.
        (r"^\w$", "", "a", "\u{e9}"),
        (r"(*UCP)^\w$", "", "\u{e9}", "-"),
        (r"^\d$", "", "1", "\u{664}"),
        ("^\u{e9}$", "i", "\u{c9}", "e"),
        // `$` also holds before a final newline.
        (r"b$", "", "ab\n", "ab\n\n"),
        (r"b\z", "", "ab", "ab\n"),
        (r"^b$", "m", "a\nb\nc", "ab"),
        (r"a.b", "s", "a\nb", "a\n\nb"),
    ] {
        let compiled = pattern(text, options);
        assert_eq!(is_found(&compiled, found), Ok(true), "/{text}/{options} in {found:?}");
        assert_eq!(is_found(&compiled, not_found), Ok(false), "/{text}/{options} in {not_found:?}");
    }
}

#[test]
fn a_malformed_pattern_is_described() {
    for (text, message) in [
        ("(", "missing closing parenthesis"),
        ("[a", "missing terminating ] for character class"),
        ("a\\", "\\ at end of pattern"),
        ("*", "quantifier does not follow a repeatable item"),
        ("a{2,1}", "numbers out of order in {} quantifier"),
        (r"\1", "reference to non-existent subpattern"),
        (r"(?<=a*)b", "length of lookbehind assertion is not limited"),
        (r"(?<=\Ka)", "\\K is not allowed in lookarounds (but see PCRE2_EXTRA_ALLOW_LOOKAROUND_BSK)"),
        (r"\C", "using \\C is disabled by the application"),
        ("((a{1,1000}){1,1000}){1,1000}", "regular expression is too large"),
    ] {
        let found = refused(text);
        assert!(found.contains(message), "/{text}/: {found}");
    }
    assert!(Pattern::compile(&"c".repeat(16 * 1024), "").is_ok());
    assert!(refused(&"c".repeat(32 * 1024 + 1)).contains("longer than the limit"));
    assert!(!refused(&"(".repeat(10_000)).is_empty(), "and does not overflow the stack");
}

#[test]
fn spans_are_those_of_the_match_and_its_captures() {
    let found = find("(a)(x)?(u)", "Caf\u{e9} au", 0).unwrap();
    assert_eq!(found, Some(vec![Some(6..8), Some(6..7), None, Some(7..8)]));
    assert_eq!(find("a", "aba", 1).unwrap(), Some(vec![Some(2..3)]));
    assert_eq!(find("^a", "aba", 2).unwrap(), None);
    assert_eq!(find("x*", "\u{e9}", 2).unwrap(), Some(vec![Some(2..2)]));
    let nobody = Interruption::default();
    assert!(pattern("x*", "").find("\u{e9}", 1, &nobody).is_err(), "not at a character's boundary");
    assert!(pattern("x*", "").find("\u{e9}", 3, &nobody).is_err(), "behind the end");
    assert_eq!(find(r"a\Kb", "ab", 0).unwrap(), Some(vec![Some(1..2)]));
}

#[test]
fn a_search_that_goes_back_without_end_is_given_up() {
    let text = "a".repeat(40) + "!";
    for bomb in ["^(a+)+$", r"^((a+)+)\2$", "(a|aa)+$", "(?:a*)*b", "^(?:(a+)\\1?)+$(?<=b)"] {
        match is_found(&pattern(bomb, ""), &text) {
            Ok(found) => assert!(!found, "/{bomb}/"),
            Err(error) => assert_eq!(error, "match limit exceeded", "/{bomb}/"),
        }
    }
    assert_eq!(is_found(&pattern("^(a+)+$", ""), &text), Err("match limit exceeded".into()));
    // A pattern may lower the limit, not raise it.
    assert!(is_found(&pattern("(*LIMIT_MATCH=4000000000)^(a+)+$", ""), &text).is_err());
    let large = "ab".repeat(4_000_000);
    assert_eq!(is_found(&pattern("^(a|b)*$", ""), &large), Err("heap limit exceeded".into()));
    assert_eq!(is_found(&pattern("^[ab]*$", ""), &large), Ok(true));
}

#[test]
fn threads_share_a_pattern() {
    let shared = pattern("(a+)b", "");
    std::thread::scope(|scope| {
        for length in 1..9 {
            let shared = &shared;
            scope.spawn(move || {
                let text = "a".repeat(length) + "b";
                for _ in 0..200 {
                    assert_eq!(
                        shared.find(&text, 0, &Interruption::default()).unwrap(),
                        Some(vec![Some(0..length + 1), Some(0..length)])
                    );
                }
            });
        }
    });
}

#[test]
fn a_search_of_many_attempts_is_interrupted_between_two_of_them() {
    let long = "a".repeat(400);
    let scanned = "ab".repeat(100_000);
    for (text, within, looks_min) in [
        // Each attempt is within PCRE2's limit, all of them together are the third power of the text's length.
        ("[ab]*[ab]*[bc]", &long, 300),
        ("(*LIMIT_MATCH=9000000)[ab]*[ab]*[bc]", &long, 300),
        // Many short attempts.
        ("[a-z]{3}[0-9]", &scanned, 500),
        // None at all.
        ("cd", &scanned, 1),
    ] {
        for is_fast in [false, true] {
            let pattern = pattern(text, "");
            pattern.bytes_searched.store(if is_fast { FAST_AFTER_BYTES } else { 0 }, Ordering::Relaxed);
            let _ = if is_fast { None } else { Some(pattern.fast.set(None)) };
            let search = |at: usize| {
                let looks = Arc::new(AtomicUsize::new(0));
                let seen = Arc::clone(&looks);
                let check: Check = Arc::new(move || match seen.fetch_add(1, Ordering::Relaxed) + 1 >= at {
                    true => Err(Error::new(ErrorCode::Interrupted, "killed")),
                    false => Ok(()),
                });
                let outcome = pattern.is_found_in(within, &Interruption::asking(&check));
                (outcome, looks.load(Ordering::Relaxed))
            };
            let (outcome, looks) = search(usize::MAX);
            assert!(matches!(outcome, Ok(false)) && looks >= looks_min, "/{text}/: {outcome:?} after {looks} looks");
            let (outcome, looks) = search(1);
            assert!(matches!(outcome, Err(Failure::Interrupted(_))), "/{text}/: {outcome:?}");
            assert_eq!(looks, 1, "/{text}/");
        }
    }
}

#[test]
fn very_many_patterns_keep_little_and_give_it_back() {
    let patterns: Vec<Pattern> = (0..SPARES_MAX + 100).map(|i| pattern(&format!("x{i}"), "")).collect();
    for pattern in &patterns {
        assert_eq!(is_found(pattern, "y"), Ok(false));
    }
    let kept = patterns.iter().filter(|pattern| pattern.spare.lock().unwrap().is_some()).count();
    assert!(kept <= SPARES_MAX, "{kept} spares");
    assert!(FAST_BYTES.load(Ordering::Relaxed) > 0);
}
