//! Connection strings, as the subcommands that talk to a set take them.
//!
//! Invariant: what a string says is honoured, or has no meaning for who sends one command after the other over a connection of its
//! own, or is refused by name. So a string copied from an application works, unless it promises what would not be kept.
//! Not here: `mongodb+srv` (it needs look-ups in DNS), users and TLS (the server has neither yet).

use bson::{Bson, Document};
use std::time::Duration;

const PORT: u16 = 27017;
/// How long to wait for a connection, unless the string says otherwise: as long as drivers do.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a member that can be used, unless the string says otherwise: as long as drivers do.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(30);

const NO_SRV: &str = "mongodb+srv:// asks DNS for the hosts, which baton's own commands do not do: name them, \
                      mongodb://HOST:PORT,HOST:PORT/?replicaSet=NAME";
const NO_USERS: &str = "users are not implemented yet; leave user and password out of the connection string";
const NO_TLS: &str = "TLS is not implemented yet: members speak plain TCP; leave it out";
const NO_SRV_OPTION: &str = "it belongs to mongodb+srv://, which baton's own commands do not speak; leave it out";
const NO_PROXY: &str = "baton's own commands speak to members without a proxy; leave it out";
const NO_CHOICE: &str = "members are chosen by readPreference alone; leave it out";

/// A connection string, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Uri {
    /// `host:port` of each host named.
    pub hosts: Vec<String>,
    /// The database after the hosts.
    pub database: Option<String>,
    /// `replicaSet`: the name that the members' set must have.
    pub replica_set: Option<String>,
    /// `directConnection=true`: the one host named is meant, whatever it is.
    pub direct: bool,
    /// `readPreference`, if it is given.
    pub read_preference: Option<String>,
    /// `connectTimeoutMS`; `None` waits without end.
    pub connect_timeout: Option<Duration>,
    /// `socketTimeoutMS`, if it is given: how long an answer may take. Zero waits without end.
    pub answer_timeout: Option<Duration>,
    /// `serverSelectionTimeoutMS`, if it is given: how long to wait for a member that can be used.
    pub selection_timeout: Option<Duration>,
    /// `appName`, which the members log and show.
    pub app_name: Option<String>,
    /// `w`, `journal` and `wtimeoutMS`, as commands take them.
    pub write_concern: Document,
}

type Take = fn(&mut Uri, &str) -> Result<(), String>;

/// What becomes of an option.
enum Fate {
    Taken(Take),
    /// Has no meaning for a command; its value is checked all the same.
    Inert(Kind),
    Refused(&'static str),
}

use Fate::{Inert, Refused, Taken};

/// What the value of an option must be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Truth,
    /// A whole number from this one on.
    NumberFrom(i64),
}

impl Kind {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Text if value.is_empty() => Err("needs a value".into()),
            Self::Text => Ok(()),
            Self::Truth => truth(value).map(drop),
            Self::NumberFrom(least) => match value.parse::<i64>() {
                Ok(number) if number >= least => Ok(()),
                _ => Err(format!("must be a whole number from {least} on")),
            },
        }
    }
}

