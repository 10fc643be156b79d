//! Read and write concerns: what a client demands of the data it reads and of the writes it is told about.
//!
//! Invariant: a concern that was parsed is one that MongoDB would take; whether this set can ever satisfy it is asked
//! separately, because MongoDB carries out the write first and then says that it cannot.
//! What it deliberately does not do: wait. The commit queue does.

use crate::fields::{Fields, is_truthy, number_as_i64, wrong_type};
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result, Timestamp};
use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::collections::BTreeMap;

/// How much must have agreed to what is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// The newest this member has.
    #[default]
    Local,
    /// Like local; on a shard also without filtering orphans.
    Available,
    /// What a majority has.
    Majority,
    /// What a majority has, and nothing newer was acknowledged before the read began.
    Linearizable,
    /// One point in time.
    Snapshot,
}

impl ReadLevel {
    /// MongoDB's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Available => "available",
            Self::Majority => "majority",
            Self::Linearizable => "linearizable",
            Self::Snapshot => "snapshot",
        }
    }
}

/// `readConcern`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadConcern {
    /// The level; local when none is named.
    pub level: ReadLevel,
    /// Whether the client sent one.
    pub given: bool,
    /// Causal consistency: do not read from before this.
    pub after_cluster_time: Option<Timestamp>,
    /// Read as of exactly this time (snapshot only).
    pub at_cluster_time: Option<Timestamp>,
}

impl ReadConcern {
    /// Parses the `readConcern` document.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let mut fields = Fields::of("readConcern", document)?;
        let level = match fields.optional::<&str>("level")? {
            None | Some("local") => ReadLevel::Local,
            Some("available") => ReadLevel::Available,
            Some("majority") => ReadLevel::Majority,
            Some("linearizable") => ReadLevel::Linearizable,
            Some("snapshot") => ReadLevel::Snapshot,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                )));
            }
        };
        let after_cluster_time = fields.optional::<bson::Timestamp>("afterClusterTime")?.map(Timestamp::from);
        let at_cluster_time = fields.optional::<bson::Timestamp>("atClusterTime")?.map(Timestamp::from);
        fields.take("provenance");
        if fields.take("afterOpTime").is_some() {
            return Err(Error::not_implemented("readConcern.afterOpTime"));
        }
        fields.finish()?;
        let invalid = |why: &str| Err(Error::new(ErrorCode::InvalidOptions, why));
        if after_cluster_time.is_some() && at_cluster_time.is_some() {
            return invalid("Specifying both afterClusterTime and atClusterTime is not allowed");
        }
        if at_cluster_time.is_some() && level != ReadLevel::Snapshot {
            return invalid("readConcern atClusterTime can only be used with readConcern level 'snapshot'");
        }
        if after_cluster_time.is_some() && matches!(level, ReadLevel::Available | ReadLevel::Linearizable) {
            return invalid(
                "afterClusterTime field can be set only if level is equal to 'local', 'majority' or 'snapshot'",
            );
        }
        Ok(Self { level, given: true, after_cluster_time, at_cluster_time })
    }
}

/// How many members must have a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// That many members; 0 wants no answer.
    Members(u32),
    /// A majority of the voters.
    Majority,
    /// A mode that the configuration names.
    Mode(String),
    /// Members with so many different values of each tag.
    Tags(BTreeMap<String, u32>),
}

/// `writeConcern`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteConcern {
    /// How many members.
    pub w: Acknowledgement,
    /// Whether the client said so; else it is the default's.
    pub w_given: bool,
    /// Whether it must be synced to disk there; `None` leaves it to `w` (a majority implies it).
    pub journal: Option<bool>,
    /// How long to wait for other members; 0 is for ever.
    pub timeout_ms: u64,
    /// Who said it.
    pub provenance: Provenance,
}

/// Who a write concern is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The client.
    ClientSupplied,
    /// `setDefaultRWConcern`.
    CustomDefault,
    /// MongoDB's own default.
    ImplicitDefault,
}

impl Provenance {
    /// MongoDB's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientSupplied => "clientSupplied",
            Self::CustomDefault => "customDefault",
            Self::ImplicitDefault => "implicitDefault",
        }
    }
}

impl Default for WriteConcern {
    /// What MongoDB 7.0 takes when nothing is said on a set without arbiters: a majority.
    fn default() -> Self {
        Self {
            w: Acknowledgement::Majority,
            w_given: false,
            journal: None,
            timeout_ms: 0,
            provenance: Provenance::ImplicitDefault,
        }
    }
}

