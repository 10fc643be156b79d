//! The versions spike: what RocksDB's user-defined timestamps cost against plain keys with pre-images.
//!
//! Three stores take the same load through the same commit queue: `plain` (the pre-image of every update goes to a
//! column family of its own), `stamped` (user-defined timestamps, RocksDB's own comparator) and `closure` (the same,
//! the comparator written in Rust, which costs a call through C for every comparison). Rounds are interleaved so that
//! a neighbour on the machine weighs on all alike. One line of figures per store, round and phase.
//!
//! It is an experiment kept for its figures (docs/spikes/versions.md); nothing of it is in the product.
//!
//! usage: versions DIR RECORDS SECONDS ROUNDS [store,...]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton_bench::distribution::{Distribution, Random, fnv_hash64};
use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};
use rust_rocksdb as rocksdb;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const DOCUMENT_BYTES: usize = 1000;
const FIELD_BYTES: usize = 100;
const THREADS: u64 = 2;
/// How many operations of history a stamped store keeps, and pre-images a plain one.
const HISTORY_OPERATIONS: u64 = 100_000;
const TRIM_EVERY_OPERATIONS: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Plain,
    Stamped,
    Closure,
}

struct Update {
    key: [u8; 28],
    before: Vec<u8>,
    after: Vec<u8>,
}

struct Store {
    kind: Kind,
    db: rocksdb::DB,
    queue: Mutex<Queue>,
    committed: Condvar,
    visible: AtomicU64,
    sync: AtomicBool,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Update>,
    /// Operations ever queued, and the first of them not yet committed.
    queued: u64,
    done: u64,
    leading: bool,
    trimmed: u64,
}

fn key_of(record: u64) -> [u8; 28] {
    let mut key = [0u8; 28];
    key[3] = 7;
    key[4..8].copy_from_slice(b"user");
    let text = format!("{:020}", fnv_hash64(record));
    key[8..].copy_from_slice(text.as_bytes());
    key
}

impl Store {
    fn open(kind: Kind, path: &Path, block_bytes: usize) -> Result<Self, Failure> {
        let cache = rocksdb::Cache::new_lru_cache(512 << 20);
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(block_bytes);
        table.set_bloom_filter(10.0, false);
        table.set_whole_key_filtering(true);
        table.set_format_version(6);
        let mut plain = rocksdb::Options::default();
        plain.create_if_missing(true);
        plain.create_missing_column_families(true);
        plain.set_block_based_table_factory(&table);
        plain.set_compression_type(rocksdb::DBCompressionType::None);
        plain.set_write_buffer_size(64 << 20);
        plain.set_max_write_buffer_number(4);
        plain.set_max_background_jobs(2);
        plain.set_level_compaction_dynamic_level_bytes(true);
        let documents = match kind {
            Kind::Plain => plain.clone(),
            Kind::Stamped => plain.get_options_from_string("comparator=leveldb.BytewiseComparator.u64ts")?,
            Kind::Closure => {
                let mut options = plain.clone();
                options.set_comparator_with_ts(
                    "spike.u64ts",
                    8,
                    Box::new(|a, b| {
                        let (a_key, a_ts) = a.split_at(a.len() - 8);
                        let (b_key, b_ts) = b.split_at(b.len() - 8);
                        a_key.cmp(b_key).then_with(|| stamp_of(b_ts).cmp(&stamp_of(a_ts)))
                    }),
                    Box::new(|a, b| stamp_of(a).cmp(&stamp_of(b))),
                    Box::new(|a, a_stamped, b, b_stamped| {
                        let a = if a_stamped { &a[..a.len() - 8] } else { a };
                        let b = if b_stamped { &b[..b.len() - 8] } else { b };
                        a.cmp(b)
                    }),
                );
                options
            }
        };
        let families = [("documents", documents), ("oplog", plain.clone()), ("preimages", plain.clone())]
            .map(|(name, options)| rocksdb::ColumnFamilyDescriptor::new(name, options));
        let db = rocksdb::DB::open_cf_descriptors(&plain, path, families)?;
        Ok(Self {
            kind,
            db,
            queue: Mutex::default(),
            committed: Condvar::new(),
            visible: AtomicU64::new(0),
            sync: AtomicBool::new(true),
        })
    }

    fn family(&self, name: &str) -> &rocksdb::ColumnFamily {
        self.db.cf_handle(name).expect("opened with it")
    }

