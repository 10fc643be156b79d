//! PCRE2, the engine of regular expressions: MongoDB's own, compiled in from its bundled sources.
//!
//! A [`Pattern`] is compiled once and searched any number of times, by any number of threads.
//!
//! Invariants: all unsafe code of this crate is here. Pattern and text are UTF-8, so that PCRE2 need not check the text
//! again; a search begins at a character's boundary, and since `\C` is refused, every span of a match does too. A search
//! ends after [`MATCH_LIMIT`] steps and with [`HEAP_LIMIT_KIB`] of memory at most: then it is an error, never "not found".
//!
//! Not here: error codes and names of options in messages, which differ between filters and expressions. The JIT compiler
//! is not used: the limits then mean what they mean in MongoDB, and no memory is made executable.

#![allow(unsafe_code, reason = "PCRE2 is a C library; this file is the whole of the boundary")]

use pcre2_sys as ffi;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Steps one search may take, PCRE2's own default: below half a second.
const MATCH_LIMIT: u32 = 10_000_000;

/// What one search may remember of where it could go back to. PCRE2's default, 20 GB, is none.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;

/// The longest pattern, as in MongoDB.
const PATTERN_BYTES_MAX: usize = 32_764;

/// The working memory of a search that is kept for the next.
const SPARE_BYTES_MAX: usize = 256 * 1024;

/// Letters of options, what they are to PCRE2; `u` is always on.
const OPTIONS: [(char, u32); 5] = [
    ('i', ffi::PCRE2_CASELESS),
    ('m', ffi::PCRE2_MULTILINE),
    ('s', ffi::PCRE2_DOTALL),
    ('x', ffi::PCRE2_EXTENDED),
    ('u', 0),
];

/// A compiled regular expression.
pub(crate) struct Pattern {
    code: Code,
    spare: Mutex<Option<MatchData>>,
}

/// Where a match and its captures lie, in bytes; the match itself is the first. None for a group that took no part.
pub(crate) type Spans = Vec<Option<Range<usize>>>;

impl Pattern {
    /// Compiles a pattern. The error is PCRE2's description.
    pub(crate) fn compile(pattern: &str, options: &str) -> Result<Self, String> {
        let mut flags = ffi::PCRE2_UTF | ffi::PCRE2_NEVER_BACKSLASH_C;
        for (letter, flag) in OPTIONS {
            if options.contains(letter) {
                flags |= flag;
            }
        }
        let (mut error, mut at) = (0, 0);
        // SAFETY: pattern and length are those of one string; PCRE2 keeps neither. The limits are not changed after
        // they were made.
        let code = unsafe {
            ffi::pcre2_compile_8(pattern.as_ptr(), pattern.len(), flags, &mut error, &mut at, LIMITS.compiling)
        };
        if code.is_null() {
            return Err(description(error));
        }
        Ok(Self { code: Code(code), spare: Mutex::default() })
    }

    /// The first letter of `options` that is none.
    pub(crate) fn unknown_option(options: &str) -> Option<char> {
        options.chars().find(|letter| OPTIONS.iter().all(|(known, _)| known != letter))
    }

    /// Whether the pattern is found in a text. The error is PCRE2's description.
    pub(crate) fn is_found_in(&self, text: &str) -> Result<bool, String> {
        self.search(text, 0, |_| ()).map(|found| found.is_some())
    }

    /// The first match that begins at byte `from` of the text or later. The error is PCRE2's description.
    pub(crate) fn find(&self, text: &str, from: usize) -> Result<Option<Spans>, String> {
        let found = self.search(text, from, MatchData::spans)?;
        // `\K` in a group that a lookaround calls can set the start anywhere.
        match found.as_ref().and_then(|spans| spans.first()) {
            Some(Some(whole)) if whole.start < from || whole.start > whole.end => {
                Err("\\K set the start of the match outside of it".into())
            }
            _ => Ok(found),
        }
    }

    fn search<T>(&self, text: &str, from: usize, read: fn(&MatchData) -> T) -> Result<Option<T>, String> {
        if !text.is_char_boundary(from) {
            return Err(description(ffi::PCRE2_ERROR_BADUTFOFFSET));
        }
        let kept = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let data = match kept {
            Some(data) => data,
            None => MatchData::new(&self.code)?,
        };
        // SAFETY: the text is UTF-8 and `from` within it at a character's boundary; `data` was made for this code and
        // is nobody else's meanwhile. PCRE2 reads code and limits only.
        let count = unsafe {
            ffi::pcre2_match_8(
                self.code.0,
                text.as_ptr(),
                text.len(),
                from,
                ffi::PCRE2_NO_UTF_CHECK,
                data.0,
                LIMITS.matching,
            )
        };
        let found = match count {
            ffi::PCRE2_ERROR_NOMATCH => Ok(None),
            error if error < 0 => Err(description(error)),
            _ => Ok(Some(read(&data))),
        };
        if data.working_bytes() <= SPARE_BYTES_MAX {
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(data);
        }
        found
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pattern")
    }
}

