//! Values by name, in the order they came: the fields of a projection's or an update's tree.
//!
//! Invariants: no name twice; among few, a name is looked for in each, among many, looked up. A request may name a million
//! fields: what is done for each must not look at all the others.

use smallvec::SmallVec;
use smol_str::SmolStr;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Deref;

/// So many names are found as fast by looking at each.
const FEW: usize = 16;

/// A value with its name.
type Entry<T> = (SmolStr, T);

/// See the file's header. Read as a slice of names and values. A single one takes no memory beside it.
#[derive(Clone, Debug)]
pub(crate) struct ByName<T> {
    entries: SmallVec<[Entry<T>; 1]>,
    /// The entries' places by name, where there are more than [`FEW`].
    places: HashMap<SmolStr, usize>,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { entries: SmallVec::new(), places: HashMap::new() }
    }
}

impl<T> Deref for ByName<T> {
    type Target = [Entry<T>];

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl<T> IntoIterator for ByName<T> {
    type Item = Entry<T>;
    type IntoIter = smallvec::IntoIter<[Entry<T>; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<T> ByName<T> {
    /// The place of a name.
    pub fn position(&self, name: &str) -> Option<usize> {
        if self.entries.len() > FEW {
            work::count(1);
            return self.places.get(name).copied();
        }
        work::count(self.entries.len());
        self.entries.iter().position(|(known, _)| &**known == name)
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.position(name).map(|at| &self.entries[at].1)
    }

    /// The value at a place.
    pub fn at_mut(&mut self, at: usize) -> &mut T {
        &mut self.entries[at].1
    }

    /// The values, in order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Puts a value at the end, under a name that is not there; gives its place.
    pub fn push(&mut self, name: &str, value: T) -> usize {
        self.entries.push((name.into(), value));
        let last = self.entries.len() - 1;
        match last {
            ..FEW => {}
            FEW => self.look_up(),
            _ => {
                work::count(1);
                self.places.insert(name.into(), last);
            }
        }
        last
    }

    /// Takes a value out. Looks at all the others.
    pub fn remove(&mut self, at: usize) -> T {
        let (_, value) = self.entries.remove(at);
        self.look_up();
        value
    }

    /// Puts the entries in an order of their names.
    pub fn sort_by(&mut self, order: fn(&str, &str) -> Ordering) {
        self.entries.sort_by(|(a, _), (b, _)| {
            work::count(1);
            order(a, b)
        });
        self.look_up();
    }

    fn look_up(&mut self) {
        self.places.clear();
        if self.entries.len() > FEW {
            work::count(self.entries.len());
            self.places.extend(self.entries.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)));
        }
    }
}

/// How many names were looked at: what tests measure.
mod work {
    #[cfg(test)]
    std::thread_local! {
        pub(super) static NAMES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[cfg(test)]
    pub(super) fn count(names: usize) {
        NAMES.set(NAMES.get() + names);
    }

    #[cfg(not(test))]
    pub(super) const fn count(_: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::projection::{Mode, Projection};
    use crate::update::Update;
    use baton_types::Result;
    use bson::{DateTime, Document, RawBson, RawBsonRef, RawDocumentBuf, doc};

    #[test]
    fn a_name_is_found_where_it_is_among_few_and_among_many() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 100] {
            let mut all = ByName::default();
            for i in 0..count {
                assert_eq!(all.push(&format!("f{i}"), i), i);
            }
            for i in 0..count {
                assert_eq!((all.position(&format!("f{i}")), all.get(&format!("f{i}"))), (Some(i), Some(&i)));
            }
            assert_eq!(all.position("g"), None);
            all.sort_by(|a, b| b.cmp(a));
            (0..count).for_each(|i| assert_eq!(all.get(&format!("f{i}")), Some(&i)));
            while !all.is_empty() {
                let name = all[0].0.clone();
                all.remove(0);
                assert_eq!(all.position(&name), None);
                assert!(all.iter().enumerate().all(|(at, (name, _))| all.position(name) == Some(at)));
            }
        }
    }

    /// Names looked at in parsing so many fields.
    fn names_looked_at(
        fields: usize,
        parse: &dyn Fn(&RawDocumentBuf) -> Result<()>,
        spec: &dyn Fn(String) -> Document,
    ) -> usize {
        let mut all = Document::new();
        (0..fields).for_each(|i| all.extend(spec(i.to_string())));
        let all = RawDocumentBuf::try_from(&all).unwrap();
        work::NAMES.set(0);
        parse(&all).unwrap();
        work::NAMES.get()
    }

    #[test]
    fn twice_as_many_names_take_about_twice_the_work() {
        let ctx = Context::new(DateTime::from_millis(0), 0);
        let empty = RawDocumentBuf::new();
        let update = |operator: &str, fields: &RawDocumentBuf| -> Result<()> {
            let mut update = RawDocumentBuf::new();
            update.append(bson::raw::CString::try_from(operator)?, fields.clone());
            let filters: [RawDocumentBuf; 0] = [];
            Update::parse(RawBsonRef::Document(&update), &filters, &ctx)?.apply(&empty, None).map(drop)
        };
        let project = |mode, fields: &RawDocumentBuf| Projection::parse(fields, None, &ctx, mode).map(drop);
        let stage = |name: &str, fields: &RawDocumentBuf| {
            let stage = RawDocumentBuf::try_from(
                &doc! { name: RawBson::Document(fields.clone()).try_into().unwrap_or(bson::Bson::Null) },
            )?;
            crate::pipeline::Pipeline::parse(&[&*stage], &ctx).map(drop)
        };
        type Parse<'a> = &'a dyn Fn(&RawDocumentBuf) -> Result<()>;
        type Spec<'a> = &'a dyn Fn(String) -> Document;
        let cases: [(&str, Parse<'_>, Spec<'_>); 10] = [
            ("$set", &|fields| update("$set", fields), &|i| doc! { format!("f{i}"): 1 }),
            ("$set below", &|fields| update("$set", fields), &|i| doc! { format!("a.b.f{i}"): 1 }),
            ("$set of numbers", &|fields| update("$set", fields), &|i| doc! { format!("a.{i}"): 1 }),
            ("$rename", &|fields| update("$rename", fields), &|i| doc! { format!("f{i}"): format!("g{i}") }),
            ("$unset", &|fields| update("$unset", fields), &|i| doc! { format!("f{i}.a"): 1 }),
            ("a projection", &|fields| project(Mode::Find, fields), &|i| doc! { format!("f{i}"): 1 }),
            ("a projection below", &|fields| project(Mode::Find, fields), &|i| doc! { format!("a.f{i}"): 0 }),
            ("$project", &|fields| project(Mode::Aggregate, fields), &|i| doc! { format!("f{i}"): { "a": "$b" } }),
            ("$addFields", &|fields| stage("$addFields", fields), &|i| doc! { format!("f{i}"): { "a": 1 } }),
            ("$addFields below", &|fields| stage("$addFields", fields), &|i| doc! { format!("a.f{i}"): 1 }),
        ];
        for (what, parse, spec) in cases {
            let (once, twice) = (names_looked_at(2_000, parse, spec), names_looked_at(4_000, parse, spec));
            assert!(once >= 2_000, "{what}: {once}");
            assert!(twice < 3 * once, "{what}: {once} names looked at, {twice} for twice as many fields");
        }
    }
}
