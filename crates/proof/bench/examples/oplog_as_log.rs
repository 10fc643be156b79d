//! The spike of one log: what it would save if the oplog were what is durable, in segments of its own, and RocksDB held documents without
//! a log.
//!
//! Stores take the same updates of 1 KB documents, each with its oplog entry, by one thread in groups with one sync each. `families`
//! is as members have it: document and entry in one batch, through RocksDB's log and a memtable each; old entries are dropped by whole files.
//! `once` is the same with entries that name their document's version and do not hold it: what could be saved by that at most, since
//! nothing here keeps a version for as long as its entry.
//! `segments` appends the entries to files that are written over in turn, syncs those, and gives RocksDB the documents without a log; how far
//! the documents are stands in a family of its own, which is flushed with them as one.
//!
//! Rounds are interleaved, so that a neighbour on the machine weighs on both alike. A line of figures for each store, size of group and round:
//! writes a second, CPU of the process for each (flushes and compactions included), bytes that went to the disk for each. At the
//! end of a round the store is abandoned as a crash would leave it, and a line says how long it takes to be there again.
//!
//! It is an experiment kept for its figures (docs/spikes/oplog-as-log.md); nothing of it is in the product.
//!
//! usage: oplog_as_log DIR RECORDS SECONDS ROUNDS

use baton_bench::distribution::{Random, fnv_hash64};
use rust_rocksdb as rocksdb;
use rustix::fs::{fdatasync, major, minor};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const DOCUMENT_BYTES: usize = 1000;
/// Of an entry beside the document.
const ENTRY_HEAD_BYTES: usize = 150;
const ENTRY_BYTES: usize = ENTRY_HEAD_BYTES + DOCUMENT_BYTES;
/// What is kept of the oplog.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENTS: u64 = 8;
const ENTRIES_KEPT: u64 = SEGMENTS * SEGMENT_BYTES / ENTRY_BYTES as u64;
const MEMTABLE_BYTES: usize = 64 << 20;
const GROUPS: [u64; 3] = [1, 4, 32];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Families,
    Once,
    Segments,
}

/// Files that are written over in turn: an entry is found by its number.
struct Segments {
    files: Vec<File>,
}

impl Segments {
    /// Files at their full size, so that no sync has to tell of another one.
    fn create(folder: &Path) -> Result<Self, Failure> {
        let zeros = vec![0; 1 << 20];
        let create = |index| -> Result<File, Failure> {
            let file =
                OpenOptions::new().create(true).truncate(true).write(true).read(true).open(segment(folder, index))?;
            (0..SEGMENT_BYTES / zeros.len() as u64)
                .try_for_each(|at| file.write_all_at(&zeros, at * zeros.len() as u64))?;
            file.sync_all()?;
            Ok(file)
        };
        Ok(Self { files: (0..SEGMENTS).map(create).collect::<Result<_, _>>()? })
    }

    fn open(folder: &Path) -> Result<Self, Failure> {
        let open = |index| Ok(OpenOptions::new().write(true).read(true).open(segment(folder, index))?);
        Ok(Self { files: (0..SEGMENTS).map(open).collect::<Result<_, Failure>>()? })
    }

    fn place(number: u64) -> (usize, u64) {
        let per_segment = SEGMENT_BYTES / ENTRY_BYTES as u64;
        ((number / per_segment % SEGMENTS) as usize, number % per_segment * ENTRY_BYTES as u64)
    }

    /// Appends entries from this number on, and syncs them.
    fn append(&self, first: u64, entries: &[u8]) -> Result<(), Failure> {
        let count = (entries.len() / ENTRY_BYTES) as u64;
        let mut number = first;
        while number < first + count {
            let (file, at) = Self::place(number);
            let in_file = (number..first + count).take_while(|next| Self::place(*next).0 == file).count();
            let from = (number - first) as usize * ENTRY_BYTES;
            self.files[file].write_all_at(&entries[from..from + in_file * ENTRY_BYTES], at)?;
            fdatasync(&self.files[file])?;
            number += in_file as u64;
        }
        Ok(())
    }

    /// The entry of this number, unless it was never written, or has been written over.
    fn read(&self, number: u64) -> Result<Option<Vec<u8>>, Failure> {
        let (file, at) = Self::place(number);
        let mut entry = vec![0; ENTRY_BYTES];
        self.files[file].read_exact_at(&mut entry, at)?;
        Ok((entry[..8] == number.to_be_bytes()).then_some(entry))
    }
}

