//! A law: whatever DDL a primary accepts, a member that follows carries out, and has the same catalog and documents then.
//!
//! Commands are drawn from a grammar of everything that changes what exists, on few names, beside some writes. Many are refused;
//! each that is accepted has its entries carried to a second member, as replication does. Some seeds stay, some are the commit's
//! (BATON_SEED of build/env.sh).

use crate::commands::apply_ops::apply_command;
use crate::commands::list_collections;
use crate::ddl::indexes;
use crate::testing::Member;
use baton_storage::Storage;
use baton_types::{ErrorCode, Namespace, Timestamp};
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, bson, doc};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Seeds that stay, and seeds that the commit draws.
const SEEDS: u64 = 6;
const COMMANDS_A_SEED: usize = 80;
/// Commands between two comparisons.
const COMMANDS_AT_ONCE: usize = 8;

/// Draws commands.
pub(super) struct Grammar(pub(super) StdRng);

impl Grammar {
    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.0).unwrap().clone()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    fn name(&mut self) -> &'static str {
        self.one(&["a", "b", "c", "d"])
    }

    fn index_name(&mut self) -> &'static str {
        self.one(&["i1", "i2", "i3", "i4"])
    }

    fn number(&mut self) -> Bson {
        self.one(&[
            bson!(1),
            bson!(0),
            bson!(-1),
            bson!(4096_i64),
            bson!(9000.5),
            bson!(60),
            bson!(f64::NAN),
            bson!("x"),
        ])
    }

    fn filter(&mut self) -> Document {
        self.one(&[
            doc! {},
            doc! { "x": { "$gt": 1 } },
            doc! { "x": { "$exists": true }, "y": { "$in": [1, "a"] } },
            doc! { "$jsonSchema": { "required": ["x"] } },
            doc! { "$expr": { "$lt": ["$x", 100] } },
            doc! { "$nor": [ { "x": 7 } ] },
            doc! { "x": { "$frob": 1 } },
        ])
    }

    /// Some of the options, each with one of its values.
    fn some_of(&mut self, percent: u32, options: &[(&str, Vec<Bson>)]) -> Document {
        let mut drawn = Document::new();
        for (name, values) in options {
            if self.chance(percent) {
                drawn.insert(*name, self.one(values));
            }
        }
        drawn
    }

    fn create(&mut self) -> Document {
        let mut command = doc! { "create": self.name() };
        let (filter, number) = (self.filter(), self.number());
        let stages = bson!([{ "$match": { "x": 1 } }, { "$project": { "y": 1 } }]);
        let lookup = bson!([{ "$lookup": { "from": self.name(), "localField": "x", "foreignField": "x", "as": "z" } }]);
        match self.0.random_range(0..4) {
            0 => {
                command
                    .extend(doc! { "capped": true, "size": self.one(&[bson!(4096), bson!(10_000_i64), bson!(5.5)]) });
                command.extend(self.some_of(30, &[("max", vec![bson!(5), number])]));
            }
            1 => {
                command.extend(doc! { "viewOn": self.name() });
                command.extend(self.some_of(60, &[("pipeline", vec![bson!([]), stages, lookup])]));
            }
            _ => {}
        }
        command.extend(self.some_of(
            15,
            &[
                ("validator", vec![filter.into()]),
                ("validationLevel", vec![bson!("off"), bson!("strict"), bson!("moderate")]),
                ("validationAction", vec![bson!("warn"), bson!("error")]),
                ("clusteredIndex", vec![bson!({ "key": { "_id": 1 }, "unique": true, "name": "mine" }), bson!(true)]),
                ("collation", vec![bson!({ "locale": "simple" })]),
                ("idIndex", vec![bson!({ "v": 2, "key": { "_id": 1 }, "name": "_id_" })]),
                ("storageEngine", vec![bson!({}), bson!({ "wiredTiger": {} })]),
                ("temp", vec![bson!(true)]),
                ("autoIndexId", vec![bson!(true)]),
                ("changeStreamPreAndPostImages", vec![bson!({ "enabled": false })]),
            ],
        ));
        command
    }

    fn key(&mut self) -> Document {
        let mut key = Document::new();
        for _ in 0..self.one(&[1, 1, 1, 2, 3]) {
            let path = self.one(&["x", "y", "x.z", "at", "loc", "_id", "$**", "s"]);
            let kind = self.one(&[
                bson!(1),
                bson!(1),
                bson!(-1),
                bson!(-1.5),
                bson!(3_i64),
                bson!("hashed"),
                bson!("text"),
                bson!("2d"),
                bson!("2dsphere"),
                bson!(0),
            ]);
            key.insert(path, kind);
        }
        key
    }

    fn index(&mut self) -> Document {
        let mut index = doc! { "key": self.key() };
        if self.chance(80) {
            index.insert("name", self.index_name());
        }
        let (filter, number, other) = (self.filter(), self.number(), self.number());
        index.extend(self.some_of(
            12,
            &[
                ("unique", vec![bson!(true), bson!(1), bson!(false)]),
                ("sparse", vec![bson!(true), bson!(0)]),
                ("hidden", vec![bson!(true), bson!(false)]),
                ("partialFilterExpression", vec![filter.into(), bson!({ "x": { "$gt": 2 } })]),
                ("expireAfterSeconds", vec![number.clone(), bson!(60), bson!(1e9)]),
                ("v", vec![bson!(1), bson!(2), bson!(2.0)]),
                ("background", vec![bson!(true)]),
                ("weights", vec![bson!({ "s": 3, "t.u": 2.0 }), bson!("$**"), other.clone()]),
                ("default_language", vec![bson!("german"), bson!("none"), other.clone()]),
                ("language_override", vec![bson!("lang"), bson!("a.b")]),
                ("textIndexVersion", vec![bson!(3), other.clone()]),
                ("2dsphereIndexVersion", vec![bson!(2), bson!(3), other.clone()]),
                ("bits", vec![bson!(20), other.clone()]),
                ("min", vec![bson!(-10), other.clone()]),
                ("max", vec![bson!(10.5), other]),
                ("collation", vec![bson!({ "locale": "simple" })]),
                ("storageEngine", vec![bson!({})]),
                ("ns", vec![bson!("db.x")]),
            ],
        ));
        index
    }

    fn modification(&mut self) -> Document {
        let mut command = doc! { "collMod": self.name() };
        let (filter, number) = (self.filter(), self.number());
        let by = if self.chance(70) {
            doc! { "name": self.index_name() }
        } else {
            doc! { "keyPattern": self.key() }
        };
        let mut index = by;
        index.extend(self.some_of(
            60,
            &[("hidden", vec![bson!(true), bson!(false)]), ("expireAfterSeconds", vec![bson!(30), number.clone()])],
        ));
        command.extend(self.some_of(
            30,
            &[
                ("validator", vec![filter.into()]),
                ("validationLevel", vec![bson!("off"), bson!("moderate")]),
                ("validationAction", vec![bson!("warn")]),
                ("index", vec![index.into()]),
            ],
        ));
        command.extend(
            self.some_of(15, &[("cappedSize", vec![bson!(8192), number.clone()]), ("cappedMax", vec![number])]),
        );
        if self.chance(20) {
            command.extend(doc! { "viewOn": self.name(), "pipeline": [ { "$match": self.filter() } ] });
        }
        command
    }

    fn document(&mut self) -> Document {
        let mut document = doc! { "_id": self.0.random_range(0..40) };
        let x = self.0.random_range(0..12);
        let value = [bson!(x), bson!([x, x + 1]), bson!("word"), bson!({ "z": [1, x] }), bson!(null)];
        document.extend(self.some_of(
            60,
            &[
                ("x", value.to_vec()),
                ("y", value[..3].to_vec()),
                ("s", vec![bson!("some words")]),
                ("at", vec![bson!(DateTime::from_millis(i64::from(x)))]),
                (
                    "loc",
                    vec![bson!([x, 1]), bson!({ "type": "Point", "coordinates": [x, 2] }), bson!("abc"), bson!([x])],
                ),
            ],
        ));
        document
    }

    /// A command and its database.
    pub(super) fn command(&mut self) -> (&'static str, Document) {
        let (from, to) = (self.name(), self.name());
        let command = match self.0.random_range(0..100) {
            0..14 => self.create(),
            14..36 => {
                let indexes: Vec<Document> = (0..self.one(&[1, 1, 2])).map(|_| self.index()).collect();
                doc! { "createIndexes": from, "indexes": indexes }
            }
            36..52 => self.modification(),
            52..72 => {
                let documents: Vec<Document> = (0..3).map(|_| self.document()).collect();
                doc! { "insert": from, "documents": documents, "ordered": false }
            }
            72..78 => {
                doc! { "update": from, "updates": [ { "q": { "_id": self.0.random_range(0..40) }, "u": self.document() } ] }
            }
            78..82 => {
                let index = self.one(&[bson!("*"), bson!("i1"), bson!(["i2", "i3"]), bson!({ "x": 1 })]);
                doc! { "dropIndexes": from, "index": index }
            }
            82..86 => {
                let drop_target = self.chance(50);
                let (from, to) = (format!("db.{from}"), format!("db.{to}"));
                return ("admin", doc! { "renameCollection": from, "to": to, "dropTarget": drop_target });
            }
            86..90 => doc! { "drop": from },
            90..92 => doc! { "convertToCapped": from, "size": 6000 },
            92..94 => doc! { "cloneCollectionAsCapped": from, "toCollection": to, "size": 6000 },
            94..97 => doc! { "aggregate": from, "pipeline": [ { "$out": to } ], "cursor": {} },
            97..99 => {
                let spec = self.index();
                let mut o = doc! { "createIndexes": from };
                o.extend(spec);
                doc! { "applyOps": [ { "op": "c", "ns": "db.$cmd", "o": o } ] }
            }
            _ => doc! { "dropDatabase": 1 },
        };
        ("db", command)
    }
}