/// All options that MongoDB's drivers have, by name.
static OPTIONS: &[(&str, Fate)] = &[
    (
        "appName",
        Taken(|uri, value| {
            uri.app_name = Some(value.to_owned());
            Ok(())
        }),
    ),
    ("authMechanism", Refused(NO_USERS)),
    ("authMechanismProperties", Refused(NO_USERS)),
    ("authSource", Inert(Kind::Text)),
    ("compressors", Inert(Kind::Text)),
    (
        "connectTimeoutMS",
        Taken(|uri, value| {
            let time = milliseconds(value)?;
            uri.connect_timeout = Some(time).filter(|time| !time.is_zero());
            Ok(())
        }),
    ),
    (
        "directConnection",
        Taken(|uri, value| {
            uri.direct = truth(value)?;
            Ok(())
        }),
    ),
    ("heartbeatFrequencyMS", Inert(Kind::NumberFrom(0))),
    (
        "journal",
        Taken(|uri, value| {
            uri.write_concern.insert("j", truth(value)?);
            Ok(())
        }),
    ),
    ("loadBalanced", Taken(|_, value| only(value, "false", "there are no routers yet"))),
    ("localThresholdMS", Inert(Kind::NumberFrom(0))),
    ("maxConnecting", Inert(Kind::NumberFrom(1))),
    ("maxIdleTimeMS", Inert(Kind::NumberFrom(0))),
    ("maxPoolSize", Inert(Kind::NumberFrom(0))),
    ("maxStalenessSeconds", Taken(|_, value| only(value, "-1", NO_CHOICE))),
    ("minPoolSize", Inert(Kind::NumberFrom(0))),
    ("proxyHost", Refused(NO_PROXY)),
    ("proxyPassword", Refused(NO_PROXY)),
    ("proxyPort", Refused(NO_PROXY)),
    ("proxyUsername", Refused(NO_PROXY)),
    ("readConcernLevel", Taken(|_, value| only(value, "local", "baton's own commands read what is newest"))),
    (
        "readPreference",
        Taken(|uri, value| {
            const MODES: [&str; 5] = ["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];
            let mode = MODES.into_iter().find(|mode| mode.eq_ignore_ascii_case(value));
            uri.read_preference = Some(mode.ok_or(format!("'{value}' is none of {}", MODES.join(", ")))?.to_owned());
            Ok(())
        }),
    ),
    ("readPreferenceTags", Refused(NO_CHOICE)),
    (
        "replicaSet",
        Taken(|uri, value| {
            if value.is_empty() {
                return Err("needs the set's name".into());
            }
            uri.replica_set = Some(value.to_owned());
            Ok(())
        }),
    ),
    ("retryReads", Inert(Kind::Truth)),
    ("retryWrites", Inert(Kind::Truth)),
    ("serverMonitoringMode", Inert(Kind::Text)),
    (
        "serverSelectionTimeoutMS",
        Taken(|uri, value| {
            uri.selection_timeout = Some(milliseconds(value)?);
            Ok(())
        }),
    ),
    ("serverSelectionTryOnce", Inert(Kind::Truth)),
    (
        "socketTimeoutMS",
        Taken(|uri, value| {
            uri.answer_timeout = Some(milliseconds(value)?);
            Ok(())
        }),
    ),
    ("srvMaxHosts", Refused(NO_SRV_OPTION)),
    ("srvServiceName", Refused(NO_SRV_OPTION)),
    ("ssl", Taken(|_, value| only(value, "false", NO_TLS))),
    ("timeoutMS", Refused("give serverSelectionTimeoutMS, connectTimeoutMS or socketTimeoutMS instead")),
    ("tls", Taken(|_, value| only(value, "false", NO_TLS))),
    ("tlsAllowInvalidCertificates", Taken(|_, value| only(value, "false", NO_TLS))),
    ("tlsAllowInvalidHostnames", Taken(|_, value| only(value, "false", NO_TLS))),
    ("tlsCAFile", Refused(NO_TLS)),
    ("tlsCertificateKeyFile", Refused(NO_TLS)),
    ("tlsCertificateKeyFilePassword", Refused(NO_TLS)),
    ("tlsDisableCertificateRevocationCheck", Taken(|_, value| only(value, "false", NO_TLS))),
    ("tlsDisableOCSPEndpointCheck", Taken(|_, value| only(value, "false", NO_TLS))),
    ("tlsInsecure", Taken(|_, value| only(value, "false", NO_TLS))),
    ("uuidRepresentation", Inert(Kind::Text)),
    (
        "w",
        Taken(|uri, value| {
            let w = value.parse::<u16>().map_or_else(|_| Bson::String(value.to_owned()), |n| Bson::Int32(n.into()));
            uri.write_concern.insert("w", w);
            Ok(())
        }),
    ),
    ("waitQueueTimeoutMS", Inert(Kind::NumberFrom(0))),
    (
        "wtimeoutMS",
        Taken(|uri, value| {
            let time = i64::try_from(milliseconds(value)?.as_millis()).unwrap_or(i64::MAX);
            uri.write_concern.insert("wtimeout", time);
            Ok(())
        }),
    ),
    ("zlibCompressionLevel", Inert(Kind::NumberFrom(-1))),
];

impl Uri {
    /// Takes a connection string apart.
    ///
    /// # Errors
    /// With a text for the operator that names what cannot be honoured.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("mongodb+srv://") {
            return Err(NO_SRV.into());
        }
        let rest = text
            .strip_prefix("mongodb://")
            .ok_or_else(|| format!("'{text}' is no connection string; it begins with mongodb://"))?;
        let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = before.split_once('/').unwrap_or((before, ""));
        if authority.contains('@') {
            return Err(NO_USERS.into());
        }
        let hosts = authority.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        let mut uri = Self {
            hosts,
            database: Some(decoded(database)?).filter(|database| !database.is_empty()),
            replica_set: None,
            direct: false,
            read_preference: None,
            connect_timeout: Some(CONNECT_TIMEOUT),
            answer_timeout: None,
            selection_timeout: None,
            app_name: None,
            write_concern: Document::new(),
        };
        uri.take_options(options)?;
        if uri.direct && uri.hosts.len() > 1 {
            return Err("directConnection=true means one host, and the connection string names several".into());
        }
        Ok(uri)
    }

    fn take_options(&mut self, options: &str) -> Result<(), String> {
        let mut seen: Vec<&str> = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| format!("'{option}' in the connection string has no value: NAME=VALUE"))?;
            let known = OPTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let (name, option) = known.ok_or_else(|| format!("'{name}' is no option of a connection string"))?;
            if seen.contains(name) {
                return Err(format!("{name} is in the connection string twice"));
            }
            seen.push(name);
            match option {
                Taken(take) => take(self, &decoded(value)?).map_err(|why| format!("{name}={value}: {why}"))?,
                Inert(kind) => kind.check(&decoded(value)?).map_err(|why| format!("{name}={value}: {why}"))?,
                Refused(why) => return Err(format!("{name} in the connection string: {why}")),
            }
        }
        Ok(())
    }

    /// What a member is told about whom to read from, if that is not the primary alone. Of one host that is meant whatever it is,
    /// drivers say `primaryPreferred`.
    pub fn read_mode(&self) -> Option<&str> {
        match self.read_preference.as_deref() {
            Some("primary") => None,
            Some(mode) => Some(mode),
            None => self.direct.then_some("primaryPreferred"),
        }
    }

    /// How long to wait for the answer to a command that a member has taken; `None` is without end.
    pub fn answer_time(&self) -> Option<Duration> {
        self.answer_timeout.filter(|time| !time.is_zero())
    }

    /// How long to wait for a member that can be used.
    pub fn selection_time(&self) -> Duration {
        self.selection_timeout.unwrap_or(SELECTION_TIMEOUT)
    }
}

