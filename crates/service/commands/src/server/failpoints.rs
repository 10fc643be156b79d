//! Faults on demand, for the tests of drivers: `configureFailPoint`, which exists only with `enableTestCommands`.
//!
//! Invariants: with none set, a command pays one atomic load; a fail point with `times` fires exactly that often.
//! What it deliberately does not do: take the name of a fail point that Baton does not honour. That would be a false ok.

use baton_request::Fields;
use baton_request::fields::number_as_i64;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The fail points there are.
pub const NAMES: [&str; 12] = [
    "failCommand",
    "failGetMoreAfterCursorCheckout",
    "failApplyingEntries",
    "hangAfterStartingIndexBuild",
    "hangIndexBuildBeforeCommit",
    "hangIndexBuildDuringCollectionScanPhaseBeforeInsertion",
    "initialSyncHangAfterDataCloning",
    "initialSyncHangBeforeCopyingDatabases",
    "initialSyncHangDuringCollectionClone",
    "maxTimeAlwaysTimeOut",
    "onPrimaryTransactionalWrite",
    STOP_FETCHING,
];

/// A member applies nothing of what it fetches while this one is set, and fetches that anew afterwards.
pub const STOP_FETCHING: &str = "stopReplProducer";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    AlwaysOn,
    Times(i64),
    Skip(i64),
    Probability(f64),
}

struct FailPoint {
    mode: Mode,
    data: RawDocumentBuf,
    times_entered: i64,
}

/// What `failCommand` does to a command.
#[derive(Clone, Debug, Default)]
pub struct CommandFault {
    /// Wait this long first.
    pub block: Option<Duration>,
    /// Hang up without an answer.
    pub close_connection: bool,
    /// Answer this instead.
    pub error: Option<Error>,
    /// Carry the command out, and report this beside its answer.
    pub write_concern_error: Option<RawDocumentBuf>,
    /// Labels in place of those the member would give; also for the write concern error.
    pub labels: Option<Vec<String>>,
}

/// All fail points that are set.
#[derive(Default)]
pub struct FailPoints {
    active: AtomicUsize,
    points: Mutex<BTreeMap<String, FailPoint>>,
}