/// What PCRE2 says of an error.
fn description(error: i32) -> String {
    let mut text = [0_u8; 160];
    // SAFETY: the buffer is as long as it is said to be.
    let length = unsafe { ffi::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    match usize::try_from(length) {
        Ok(length) => String::from_utf8_lossy(&text[..length]).into_owned(),
        Err(_) => format!("PCRE2 error {error}"),
    }
}

/// The limits of compiling and of matching.
struct Limits {
    compiling: *mut ffi::pcre2_compile_context_8,
    matching: *mut ffi::pcre2_match_context_8,
}

// SAFETY: PCRE2 only reads a context that it is given, and these are never changed or freed.
unsafe impl Send for Limits {}
unsafe impl Sync for Limits {}

static LIMITS: LazyLock<Limits> = LazyLock::new(|| {
    // SAFETY: without a general context PCRE2 takes the process's allocator. A context that cannot be made would leave
    // PCRE2 without limits, so that is asserted.
    unsafe {
        let compiling = ffi::pcre2_compile_context_create_8(ptr::null_mut());
        let matching = ffi::pcre2_match_context_create_8(ptr::null_mut());
        assert!(!compiling.is_null() && !matching.is_null(), "no memory for PCRE2's limits");
        ffi::pcre2_set_max_pattern_length_8(compiling, PATTERN_BYTES_MAX);
        ffi::pcre2_set_match_limit_8(matching, MATCH_LIMIT);
        ffi::pcre2_set_heap_limit_8(matching, HEAP_LIMIT_KIB);
        Limits { compiling, matching }
    }
});

/// A compiled pattern of PCRE2.
struct Code(*mut ffi::pcre2_code_8);

// SAFETY: without the JIT compiler a compiled pattern is only read.
unsafe impl Send for Code {}
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { ffi::pcre2_code_free_8(self.0) }
    }
}

/// The result and the working memory of a search.
struct MatchData(*mut ffi::pcre2_match_data_8);

// SAFETY: it belongs to no thread.
unsafe impl Send for MatchData {}

impl MatchData {
    fn new(code: &Code) -> Result<Self, String> {
        // SAFETY: the code is alive, and PCRE2 does not keep it.
        let data = unsafe { ffi::pcre2_match_data_create_from_pattern_8(code.0, ptr::null_mut()) };
        if data.is_null() { Err(description(ffi::PCRE2_ERROR_NOMEMORY)) } else { Ok(Self(data)) }
    }

    /// Where the match and its captures lie, after a search that found one.
    fn spans(&self) -> Spans {
        // SAFETY: the vector has two numbers for the match and for each capture, and a search has set all of them.
        let bounds = unsafe {
            let count = ffi::pcre2_get_ovector_count_8(self.0) as usize;
            std::slice::from_raw_parts(ffi::pcre2_get_ovector_pointer_8(self.0), 2 * count)
        };
        bounds.chunks_exact(2).map(|pair| (pair[0] != ffi::PCRE2_UNSET).then(|| pair[0]..pair[1])).collect()
    }

    fn working_bytes(&self) -> usize {
        // SAFETY: it is this value's own.
        unsafe { ffi::pcre2_get_match_data_heapframes_size_8(self.0) }
    }
}

impl Drop for MatchData {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { ffi::pcre2_match_data_free_8(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str, options: &str) -> Pattern {
        Pattern::compile(text, options).unwrap()
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
            assert_eq!(compiled.is_found_in(found), Ok(true), "/{text}/{options} in {found:?}");
            assert_eq!(compiled.is_found_in(not_found), Ok(false), "/{text}/{options} in {not_found:?}");
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
        let found = pattern("(a)(x)?(u)", "").find("Caf\u{e9} au", 0).unwrap();
        assert_eq!(found, Some(vec![Some(6..8), Some(6..7), None, Some(7..8)]));
        assert_eq!(pattern("a", "").find("aba", 1).unwrap(), Some(vec![Some(2..3)]));
        assert_eq!(pattern("^a", "").find("aba", 2).unwrap(), None);
        assert_eq!(pattern("x*", "").find("\u{e9}", 2).unwrap(), Some(vec![Some(2..2)]));
        assert!(pattern("x*", "").find("\u{e9}", 1).is_err(), "not at a character's boundary");
        assert!(pattern("x*", "").find("\u{e9}", 3).is_err(), "behind the end");
        assert_eq!(pattern(r"a\Kb", "").find("ab", 0).unwrap(), Some(vec![Some(1..2)]));
    }

    #[test]
    fn a_search_that_goes_back_without_end_is_given_up() {
        let text = "a".repeat(40) + "!";
        for bomb in ["^(a+)+$", r"^((a+)+)\2$", "(a|aa)+$", "(?:a*)*b", "^(?:(a+)\\1?)+$(?<=b)"] {
            match pattern(bomb, "").is_found_in(&text) {
                Ok(found) => assert!(!found, "/{bomb}/"),
                Err(error) => assert_eq!(error, "match limit exceeded", "/{bomb}/"),
            }
        }
        assert_eq!(pattern("^(a+)+$", "").is_found_in(&text), Err("match limit exceeded".into()));
        // A pattern may lower the limit, not raise it.
        assert!(pattern("(*LIMIT_MATCH=4000000000)^(a+)+$", "").is_found_in(&text).is_err());
        let large = "ab".repeat(4_000_000);
        assert_eq!(pattern("^(a|b)*$", "").is_found_in(&large), Err("heap limit exceeded".into()));
        assert_eq!(pattern("^[ab]*$", "").is_found_in(&large), Ok(true));
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
                        assert_eq!(shared.find(&text, 0).unwrap(), Some(vec![Some(0..length + 1), Some(0..length)]));
                    }
                });
            }
        });
    }
}
