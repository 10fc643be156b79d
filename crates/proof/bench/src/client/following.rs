//! Thin clients that go where the primary goes: of a set whose leadership moves during the run.
//!
//! Invariant: an operation is sent again only if its member refused it because it is no primary (any more); what that took counts
//! as the operation's latency. Any other failure ends the run, as with every client.
//! What it deliberately does not do: learn of a move before it is refused, as drivers do (`discovery`).

use std::time::{Duration, Instant};

use super::thin::ThinClient;
use super::{Client, Factory, ThinFactory, Wire, WriteConcern, primary_of};
use crate::Failure;
use crate::record::{Key, Layout, VALUE_BYTES};

/// For how long one operation is sent again and again.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a member answers that is no primary, or ceases to be one: `PrimarySteppedDown`, `NotWritablePrimary`,
/// `InterruptedDueToReplStateChange`, `NotPrimaryNoSecondaryOk`, `NotPrimaryOrSecondary`.
pub const NO_PRIMARY: [i32; 5] = [189, 10107, 11602, 13435, 13436];

/// Makes them.
pub struct FollowingFactory {
    uri: String,
    write_concern: WriteConcern,
    layout: Layout,
}

impl FollowingFactory {
    /// Of the set that `uri` names.
    pub fn new(uri: &str, write_concern: WriteConcern, layout: Layout) -> Self {
        Self { uri: uri.to_owned(), write_concern, layout }
    }

    fn client(&self) -> Result<ThinClient, Failure> {
        ThinClient::new(Wire::connect(&primary_of(&self.uri)?)?, self.write_concern, self.layout)
    }
}

impl Factory for FollowingFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        let again = Self::new(&self.uri, self.write_concern, self.layout);
        Ok(Box::new(Following { client: self.client()?, factory: again }))
    }

    fn clear(&self) -> Result<(), Failure> {
        ThinFactory::new(&self.uri, self.write_concern, self.layout)?.clear()
    }
}

struct Following {
    client: ThinClient,
    factory: FollowingFactory,
}

impl Following {
    fn ask<T>(&mut self, mut ask: impl FnMut(&mut ThinClient) -> Result<T, Failure>) -> Result<T, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask(&mut self.client) {
                Err(error) if has_moved(&error.to_string()) && Instant::now() < deadline => {
                    self.client = self.factory.client()?;
                }
                outcome => return outcome,
            }
        }
    }
}

fn has_moved(refusal: &str) -> bool {
    NO_PRIMARY.iter().any(|code| refusal.contains(&format!("\"code\": {code},")))
}

impl Client for Following {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        self.ask(|client| client.read(key))
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure> {
        self.ask(|client| client.update(key, field, value))
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        self.ask(|client| client.insert(records))
    }

    fn scan(&mut self, key: &Key, length: u64) -> Result<u64, Failure> {
        self.ask(|client| client.scan(key, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_no_primary_is_left() {
        assert!(has_moved(r#"find: { "ok": 0, "errmsg": "not primary", "code": 13435, "codeName": "x" }"#));
        assert!(!has_moved(r#"insert: { "ok": 0, "code": 11000, "codeName": "DuplicateKey" }"#));
        assert!(!has_moved("the server closed the connection"));
    }
}
