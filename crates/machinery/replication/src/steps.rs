//! What the member's step machines were told and asked for: gathered from where they are stepped, and written to a file.
//!
//! Invariants:
//! - A machine stands still only while its segments are counted up, not while they are written.
//! - A machine that cannot be got at in time is left out: whoever asks wants to see why a member hangs.
//! - A file has its name when it is whole. No more than [`FILES_MAX`] are kept.
//! - A broken invariant is written down once, before the process ends, and keeps it from ending for no longer than [`LAST_WORDS_WITHIN`].
//!
//! What it deliberately does not do: decide when; read a file (`baton-sim --replay` does).

use crate::driver::Driver;
use crate::following::Ring;
use crate::leadership::Steward;
use crate::mailbox::Mailbox;
use baton_consensus::Consensus;
use baton_consensus::index_build::IndexBuild;
use baton_following::Following;
use baton_leadership::Leadership;
use baton_replay::{FORMAT, Header, Recording, title};
use baton_types::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

/// So many files are kept.
const FILES_MAX: usize = 5;
/// How long a machine is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same while the process ends.
const LAST_PATIENCE: Duration = Duration::from_millis(100);
/// How long a process that is to end waits for the file.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);

/// A file that was written.
#[derive(Clone, Debug)]
pub struct StepsFile {
    /// Where.
    pub path: PathBuf,
    /// How many steps of all machines are in it.
    pub steps: usize,
    /// The machines that are in it: for each build of an index its own.
    pub machines: Vec<String>,
}

/// What was got of each machine.
#[derive(Default)]
pub(crate) struct Gathered {
    pub consensus: Option<Recording<Consensus>>,
    pub following: Option<Recording<Following>>,
    pub leadership: Option<Recording<Leadership>>,
    pub index_builds: Vec<(String, Recording<IndexBuild>)>,
}

/// Gives the recordings of the index builds that are under way or have lately ended, by what each is called; without those that
/// cannot be got at in that time.
pub type IndexBuildRings = Box<dyn Fn(Duration) -> Vec<(String, Recording<IndexBuild>)> + Send + Sync>;

/// Where the machines are, and where files go.
pub(crate) struct Rings {
    member: String,
    directory: PathBuf,
    consensus: Weak<Mailbox<Driver>>,
    following: Ring,
    leadership: Weak<Steward>,
    index_builds: IndexBuildRings,
    /// One file at a time.
    writing: Mutex<()>,
    has_last_words: AtomicBool,
}

impl Rings {
    pub fn new(
        member: String,
        data_directory: &Path,
        consensus: &Arc<Mailbox<Driver>>,
        following: Ring,
        leadership: &Arc<Steward>,
        index_builds: IndexBuildRings,
    ) -> Arc<Self> {
        Arc::new(Self {
            member,
            directory: data_directory.join("diagnostic.data"),
            consensus: Arc::downgrade(consensus),
            following,
            leadership: Arc::downgrade(leadership),
            index_builds,
            writing: Mutex::new(()),
            has_last_words: AtomicBool::new(false),
        })
    }

    /// Writes what there is.
    ///
    /// # Errors
    /// `OperationFailed` (96) if the file cannot be written.
    pub fn write(&self) -> Result<StepsFile> {
        self.write_file(&self.gather(Gathered::default(), PATIENCE))
    }

    /// Before the process ends, since an invariant is broken: `own` is of whoever holds its lock.
    pub fn last_words(self: &Arc<Self>, own: Gathered) {
        if self.has_last_words.swap(true, Ordering::Relaxed) {
            return;
        }
        let gathered = self.gather(own, LAST_PATIENCE);
        let (done, is_done) = channel();
        let rings = Arc::clone(self);
        let writer = std::thread::Builder::new().name("last words".into());
        let written = writer.spawn(move || {
            match rings.write_file(&gathered) {
                Ok(file) => {
                    tracing::error!(target: "REPL", file = %file.path.display(), steps = file.steps, "What the step machines did is written down")
                }
                Err(error) => {
                    tracing::error!(target: "REPL", error = %error, "What the step machines did cannot be written down")
                }
            }
            let _ = done.send(());
        });
        if written.is_ok() {
            let _ = is_done.recv_timeout(LAST_WORDS_WITHIN);
        }
    }