    fn read(&self, key: &[u8; 28], options: &mut rocksdb::ReadOptions) -> Result<Option<Vec<u8>>, Failure> {
        if self.kind != Kind::Plain {
            options.set_timestamp(self.visible.load(Ordering::Acquire).to_le_bytes());
        }
        let found = self.db.get_pinned_cf_opt(self.family("documents"), key, options)?;
        Ok(found.map(|value| value.to_vec()))
    }

    /// Commits one update; whoever finds nobody leading commits for all that wait.
    fn commit(&self, update: Update) -> Result<(), Failure> {
        let mut queue = self.queue.lock();
        queue.pending.push_back(update);
        let mine = queue.queued;
        queue.queued += 1;
        while queue.done <= mine {
            if queue.leading {
                self.committed.wait(&mut queue);
                continue;
            }
            queue.leading = true;
            let group = std::mem::take(&mut queue.pending);
            let first = queue.done;
            drop(queue);
            let last = self.write(first + 1, group)?;
            queue = self.queue.lock();
            queue.done = last;
            queue.leading = false;
            if last > queue.trimmed + TRIM_EVERY_OPERATIONS + HISTORY_OPERATIONS {
                queue.trimmed = last - HISTORY_OPERATIONS;
                self.trim(queue.trimmed)?;
            }
            self.committed.notify_all();
        }
        Ok(())
    }

