//! A build is completed only by a primary that has asked every document in its own term what the index demands; and while no
//! document is there that the index does not allow.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct AskedAll;

impl Checker for AskedAll {
    fn name(&self) -> &'static str {
        "who completes a build has asked every document in its term"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for ended in world.builds_ended().iter().filter(|ended| ended.is_commit) {
            let (member, build, term) = (ended.member, ended.build, ended.entry.optime.term);
            if ended.asked.iter().any(|asked| *asked != Some(term)) {
                return Err(format!(
                    "member {member} completes build {build} in {term}, and asked in {:?}",
                    ended.asked
                ));
            }
            if ended.is_violated() {
                return Err(format!("member {member} completes build {build}, and there are two documents of one key"));
            }
        }
        Ok(())
    }
}
