//! One of something for each member of a world.
//!
//! The members of a world are numbered from zero on, so this is a vector: what is looked at in every step is found without a search.

use baton_consensus::MemberId;
use std::ops::Index;

/// See the file's header.
#[derive(Clone, Debug)]
pub struct ByMember<T>(Vec<T>);

impl<T> Default for ByMember<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

fn place(id: MemberId) -> usize {
    // No member has a negative number; if one had, it would be nobody.
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

impl<T> ByMember<T> {
    /// Adds the next member's.
    pub fn push(&mut self, of: T) {
        self.0.push(of);
    }

    /// A member's, if there is such a member.
    pub fn get(&self, id: &MemberId) -> Option<&T> {
        self.0.get(place(*id))
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &MemberId) -> Option<&mut T> {
        self.0.get_mut(place(*id))
    }

    /// All members, in the order of their numbers.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> + use<T> {
        (0..self.0.len() as i32).map(MemberId)
    }

    /// What there is, in the same order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Each member with its own.
    pub fn iter(&self) -> impl Iterator<Item = (MemberId, &T)> {
        self.ids().zip(&self.0)
    }
}

impl<T: Default> ByMember<T> {
    /// A member's; if there was none, the default.
    pub fn of(&mut self, id: MemberId) -> &mut T {
        let place = place(id);
        if place >= self.0.len() {
            self.0.resize_with(place + 1, T::default);
        }
        &mut self.0[place]
    }
}

impl<T> Index<&MemberId> for ByMember<T> {
    type Output = T;

    fn index(&self, id: &MemberId) -> &T {
        &self.0[place(*id)]
    }
}