/// A primary, and a member that is given what it logs.
struct Pair {
    primary: Member,
    follower: Member,
    carried: Timestamp,
}

impl Pair {
    fn new() -> Self {
        let (follower, primary) = (Member::new(), Member::new());
        follower.server.storage.queue().close_to_writes();
        let last = follower.server.storage.queue().applied().timestamp;
        primary.server.storage.queue().advance_floor(last);
        let carried = primary.server.storage.queue().applied().timestamp.max(last);
        Self { primary, follower, carried }
    }

    /// Lets the follower carry out what the primary has logged since.
    fn carry(&mut self) -> Result<(), String> {
        let from = Timestamp::from_u64(self.carried.as_u64() + 1);
        let entries = self.primary.server.storage.oplog().entries_from(from, usize::MAX).unwrap();
        let follower = &self.follower.server;
        for entry in &entries {
            let outcome = if entry.get_str("op").unwrap() == "c" {
                loop {
                    match follower.storage.replay(entry, |writer| apply_command(follower, writer, entry)) {
                        // Its own build of the index is not done.
                        Err(error) if error.code == ErrorCode::IndexBuildAlreadyInProgress => {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        outcome => break outcome.map(|_| ()),
                    }
                }
            } else {
                follower.storage.follower().apply_entries(&[entry]).map(|_| ())
            };
            outcome.map_err(|error| format!("{error} for {}", shown(entry)))?;
        }
        self.carried = self.primary.server.storage.queue().applied().timestamp;
        Ok(())
    }
}

pub(super) fn shown(document: &RawDocument) -> String {
    Document::try_from(document).unwrap().to_string()
}

/// What a member has: each collection's entry, indexes and which of their fields have arrays.
fn catalog(storage: &Storage) -> Vec<String> {
    let catalog = storage.catalog();
    let collections = catalog.iter().filter(|collection| matches!(collection.namespace.db(), "db"));
    collections
        .map(|collection| {
            let indexes: Vec<String> = indexes::documents(collection).iter().map(|index| shown(index)).collect();
            let states: Vec<_> = collection.indexes().iter().map(|index| (index.state(), index.multikey())).collect();
            let uuid = bson::Uuid::from_bytes(collection.uuid);
            format!("{} {uuid} {indexes:?} {states:?}", shown(&list_collections::entry(collection)))
        })
        .collect()
}

#[test]
fn whatever_ddl_a_primary_accepts_a_member_that_follows_applies() {
    let mut pair = Pair::new();
    let mut accepted = 0;
    let drawn = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1 << 32);
    for seed in (0..SEEDS).chain(drawn..drawn + SEEDS) {
        let mut grammar = Grammar(StdRng::seed_from_u64(seed));
        let mut recent: Vec<String> = Vec::new();
        for number in 0..COMMANDS_A_SEED {
            let (db, command) = grammar.command();
            let reply = pair.primary.send(db, command.clone());
            let code = reply.get_i32("code").unwrap_or(0);
            assert!(![1, 8].contains(&code), "seed {seed}: {command}: {reply}");
            accepted += usize::from(code == 0);
            recent.push(format!("{code}: {command}"));
            if number % COMMANDS_AT_ONCE == 0 || number + 1 == COMMANDS_A_SEED {
                let carried = pair.carry();
                let (primary, follower) = (&pair.primary.server.storage, &pair.follower.server.storage);
                assert_eq!(carried, Ok(()), "seed {seed}, after {recent:#?}");
                assert_eq!(catalog(primary), catalog(follower), "seed {seed}, after {recent:#?}");
                recent.clear();
            }
        }
        let hash = |member: &Member| member.ok("db", doc! { "dbHash": 1 });
        let (ours, theirs) = (hash(&pair.primary), hash(&pair.follower));
        for field in ["collections", "uuids", "capped", "md5"] {
            assert_eq!(ours.get(field), theirs.get(field), "seed {seed}: {field}");
        }
        for storage in [&pair.primary.server.storage, &pair.follower.server.storage] {
            for collection in storage.catalog().database("db").filter(|collection| collection.options.view.is_none()) {
                let report = storage.validate(collection, &mut |_, _| Ok(())).unwrap();
                assert!(report.is_valid(), "seed {seed}: {}: {:?}", collection.namespace, report.errors);
            }
        }
    }
    // Else the grammar draws nonsense alone.
    assert!(accepted * 3 > 2 * SEEDS as usize * COMMANDS_A_SEED, "only {accepted} commands were accepted");
}

