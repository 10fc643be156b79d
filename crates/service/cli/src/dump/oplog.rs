//! What of an oplog is replayed over a restored dump, and what becomes of its indexes.
//!
//! As mongorestore does: no-ops, the server's own bookkeeping and begun index builds are left out; collections' UUIDs are
//! taken off, because the restored collections have others; and indexes are not built on the way but collected, and built
//! at the end, when unique ones meet only the final state.
//!
//! What it deliberately does not do: transactions that are spread over several entries.

use bson::{Bson, Document, Timestamp, doc};
use std::collections::BTreeMap;

/// What to do with an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Replay {
    /// Nothing.
    Skip,
    /// Have the member apply it, together with its neighbours.
    Write(Document),
    /// Have the member apply it alone, after what came before it.
    Alone(Document),
}

/// The indexes that each collection is to have in the end, by namespace.
#[derive(Clone, Debug, Default)]
pub struct Indexes(BTreeMap<(String, String), Vec<Document>>);

impl Indexes {
    /// Notes that a collection has these indexes.
    pub fn add(&mut self, database: &str, collection: &str, indexes: impl IntoIterator<Item = Document>) {
        let known = self.0.entry((database.to_owned(), collection.to_owned())).or_default();
        for mut index in indexes {
            index.remove("ns");
            known.retain(|other| other.get("name") != index.get("name"));
            known.push(index);
        }
    }

    /// By database and collection; the index on `_id`, which every collection has, is not among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Vec<Document>)> {
        self.0.iter().map(|((database, collection), indexes)| {
            let others = indexes.iter().filter(|index| index.get_document("key").ok() != Some(&doc! { "_id": 1 }));
            (database.as_str(), collection.as_str(), others.cloned().collect())
        })
    }

    fn drop_database(&mut self, database: &str) {
        self.0.retain(|(known, _), _| known != database);
    }

    fn drop_collection(&mut self, database: &str, collection: &str) {
        self.0.remove(&(database.to_owned(), collection.to_owned()));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let split = |namespace: &str| namespace.split_once('.').map(|(db, coll)| (db.to_owned(), coll.to_owned()));
        if let (Some(from), Some(to)) = (split(from), split(to)) {
            self.0.remove(&to);
            if let Some(indexes) = self.0.remove(&from) {
                self.0.insert(to, indexes);
            }
        }
    }

    /// What `dropIndexes` names: an index's name or key, several names, or `*` for all.
    fn drop_indexes(&mut self, database: &str, collection: &str, which: Option<&Bson>) {
        let Some(known) = self.0.get_mut(&(database.to_owned(), collection.to_owned())) else { return };
        known.retain(|index| match which {
            Some(Bson::String(all)) if all == "*" => false,
            Some(name @ Bson::String(_)) => index.get("name") != Some(name),
            Some(Bson::Array(names)) => !index.get("name").is_some_and(|name| names.contains(name)),
            Some(key @ Bson::Document(_)) => index.get("key") != Some(key),
            _ => true,
        });
    }

    /// What `collMod` changes of an index.
    fn modify(&mut self, database: &str, collection: &str, change: &Document) {
        let Some(known) = self.0.get_mut(&(database.to_owned(), collection.to_owned())) else { return };
        for index in known.iter_mut() {
            let named = change.get("name").is_some_and(|name| index.get("name") == Some(name));
            let keyed = change.get("keyPattern").is_some_and(|key| index.get("key") == Some(key));
            if named || keyed {
                for option in ["expireAfterSeconds", "hidden", "unique", "prepareUnique"] {
                    if let Some(value) = change.get(option) {
                        index.insert(option, value.clone());
                    }
                }
            }
        }
    }
}

/// Kinds of entries that are no operations: no-ops, and the server's bookkeeping of record numbers.
const NO_OPERATIONS: [&str; 5] = ["n", "cd", "ci", "cu", "km"];
/// Commands that take effect, if at all, by another entry, or mean something only to the server that wrote them.
const NO_COMMANDS: [&str; 4] = ["startIndexBuild", "abortIndexBuild", "setMultikeyMetadata", "dropIdent"];