    /// If it panics, there are last words: the machines wait for an answer that does not come.
    pub fn or_last_words<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.last_words(Gathered::default());
            resume_unwind(panic)
        })
    }

    /// What is missing.
    fn gather(&self, own: Gathered, patience: Duration) -> Gathered {
        let consensus = || self.consensus.upgrade()?.look(patience, Driver::recording);
        let leadership = || self.leadership.upgrade()?.recording(patience);
        Gathered {
            consensus: own.consensus.or_else(consensus),
            following: own.following.or_else(|| self.following.recording(patience)),
            leadership: own.leadership.or_else(leadership),
            index_builds: (self.index_builds)(patience),
        }
    }

    fn write_file(&self, gathered: &Gathered) -> Result<StepsFile> {
        let _one = self.writing.lock();
        let failed = |error: io::Error| {
            Error::new(ErrorCode::OperationFailed, format!("no steps written to {}: {error}", self.directory.display()))
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let header = Header {
            format: FORMAT,
            baton: env!("CARGO_PKG_VERSION").to_owned(),
            member: self.member.clone(),
            written_secs: since_1970.as_secs(),
        };
        let mut file = StepsFile { path: PathBuf::new(), steps: 0, machines: Vec::new() };
        let mut write = || {
            fs::create_dir_all(&self.directory)?;
            // A second file of one second counts as the next second's, and none as older than one that is there.
            let newest = self.files()?.last().map_or(0, |(number, _)| number + 1);
            file.path = self.directory.join(format!("steps-{}.jsonl", header.written_secs.max(newest)));
            let unfinished = file.path.with_extension("unfinished");
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
            header.write(&mut out)?;
            file.add(gathered.consensus.as_ref(), None, &mut out)?;
            file.add(gathered.following.as_ref(), None, &mut out)?;
            file.add(gathered.leadership.as_ref(), None, &mut out)?;
            for (of, build) in &gathered.index_builds {
                file.add(Some(build), Some(of), &mut out)?;
            }
            out.flush()?;
            fs::rename(&unfinished, &file.path)?;
            self.remove_old()
        };
        write().map_err(failed)?;
        Ok(file)
    }

    /// The files that are there, the oldest first.
    fn files(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let number_of = |name: &str| name.strip_prefix("steps-")?.strip_suffix(".jsonl")?.parse::<u64>().ok();
        let entries = fs::read_dir(&self.directory)?.filter_map(io::Result::ok);
        let mut files: Vec<(u64, PathBuf)> =
            entries.filter_map(|entry| Some((number_of(entry.file_name().to_str()?)?, entry.path()))).collect();
        files.sort();
        Ok(files)
    }

    fn remove_old(&self) -> io::Result<()> {
        let files = self.files()?;
        let too_many = files.len().saturating_sub(FILES_MAX);
        files.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

impl StepsFile {
    fn add<M: baton_replay::Machine>(
        &mut self,
        recording: Option<&Recording<M>>,
        of: Option<&str>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(recording) = recording else { return Ok(()) };
        self.steps += recording.steps();
        self.machines.push(title(M::NAME, of));
        baton_replay::write(recording, of, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_consensus::MemberId;
    use baton_consensus::index_build::{BuildInput, CommitQuorum};
    use baton_following::Input;
    use baton_replay::{Bounds, Recorder, read, replay};

    fn recording_of_two_steps() -> Recording<Following> {
        let mut machine = Following::default();
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        recorder.step(&mut machine, Duration::ZERO, Input::Source(Some(MemberId(1))));
        recorder.step(&mut machine, Duration::from_secs(1), Input::Failed { reason: "nobody is there".into() });
        recorder.recording(&machine)
    }

    /// One with a step.
    fn builds() -> Vec<(String, Recording<IndexBuild>)> {
        let mut machine = IndexBuild::new(CommitQuorum::Majority, false);
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        recorder.step(&mut machine, Duration::ZERO, BuildInput::Leads(Some(1)));
        vec![("1-2 shop.carts".into(), recorder.recording(&machine))]
    }

    #[test]
    fn the_last_five_files_are_kept_and_each_can_be_replayed() {
        let directory = std::env::temp_dir().join(format!("baton-steps-{}", std::process::id()));
        let (inbox, steward) = (Arc::new(Mailbox::new(|| ())), Steward::new(1));
        let rings = Rings::new("here:1".into(), &directory, &inbox, Ring::new(), &steward, Box::new(|_| builds()));
        let gathered =
            Gathered { following: Some(recording_of_two_steps()), index_builds: builds(), ..Gathered::default() };
        let files: Vec<PathBuf> = (0..FILES_MAX + 2).map(|_| rings.write_file(&gathered).unwrap().path).collect();
        let there: Vec<bool> = files.iter().map(|path| path.exists()).collect();
        assert_eq!(there, [false, false, true, true, true, true, true]);
        let steps = read(io::BufReader::new(File::open(&files[6]).unwrap())).unwrap();
        assert_eq!(steps.header.member, "here:1");
        assert_eq!(steps.machines(), [("following", None), ("index_build", Some("1-2 shop.carts"))]);
        assert_eq!(replay::<Following>(&steps, None, &mut |_| {}).unwrap().steps, 2);
        assert_eq!(replay::<IndexBuild>(&steps, Some("1-2 shop.carts"), &mut |_| {}).unwrap().steps, 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn last_words_are_said_once_and_leave_out_who_cannot_be_got_at() {
        let directory = std::env::temp_dir().join(format!("baton-last-words-{}", std::process::id()));
        let (inbox, steward) = (Arc::new(Mailbox::new(|| ())), Steward::new(1));
        let rings = Rings::new("here:1".into(), &directory, &inbox, Ring::new(), &steward, Box::new(|_| builds()));
        let own = || Gathered { following: Some(recording_of_two_steps()), ..Gathered::default() };
        rings.last_words(own());
        rings.last_words(own());
        let files: Vec<PathBuf> =
            fs::read_dir(directory.join("diagnostic.data")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        let steps = read(io::BufReader::new(File::open(&files[0]).unwrap())).unwrap();
        // Nobody runs the inbox.
        assert!(steps.segments.iter().all(|(segment, _)| segment.machine != "consensus"));
        assert_eq!(replay::<Following>(&steps, None, &mut |_| {}).unwrap().steps, 2);
        assert_eq!(replay::<IndexBuild>(&steps, Some("1-2 shop.carts"), &mut |_| {}).unwrap().steps, 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
