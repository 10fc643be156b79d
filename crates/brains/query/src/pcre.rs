//! PCRE2, the engine of regular expressions: MongoDB's own, compiled in from its bundled sources.
//!
//! A [`Pattern`] is compiled once and searched any number of times, by any number of threads. One that is searched often is
//! compiled once more, to machine code, in a copy of its own; searches that are beyond that code's stack go the slow way.
//! Measured with and without, on four kilobytes that do not match: `[a-z]+[0-9]{2}` 286 and 53 microseconds, `.*zebra` 88 and
//! 4, `(?:alpha|beta) (?:omega|zeta)` 120 and 25; `zebra` alone, with case or without, 0.7 both ways, for PCRE2 looks for a letter
//! that must be there. `^(a+)+$` is given up after 358 and 48 milliseconds. The code is made in 15 to 40 microseconds, and takes a
//! kilobyte. The callout costs what a call costs at each place tried: 286 become 356, and 8 become 53.
//!
//! Invariants: all unsafe code of this crate is here. Pattern and text are UTF-8, so that PCRE2 need not check the text
//! again; a search begins at a character's boundary, and since `\C` is refused, every span of a match does too. PCRE2 tries
//! a match at one place of the text after the other. Each attempt ends after [`MATCH_LIMIT`] steps and with
//! [`HEAP_LIMIT_KIB`] of memory at most: then the search is an error, never "not found". Before each attempt a callout counts
//! steps of the request's interruption: PCRE2's own limit begins anew with each, so that without it a text of a few
//! thousand letters can take hours.
//!
//! Not here: error codes and names of options in messages, which differ between filters and expressions.

#![allow(unsafe_code, reason = "PCRE2 is a C library; this file is the whole of the boundary")]

use crate::interruption::{BYTES_PER_STEP, Interruption, STEPS_PER_LOOK};
use baton_types::Error;
use pcre2_sys as ffi;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// Steps one attempt may take, PCRE2's own default: below half a second.
const MATCH_LIMIT: u32 = 10_000_000;

/// Steps one attempt may take at first. Only a search that needs more is made again, with a look before each attempt.
const MATCH_LIMIT_AT_FIRST: u32 = 20_000;

/// What an attempt of so many steps at the most counts for: a tenth of a second, at the worst, between two looks.
const STEPS_OF_AN_ATTEMPT: usize = 8;

/// What one attempt may remember of where it could go back to. PCRE2's default, 20 GB, is none.
const HEAP_LIMIT_KIB: u32 = 64 * 1024;

/// The longest pattern, as in MongoDB.
const PATTERN_BYTES_MAX: usize = 32_764;

/// The callout that an attempt begins with.
const CALLOUT: &str = "(?C)";

/// The working memory of a search that is kept for the next, and for how many patterns: a filter may have very many.
const SPARE_BYTES_MAX: usize = 256 * 1024;
const SPARES_MAX: usize = 512;
static SPARES: AtomicUsize = AtomicUsize::new(0);

/// A pattern becomes machine code after it was searched for in so many bytes of text, each search counting some more.
const FAST_AFTER_BYTES: usize = 32 * 1024;
const BYTES_OF_A_SEARCH: usize = 1024;

/// What the machine code of all patterns may take together: about; beyond, patterns are searched for the slow way.
const FAST_BYTES_MAX: usize = 32 * 1024 * 1024;
static FAST_BYTES: AtomicUsize = AtomicUsize::new(0);

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
    /// The same as machine code, once it is worth it; none where there can be none.
    fast: OnceLock<Option<FastCode>>,
    bytes_searched: AtomicUsize,
    keeps_spare: bool,
    spare: Mutex<Option<Matching>>,
}

/// Where a match and its captures lie, in bytes; the match itself is the first. None for a group that took no part.
pub(crate) type Spans = Vec<Option<Range<usize>>>;

/// Why a search has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request is not to go on.
    Interrupted(Error),
    /// PCRE2's description of what ended it.
    GivenUp(String),
}

impl Failure {
    fn of(code: c_int) -> Self {
        Self::GivenUp(description(code))
    }
}

