//! What the member around an initial sync has a say in.

use baton_following::{Method, Settings};

/// How this member comes to its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialSyncMethod {
    /// By file, if there is much.
    #[default]
    Auto,
    /// By cloning collections.
    Logical,
    /// By file.
    FileCopyBased,
}

impl InitialSyncMethod {
    /// All, by their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("logical", Self::Logical), ("fileCopyBased", Self::FileCopyBased)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, method)| *method == self).map_or("auto", |(name, _)| name)
    }
}

/// What an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialSyncOptions {
    /// How the data come.
    pub method: InitialSyncMethod,
    /// From so many bytes of the source's on they come by file, if nothing else is said.
    pub file_copy_bytes_min: u64,
    /// Documents asked for at once; 0 is as many as a message holds.
    pub batch_documents: i32,
    /// Collections copied at once.
    pub collections_at_once: usize,
    /// Whether the copying leaves the processors to clients, here and at the source. Where these use all there is, it is slow.
    pub yields_to_clients: bool,
    /// Bytes of the source's log that wait in memory.
    pub log_memory_bytes: u64,
    /// Bytes of the source's log that wait in a file beyond that.
    pub log_file_bytes: u64,
}

impl Default for InitialSyncOptions {
    fn default() -> Self {
        Self {
            method: InitialSyncMethod::Auto,
            file_copy_bytes_min: 1 << 30,
            batch_documents: 0,
            collections_at_once: 2,
            yields_to_clients: true,
            log_memory_bytes: 64 << 20,
            log_file_bytes: 16 << 30,
        }
    }
}

/// What the member around it has a say in.
pub struct InitialSyncHooks {
    /// What is set now.
    pub options: Box<dyn Fn() -> InitialSyncOptions + Send + Sync>,
    /// Whether a test wants the sync to wait at this point.
    pub holds: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Starts the process anew; absent where it cannot.
    pub restart: Option<Box<dyn Fn() + Send + Sync>>,
    /// Ends the process: no attempt succeeded.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

impl InitialSyncHooks {
    /// What the machine is to know of it.
    pub(super) fn settings(&self) -> Settings {
        let options = (self.options)();
        let method = match options.method {
            InitialSyncMethod::Auto => Method::Auto { file_bytes_min: options.file_copy_bytes_min },
            InitialSyncMethod::Logical => Method::Cloning,
            InitialSyncMethod::FileCopyBased => Method::File,
        };
        Settings { method, can_restart: self.restart.is_some(), copiers: options.collections_at_once }
    }
}
