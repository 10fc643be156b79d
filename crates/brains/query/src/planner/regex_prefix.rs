//! The literal text that every match of an anchored regular expression begins with.
//!
//! Invariants: the prefix is never too long (a character that a quantifier may drop is left out); whether it is the whole
//! pattern is said only if it is.

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
        let literal = match c {
            '\\' if in_quote && chars.peek() == Some(&'E') => {
                chars.next();
                in_quote = false;
                // A quantifier after the quote applies to its last character.
                if matches!(chars.peek(), Some('*' | '?' | '{')) {
                    text.pop();
                    return Prefix { text, is_whole_pattern: false };
                }
                continue;
            }
            c if in_quote => c,
            '\\' => match chars.next() {
                Some('Q') => {
                    in_quote = true;
                    continue;
                }
                Some('E') => continue,
                Some(c) if !c.is_alphanumeric() => c,
                _ => return Prefix { text, is_whole_pattern: false },
            },
            '^' | '$' | '.' | '[' | ']' | '(' | ')' | '{' | '}' | '*' | '+' | '?' => {
                return Prefix { text, is_whole_pattern: false };
            }
            c => c,
        };
        let may_be_quantified = !in_quote;
        if may_be_quantified && matches!(chars.peek(), Some('*' | '?' | '{')) {
            return Prefix { text, is_whole_pattern: false };
        }
        text.push(literal);
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