impl WriteConcern {
    /// The most members a number may ask for.
    const MEMBERS_MAX: i64 = 50;

    /// Parses the `writeConcern` document: `TypeMismatch` (14) for a flag that is none, 40415 for an unknown field,
    /// `FailedToParse` (9) for every other fault, as in mongod.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let mut concern = Self { provenance: Provenance::ClientSupplied, ..Self::default() };
        let mut fsync = false;
        for element in document.iter() {
            let (name, value) = element?;
            match name.as_str() {
                "w" => {
                    concern.w = Self::parse_w(value)?;
                    concern.w_given = true;
                }
                "j" => concern.journal = Some(Self::flag("j", value)?),
                "fsync" => fsync = Self::flag("fsync", value)?,
                "wtimeout" => {
                    let ms = number_as_i64(value).ok_or_else(|| Error::failed_to_parse("wtimeout must be a number"))?;
                    concern.timeout_ms = ms.max(0) as u64;
                }
                "provenance" | "wElectionId" | "wOpTime" | "getLastError" => {}
                other => {
                    let message = format!("BSON field 'WriteConcernOptions.{other}' is an unknown field.");
                    return Err(Error::location(40415, message));
                }
            }
        }
        if fsync && concern.journal == Some(true) {
            return Err(Error::failed_to_parse("fsync and j options cannot be used together"));
        }
        if fsync {
            concern.journal = Some(true);
        }
        Ok(concern)
    }

    fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        match value {
            RawBsonRef::Boolean(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_) => Ok(is_truthy(value)),
            other => {
                let expected = ["bool", "long", "int", "decimal", "double"];
                Err(wrong_type("WriteConcernOptions", name, other, &expected))
            }
        }
    }

    fn parse_w(value: RawBsonRef<'_>) -> Result<Acknowledgement> {
        match value {
            RawBsonRef::String("majority") => Ok(Acknowledgement::Majority),
            RawBsonRef::String(mode) => Ok(Acknowledgement::Mode(mode.to_owned())),
            RawBsonRef::Document(tags) if !tags.is_empty() => Self::parse_tags(tags),
            RawBsonRef::Document(_) => Err(Error::failed_to_parse("tagged write concern requires tags")),
            number => match number_as_i64(number) {
                Some(n @ 0..=Self::MEMBERS_MAX) => Ok(Acknowledgement::Members(n as u32)),
                Some(_) => Err(Error::failed_to_parse("w has to be a non-negative number and not greater than 50")),
                None => Err(Error::failed_to_parse(format!(
                    "w has to be a number, string, or object; found: {}",
                    type_name(value.element_type())
                ))),
            },
        }
    }

    fn parse_tags(document: &RawDocument) -> Result<Acknowledgement> {
        let mut tags = BTreeMap::new();
        for element in document.iter() {
            let (tag, value) = element?;
            let count = number_as_i64(value).ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "tags must be a single level document with only number values; found: {tag}"
                ))
            })?;
            let count = u32::try_from(count)
                .map_err(|_| Error::failed_to_parse(format!("tag {tag} must ask for a number that is not negative")))?;
            tags.insert(tag.as_str().to_owned(), count);
        }
        Ok(Acknowledgement::Tags(tags))
    }

    /// As MongoDB writes it.
    pub fn to_document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        match &self.w {
            Acknowledgement::Members(count) => document.append(cstr!("w"), i32::try_from(*count).unwrap_or(i32::MAX)),
            Acknowledgement::Majority => document.append(cstr!("w"), "majority"),
            Acknowledgement::Mode(mode) => document.append(cstr!("w"), mode.as_str()),
            Acknowledgement::Tags(tags) => {
                let mut counts = RawDocumentBuf::new();
                for (tag, count) in tags {
                    if let Ok(tag) = CString::try_from(tag.clone()) {
                        counts.append(tag, i32::try_from(*count).unwrap_or(i32::MAX));
                    }
                }
                document.append(cstr!("w"), counts);
            }
        }
        if let Some(journal) = self.journal {
            document.append(cstr!("j"), journal);
        }
        document.append(cstr!("wtimeout"), i32::try_from(self.timeout_ms).unwrap_or(i32::MAX));
        document
    }

    /// `errInfo` of a `writeConcernError`.
    pub fn error_info(&self, timed_out: bool) -> RawDocumentBuf {
        let mut used = self.to_document();
        used.append(cstr!("provenance"), self.provenance.name());
        let mut info = RawDocumentBuf::new();
        if timed_out {
            info.append(cstr!("wtimeout"), true);
        }
        info.append(cstr!("writeConcern"), used);
        rawdoc! { "errInfo": info }
    }

    /// What a standalone refuses before it writes (`BadValue`, 2).
    pub fn check_member(&self, is_replicated: bool) -> Result<()> {
        if is_replicated {
            return Ok(());
        }
        match &self.w {
            Acknowledgement::Members(n) if *n > 1 => {
                Err(Error::bad_value("cannot use 'w' > 1 when a host is not replicated"))
            }
            Acknowledgement::Mode(mode) => Err(Error::bad_value(format!(
                "cannot use non-majority 'w' mode \"{mode}\" when a host is not a member of a replica set"
            ))),
            Acknowledgement::Tags(_) => {
                Err(Error::bad_value("cannot use tags in 'w' when a host is not a member of a replica set"))
            }
            Acknowledgement::Members(_) | Acknowledgement::Majority => Ok(()),
        }
    }

    /// Whether the write must be on disk before it is acknowledged.
    pub fn wants_sync(&self) -> bool {
        self.journal.unwrap_or(self.w == Acknowledgement::Majority) || self.w == Acknowledgement::Majority
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn a_write_concern_is_parsed_with_mongodbs_refusals() {
        let ok = WriteConcern::parse(&rawdoc! { "w": "majority", "j": true, "wtimeout": 5.0 }).unwrap();
        assert_eq!((ok.w, ok.journal, ok.timeout_ms), (Acknowledgement::Majority, Some(true), 5));
        for bad in [
            rawdoc! { "w": 51 },
            rawdoc! { "w": -1 },
            rawdoc! { "w": true },
            rawdoc! { "wtimeout": "x" },
            rawdoc! { "w": {} },
            rawdoc! { "w": { "dc": "x" } },
            rawdoc! { "w": { "dc": -1 } },
            rawdoc! { "fsync": true, "j": true },
        ] {
            assert_eq!(WriteConcern::parse(&bad).unwrap_err().code, ErrorCode::FailedToParse, "{bad:?}");
        }
        let code = |concern: RawDocumentBuf| WriteConcern::parse(&concern).unwrap_err().code.0;
        assert_eq!(code(rawdoc! { "j": "yes" }), 14);
        assert_eq!(code(rawdoc! { "fsync": {} }), 14);
        assert_eq!(code(rawdoc! { "frob": 1 }), 40415);
    }

    #[test]
    fn a_read_concern_refuses_unknown_levels_and_times_that_contradict() {
        assert_eq!(ReadConcern::parse(&rawdoc! { "level": "majority" }).unwrap().level, ReadLevel::Majority);
        let level = ReadConcern::parse(&rawdoc! { "level": "eventual" }).unwrap_err();
        assert_eq!(level.code, ErrorCode::BadValue);
        let t = bson::Timestamp { time: 1, increment: 1 };
        let at = ReadConcern::parse(&rawdoc! { "level": "local", "atClusterTime": t }).unwrap_err();
        assert_eq!(at.code, ErrorCode::InvalidOptions);
    }

    #[test]
    fn a_write_concern_says_what_it_was_and_whose() {
        let concern = WriteConcern::parse(&rawdoc! { "w": { "dc": 2_i64 }, "wtimeout": 5 }).unwrap();
        let info = rawdoc! { "errInfo": {
            "wtimeout": true,
            "writeConcern": { "w": { "dc": 2 }, "wtimeout": 5, "provenance": "clientSupplied" },
        } };
        assert_eq!(concern.error_info(true), info);
        assert!(concern.w_given && !WriteConcern::parse(&rawdoc! { "j": true }).unwrap().w_given);
    }

    #[test]
    fn a_sync_is_wanted_by_journal_and_by_majority() {
        let w1 = WriteConcern::parse(&rawdoc! { "w": 1 }).unwrap();
        assert!(!w1.wants_sync());
        assert!(WriteConcern::parse(&rawdoc! { "w": 1, "j": true }).unwrap().wants_sync());
        assert!(WriteConcern::default().wants_sync());
    }
}
