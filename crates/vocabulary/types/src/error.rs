//! The client's kind of failure: a MongoDB error code, its name, and a message that names the field and the fix.
//!
//! What it deliberately is not: the machine's failures (I/O, corruption) stop the member and live with the devices;
//! broken invariants of our own are panics.

use bson::RawDocumentBuf;
use serde::{Serialize, Serializer};
use std::fmt;

/// What a fallible step of a request returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! error_codes {
    ($($number:literal $name:ident,)*) => {
        /// A MongoDB error code. Any number is representable, because `uassert`-style codes have no name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct ErrorCode(pub i32);

        #[allow(non_upper_case_globals, missing_docs)]
        impl ErrorCode {
            $(pub const $name: Self = Self($number);)*

            /// MongoDB's name for the code; `Location<number>` for those it never named.
            pub fn name(self) -> std::borrow::Cow<'static, str> {
                match self.0 {
                    $($number => stringify!($name).into(),)*
                    other => format!("Location{other}").into(),
                }
            }
        }
    };
}

error_codes! {
    0 OK,
    1 InternalError,
    2 BadValue,
    4 NoSuchKey,
    5 GraphContainsCycle,
    6 HostUnreachable,
    7 HostNotFound,
    8 UnknownError,
    9 FailedToParse,
    10 CannotMutateObject,
    11 UserNotFound,
    12 UnsupportedFormat,
    13 Unauthorized,
    14 TypeMismatch,
    15 Overflow,
    16 InvalidLength,
    17 ProtocolError,
    18 AuthenticationFailed,
    20 IllegalOperation,
    21 EmptyArrayOperation,
    22 InvalidBSON,
    23 AlreadyInitialized,
    24 LockTimeout,
    26 NamespaceNotFound,
    27 IndexNotFound,
    28 PathNotViable,
    29 NonExistentPath,
    30 InvalidPath,
    31 RoleNotFound,
    34 CannotBackfillArray,
    36 RemoteChangeDetected,
    40 ConflictingUpdateOperators,
    43 CursorNotFound,
    46 LockBusy,
    48 NamespaceExists,
    50 MaxTimeMSExpired,
    52 DollarPrefixedFieldName,
    53 InvalidIdField,
    54 NotSingleValueField,
    55 InvalidDBRef,
    56 EmptyFieldName,
    57 DottedFieldName,
    59 CommandNotFound,
    61 ShardKeyNotFound,
    62 OplogOperationUnsupported,
    64 WriteConcernFailed,
    65 MultipleErrorsOccurred,
    66 ImmutableField,
    67 CannotCreateIndex,
    68 IndexAlreadyExists,
    70 ShardNotFound,
    72 InvalidOptions,
    73 InvalidNamespace,
    74 NodeNotFound,
    75 WriteConcernLegacyOK,
    76 NoReplicationEnabled,
    79 UnknownReplWriteConcern,
    85 IndexOptionsConflict,
    86 IndexKeySpecsConflict,
    89 NetworkTimeout,
    90 CallbackCanceled,
    91 ShutdownInProgress,
    93 InvalidReplicaSetConfig,
    94 NotYetInitialized,
    95 NotSecondary,
    96 OperationFailed,
    98 DBPathInUse,
    100 UnsatisfiableWriteConcern,
    103 NewReplicaSetConfigurationIncompatible,
    104 NodeNotElectable,
    108 InconsistentReplicaSetNames,
    109 ConfigurationInProgress,
    112 WriteConflict,
    113 InitialSyncFailure,
    115 CommandNotSupported,
    116 DocTooLargeForCapped,
    117 ConflictingOperationInProgress,
    118 NamespaceNotSharded,
    120 OplogStartMissing,
    121 DocumentValidationFailure,
    123 NotAReplicaSet,
    124 IncompatibleElectionProtocol,
    125 CommandFailed,
    133 FailedToSatisfyReadPreference,
    134 ReadConcernMajorityNotAvailableYet,
    136 CappedPositionLost,
    143 CursorInUse,
    146 ExceededMemoryLimit,
    148 ReadConcernMajorityNotEnabled,
    152 OplogOutOfOrder,
    163 ZoneStillInUse,
    165 ViewDepthLimitExceeded,
    166 CommandNotSupportedOnView,
    167 OptionNotSupportedOnView,
    168 InvalidPipelineOperator,
    171 CannotIndexParallelArrays,
    175 QueryPlanKilled,
    181 AmbiguousIndexKeyPattern,
    182 InvalidViewDefinition,
    183 ClientMetadataMissingField,
    184 ClientMetadataAppNameTooLarge,
    185 ClientMetadataDocumentTooLarge,
    186 ClientMetadataCannotBeMutated,
    187 LinearizableReadConcernError,
    188 IncompatibleServerVersion,
    189 PrimarySteppedDown,
    195 ViewPipelineMaxSizeExceeded,
    197 InvalidIndexSpecificationOption,
    201 CannotBuildIndexKeys,
    202 NetworkInterfaceExceededTimeLimit,
    205 ClusterTimeFailsRateLimiter,
    206 NoSuchSession,
    207 InvalidUUID,
    209 StaleClusterTime,
    211 KeyNotFound,
    215 DatabaseDropPending,
    217 IncompleteTransactionHistory,
    223 IllegalOpMsgFlag,
    225 TransactionTooOld,
    226 AtomicityFailure,
    232 MaxSubPipelineDepthExceeded,
    233 TooManyDocumentSequences,
    237 CursorKilled,
    238 NotImplemented,
    239 SnapshotTooOld,
    241 ConversionFailure,
    242 CannotCreateCollection,
    246 SnapshotUnavailable,
    251 NoSuchTransaction,
    256 TransactionCommitted,
    257 TransactionTooLarge,
    258 UnknownFeatureCompatibilityVersion,
    260 InvalidResumeToken,
    261 TooManyLogicalSessions,
    262 ExceededTimeLimit,
    263 OperationNotSupportedInTransaction,
    266 FailPointSetFailed,
    270 RepairedReplicaSetNode,
    276 IndexBuildAborted,
    278 UnsatisfiableCommitQuorum,
    279 ClientDisconnect,
    280 ChangeStreamFatalError,
    285 IndexBuildAlreadyInProgress,
    286 ChangeStreamHistoryLost,
    288 ChecksumMismatch,
    290 TransactionExceededLifetimeLimitSeconds,
    291 NoQueryExecutionPlans,
    292 QueryExceededMemoryLimitNoDiskUseAllowed,
    301 DataCorruptionDetected,
    308 CurrentConfigNotCommittedYet,
    322 APIVersionError,
    323 APIStrictError,
    324 APIDeprecationError,
    334 MechanismUnavailable,
    352 UnsupportedOpQueryCommand,
    357 InvalidBSONType,
    358 InternalTransactionNotSupported,
    359 CannotConvertIndexToUnique,
    361 CollectionUUIDMismatch,
    365 TemporarilyUnavailable,
    378 NonConformantBSON,
    462 IngressRequestRateLimitExceeded,
    9001 SocketException,
    10003 CannotGrowDocumentInCappedNamespace,
    10058 LegacyNotPrimary,
    10107 NotWritablePrimary,
    10334 BSONObjectTooLarge,
    11000 DuplicateKey,
    11600 InterruptedAtShutdown,
    11601 Interrupted,
    11602 InterruptedDueToReplStateChange,
    12586 BackgroundOperationInProgressForDatabase,
    12587 BackgroundOperationInProgressForNamespace,
    13113 MergeStageNoMatchingDocument,
    13297 DatabaseDifferCase,
    13388 StaleConfig,
    13435 NotPrimaryNoSecondaryOk,
    13436 NotPrimaryOrSecondary,
    14031 OutOfDiskSpace,
    17280 KeyTooLong,
    46841 ClientMarkedKilled,
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// The longest message, in bytes. Names and values that a client sends are in messages, and may take 16 MB.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// What is kept of the end of a longer one: often it says what is wrong with what stands before.
const MESSAGE_END_BYTES: usize = 4 * 1024;

/// A message without its middle, if it is too long.
fn bounded(mut message: String) -> String {
    const CUT: &str = " ... ";
    if message.len() > MESSAGE_BYTES_MAX {
        let end = message.split_off(message.ceil_char_boundary(message.len() - MESSAGE_END_BYTES));
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - MESSAGE_END_BYTES - CUT.len()));
        message.push_str(CUT);
        message.push_str(&end);
        message.shrink_to_fit();
    }
    message
}