impl FailPoints {
    /// Whether any is set. Everything else here is slow, and asked only then.
    pub fn any(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Sets or clears a fail point; returns how often it had fired.
    pub fn configure(&self, name: &str, mode: RawBsonRef<'_>, data: Option<&RawDocument>) -> Result<i64> {
        if !NAMES.contains(&name) {
            return Err(Error::new(ErrorCode::FailPointSetFailed, format!("{name} not found")));
        }
        let mut points = self.points.lock();
        let count = points.get(name).map_or(0, |p| p.times_entered);
        match parse_mode(mode)? {
            None => {
                points.remove(name);
            }
            Some(mode) => {
                let data = data.map(RawDocument::to_owned).unwrap_or_default();
                if name == "failCommand" {
                    // Refuses a misspelt option now, not when a command is to fail.
                    Fault::parse(&data)?;
                }
                points.insert(name.to_owned(), FailPoint { mode, data, times_entered: 0 });
            }
        }
        self.active.store(points.len(), Ordering::Relaxed);
        Ok(count)
    }

    /// Whether a fail point other than `failCommand` fires now; its data if so.
    pub fn fires(&self, name: &str) -> Option<RawDocumentBuf> {
        if !self.any() {
            return None;
        }
        let mut points = self.points.lock();
        let point = points.get_mut(name)?;
        let data = point.data.clone();
        self.enter(&mut points, name).then_some(data)
    }

    /// The data of a fail point that is set, without entering it.
    pub fn data(&self, name: &str) -> Option<RawDocumentBuf> {
        if !self.any() {
            return None;
        }
        self.points.lock().get(name).map(|point| point.data.clone())
    }

    /// What `failCommand` does to a command of these names from that client.
    pub fn command_fault(&self, names: &[&str], app_name: &str, namespace: &str) -> Option<CommandFault> {
        let mut points = self.points.lock();
        let point = points.get_mut("failCommand")?;
        let fault = Fault::parse(&point.data).ok()?;
        let matches = fault.commands.iter().any(|c| names.contains(&c.as_str()))
            && fault.app_name.as_deref().is_none_or(|a| a == app_name)
            && fault.namespace.as_deref().is_none_or(|n| n == namespace);
        (matches && self.enter(&mut points, "failCommand")).then_some(fault.effect)
    }

    /// Counts an entry; says whether the mode lets the fail point fire.
    fn enter(&self, points: &mut BTreeMap<String, FailPoint>, name: &str) -> bool {
        let Some(point) = points.get_mut(name) else { return false };
        let (fires, over) = match &mut point.mode {
            Mode::AlwaysOn => (true, false),
            Mode::Probability(p) => (rand::random::<f64>() < *p, false),
            Mode::Skip(left) if *left > 0 => {
                *left -= 1;
                (false, false)
            }
            Mode::Skip(_) => (true, false),
            Mode::Times(left) => {
                *left -= 1;
                (true, *left <= 0)
            }
        };
        point.times_entered += i64::from(fires);
        if over {
            points.remove(name);
            self.active.store(points.len(), Ordering::Relaxed);
        }
        fires
    }
}

/// `None` is off.
fn parse_mode(mode: RawBsonRef<'_>) -> Result<Option<Mode>> {
    match mode {
        RawBsonRef::String("off") => Ok(None),
        RawBsonRef::String("alwaysOn") => Ok(Some(Mode::AlwaysOn)),
        RawBsonRef::String(other) => Err(Error::bad_value(format!("unknown mode: {other}"))),
        RawBsonRef::Document(document) => {
            let mut fields = Fields::of("configureFailPoint.mode", document)?;
            let mode = if let Some(n) = fields.non_negative("times")? {
                (n > 0).then_some(Mode::Times(n))
            } else if let Some(n) = fields.non_negative("skip")? {
                Some(Mode::Skip(n))
            } else if let Some(p) = fields.optional::<f64>("activationProbability")? {
                Some(Mode::Probability(p))
            } else {
                return Err(Error::bad_value(
                    "'mode' must have one of 'times', 'skip', or 'activationProbability' set",
                ));
            };
            fields.finish()?;
            Ok(mode)
        }
        _ => Err(Error::type_mismatch("'mode' must be a string or JSON object")),
    }
}

/// `failCommand`'s data.
struct Fault {
    commands: Vec<String>,
    app_name: Option<String>,
    namespace: Option<String>,
    effect: CommandFault,
}

impl Fault {
    fn parse(data: &RawDocument) -> Result<Self> {
        let mut fields = Fields::of("failCommand.data", data)?;
        let mut commands = Vec::new();
        // Without a list it fails nothing, as in mongod.
        for name in fields.optional::<&bson::RawArray>("failCommands")?.into_iter().flatten() {
            if let RawBsonRef::String(name) = name? {
                commands.push(name.to_owned());
            }
        }
        let app_name = fields.optional::<&str>("appName")?.map(str::to_owned);
        let namespace = fields.optional::<&str>("namespace")?.map(str::to_owned);
        fields.take("failInternalCommands");
        let labels = match fields.optional::<&bson::RawArray>("errorLabels")? {
            None => None,
            Some(list) => {
                let mut labels = Vec::new();
                for label in list {
                    if let RawBsonRef::String(label) = label? {
                        labels.push(label.to_owned());
                    }
                }
                Some(labels)
            }
        };
        let blocks = fields.truth("blockConnection")?;
        let block_ms = fields.optional::<i64>("blockTimeMS")?;
        if blocks && block_ms.is_none_or(|ms| ms < 0) {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "must specify a non-negative 'blockTimeMS' when 'blockConnection' is true",
            ));
        }
        let error = fields
            .take("errorCode")
            .and_then(number_as_i64)
            .map(|code| Error::new(ErrorCode(code as i32), "Failing command via 'failCommand' failpoint"));
        fields.take("errorExtraInfo");
        let write_concern_error = fields.optional::<&RawDocument>("writeConcernError")?.map(RawDocument::to_owned);
        let effect = CommandFault {
            block: block_ms.filter(|_| blocks).map(|ms| Duration::from_millis(ms as u64)),
            close_connection: fields.truth("closeConnection")?,
            error,
            write_concern_error,
            labels,
        };
        fields.finish()?;
        Ok(Self { commands, app_name, namespace, effect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn set(points: &FailPoints, mode: RawDocumentBuf, data: RawDocumentBuf) {
        points.configure("failCommand", RawBsonRef::Document(&mode), Some(&data)).unwrap();
    }

    #[test]
    fn fail_command_fires_as_often_as_it_was_told_and_only_for_what_it_names() {
        let points = FailPoints::default();
        assert!(!points.any());
        set(&points, rawdoc! { "times": 2 }, rawdoc! { "failCommands": ["find"], "errorCode": 91, "appName": "a" });
        assert!(points.any());
        assert!(points.command_fault(&["insert"], "a", "t.c").is_none());
        assert!(points.command_fault(&["find"], "b", "t.c").is_none());
        for _ in 0..2 {
            let fault = points.command_fault(&["find"], "a", "t.c").unwrap();
            assert_eq!(fault.error.unwrap().code, ErrorCode::ShutdownInProgress);
        }
        assert!(points.command_fault(&["find"], "a", "t.c").is_none());
        assert!(!points.any());
    }

    #[test]
    fn skip_lets_the_first_ones_pass() {
        let points = FailPoints::default();
        set(&points, rawdoc! { "skip": 1 }, rawdoc! { "failCommands": ["find"], "closeConnection": true });
        assert!(points.command_fault(&["find"], "", "t.c").is_none());
        assert!(points.command_fault(&["find"], "", "t.c").unwrap().close_connection);
    }

    #[test]
    fn an_unknown_fail_point_option_or_mode_is_refused() {
        let points = FailPoints::default();
        let always = RawBsonRef::String("alwaysOn");
        assert_eq!(points.configure("frob", always, None).unwrap_err().code, ErrorCode::FailPointSetFailed);
        let misspelt = rawdoc! { "failCommands": ["find"], "errorKode": 1 };
        assert_eq!(points.configure("failCommand", always, Some(&misspelt)).unwrap_err().code.0, 40415);
        assert!(points.configure("failCommand", RawBsonRef::String("sometimes"), None).is_err());
        assert!(points.configure("failCommand", RawBsonRef::Int32(1), None).is_err());
    }
}