fn segment(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("segment-{index}"))
}

struct Store {
    kind: Kind,
    folder: PathBuf,
    db: rocksdb::DB,
    segments: Option<Segments>,
    /// Numbers of entries: the next one, and up to which they were dropped.
    next: u64,
    dropped: u64,
}

fn key_of(record: u64) -> [u8; 28] {
    let mut key = [0; 28];
    key[..4].copy_from_slice(&7_u32.to_be_bytes());
    key[4..8].copy_from_slice(b"user");
    key[8..].copy_from_slice(format!("{:020}", fnv_hash64(record)).as_bytes());
    key
}

impl Store {
    fn open_database(kind: Kind, folder: &Path) -> Result<rocksdb::DB, Failure> {
        let cache = rocksdb::Cache::new_hyper_clock_cache(256 << 20, 0);
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_bloom_filter(10.0, false);
        table.set_format_version(6);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_per_level(&[
            rocksdb::DBCompressionType::None,
            rocksdb::DBCompressionType::None,
            rocksdb::DBCompressionType::Lz4,
        ]);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_max_write_buffer_number(4);
        options.set_max_background_jobs(2);
        if kind != Kind::Segments {
            options.set_recycle_log_file_num(3);
        }
        options.set_bytes_per_sync(256 << 10);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_atomic_flush(kind == Kind::Segments);
        let names: &[&str] = if kind == Kind::Segments { &["documents", "applied"] } else { &["documents", "oplog"] };
        let families = names.iter().map(|name| rocksdb::ColumnFamilyDescriptor::new(*name, options.clone()));
        Ok(rocksdb::DB::open_cf_descriptors(&options, folder.join("db"), families)?)
    }

