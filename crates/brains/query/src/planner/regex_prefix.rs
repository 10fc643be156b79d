//! The literal text that every match of an anchored regular expression begins with.
//!
//! Invariants: the prefix is never too long (a character that a quantifier may drop is left out); whether it is the whole
//! pattern is said only if it is. The dialect is PCRE2's.

/// What a pattern begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Empty if nothing is fixed.
    pub(super) text: String,
    /// Whether the pattern says no more than "begins with the text".
    pub(super) is_whole_pattern: bool,
}

const NONE: Prefix = Prefix { text: String::new(), is_whole_pattern: false };

/// The prefix of a pattern with its options.
pub(super) fn of(pattern: &str, options: &str) -> Prefix {
    // Without regard to case nothing is fixed; with `m` a line may begin anywhere; with `x` characters may be ignored.
    if options.contains(['i', 'x']) {
        return NONE;
    }
    let is_multiline = options.contains('m');
    let rest = match pattern.strip_prefix(r"\A") {
        Some(rest) => rest,
        None if is_multiline => return NONE,
        None => match pattern.strip_prefix('^') {
            Some(rest) => rest,
            None => return NONE,
        },
    };
    // An alternative need not begin alike.
    if rest.contains('|') {
        return NONE;
    }
    fixed(rest)
}

fn fixed(rest: &str) -> Prefix {
    let mut text = String::new();
    let mut chars = rest.chars().peekable();
    let mut in_quote = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_quote && chars.peek() == Some(&'E') => {
                chars.next();
                in_quote = false;
            }
            c if in_quote => text.push(c),
            '\\' => match chars.next() {
                Some('Q') => in_quote = true,
                // A quote's end without its beginning says nothing.
                Some('E') => {}
                Some(c) if c.is_ascii() && !c.is_ascii_alphanumeric() => text.push(c),
                _ => return Prefix { text, is_whole_pattern: false },
            },
            // What a quantifier stands behind, quotes or not, need not be there. A brace may begin one, and one may
            // stand behind a comment.
            '*' | '?' | '{' => {
                text.pop();
                return Prefix { text, is_whole_pattern: false };
            }
            '(' if chars.clone().take(2).eq(['?', '#']) => {
                text.pop();
                return Prefix { text, is_whole_pattern: false };
            }
            '^' | '$' | '.' | '[' | ']' | '(' | ')' | '}' | '+' => {
                return Prefix { text, is_whole_pattern: false };
            }
            c => text.push(c),
        }
    }
    Prefix { is_whole_pattern: !text.is_empty(), text }
}

/// The least string above all strings with a prefix; none if there is none.
pub(super) fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_string();
    while let Some(last) = text.pop() {
        let next = match last {
            // The surrogates are no characters.
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_fixed_is_the_prefix() {
        for (pattern, options, text, whole) in [
            ("^abc", "", "abc", true),
            (r"\Aabc", "m", "abc", true),
            ("^abc", "s", "abc", true),
            ("abc", "", "", false),
            ("^abc", "i", "", false),
            ("^abc", "m", "", false),
            ("^abc|d", "", "", false),
            ("^abc.*", "", "abc", false),
            ("^abc*", "", "ab", false),
            ("^abc+", "", "abc", false),
            ("^abc?", "", "ab", false),
            ("^ab{0,1}", "", "a", false),
            ("^abc$", "", "abc", false),
            (r"^a\.b", "", "a.b", true),
            (r"^a\d", "", "a", false),
            (r"^\Qa.b\E", "", "a.b", true),
            (r"^\Qa.b", "", "a.b", true),
            (r"^\Qa.b\E*", "", "a.", false),
            (r"^\Qa.b\E+", "", "a.b", false),
            (r"^\Qa*b\E", "", "a*b", true),
            (r"^\Qa|b\E", "", "", false),
            (r"^ab\E*", "", "a", false),
            (r"^ab\Q\E?", "", "a", false),
            (r"^ab\Q\E", "", "ab", true),
            (r"^a\Qb\Ec", "", "abc", true),
            ("^ab{,2}", "", "a", false),
            ("^ab{ 1, 2 }", "", "a", false),
            ("^a b", "x", "", false),
            ("^ab(?#comment)*", "", "a", false),
            ("^ab(?:c)", "", "ab", false),
            ("^a(?i)b", "", "a", false),
            ("^*a", "", "", false),
            ("(?i)^abc", "", "", false),
            ("(*UCP)^abc", "", "", false),
            (r"^a\Nb", "", "a", false),
            ("^(a)", "", "", false),
            ("^", "", "", false),
        ] {
            let expected = Prefix { text: text.into(), is_whole_pattern: whole };
            assert_eq!(of(pattern, options), expected, "/{pattern}/{options}");
        }
    }

    #[test]
    fn the_successor_is_the_least_string_above_the_prefix() {
        assert_eq!(successor("ab").as_deref(), Some("ac"));
        assert_eq!(successor("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(successor("\u{d7ff}").as_deref(), Some("\u{e000}"));
        assert_eq!(successor("\u{10ffff}"), None);
    }
}