impl Pattern {
    /// Compiles a pattern. The error is PCRE2's description.
    pub(crate) fn compile(pattern: &str, options: &str) -> Result<Self, String> {
        let mut flags = ffi::PCRE2_UTF | ffi::PCRE2_NEVER_BACKSLASH_C;
        for (letter, flag) in OPTIONS {
            if options.contains(letter) {
                flags |= flag;
            }
        }
        let (verbs, rest) = pattern.split_at(leading_verbs_bytes(pattern));
        let watched = [verbs, CALLOUT, rest].concat();
        let (mut error, mut at) = (0, 0);
        // SAFETY: pattern and length are those of one string; PCRE2 keeps neither. The limits are not changed after
        // they were made.
        let code =
            unsafe { ffi::pcre2_compile_8(watched.as_ptr(), watched.len(), flags, &mut error, &mut at, COMPILING.0) };
        if code.is_null() {
            return Err(description(error));
        }
        let one_more = |spares| (spares < SPARES_MAX).then_some(spares + 1);
        Ok(Self {
            code: Code(code),
            fast: OnceLock::new(),
            bytes_searched: AtomicUsize::new(0),
            keeps_spare: SPARES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok(),
            spare: Mutex::default(),
        })
    }

    /// The first letter of `options` that is none.
    pub(crate) fn unknown_option(options: &str) -> Option<char> {
        options.chars().find(|letter| OPTIONS.iter().all(|(known, _)| known != letter))
    }

    /// Whether the pattern is found in a text.
    pub(crate) fn is_found_in(&self, text: &str, asked: &Interruption) -> Result<bool, Failure> {
        self.search(text, 0, asked).map(|found| found.is_some())
    }

    /// The first match that begins at byte `from` of the text or later.
    pub(crate) fn find(&self, text: &str, from: usize, asked: &Interruption) -> Result<Option<Spans>, Failure> {
        let found = self.search(text, from, asked)?.map(|found| found.spans());
        // `\K` in a group that a lookaround calls can set the start anywhere.
        match found.as_ref().and_then(|spans| spans.first()) {
            Some(Some(whole)) if whole.start < from || whole.start > whole.end => {
                Err(Failure::GivenUp("\\K set the start of the match outside of it".into()))
            }
            _ => Ok(found),
        }
    }

    fn search(&self, text: &str, from: usize, asked: &Interruption) -> Result<Option<Kept<'_>>, Failure> {
        if !text.is_char_boundary(from) {
            return Err(Failure::of(ffi::PCRE2_ERROR_BADUTFOFFSET));
        }
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let matching = match spare {
            Some(matching) => matching,
            None => Matching::new(&self.code)?,
        };
        let kept = Kept { pattern: self, matching: Some(matching) };
        let bytes = text.len() - from;
        let mut count = self.attempt_all(&kept, text, from, asked, MATCH_LIMIT_AT_FIRST, STEPS_OF_AN_ATTEMPT)?;
        if count == ffi::PCRE2_ERROR_MATCHLIMIT {
            count = self.attempt_all(&kept, text, from, asked, MATCH_LIMIT, STEPS_PER_LOOK as usize)?;
        }
        match count {
            ffi::PCRE2_ERROR_NOMATCH => {
                // Without an attempt the text was passed over for what a match needs.
                asked.steps(1 + bytes / BYTES_PER_STEP).map_err(Failure::Interrupted)?;
                Ok(None)
            }
            error if error < 0 => Err(Failure::of(error)),
            _ => Ok(Some(kept)),
        }
    }

    /// What PCRE2 answers, as machine code or else, when an attempt is over after `limit` steps and counts for `steps`.
    fn attempt_all(
        &self,
        kept: &Kept<'_>,
        text: &str,
        from: usize,
        asked: &Interruption,
        limit: u32,
        steps: usize,
    ) -> Result<c_int, Failure> {
        let mut watch = Watch { asked, steps, interrupted: None };
        let fast = self.fast(text.len() - from).map(|fast| kept.run(&fast.code, text, from, limit, &mut watch));
        let count = match fast {
            None | Some(ffi::PCRE2_ERROR_JIT_STACKLIMIT) => kept.run(&self.code, text, from, limit, &mut watch),
            Some(count) => count,
        };
        match watch.interrupted {
            Some(error) => Err(Failure::Interrupted(error)),
            None => Ok(count),
        }
    }

    /// The machine code, if there is any by now.
    fn fast(&self, bytes: usize) -> Option<&FastCode> {
        if let Some(known) = self.fast.get() {
            return known.as_ref();
        }
        let bytes = bytes.saturating_add(BYTES_OF_A_SEARCH);
        if self.bytes_searched.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) < FAST_AFTER_BYTES {
            return None;
        }
        self.fast.get_or_init(|| FastCode::of(&self.code)).as_ref()
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        if self.keeps_spare {
            SPARES.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pattern")
    }
}

