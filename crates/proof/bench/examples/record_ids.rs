//! The record-ids spike: what it would cost to keep documents in the order of insertion.
//!
//! Two stores take the same load: `clustered` has each document under its `_id`, as collections have them; `numbered` has it
//! under a number that only grows, and the number under the `_id` in a unique index, as capped collections have them (and as
//! MongoDB has all). Both look whether the `_id` is there before they insert, and log every write. Rounds are interleaved so
//! that a neighbour on the machine weighs on both alike; what is printed for each phase is the median over rounds of the ratio
//! within a round, of the processor's time and of the clock's.
//!
//! It is an experiment kept for its figures (docs/spikes/insertion-order.md); nothing of it is in the product.
//!
//! usage: record_ids DIR RECORDS ROUNDS

use std::path::Path;
use std::time::{Duration, Instant};

use baton_bench::distribution::{Random, Zipfian, fnv_hash64};
use rust_rocksdb as rocksdb;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const DOCUMENT_BYTES: usize = 1000;
const FIELD_BYTES: usize = 100;
const BATCH_RECORDS: u64 = 100;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Clustered,
    Numbered,
}

struct Store {
    kind: Kind,
    db: rocksdb::DB,
    next_number: u64,
    next_entry: u64,
    options: rocksdb::WriteOptions,
}

/// An `_id`: ascending (an ObjectId is), or scattered.
fn id_of(record: u64, scattered: bool) -> [u8; 17] {
    let mut key = [0; 17];
    key[3] = 7;
    key[4] = 0x58;
    let value = if scattered { fnv_hash64(record) } else { record };
    key[5..13].copy_from_slice(&value.to_be_bytes());
    key
}

impl Store {
    fn open(kind: Kind, path: &Path) -> Result<Self, Failure> {
        let cache = rocksdb::Cache::new_lru_cache(256 << 20);
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(4096);
        table.set_bloom_filter(10.0, false);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(64 << 20);
        options.set_level_compaction_dynamic_level_bytes(true);
        let families =
            ["documents", "ids", "oplog"].map(|name| rocksdb::ColumnFamilyDescriptor::new(name, options.clone()));
        let db = rocksdb::DB::open_cf_descriptors(&options, path, families)?;
        Ok(Self { kind, db, next_number: 1, next_entry: 1, options: rocksdb::WriteOptions::default() })
    }

    fn family(&self, name: &str) -> &rocksdb::ColumnFamily {
        self.db.cf_handle(name).unwrap_or_else(|| unreachable!("opened"))
    }

    /// Where the document of this `_id` lies, if it is there.
    fn find(&self, id: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(match self.kind {
            Kind::Clustered => Some(id.to_vec()),
            Kind::Numbered => self.db.get_cf(self.family("ids"), id)?,
        })
    }

    fn read(&self, id: &[u8]) -> Result<Option<rocksdb::DBPinnableSlice<'_>>, Failure> {
        match self.find(id)? {
            Some(key) => Ok(self.db.get_pinned_cf(self.family("documents"), key)?),
            None => Ok(None),
        }
    }

    fn insert(&mut self, ids: &[[u8; 17]], document: &[u8]) -> Result<(), Failure> {
        let mut batch = rocksdb::WriteBatch::default();
        for id in ids {
            let is_there = match self.kind {
                Kind::Clustered => self.db.get_pinned_cf(self.family("documents"), id)?.is_some(),
                Kind::Numbered => self.find(id)?.is_some(),
            };
            if is_there {
                return Err("an _id came twice".into());
            }
            match self.kind {
                Kind::Clustered => batch.put_cf(self.family("documents"), id, document),
                Kind::Numbered => {
                    let number = self.next_number.to_be_bytes();
                    self.next_number += 1;
                    batch.put_cf(self.family("ids"), id, number);
                    batch.put_cf(self.family("documents"), number, document);
                }
            }
            batch.put_cf(self.family("oplog"), self.next_entry.to_be_bytes(), document);
            self.next_entry += 1;
        }
        Ok(self.db.write_opt(&batch, &self.options)?)
    }

    fn update(&mut self, id: &[u8], field: &[u8]) -> Result<(), Failure> {
        let Some(key) = self.find(id)? else { return Err("an _id is missing".into()) };
        let Some(mut document) = self.db.get_cf(self.family("documents"), &key)? else {
            return Err("a document is missing".into());
        };
        document[..FIELD_BYTES].copy_from_slice(field);
        let mut batch = rocksdb::WriteBatch::default();
        batch.put_cf(self.family("documents"), key, document);
        batch.put_cf(self.family("oplog"), self.next_entry.to_be_bytes(), field);
        self.next_entry += 1;
        Ok(self.db.write_opt(&batch, &self.options)?)
    }

    fn walk(&self) -> u64 {
        let mut iterator = self.db.raw_iterator_cf(self.family("documents"));
        iterator.seek_to_first();
        let mut count = 0;
        while iterator.valid() {
            count += 1;
            iterator.next();
        }
        count
    }
}

