//! Of which class a request is, and who said so.
//!
//! Invariant: the most specific claim wins: the request's own, its session's, its connection's, a rule's; else it is normal. It is
//! decided once, before the request waits for anything: who changes a claim meanwhile changes the next request.

use baton_types::Class;

/// Who said of which class a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The request itself, by its field `priority`.
    Request,
    /// `setClientPriority` within its session.
    Session,
    /// `setClientPriority` on its connection, outside of any session.
    Connection,
    /// The rule of this number in the configuration, from 0.
    Rule(usize),
    /// Nobody.
    Default,
}

impl Source {
    /// As shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Session => "session",
            Self::Connection => "connection",
            Self::Rule(_) => "rule",
            Self::Default => "default",
        }
    }
}

/// What was said of a request, by whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claims {
    /// By itself.
    pub request: Option<Class>,
    /// Of its session.
    pub session: Option<Class>,
    /// Of its connection.
    pub connection: Option<Class>,
}

impl Claims {
    /// The class, and whose word that is. `rule` gives the first rule that matches; it is asked only if nobody has said anything.
    pub fn class(self, rule: impl FnOnce() -> Option<(usize, Class)>) -> (Class, Source) {
        let said = |class: Option<Class>, source| class.map(|class| (class, source));
        said(self.request, Source::Request)
            .or_else(|| said(self.session, Source::Session))
            .or_else(|| said(self.connection, Source::Connection))
            .or_else(|| rule().map(|(index, class)| (class, Source::Rule(index))))
            .unwrap_or((Class::Normal, Source::Default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_claim_wins() {
        let rule = || Some((3, Class::Low));
        let mut claims =
            Claims { request: Some(Class::Low), session: Some(Class::High), connection: Some(Class::Normal) };
        assert_eq!(claims.class(rule), (Class::Low, Source::Request));
        claims.request = None;
        assert_eq!(claims.class(rule), (Class::High, Source::Session));
        claims.session = None;
        assert_eq!(claims.class(rule), (Class::Normal, Source::Connection));
        claims.connection = None;
        assert_eq!(claims.class(rule), (Class::Low, Source::Rule(3)));
        assert_eq!(claims.class(|| None), (Class::Normal, Source::Default));
    }
}