/// How long the verbs are that a pattern begins with (`(*UTF)`, `(*LIMIT_MATCH=9)`): some are verbs only there.
fn leading_verbs_bytes(pattern: &str) -> usize {
    let mut bytes = 0;
    while let Some(verb) = pattern[bytes..].strip_prefix("(*") {
        let name =
            verb.bytes().take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b"_=".contains(b)).count();
        if name == 0 || verb.as_bytes().get(name) != Some(&b')') {
            break;
        }
        bytes += 2 + name + 1;
    }
    bytes
}

/// Who is asked before each attempt, and how often.
struct Watch<'a> {
    asked: &'a Interruption,
    steps: usize,
    interrupted: Option<Error>,
}

/// What a callout is: what PCRE2 tells of it, which is not looked at, and the value set with it.
type Callout = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

unsafe extern "C" {
    /// PCRE2's, and in its library; the crate that binds it has left it out.
    fn pcre2_set_callout_8(
        context: *mut ffi::pcre2_match_context_8,
        callout: Option<Callout>,
        value: *mut c_void,
    ) -> c_int;
}

/// Counts an attempt. What it gives is PCRE2's: zero to go on, else what the search ends with.
unsafe extern "C" fn before_an_attempt(_: *mut c_void, watch: *mut c_void) -> c_int {
    // SAFETY: it is the one that `Kept::run` set, which lives until the search is over and is nobody else's meanwhile.
    let watch = unsafe { &mut *watch.cast::<Watch<'_>>() };
    match watch.asked.steps(watch.steps) {
        Ok(()) => 0,
        Err(error) => {
            watch.interrupted = Some(error);
            ffi::PCRE2_ERROR_CALLOUT
        }
    }
}

/// What a search works with; kept for the pattern's next one, if it is small.
struct Kept<'p> {
    pattern: &'p Pattern,
    /// There until it is dropped.
    matching: Option<Matching>,
}

impl Kept<'_> {
    fn run(&self, code: &Code, text: &str, from: usize, limit: u32, watch: &mut Watch<'_>) -> c_int {
        let Some(matching) = &self.matching else { unreachable!("it is there until it is dropped") };
        // SAFETY: the text is UTF-8 and `from` within it at a character's boundary; the match data was made for this code or
        // for what it is a copy of, and with the context it is nobody else's meanwhile. The watch outlives the search.
        unsafe {
            ffi::pcre2_set_match_limit_8(matching.context, limit);
            pcre2_set_callout_8(matching.context, Some(before_an_attempt), ptr::from_mut(watch).cast());
            ffi::pcre2_match_8(
                code.0,
                text.as_ptr(),
                text.len(),
                from,
                ffi::PCRE2_NO_UTF_CHECK,
                matching.data,
                matching.context,
            )
        }
    }

    fn spans(&self) -> Spans {
        self.matching.as_ref().map_or_else(Spans::new, Matching::spans)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let kept = self.matching.take().filter(|matching| matching.working_bytes() <= SPARE_BYTES_MAX);
        if self.pattern.keeps_spare {
            *self.pattern.spare.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
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

/// The limits of compiling.
struct Compiling(*mut ffi::pcre2_compile_context_8);

// SAFETY: PCRE2 only reads a context that it is given, and this one is never changed or freed.
unsafe impl Send for Compiling {}
unsafe impl Sync for Compiling {}

static COMPILING: LazyLock<Compiling> = LazyLock::new(|| {
    // SAFETY: without a general context PCRE2 takes the process's allocator. A context that cannot be made would leave
    // PCRE2 without limits, so that is asserted.
    unsafe {
        let compiling = ffi::pcre2_compile_context_create_8(ptr::null_mut());
        assert!(!compiling.is_null(), "no memory for PCRE2's limits");
        ffi::pcre2_set_max_pattern_length_8(compiling, PATTERN_BYTES_MAX + CALLOUT.len());
        Compiling(compiling)
    }
});

/// A compiled pattern of PCRE2.
struct Code(*mut ffi::pcre2_code_8);

// SAFETY: a compiled pattern is only read; only [`FastCode::of`] changes one, which nobody else has yet.
unsafe impl Send for Code {}
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { ffi::pcre2_code_free_8(self.0) }
    }
}

