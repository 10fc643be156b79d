//! The floors under a write, without a network: RocksDB used directly, and a bare append with fdatasync.
//!
//! Both commit through one queue: whoever finds nobody committing commits for all that wait, with one sync. `Engine`
//! writes what a document database must (document, index entry, oplog entry) in one WriteBatch; `Append` writes the
//! same number of bytes to one file. What a database adds to these is its own cost.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rust_rocksdb as rocksdb;

use super::thin::append_record;
use super::{Client, Factory, WriteConcern};
use crate::Failure;
use crate::record::{KEY_BYTES, Key, Layout, VALUE_BYTES};

/// Bytes of an oplog entry beyond the key and the change it carries.
const OPLOG_ENTRY_BYTES: usize = 160;

struct Pending {
    key: Key,
    document: Vec<u8>,
    change_bytes: usize,
}

/// What commits a group of writes as one.
trait Sink: Send + Sync {
    fn commit(&self, first: u64, group: VecDeque<Pending>) -> Result<u64, Failure>;
}

struct Queue<S> {
    sink: S,
    state: Mutex<State>,
    committed: Condvar,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Pending>,
    queued: u64,
    done: u64,
    leading: bool,
    failed: Option<String>,
}

impl<S: Sink> Queue<S> {
    fn new(sink: S) -> Arc<Self> {
        Arc::new(Self { sink, state: Mutex::default(), committed: Condvar::new() })
    }

    fn commit(&self, writes: impl IntoIterator<Item = Pending>) -> Result<(), Failure> {
        let mut state = self.state.lock();
        for write in writes {
            state.pending.push_back(write);
            state.queued += 1;
        }
        let mine = state.queued;
        while state.done < mine {
            if let Some(text) = &state.failed {
                return Err(text.clone().into());
            }
            if state.leading {
                self.committed.wait(&mut state);
                continue;
            }
            state.leading = true;
            let group = std::mem::take(&mut state.pending);
            let first = state.done + 1;
            drop(state);
            let result = self.sink.commit(first, group);
            state = self.state.lock();
            state.leading = false;
            match result {
                Ok(last) => state.done = last,
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.committed.notify_all();
        }
        Ok(())
    }
}

struct Engine {
    db: rocksdb::DB,
    sync: bool,
    layout: Layout,
}

impl Engine {
    fn family(&self, name: &str) -> Result<&rocksdb::ColumnFamily, Failure> {
        self.db.cf_handle(name).ok_or_else(|| format!("no column family {name}").into())
    }
}

impl Sink for Engine {
    fn commit(&self, first: u64, group: VecDeque<Pending>) -> Result<u64, Failure> {
        let mut batch = rocksdb::WriteBatch::default();
        let (documents, index, oplog) = (self.family("documents")?, self.family("index")?, self.family("oplog")?);
        let mut stamp = first;
        for write in group {
            batch.put_cf(documents, write.key, &write.document);
            batch.put_cf(index, write.key, stamp.to_be_bytes());
            batch.put_cf(oplog, stamp.to_be_bytes(), oplog_entry(&write));
            stamp += 1;
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(self.sync);
        self.db.write_opt(&batch, &options)?;
        Ok(stamp - 1)
    }
}

fn oplog_entry(write: &Pending) -> Vec<u8> {
    let mut entry = vec![0; OPLOG_ENTRY_BYTES + write.change_bytes];
    entry[..KEY_BYTES].copy_from_slice(&write.key);
    let tail = OPLOG_ENTRY_BYTES;
    let bytes = write.change_bytes.min(write.document.len());
    entry[tail..tail + bytes].copy_from_slice(&write.document[..bytes]);
    entry
}

/// Opens RocksDB in a folder of its own.
pub struct EngineFactory {
    queue: Arc<Queue<Engine>>,
}

impl EngineFactory {
    /// Opens a new database below `directory`; syncs every group unless writes are acknowledged unsynced.
    ///
    /// Memory and files are set up as Baton sets up its own; versions, checks and statistics are what it leaves out.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn new(
        directory: &Path,
        write_concern: WriteConcern,
        layout: Layout,
        cache_bytes: usize,
    ) -> Result<Self, Failure> {
        let cache = rocksdb::Cache::new_lru_cache(cache_bytes);
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(4 << 10);
        table.set_bloom_filter(10.0, false);
        table.set_data_block_index_type(rocksdb::DataBlockIndexType::BinaryAndHash);
        table.set_format_version(6);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(rocksdb::DBCompressionType::Lz4);
        options.set_write_buffer_size(64 << 20);
        options.set_max_write_buffer_number(4);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_bytes_per_sync(1 << 20);
        options.set_max_background_jobs(2);
        let families =
            ["documents", "index", "oplog"].map(|name| rocksdb::ColumnFamilyDescriptor::new(name, options.clone()));
        let db = rocksdb::DB::open_cf_descriptors(&options, directory, families)?;
        Ok(Self { queue: Queue::new(Engine { db, sync: write_concern != WriteConcern::W1, layout }) })
    }
}

impl Factory for EngineFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(EngineClient { queue: self.queue.clone() }))
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}