/// A failure to report to the client.
#[derive(Clone, Debug, Serialize)]
pub struct Error {
    /// MongoDB's code.
    pub code: ErrorCode,
    /// What is wrong, with the field and what to do about it. Some kilobytes at the most, whatever it tells of.
    pub message: String,
    /// Further top-level fields of the error reply (`keyPattern` and `keyValue` of a duplicate key, `errInfo`, …).
    #[serde(serialize_with = "as_bytes")]
    pub info: Option<Box<RawDocumentBuf>>,
    /// Labels for drivers (`RetryableWriteError`, …).
    pub labels: Vec<&'static str>,
}

fn as_bytes<S: Serializer>(info: &Option<Box<RawDocumentBuf>>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    info.as_ref().map(|info| info.as_bytes()).serialize(serializer)
}

impl Error {
    /// An error without further fields or labels.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: bounded(message.into()), info: None, labels: Vec::new() }
    }

    /// `BadValue` (2).
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    /// `FailedToParse` (9).
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    /// `TypeMismatch` (14).
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// An unnamed code, as MongoDB's assertions by location have (`Location40324`).
    pub fn location(code: i32, message: impl Into<String>) -> Self {
        Self::new(ErrorCode(code), message)
    }

    /// `NotImplemented` (238): part of MongoDB's language that Baton does not have yet.
    pub fn not_implemented(what: impl fmt::Display) -> Self {
        Self::new(ErrorCode::NotImplemented, format!("{what} is not implemented"))
    }

    /// The same error with further top-level fields for the reply.
    pub fn with_info(mut self, info: RawDocumentBuf) -> Self {
        self.info = Some(Box::new(info));
        self
    }

    /// The same error as the cause of another: its message after what failed, as MongoDB says it.
    pub fn in_context(mut self, what: impl fmt::Display) -> Self {
        self.message = bounded(format!("{what} :: caused by :: {}", self.message));
        self
    }

    /// The same error with one more label.
    pub fn with_label(mut self, label: &'static str) -> Self {
        self.labels.push(label);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

impl From<bson::error::Error> for Error {
    fn from(e: bson::error::Error) -> Self {
        Self::new(ErrorCode::InvalidBSON, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_both_ends_of_what_is_too_long() {
        for value in ["x".repeat(16 << 20), "\u{20ac}".repeat(5 << 20)] {
            let error = Error::bad_value(format!("Failed to parse number '{value}' in $convert: Bad digit"));
            assert!(
                error.message.starts_with("Failed to parse number '")
                    && error.message.ends_with("' in $convert: Bad digit")
            );
            assert!((MESSAGE_BYTES_MAX - 8..=MESSAGE_BYTES_MAX).contains(&error.message.len()));
            let error = error.in_context(value);
            assert!(error.message.ends_with("Bad digit") && error.message.len() <= MESSAGE_BYTES_MAX);
        }
        let whole = "\u{20ac}".repeat(MESSAGE_BYTES_MAX / 3);
        assert_eq!(Error::bad_value(whole.as_str()).message, whole);
    }
}