/// When an entry was written.
///
/// # Errors
/// If it does not say.
pub fn time_of(entry: &Document) -> Result<Timestamp, String> {
    entry.get_timestamp("ts").map_err(|_| format!("an entry of the oplog without a time: {entry}"))
}

/// Decides about an entry; index commands are noted in `indexes` instead of being carried out.
///
/// # Errors
/// If the entry cannot be replayed.
pub fn decide(entry: &Document, indexes: &mut Indexes) -> Result<Vec<Replay>, String> {
    let kind = entry.get_str("op").map_err(|_| format!("an entry of the oplog of no kind: {entry}"))?;
    let namespace = entry.get_str("ns").unwrap_or_default();
    let database = namespace.split('.').next().unwrap_or_default();
    if NO_OPERATIONS.contains(&kind) || super::is_of_the_member(database) {
        return Ok(vec![Replay::Skip]);
    }
    let mut bare = entry.clone();
    bare.remove("ui");
    if kind != "c" {
        return Ok(vec![Replay::Write(bare)]);
    }
    let o = entry.get_document("o").map_err(|_| format!("an entry of the oplog without its command: {entry}"))?;
    let (name, value) =
        o.iter().next().ok_or_else(|| format!("an entry of the oplog with an empty command: {entry}"))?;
    let collection = value.as_str().unwrap_or_default();
    match name.as_str() {
        skipped if NO_COMMANDS.contains(&skipped) => return Ok(vec![Replay::Skip]),
        "applyOps" => return nested(entry, value, o, indexes),
        "commitTransaction" | "abortTransaction" => return Err(spread(entry)),
        "createIndexes" => {
            let mut index = o.clone();
            index.remove("createIndexes");
            indexes.add(database, collection, [index]);
            return Ok(vec![Replay::Skip]);
        }
        "commitIndexBuild" => {
            let built = o.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
            indexes.add(database, collection, built.iter().filter_map(Bson::as_document).cloned());
            return Ok(vec![Replay::Skip]);
        }
        "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => {
            indexes.drop_indexes(database, collection, o.get("index"));
            return Ok(vec![Replay::Skip]);
        }
        "collMod" => {
            if let Ok(change) = o.get_document("index") {
                indexes.modify(database, collection, change);
                let mut rest = o.clone();
                rest.remove("index");
                if rest.len() == 1 {
                    return Ok(vec![Replay::Skip]);
                }
                bare.insert("o", rest);
            }
        }
        "drop" => indexes.drop_collection(database, collection),
        "dropDatabase" => indexes.drop_database(database),
        "renameCollection" => indexes.rename(collection, o.get_str("to").unwrap_or_default()),
        _ => {}
    }
    Ok(vec![Replay::Alone(bare)])
}

fn nested(entry: &Document, value: &Bson, o: &Document, indexes: &mut Indexes) -> Result<Vec<Replay>, String> {
    if o.contains_key("partialTxn") || o.contains_key("prepare") {
        return Err(spread(entry));
    }
    let inner = value.as_array().ok_or_else(|| format!("applyOps without entries: {entry}"))?;
    let mut all = Vec::new();
    for operation in inner.iter().filter_map(Bson::as_document) {
        all.extend(decide(operation, indexes)?);
    }
    Ok(all)
}

