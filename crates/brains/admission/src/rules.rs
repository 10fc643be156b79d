//! Rules that say of which class a request is that says nothing itself.
//!
//! A pattern is compared with the whole of what it is about; `*` stands for any text, also for none, and all else for itself.
//!
//! Invariants: a rule matches if each of its patterns does, so one without patterns matches everything; a pattern matches nothing that
//! is not there. What is known of a connection is looked at once for it ([`Match::may_apply`]), and not for each of its requests.

use baton_types::Class;
use serde::{Deserialize, Serialize};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// `match`: of what.
    pub when: Match,
    /// `priority`: what class that is.
    pub class: Class,
}

/// What a rule is about: patterns, all of which have to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// `appName`: `client.application.name` of the handshake.
    pub app_name: Option<String>,
    /// `user`: who has authenticated, as `database.name`.
    pub user: Option<String>,
    /// `role`: one of the roles of that user.
    pub role: Option<String>,
    /// `ns`: the namespace, `database.collection`.
    pub ns: Option<String>,
    /// `command`: the command's name.
    pub command: Option<String>,
    /// `comment`: the request's comment, if that is a string.
    pub comment: Option<String>,
}

/// What is known of a connection, for all of its requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Principal<'a> {
    /// Its application's name; empty if it gave none.
    pub app_name: &'a str,
    /// Who has authenticated on it, if anybody has.
    pub user: Option<&'a str>,
    /// The roles of that user.
    pub roles: &'a [&'a str],
}

/// What is known of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// The database.
    pub db: &'a str,
    /// The collection; empty if it is about none.
    pub collection: &'a str,
    /// The command's name.
    pub command: &'a str,
    /// Its comment, if that is a string.
    pub comment: Option<&'a str>,
}

impl Match {
    /// The patterns there are, by the names of their fields.
    pub fn patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("appName", &self.app_name),
            ("user", &self.user),
            ("role", &self.role),
            ("ns", &self.ns),
            ("command", &self.command),
            ("comment", &self.comment),
        ]
        .into_iter()
        .filter_map(|(name, pattern)| Some((name, pattern.as_deref()?)))
    }

    /// Whether there can be a request of this connection that it matches.
    pub fn may_apply(&self, principal: &Principal<'_>) -> bool {
        let of = |pattern: &Option<String>, text: Option<&str>| {
            pattern.as_ref().is_none_or(|pattern| text.is_some_and(|text| matches(pattern, text)))
        };
        of(&self.app_name, Some(principal.app_name).filter(|name| !name.is_empty()))
            && of(&self.user, principal.user)
            && self.role.as_ref().is_none_or(|pattern| principal.roles.iter().any(|role| matches(pattern, role)))
    }

    /// Whether it matches a request of a connection to which it [may apply](Self::may_apply).
    pub fn applies(&self, subject: &Subject<'_>) -> bool {
        self.ns.as_ref().is_none_or(|pattern| matches_namespace(pattern, subject.db, subject.collection))
            && self.command.as_ref().is_none_or(|pattern| matches(pattern, subject.command))
            && self.comment.as_ref().is_none_or(|pattern| subject.comment.is_some_and(|text| matches(pattern, text)))
    }
}

/// Whether a pattern matches a text as a whole.
fn matches(pattern: &str, text: &str) -> bool {
    matches_parts(pattern, [text.as_bytes(), b"", b""])
}

fn matches_namespace(pattern: &str, db: &str, collection: &str) -> bool {
    matches_parts(pattern, [db.as_bytes(), b".", collection.as_bytes()])
}

/// Of a text that is in parts, so that none has to be put together for each request. Goes back to the last `*` alone, which is enough:
/// what an earlier one could have taken the last can take, too.
fn matches_parts(pattern: &str, parts: [&[u8]; 3]) -> bool {
    let pattern = pattern.as_bytes();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let at = |mut index: usize| {
        for part in parts {
            match part.get(index) {
                Some(byte) => return *byte,
                None => index -= part.len(),
            }
        }
        unreachable!("it is within the parts")
    };
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < length {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == at(t) => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((of_star, taken)) = star else { return false };
                star = Some((of_star, taken + 1));
                (p, t) = (of_star + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_all_else_is_itself() {
        for (pattern, text, is_match) in [
            ("report", "report", true),
            ("report", "reports", false),
            ("report*", "report", true),
            ("report*", "report-nightly", true),
            ("*night*", "report-nightly", true),
            ("*ly", "report-nightly", true),
            ("*ly", "report-nightlyy", false),
            ("*a*b*c", "xaxbxbxc", true),
            ("*a*b*c", "xaxcxb", false),
            ("*", "", true),
            ("", "", true),
            ("a?c", "abc", false),
            ("a.c", "abc", false),
            ("**", "x", true),
            ("Report*", "report", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} of {text}");
        }
    }

    #[test]
    fn a_namespace_is_compared_as_one_text() {
        for (pattern, is_match) in [
            ("shop.carts", true),
            ("shop.*", true),
            ("*.carts", true),
            ("sh*ts", true),
            ("*", true),
            ("shop", false),
            ("shop.cart", false),
            ("*p.c*", true),
        ] {
            assert_eq!(matches_namespace(pattern, "shop", "carts"), is_match, "{pattern}");
        }
        assert!(matches_namespace("shop.", "shop", ""), "a command on no collection");
    }

    #[test]
    fn a_rule_matches_if_every_pattern_does_and_none_matches_what_is_not_there() {
        let subject = Subject { db: "shop", collection: "carts", command: "find", comment: Some("nightly") };
        let principal = Principal { app_name: "report-1", user: None, roles: &[] };
        let some = |pattern: &str| Some(pattern.to_owned());
        let holds = |when: &Match| when.may_apply(&principal) && when.applies(&subject);
        assert!(holds(&Match::default()));
        assert!(holds(&Match {
            app_name: some("report*"),
            ns: some("shop.*"),
            command: some("find"),
            ..Match::default()
        }));
        assert!(holds(&Match { comment: some("night*"), ..Match::default() }));
        assert!(!holds(&Match { app_name: some("report*"), ns: some("other.*"), ..Match::default() }));
        assert!(!holds(&Match { user: some("*"), ..Match::default() }));
        assert!(!holds(&Match { role: some("*"), ..Match::default() }));
        let nameless = Principal::default();
        assert!(!Match { app_name: some("*"), ..Match::default() }.may_apply(&nameless));
        let silent = Subject { comment: None, ..subject };
        assert!(!Match { comment: some("*"), ..Match::default() }.applies(&silent));
        let known = Principal { user: Some("admin.ann"), roles: &["readWrite", "backup"], ..principal };
        assert!(Match { user: some("admin.*"), role: some("backup"), ..Match::default() }.may_apply(&known));
    }
}