    fn create(kind: Kind, folder: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder)?;
        let db = Self::open_database(kind, folder)?;
        let segments = (kind == Kind::Segments).then(|| Segments::create(folder)).transpose()?;
        Ok(Self { kind, folder: folder.to_owned(), db, segments, next: 1, dropped: 0 })
    }

    fn family(&self, name: &str) -> &rocksdb::ColumnFamily {
        self.db.cf_handle(name).expect("opened with it")
    }

    /// Writes new documents for these records, synced.
    fn write(&mut self, records: &[u64], random: &mut Random) -> Result<(), Failure> {
        let mut batch = rocksdb::WriteBatch::default();
        let mut options = rocksdb::WriteOptions::default();
        let mut entries = Vec::with_capacity(records.len() * ENTRY_BYTES);
        for (number, record) in (self.next..).zip(records) {
            let at = entries.len();
            entries.extend_from_slice(&number.to_be_bytes());
            entries.extend_from_slice(&key_of(*record));
            entries.resize(at + ENTRY_HEAD_BYTES, 0);
            while entries.len() < at + ENTRY_BYTES {
                entries.extend_from_slice(&random.next_u64().to_be_bytes());
            }
            entries.truncate(at + ENTRY_BYTES);
            batch.put_cf(self.family("documents"), key_of(*record), &entries[at + ENTRY_HEAD_BYTES..]);
            let logged = match self.kind {
                Kind::Families => &entries[at..],
                Kind::Once => &entries[at..at + ENTRY_HEAD_BYTES],
                Kind::Segments => continue,
            };
            batch.put_cf(self.family("oplog"), number.to_be_bytes(), logged);
        }
        match &self.segments {
            None => options.set_sync(true),
            Some(segments) => {
                segments.append(self.next, &entries)?;
                let last = self.next + records.len() as u64 - 1;
                batch.put_cf(self.family("applied"), b"last", last.to_be_bytes());
                options.disable_wal(true);
            }
        }
        self.db.write_opt(&batch, &options)?;
        self.next += records.len() as u64;
        // A tenth of what is kept at a time.
        if self.kind != Kind::Segments && self.next > self.dropped + ENTRIES_KEPT + ENTRIES_KEPT / 10 {
            self.dropped = self.next - ENTRIES_KEPT;
            let to = self.dropped.to_be_bytes();
            self.db.delete_file_in_range_cf(self.family("oplog"), 0_u64.to_be_bytes(), to)?;
        }
        Ok(())
    }

    /// Abandons the store as it is, and opens what it has left; how long that took, and how many entries were carried out once more.
    fn crash(self) -> Result<(Self, Duration, u64), Failure> {
        let Self { kind, folder, db, segments, next, dropped } = self;
        let copy = folder.with_extension("crashed");
        // What is on disk now, memtables not flushed: a copy, since a database that is open flushes what it can when it is closed. A
        // compaction may remove a file meanwhile.
        while copy_folder(&folder, &copy).is_err() {
            std::thread::sleep(Duration::from_millis(200));
        }
        drop((db, segments));
        std::fs::remove_dir_all(&folder)?;
        std::fs::rename(&copy, &folder)?;
        let began = Instant::now();
        let mut store = Self { kind, db: Self::open_database(kind, &folder)?, folder, segments: None, next, dropped };
        let mut repeated = 0;
        if kind == Kind::Segments {
            let segments = Segments::open(&store.folder)?;
            let applied = store.db.get_cf(store.family("applied"), b"last")?;
            let applied = applied.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")));
            let mut options = rocksdb::WriteOptions::default();
            options.disable_wal(true);
            while let Some(entry) = segments.read(applied + 1 + repeated)? {
                let mut batch = rocksdb::WriteBatch::default();
                batch.put_cf(store.family("documents"), &entry[8..36], &entry[ENTRY_HEAD_BYTES..]);
                batch.put_cf(store.family("applied"), b"last", (applied + 1 + repeated).to_be_bytes());
                store.db.write_opt(&batch, &options)?;
                repeated += 1;
            }
            assert_eq!(applied + repeated, next - 1, "every synced entry is there again");
            store.segments = Some(segments);
        }
        Ok((store, began.elapsed(), repeated))
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_name() != "LOCK" {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// CPU that the process has used, and bytes that the disk of this folder has written, for whomever: what the kernel counts for a process are the pages
/// that it has touched, however large those are.
fn spent(folder: &Path) -> Result<(Duration, u64), Failure> {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let device = std::fs::metadata(folder)?.dev();
    let (major, minor) = (major(device).to_string(), minor(device).to_string());
    let disks = std::fs::read_to_string("/proc/diskstats")?;
    let fields = disks.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let disk = fields.into_iter().find(|fields| fields[0] == major && fields[1] == minor).ok_or("no such disk")?;
    Ok((Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32), disk[9].parse::<u64>()? * 512))
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, records, seconds, rounds] = &arguments[..] else {
        return Err("usage: oplog_as_log DIR RECORDS SECONDS ROUNDS".into());
    };
    let (records, seconds, rounds): (u64, f64, u64) = (records.parse()?, seconds.parse()?, rounds.parse()?);
    println!("store group round writes/s cpu_us/write bytes/write");
    for round in 0..rounds {
        for group in GROUPS {
            for kind in [Kind::Families, Kind::Once, Kind::Segments] {
                let folder = Path::new(folder).join("store");
                let _ = std::fs::remove_dir_all(&folder);
                let mut random = Random::new(round + 1);
                let mut store = Store::create(kind, &folder)?;
                for first in (0..records).step_by(500) {
                    store.write(&(first..(first + 500).min(records)).collect::<Vec<_>>(), &mut random)?;
                }
                let (cpu, bytes) = spent(&folder)?;
                let (began, mut written) = (Instant::now(), 0);
                while began.elapsed().as_secs_f64() < seconds {
                    let chosen: Vec<u64> = (0..group).map(|_| random.next_u64() % records).collect();
                    store.write(&chosen, &mut random)?;
                    written += group;
                }
                let (elapsed, (cpu_after, bytes_after)) = (began.elapsed().as_secs_f64(), spent(&folder)?);
                println!(
                    "{kind:?} {group} {round} {:.0} {:.1} {:.0}",
                    written as f64 / elapsed,
                    (cpu_after - cpu).as_secs_f64() * 1e6 / written as f64,
                    (bytes_after - bytes) as f64 / written as f64
                );
                let (store, took, repeated) = store.crash()?;
                println!(
                    "{kind:?} {group} {round} there again after {:.2} s, {repeated} entries carried out once more",
                    took.as_secs_f64()
                );
                drop(store);
                std::fs::remove_dir_all(&folder)?;
            }
        }
    }
    Ok(())
}