#[test]
fn a_text_index_that_expires_is_taken_by_both() {
    let mut pair = Pair::new();
    let index = doc! { "key": { "s": "text" }, "name": "n", "expireAfterSeconds": 60 };
    pair.primary.ok("db", doc! { "createIndexes": "c", "indexes": [index] });
    assert_eq!(pair.carry(), Ok(()));
    assert_eq!(catalog(&pair.primary.server.storage), catalog(&pair.follower.server.storage));
}

#[test]
fn an_index_that_a_follower_could_not_build_anew_is_built_as_it_was_logged() {
    // By a primary that asked other questions of a specification than this member would.
    let mut pair = Pair::new();
    let spec = doc! { "createIndexes": "c", "v": 2, "key": { "a": 1, "b": 1 }, "name": "n", "expireAfterSeconds": 60 };
    pair.primary.ok("db", doc! { "create": "c" });
    pair.carry().unwrap();
    let uuid = pair.primary.server.storage.collection(&Namespace::new("db", "c").unwrap()).unwrap().uuid;
    let last = pair.follower.server.storage.queue().applied();
    let time = Timestamp::from_u64(last.timestamp.as_u64() + 1);
    let entry = doc! {
        "op": "c", "ns": "db.$cmd", "ui": bson::Uuid::from_bytes(uuid), "o": spec, "v": 2_i64,
        "ts": bson::Timestamp::from(time), "t": last.term, "wall": DateTime::now(),
    };
    let entry = RawDocumentBuf::try_from(&entry).unwrap();
    let follower = &pair.follower.server;
    follower.storage.replay(&entry, |writer| apply_command(follower, writer, &entry)).unwrap();
    let indexes = pair.follower.batch("db", doc! { "listIndexes": "c" });
    assert_eq!(indexes.last().unwrap().get_str("name").unwrap(), "n");
}

#[test]
fn a_copy_builds_no_second_index_on_id_beside_one_with_a_name_of_its_own() {
    let mut pair = Pair::new();
    let named = doc! { "key": { "_id": 1 }, "unique": true, "name": "mine" };
    pair.primary.ok("db", doc! { "create": "c", "clusteredIndex": named });
    pair.carry().unwrap();
    // What an initial sync makes of the source's list of indexes.
    let follower = &pair.follower.server;
    for spec in pair.primary.batch("db", doc! { "listIndexes": "c" }) {
        let mut o = doc! { "createIndexes": "c" };
        o.extend(spec);
        let uuid = pair.primary.server.storage.collection(&Namespace::new("db", "c").unwrap()).unwrap().uuid;
        let entry = doc! { "op": "c", "ns": "db.$cmd", "ui": bson::Uuid::from_bytes(uuid), "o": o };
        let entry = RawDocumentBuf::try_from(&entry).unwrap();
        follower.storage.follower().unlogged(|writer| apply_command(follower, writer, &entry)).unwrap();
    }
    assert_eq!(catalog(&pair.primary.server.storage), catalog(&pair.follower.server.storage));
}