/// What a phase took: the processor's time, of this thread and of what RocksDB does in the background, and the clock's.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    clock: Duration,
}

fn cpu_now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux.
    #[allow(unsafe_code)]
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn cost(work: impl FnOnce() -> Result<(), Failure>) -> Result<Cost, Failure> {
    let (cpu, clock) = (cpu_now(), Instant::now());
    work()?;
    Ok(Cost { cpu: cpu_now() - cpu, clock: clock.elapsed() })
}

const PHASES: [&str; 4] = ["insert", "read by _id", "update by _id", "walk all"];

fn round(path: &Path, kind: Kind, records: u64, scattered: bool) -> Result<[Cost; 4], Failure> {
    let mut store = Store::open(kind, path)?;
    let document = vec![b'x'; DOCUMENT_BYTES];
    let inserted = cost(|| {
        for first in (0..records).step_by(BATCH_RECORDS as usize) {
            let ids: Vec<_> = (first..first + BATCH_RECORDS).map(|n| id_of(n, scattered)).collect();
            store.insert(&ids, &document)?;
        }
        Ok(())
    })?;
    store.db.flush_cf(store.family("documents"))?;
    let mut random = Random::new(7);
    let zipfian = Zipfian::new(records);
    // Hot records lie scattered, as YCSB has them.
    let mut next = move || fnv_hash64(zipfian.next(&mut random)) % records;
    let read = cost(|| {
        for _ in 0..records {
            let id = id_of(next(), scattered);
            if store.read(&id)?.is_none() {
                return Err("an _id is missing".into());
            }
        }
        Ok(())
    })?;
    let updated = cost(|| {
        for n in 0..records / 2 {
            let field = [n as u8; FIELD_BYTES];
            store.update(&id_of(next(), scattered), &field)?;
        }
        Ok(())
    })?;
    let walked = cost(|| if store.walk() == records { Ok(()) } else { Err("not all were met".into()) })?;
    Ok([inserted, read, updated, walked])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, directory, records, rounds] = arguments.as_slice() else {
        return Err("usage: record_ids DIR RECORDS ROUNDS".into());
    };
    let (records, rounds): (u64, usize) = (records.parse()?, rounds.parse()?);
    for scattered in [false, true] {
        let mut ratios: [Vec<(f64, f64)>; 4] = Default::default();
        for number in 0..rounds {
            let mut costs = Vec::new();
            // Who is first changes from round to round.
            let order =
                if number % 2 == 0 { [Kind::Clustered, Kind::Numbered] } else { [Kind::Numbered, Kind::Clustered] };
            for kind in order {
                let path = Path::new(directory).join(format!("{kind:?}-{scattered}-{number}"));
                costs.push((kind, round(&path, kind, records, scattered)?));
                std::fs::remove_dir_all(&path)?;
            }
            costs.sort_by_key(|(kind, _)| *kind == Kind::Numbered);
            for (phase, ratios) in ratios.iter_mut().enumerate() {
                let (clustered, numbered) = (costs[0].1[phase], costs[1].1[phase]);
                let ratio = |of: fn(Cost) -> Duration| of(numbered).as_secs_f64() / of(clustered).as_secs_f64();
                ratios.push((ratio(|cost| cost.cpu), ratio(|cost| cost.clock)));
                println!(
                    "round {number} scattered {scattered} {:14} clustered {:6.2} us of a processor, numbered {:6.2}",
                    PHASES[phase],
                    clustered.cpu.as_micros() as f64 / records as f64,
                    numbered.cpu.as_micros() as f64 / records as f64
                );
            }
        }
        for (phase, ratios) in PHASES.iter().zip(&ratios) {
            println!(
                "scattered {scattered} {phase:14} numbered to clustered: processor {:.2}, clock {:.2}",
                median(ratios.iter().map(|(cpu, _)| *cpu).collect()),
                median(ratios.iter().map(|(_, clock)| *clock).collect())
            );
        }
    }
    Ok(())
}