    fn write(&self, first: u64, group: VecDeque<Update>) -> Result<u64, Failure> {
        let mut batch = rocksdb::WriteBatch::default();
        let (documents, oplog, preimages) = (self.family("documents"), self.family("oplog"), self.family("preimages"));
        let mut stamp = first;
        for update in group {
            if self.kind == Kind::Plain {
                batch.put_cf(documents, update.key, &update.after);
                if !update.before.is_empty() {
                    batch.put_cf(preimages, stamp.to_be_bytes(), &update.before);
                }
            } else {
                batch.put_cf_with_ts(documents, update.key, stamp.to_le_bytes(), &update.after);
            }
            // The oplog names the key and carries the changed field.
            let mut entry = [0u8; 28 + 60 + FIELD_BYTES];
            entry[..28].copy_from_slice(&update.key);
            entry[88..].copy_from_slice(&update.after[..FIELD_BYTES]);
            batch.put_cf(oplog, stamp.to_be_bytes(), entry);
            stamp += 1;
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(self.sync.load(Ordering::Relaxed));
        self.db.write_opt(&batch, &options)?;
        self.visible.store(stamp - 1, Ordering::Release);
        Ok(stamp - 1)
    }

    /// Lets go of history before `stamp`.
    fn trim(&self, stamp: u64) -> Result<(), Failure> {
        if self.kind == Kind::Plain {
            let family = self.family("preimages");
            self.db.delete_file_in_range_cf(family, 0u64.to_be_bytes(), stamp.to_be_bytes())?;
        } else {
            self.db.increase_full_history_ts_low(self.family("documents"), stamp.to_le_bytes())?;
        }
        Ok(())
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        self.sync.store(false, Ordering::Relaxed);
        let mut random = Random::new(1);
        let mut group = VecDeque::new();
        let mut stamp = 1;
        for record in 0..records {
            let mut after = vec![0; DOCUMENT_BYTES];
            random.fill_printable(&mut after);
            group.push_back(Update { key: key_of(record), before: Vec::new(), after });
            if group.len() == 500 || record + 1 == records {
                stamp = self.write(stamp, std::mem::take(&mut group))? + 1;
            }
        }
        let mut queue = self.queue.lock();
        queue.queued = stamp - 1;
        queue.done = stamp - 1;
        queue.trimmed = stamp - 1;
        self.sync.store(true, Ordering::Relaxed);
        for name in ["documents", "oplog", "preimages"] {
            self.db.flush_cf(self.family(name))?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), Failure> {
        if self.kind != Kind::Plain {
            let stamp = self.visible.load(Ordering::Acquire);
            self.db.increase_full_history_ts_low(self.family("documents"), stamp.to_le_bytes())?;
            self.queue.lock().trimmed = stamp;
        }
        self.db.flush_cf(self.family("documents"))?;
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        self.db.compact_range_cf_opt(self.family("documents"), None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn sizes(&self) -> String {
        let of = |name: &str, property: &str| {
            self.db.property_int_value_cf(self.family(name), property).ok().flatten().unwrap_or(0) >> 20
        };
        let mut text = String::new();
        for name in ["documents", "oplog", "preimages"] {
            text += &format!(
                "{name}: sst {} MB, memtables {} MB, readers {} MB; ",
                of(name, "rocksdb.total-sst-files-size"),
                of(name, "rocksdb.cur-size-all-mem-tables"),
                of(name, "rocksdb.estimate-table-readers-mem"),
            );
        }
        text
    }
}

fn stamp_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn run(
    store: &Store,
    records: u64,
    read_share: f64,
    seconds: f64,
    seed: u64,
) -> Result<(u64, [Histogram<u64>; 2]), Failure> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let parts = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || -> Result<_, Failure> {
                    let mut histograms = [histogram()?, histogram()?];
                    let mut random = Random::new(seed * 100 + thread);
                    let mut keys = Distribution::scrambled_zipfian(records);
                    let mut options = rocksdb::ReadOptions::default();
                    while Instant::now() < deadline {
                        let key = key_of(keys.next(&mut random, records));
                        let begun = Instant::now();
                        let before = store.read(&key, &mut options)?.ok_or("a loaded record is missing")?;
                        let reading = random.unit() < read_share;
                        if !reading {
                            let mut after = before.clone();
                            let field = FIELD_BYTES * random.below(10) as usize;
                            random.fill_printable(&mut after[field..field + FIELD_BYTES]);
                            store.commit(Update { key, before, after })?;
                        }
                        histograms[usize::from(!reading)].saturating_record(begun.elapsed().as_nanos() as u64);
                    }
                    Ok(histograms)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().map_err(|_| Failure::from("panicked"))).collect::<Vec<_>>()
    });
    let mut all = [histogram()?, histogram()?];
    for part in parts {
        for (sum, one) in all.iter_mut().zip(part??) {
            sum.add(one)?;
        }
    }
    Ok((all[0].len() + all[1].len(), all))
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

/// The CPU time this process has used, compactions and all: the figure a busy neighbour disturbs least.
fn cpu_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux.
    #[allow(unsafe_code)]
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().collect();
    let directory = Path::new(args.get(1).ok_or("usage: versions DIR RECORDS SECONDS ROUNDS [store,...]")?);
    let records: u64 = args.get(2).map_or(Ok(300_000), |s| s.parse())?;
    let seconds: f64 = args.get(3).map_or(Ok(8.0), |s| s.parse())?;
    let rounds: u64 = args.get(4).map_or(Ok(3), |s| s.parse())?;
    let names = args.get(5).map_or("plain,stamped,closure", String::as_str);
    let block_bytes = std::env::var("BLOCK_BYTES").map_or(Ok(4096), |s| s.parse())?;
    let mut stores = Vec::new();
    for name in names.split(',') {
        let kind = match name {
            "plain" => Kind::Plain,
            "stamped" => Kind::Stamped,
            "closure" => Kind::Closure,
            other => return Err(format!("no store is called {other}").into()),
        };
        let path = directory.join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        let before = resident_mb();
        let store = Store::open(kind, &path, block_bytes)?;
        let begun = Instant::now();
        store.load(records)?;
        store.settle()?;
        println!(
            "{kind:?} load {:.0}/s, RSS +{} MB, {}",
            records as f64 / begun.elapsed().as_secs_f64(),
            resident_mb().saturating_sub(before),
            store.sizes()
        );
        stores.push(store);
    }
    for round in 0..rounds {
        for (phase, share, sync) in
            [("C", 1.0, true), ("A-sync", 0.5, true), ("A-nosync", 0.5, false), ("C-after-A", 1.0, true)]
        {
            for store in &stores {
                store.sync.store(sync, Ordering::Relaxed);
                let cpu_before = cpu_us();
                let (count, [reads, updates]) = run(store, records, share, seconds, round + 1)?;
                let us = |h: &Histogram<u64>, q: f64| h.value_at_quantile(q) as f64 / 1000.0;
                println!(
                    "round {round} {phase:9} {:8} {:8.0}/s  cpu {:6.2} us/op  read p50 {:6.1} p99 {:7.1} us  update p50 {:6.1} p99 {:7.1} us",
                    format!("{:?}", store.kind),
                    count as f64 / seconds,
                    (cpu_us() - cpu_before) / count as f64,
                    us(&reads, 0.5),
                    us(&reads, 0.99),
                    us(&updates, 0.5),
                    us(&updates, 0.99),
                );
            }
        }
    }
    for store in &stores {
        println!("{:?} before compaction: {}", store.kind, store.sizes());
        let begun = Instant::now();
        store.settle()?;
        println!("{:?} after compaction ({:.1} s): {}", store.kind, begun.elapsed().as_secs_f64(), store.sizes());
    }
    println!("process RSS {} MB (all stores)", resident_mb());
    Ok(())
}