struct EngineClient {
    queue: Arc<Queue<Engine>>,
}

impl Client for EngineClient {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        let engine = &self.queue.sink;
        let found = engine.db.get_pinned_cf(engine.family("documents")?, key)?;
        if found.is_some_and(|value| value.len() > VALUE_BYTES) { Ok(()) } else { Err("no such record".into()) }
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure> {
        let engine = &self.queue.sink;
        let found = engine.db.get_pinned_cf(engine.family("documents")?, key)?;
        let mut document = found.ok_or("no such record")?.to_vec();
        // Where `append_record` put the field's text: after the key's element, in elements of one size.
        let stride = 1 + 7 + 4 + value.len() + 1;
        let offset = 4 + (1 + 4 + 4 + KEY_BYTES + 1) + field * stride + 12;
        document[offset..offset + value.len()].copy_from_slice(value);
        self.queue.commit([Pending { key: *key, document, change_bytes: value.len() }])
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        let layout = self.queue.sink.layout;
        self.queue.commit(records.iter().map(|(key, value)| {
            let mut document = Vec::with_capacity(VALUE_BYTES + 200);
            append_record(&mut document, layout, key, value);
            Pending { key: *key, document, change_bytes: VALUE_BYTES }
        }))
    }

    fn scan(&mut self, key: &Key, length: u64) -> Result<u64, Failure> {
        let engine = &self.queue.sink;
        let mode = rocksdb::IteratorMode::From(key, rocksdb::Direction::Forward);
        let mut count = 0;
        for item in engine.db.iterator_cf(engine.family("documents")?, mode).take(length as usize) {
            item?;
            count += 1;
        }
        Ok(count)
    }
}

struct Append {
    file: Mutex<File>,
    sync: bool,
}

impl Sink for Append {
    fn commit(&self, first: u64, group: VecDeque<Pending>) -> Result<u64, Failure> {
        let mut bytes = Vec::new();
        let count = group.len() as u64;
        for write in group {
            bytes.extend_from_slice(&write.key);
            bytes.extend_from_slice(&write.document);
            bytes.extend_from_slice(&oplog_entry(&write));
        }
        let mut file = self.file.lock();
        file.write_all(&bytes)?;
        if self.sync {
            file.sync_data()?;
        }
        Ok(first - 1 + count)
    }
}

/// Appends to one file; it answers reads without looking, for it has nothing to look in.
pub struct AppendFactory {
    queue: Arc<Queue<Append>>,
    path: PathBuf,
}

impl AppendFactory {
    /// Creates the file below `directory`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn new(directory: &Path, write_concern: WriteConcern) -> Result<Self, Failure> {
        std::fs::create_dir_all(directory)?;
        let path = directory.join("append.log");
        let file = Mutex::new(File::create(&path)?);
        let sync = write_concern != WriteConcern::W1;
        Ok(Self { queue: Queue::new(Append { file, sync }), path })
    }
}

impl Factory for AppendFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(AppendClient { queue: self.queue.clone() }))
    }

    fn clear(&self) -> Result<(), Failure> {
        *self.queue.sink.file.lock() = File::create(&self.path)?;
        Ok(())
    }
}

struct AppendClient {
    queue: Arc<Queue<Append>>,
}

impl Client for AppendClient {
    fn read(&mut self, _: &Key) -> Result<(), Failure> {
        Err("an append-only file answers no reads".into())
    }

    fn update(&mut self, key: &Key, _: usize, value: &[u8]) -> Result<(), Failure> {
        let document = vec![b'x'; VALUE_BYTES + 175];
        self.queue.commit([Pending { key: *key, document, change_bytes: value.len() }])
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        let write = |(key, value): &(Key, [u8; VALUE_BYTES])| Pending {
            key: *key,
            document: value.to_vec(),
            change_bytes: VALUE_BYTES,
        };
        self.queue.commit(records.iter().map(write))
    }

    fn scan(&mut self, _: &Key, _: u64) -> Result<u64, Failure> {
        Err("an append-only file has no scans".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(Mutex<Vec<usize>>);

    impl Sink for Counting {
        fn commit(&self, first: u64, group: VecDeque<Pending>) -> Result<u64, Failure> {
            self.0.lock().push(group.len());
            Ok(first - 1 + group.len() as u64)
        }
    }

    #[test]
    fn the_commit_queue_commits_every_write_of_many_threads_once() {
        let queue = Queue::new(Counting(Mutex::default()));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let write = Pending { key: *b"user0000000000000000001", document: Vec::new(), change_bytes: 0 };
                        queue.commit([write]).expect("commits");
                    }
                });
            }
        });
        assert_eq!(queue.sink.0.lock().iter().sum::<usize>(), 4000);
        assert_eq!(queue.state.lock().done, 4000);
    }
}
