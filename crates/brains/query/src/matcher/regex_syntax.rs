//! PCRE's dialect, as MongoDB documents it, in terms of the regex engine used here.
//!
//! Invariants: `\d \w \s` and their complements mean ASCII, as PCRE's do by default; what PCRE reads as a literal
//! (`[` and `&&` inside a class, `{` that starts no repetition, `\<`) stays a literal. A pattern that is malformed stays
//! malformed, and the engine reports it.
//!
//! What it deliberately does not do: PCRE's verbs (`(*SKIP)`), recursion conditions and callouts, which the engine
//! refuses by itself.

use std::iter::Peekable;
use std::str::Chars;

const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0B\f\r\x20";
const HORIZONTAL_SPACE: &str = r"\t\p{Zs}";
const VERTICAL_SPACE: &str = r"\n\x0B\f\r\x{85}\x{2028}\x{2029}";

/// A pattern for the engine.
pub(crate) struct Translated {
    pub(crate) pattern: String,
    /// Whether `$` stands outside a class.
    pub(crate) has_dollar: bool,
}

/// Translates a pattern; `extended` is the option `x`.
pub(crate) fn translate(pattern: &str, extended: bool) -> Translated {
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        extended,
        has_dollar: false,
    };
    translator.run();
    Translated { pattern: translator.out, has_dollar: translator.has_dollar }
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    extended: bool,
    has_dollar: bool,
}

/// The members of the class a letter stands for, and whether it stands for their complement.
fn shorthand(letter: char) -> Option<(&'static str, bool)> {
    let members = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => WORD,
        's' => SPACE,
        'h' => HORIZONTAL_SPACE,
        'v' => VERTICAL_SPACE,
        _ => return None,
    };
    Some((members, letter.is_ascii_uppercase()))
}

impl Translator<'_> {
    fn run(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape(),
                '[' => self.class(),
                '{' if !self.repetition_follows() => self.out.push_str(r"\{"),
                '$' => {
                    self.has_dollar = true;
                    self.out.push('$');
                }
                '(' if self.comment_follows() => while self.rest.next().is_some_and(|c| c != ')') {},
                '#' if self.extended => while self.rest.next().is_some_and(|c| c != '\n') {},
                other => self.out.push(other),
            }
        }
    }

    /// What follows a backslash outside a class.
    fn escape(&mut self) {
        let Some(c) = self.rest.next() else { return self.out.push('\\') };
        if let Some((members, negated)) = shorthand(c) {
            self.out.push_str(if negated { "[^" } else { "[" });
            self.out.push_str(members);
            self.out.push(']');
            return;
        }
        match c {
            'Q' => self.quoted(),
            'E' => {}
            'R' => self.out.push_str(r"(?:\r\n|[\n\x0B\f\r\x{85}\x{2028}\x{2029}])"),
            'N' => self.out.push_str(r"[^\n]"),
            _ => self.plain_escape(c),
        }
    }

    /// Escapes that mean the same inside and outside a class.
    fn plain_escape(&mut self, c: char) {
        match c {
            'e' => self.out.push_str(r"\x1B"),
            'c' => match self.rest.next() {
                Some(control) => self.code_point(u32::from(control.to_ascii_uppercase()) ^ 0x40),
                None => self.out.push_str(r"\c"),
            },
            '0' => {
                let mut code = 0;
                for _ in 0..2 {
                    let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    self.rest.next();
                }
                self.code_point(code);
            }
            c if c.is_ascii_alphanumeric() => {
                self.out.push('\\');
                self.out.push(c);
            }
            c => self.literal(c),
        }
    }

    /// Everything up to `\E` is literal.
    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(c);
        }
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            self.code_point(u32::from(c));
        } else {
            self.out.push(c);
        }
    }

    fn code_point(&mut self, code: u32) {
        self.out.push_str(&format!("\\x{{{code:X}}}"));
    }

    /// Whether what follows `{` makes it a repetition: `{2}`, `{2,}`, `{2,5}`.
    fn repetition_follows(&self) -> bool {
        let mut ahead = self.rest.clone();
        let mut digits = 0;
        let mut commas = 0;
        loop {
            match ahead.next() {
                Some(c) if c.is_ascii_digit() => digits += 1,
                Some(',') if digits > 0 && commas == 0 => commas += 1,
                Some('}') => return digits > 0,
                _ => return false,
            }
        }
    }

    fn comment_follows(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next() == Some('?') && ahead.next() == Some('#')
    }

    /// A character class, after its `[`.
    fn class(&mut self) {
        self.out.push('[');
        if self.rest.peek() == Some(&'^') {
            self.rest.next();
            self.out.push('^');
        }
        if self.rest.peek() == Some(&']') {
            self.rest.next();
            self.out.push_str(r"\]");
        }
        // Whether what came last is a whole class, so that a hyphen after it is a literal.
        let mut after_class = false;
        while let Some(c) = self.rest.next() {
            let was_class = std::mem::take(&mut after_class);
            match c {
                ']' => return self.out.push(']'),
                '[' if self.rest.peek() == Some(&':') => after_class = self.posix_class(),
                '\\' => after_class = self.class_escape(),
                '-' if was_class || self.class_escape_follows() => self.out.push_str(r"\-"),
                '-' if self.out.ends_with('-') => self.out.push_str(r"\-"),
                '[' | '&' | '~' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                c if self.extended && (c.is_whitespace() || c == '#') => self.code_point(u32::from(c)),
                c => self.out.push(c),
            }
        }
    }

    /// `[:alpha:]` inside a class, after its `[`; what only looks like one is a literal bracket.
    fn posix_class(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next();
        let mut name = String::new();
        while let Some(c) = ahead.next() {
            match c {
                ':' if ahead.peek() == Some(&']') => {
                    ahead.next();
                    self.rest = ahead;
                    self.out.push_str(&format!("[:{name}:]"));
                    return true;
                }
                c if c.is_ascii_alphabetic() || c == '^' => name.push(c),
                _ => break,
            }
        }
        self.out.push_str(r"\[");
        false
    }

    /// What follows a backslash inside a class; returns whether it was a whole class.
    fn class_escape(&mut self) -> bool {
        let Some(c) = self.rest.next() else {
            self.out.push('\\');
            return false;
        };
        if let Some((members, negated)) = shorthand(c) {
            self.out.push_str(if negated { "[^" } else { "" });
            self.out.push_str(members);
            self.out.push_str(if negated { "]" } else { "" });
            return true;
        }
        match c {
            'b' => self.out.push_str(r"\x08"),
            'Q' => self.quoted(),
            'E' => {}
            // Octal: there are no back references inside a class.
            '1'..='7' => {
                let mut code = c.to_digit(8).unwrap_or(0);
                while let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(8)).filter(|_| code < 0o40) {
                    code = code * 8 + digit;
                    self.rest.next();
                }
                self.code_point(code);
            }
            'p' | 'P' => {
                self.plain_escape(c);
                return true;
            }
            _ => self.plain_escape(c),
        }
        false
    }

    /// Whether an escape that stands for a whole class follows, so that a hyphen before it is a literal.
    fn class_escape_follows(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next() == Some('\\') && ahead.next().is_some_and(|c| shorthand(c).is_some())
    }
}