/// `host:port` of a host as the string has it.
fn host(text: &str) -> Result<String, String> {
    let text = decoded(text)?;
    if text.is_empty() {
        return Err("the connection string names no host where it should: mongodb://HOST:PORT".into());
    }
    if text.contains('/') {
        return Err(format!("{text}: baton's own commands speak TCP, not to Unix sockets; name HOST:PORT"));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !text.ends_with(']') => (name, port),
        _ => return Ok(format!("{text}:{PORT}")),
    };
    if name.is_empty() {
        return Err(format!("'{text}' names no host"));
    }
    if name.contains(':') && !name.ends_with(']') {
        return Err(format!("'{text}': an IPv6 address stands in brackets, [::1]:{PORT}"));
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(text),
        _ => Err(format!("'{text}': '{port}' is no port, which is a number up to 65535")),
    }
}

/// Undoes `%XX`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' in the connection string: % stands before two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn truth(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "must be true or false".into())
}

fn milliseconds(value: &str) -> Result<Duration, String> {
    value
        .parse::<u32>()
        .map(|ms| Duration::from_millis(ms.into()))
        .map_err(|_| "must be a number of milliseconds".into())
}

fn only(value: &str, allowed: &str, why_not: &str) -> Result<(), String> {
    if value == allowed { Ok(()) } else { Err(why_not.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    fn parse(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    #[test]
    fn every_host_is_taken_with_mongodbs_port_if_it_has_none() {
        assert_eq!(parse("mongodb://a:5,b:6/?replicaSet=rs0").hosts, ["a:5", "b:6"]);
        assert_eq!(parse("mongodb://a").hosts, ["a:27017"]);
        assert_eq!(parse("mongodb://[::1]/x,y").hosts, ["[::1]:27017"]);
        assert_eq!(parse("mongodb://[::1]:5").hosts, ["[::1]:5"]);
        for bad in [
            "a:5",
            "mongodb://",
            "mongodb://a:",
            "mongodb://a:x",
            "mongodb://a:0",
            "mongodb://a,,b",
            "mongodb://:5",
            "mongodb://::1:5",
            "mongodb://%2Ftmp%2Fmongodb-27017.sock",
            "mongodb://a%2",
        ] {
            assert!(Uri::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_options_are_honoured() {
        let uri = parse(
            "mongodb://a/shop?replicaset=rs0&readPreference=Secondary&connectTimeoutMS=0&socketTimeoutMS=5&\
             serverSelectionTimeoutMS=7&appName=my%20app&w=2&journal=true&wtimeoutMS=9&tls=false&retryWrites=false",
        );
        assert_eq!(uri.database.as_deref(), Some("shop"));
        assert_eq!(uri.replica_set.as_deref(), Some("rs0"));
        assert_eq!(uri.read_mode(), Some("secondary"));
        assert_eq!((uri.connect_timeout, uri.answer_timeout), (None, Some(Duration::from_millis(5))));
        assert_eq!(uri.selection_time(), Duration::from_millis(7));
        assert_eq!(uri.app_name.as_deref(), Some("my app"));
        assert_eq!(uri.write_concern, doc! { "w": 2, "j": true, "wtimeout": 9_i64 });
        assert_eq!(parse("mongodb://a/?w=majority").write_concern, doc! { "w": "majority" });
    }

    #[test]
    fn a_uri_says_whom_to_read_from() {
        let mode = |options: &str| parse(&format!("mongodb://a:1/{options}")).read_mode().map(str::to_owned);
        assert_eq!(mode(""), None);
        assert_eq!(mode("?replicaSet=rs0&readPreference=primary&directConnection=true"), None);
        assert_eq!(mode("?readPreference=secondary").as_deref(), Some("secondary"));
        assert_eq!(mode("?directConnection=true").as_deref(), Some("primaryPreferred"));
    }

    #[test]
    fn a_string_copied_from_an_application_is_taken() {
        let uri = parse(
            "mongodb://a,b/shop?replicaSet=rs0&retryWrites=true&retryReads=true&w=majority&readPreference=primaryPreferred&\
             appName=shop&tls=false&maxPoolSize=50&minPoolSize=5&maxIdleTimeMS=60000&waitQueueTimeoutMS=500&compressors=zstd,snappy&\
             heartbeatFrequencyMS=5000&localThresholdMS=15&uuidRepresentation=standard&authSource=admin&tlsInsecure=false&journal=true",
        );
        let bare = parse(
            "mongodb://a,b/shop?replicaSet=rs0&w=majority&readPreference=primaryPreferred&appName=shop&journal=true",
        );
        assert_eq!(uri, bare, "what has no meaning here changes nothing");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let refused = |text: &str| Uri::parse(text).unwrap_err();
        assert!(refused("mongodb+srv://cluster.example.com/").contains("mongodb://HOST:PORT"));
        assert!(refused("mongodb://u:p@a").contains("users are not implemented yet"));
        assert!(refused("mongodb://a/?tls=true").contains("tls=true: TLS is not"));
        for option in [
            "ssl=true",
            "tlsCAFile=f",
            "tlsInsecure=true",
            "authMechanism=SCRAM-SHA-256",
            "retryWrites=perhaps",
            "maxPoolSize=many",
            "maxConnecting=0",
            "readPreferenceTags=dc:ny",
            "maxStalenessSeconds=90",
            "readConcernLevel=majority",
            "readPreference=nobody",
            "directConnection=1",
            "connectTimeoutMS=soon",
            "frobnicate=1",
            "w",
        ] {
            let why = refused(&format!("mongodb://a/?{option}"));
            assert!(why.contains(option.split('=').next().unwrap()), "{option}: {why}");
        }
        assert!(refused("mongodb://a,b/?directConnection=true").contains("several"));
        assert!(refused("mongodb://a/?replicaSet=a&replicaSet=b").contains("twice"));
    }

    #[test]
    fn the_table_is_sorted_and_names_nothing_twice() {
        for pair in OPTIONS.windows(2) {
            assert!(pair[0].0.to_lowercase() < pair[1].0.to_lowercase(), "{} and {}", pair[0].0, pair[1].0);
        }
    }
}