fn spread(entry: &Document) -> String {
    let ts = entry.get_timestamp("ts").map_or_else(|_| "?".into(), |ts| format!("{}:{}", ts.time, ts.increment));
    format!(
        "the oplog's entry of {ts} is part of a transaction of several entries, which cannot be replayed yet; restore up \
         to there with --oplogLimit {ts}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(o: Document) -> Document {
        doc! { "op": "c", "ns": "db.$cmd", "ui": "u", "o": o, "ts": Timestamp { time: 5, increment: 1 } }
    }

    fn names(indexes: &Indexes) -> Vec<(String, Vec<String>)> {
        let name = |index: &Document| index.get_str("name").unwrap().to_owned();
        indexes.iter().map(|(_, coll, all)| (coll.to_owned(), all.iter().map(name).collect())).collect()
    }

    #[test]
    fn what_is_no_operation_is_skipped_and_uuids_are_taken_off() {
        let mut indexes = Indexes::default();
        for (op, ns) in [("n", ""), ("km", "db.c"), ("i", "config.transactions"), ("u", "local.x")] {
            let entry = doc! { "op": op, "ns": ns, "o": {} };
            assert_eq!(decide(&entry, &mut indexes).unwrap(), [Replay::Skip], "{op} {ns}");
        }
        assert_eq!(decide(&command(doc! { "startIndexBuild": "c" }), &mut indexes).unwrap(), [Replay::Skip]);
        let insert = doc! { "op": "i", "ns": "db.c", "ui": "u", "o": { "_id": 1 } };
        let bare = doc! { "op": "i", "ns": "db.c", "o": { "_id": 1 } };
        assert_eq!(decide(&insert, &mut indexes).unwrap(), [Replay::Write(bare.clone())]);
        let together = command(doc! { "applyOps": [ insert, { "op": "n", "ns": "" } ] });
        assert_eq!(decide(&together, &mut indexes).unwrap(), [Replay::Write(bare), Replay::Skip]);
    }

    #[test]
    fn indexes_are_collected_and_follow_their_collections() {
        let mut indexes = Indexes::default();
        let index = |name: &str, field: &str| doc! { "v": 2, "key": { field: 1 }, "name": name };
        indexes.add("db", "c", [index("_id_", "_id"), index("a_1", "a"), index("b_1", "b")]);
        let mut replay = |o: Document| decide(&command(o), &mut indexes).unwrap();
        assert_eq!(replay(doc! { "createIndexes": "c", "v": 2, "key": { "x": 1 }, "name": "x_1" }), [Replay::Skip]);
        assert_eq!(replay(doc! { "commitIndexBuild": "c", "indexes": [index("y_1", "y")] }), [Replay::Skip]);
        assert_eq!(replay(doc! { "dropIndexes": "c", "index": "a_1" }), [Replay::Skip]);
        assert_eq!(replay(doc! { "dropIndexes": "c", "index": { "b": 1 } }), [Replay::Skip]);
        let hide = doc! { "collMod": "c", "index": { "name": "x_1", "hidden": true } };
        assert_eq!(replay(hide), [Replay::Skip]);
        let both = replay(doc! { "collMod": "c", "index": { "name": "x_1" }, "validator": {} });
        assert!(matches!(&both[0], Replay::Alone(e) if !e.get_document("o").unwrap().contains_key("index")));
        assert_eq!(names(&indexes), [("c".to_owned(), vec!["x_1".to_owned(), "y_1".to_owned()])]);
        assert!(indexes.iter().next().unwrap().2[0].get_bool("hidden").unwrap());
        let mut replay = |o: Document| decide(&command(o), &mut indexes).unwrap();
        assert!(matches!(replay(doc! { "renameCollection": "db.c", "to": "db.d" })[0], Replay::Alone(_)));
        assert_eq!(names(&indexes)[0].0, "d");
        decide(&command(doc! { "drop": "d" }), &mut indexes).unwrap();
        assert_eq!(names(&indexes), []);
    }

    #[test]
    fn a_transaction_of_several_entries_is_refused_with_the_limit_to_give() {
        let entry = command(doc! { "applyOps": [], "partialTxn": true });
        let why = decide(&entry, &mut Indexes::default()).unwrap_err();
        assert!(why.contains("--oplogLimit 5:1"), "{why}");
    }
}
