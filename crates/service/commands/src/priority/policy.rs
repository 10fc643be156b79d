//! `settings.priority` as this member has it, with how often each rule has matched.
//!
//! Invariant: of a connection it is looked up once which rules may ever apply to it, and again only when there are other rules. So a
//! thousand rules cost a request no more than those that can be meant.

use crate::server::Client;
use baton_admission::{Principal, Settings, Subject};
use baton_types::Class;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the file's header.
pub(crate) struct Policy {
    pub settings: Settings,
    /// Counts up with each change.
    pub version: u64,
    matched: Vec<AtomicU64>,
}

/// The rules that may apply to a connection, as of a version of the policy.
#[derive(Clone, Debug)]
pub(crate) struct KnownRules {
    version: u64,
    rules: SmallVec<[u16; 4]>,
}

impl Policy {
    pub fn new(settings: Settings, version: u64) -> Self {
        let matched = settings.rules.iter().map(|_| AtomicU64::default()).collect();
        Self { settings, version, matched }
    }

    /// The first rule that matches a request of this connection, which is counted.
    pub fn first_rule(&self, client: &Client, subject: &Subject<'_>) -> Option<(usize, Class)> {
        if self.settings.rules.is_empty() {
            return None;
        }
        let known = self.rules_of(client);
        let rule = |index: &u16| Some((usize::from(*index), self.settings.rules.get(usize::from(*index))?));
        let (index, rule) = known.rules.iter().filter_map(rule).find(|(_, rule)| rule.when.applies(subject))?;
        self.matched.get(index)?.fetch_add(1, Relaxed);
        Some((index, rule.class))
    }

    fn rules_of(&self, client: &Client) -> Arc<KnownRules> {
        let mut known = client.known_rules.lock();
        if let Some(known) = known.as_ref().filter(|known| known.version == self.version) {
            return Arc::clone(known);
        }
        // Users and roles are nobody's as long as there are none.
        let principal = Principal { app_name: client.app_name(), user: None, roles: &[] };
        let may_apply = self.settings.rules.iter().enumerate().filter(|(_, rule)| rule.when.may_apply(&principal));
        let rules = may_apply.filter_map(|(index, _)| u16::try_from(index).ok()).collect();
        Arc::clone(known.insert(Arc::new(KnownRules { version: self.version, rules })))
    }

    /// How often each rule has matched since it is in force here.
    pub fn matched(&self) -> impl Iterator<Item = u64> {
        self.matched.iter().map(|count| count.load(Relaxed))
    }
}