/// A compiled pattern as machine code, on the account of [`FAST_BYTES`].
struct FastCode {
    code: Code,
    bytes: usize,
}

impl FastCode {
    /// None where there is no room, and where the machine, the system's rules or the pattern allow none.
    fn of(code: &Code) -> Option<Self> {
        if FAST_BYTES.load(Ordering::Relaxed) >= FAST_BYTES_MAX {
            return None;
        }
        // SAFETY: the code is alive and only read.
        let copy = unsafe { ffi::pcre2_code_copy_8(code.0) };
        if copy.is_null() {
            return None;
        }
        let code = Code(copy);
        let mut bytes: usize = 0;
        // SAFETY: the copy is nobody else's. Its size is written where a `size_t` has room.
        let is_compiled = unsafe {
            ffi::pcre2_jit_compile_8(code.0, ffi::PCRE2_JIT_COMPLETE) == 0
                && ffi::pcre2_pattern_info_8(code.0, ffi::PCRE2_INFO_JITSIZE, ptr::from_mut(&mut bytes).cast()) == 0
                && bytes > 0
        };
        is_compiled.then(|| {
            FAST_BYTES.fetch_add(bytes, Ordering::Relaxed);
            Self { code, bytes }
        })
    }
}

impl Drop for FastCode {
    fn drop(&mut self) {
        FAST_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The result and the working memory of a search, and its limits.
struct Matching {
    data: *mut ffi::pcre2_match_data_8,
    context: *mut ffi::pcre2_match_context_8,
}

// SAFETY: it belongs to no thread.
unsafe impl Send for Matching {}

impl Matching {
    fn new(code: &Code) -> Result<Self, Failure> {
        // SAFETY: the code is alive, and PCRE2 does not keep it. What was made is freed in any case.
        let matching = unsafe {
            Self {
                data: ffi::pcre2_match_data_create_from_pattern_8(code.0, ptr::null_mut()),
                context: ffi::pcre2_match_context_create_8(ptr::null_mut()),
            }
        };
        if matching.data.is_null() || matching.context.is_null() {
            return Err(Failure::of(ffi::PCRE2_ERROR_NOMEMORY));
        }
        // SAFETY: the context is there.
        unsafe { ffi::pcre2_set_heap_limit_8(matching.context, HEAP_LIMIT_KIB) };
        Ok(matching)
    }

    /// Where the match and its captures lie, after a search that found one.
    fn spans(&self) -> Spans {
        // SAFETY: the vector has two numbers for the match and for each capture, and a search has set all of them.
        let bounds = unsafe {
            let count = ffi::pcre2_get_ovector_count_8(self.data) as usize;
            std::slice::from_raw_parts(ffi::pcre2_get_ovector_pointer_8(self.data), 2 * count)
        };
        bounds.chunks_exact(2).map(|pair| (pair[0] != ffi::PCRE2_UNSET).then(|| pair[0]..pair[1])).collect()
    }

    fn working_bytes(&self) -> usize {
        // SAFETY: it is this value's own.
        unsafe { ffi::pcre2_get_match_data_heapframes_size_8(self.data) }
    }
}

impl Drop for Matching {
    fn drop(&mut self) {
        // SAFETY: they are this value's own; of what is null nothing is freed.
        unsafe {
            ffi::pcre2_match_data_free_8(self.data);
            ffi::pcre2_match_context_free_8(self.context);
        }
    }
}

#[cfg(test)]
mod tests;
