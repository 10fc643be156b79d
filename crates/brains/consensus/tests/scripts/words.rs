//! The words of a line, and what they mean: members by letter, links, OpTimes, `name=value`.

use baton_consensus::MemberId;
use baton_types::{OpTime, Timestamp};
use std::str::FromStr;
use std::time::Duration;

/// A line without its time and its command.
pub struct Words<'a>(pub Vec<&'a str>);

impl<'a> Words<'a> {
    /// What stands behind `name=`.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether the word is there by itself.
    pub fn has(&self, word: &str) -> bool {
        self.0.contains(&word)
    }

    /// The word at this place, among those that are no `name=value`.
    pub fn plain(&self, place: usize) -> Option<&'a str> {
        self.0.iter().filter(|word| !word.contains('=')).nth(place).copied()
    }

    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.value(name).map(parse)
    }

    pub fn secs(&self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_secs_f64)
    }

    /// The member that the line is about.
    pub fn member(&self) -> MemberId {
        member(self.plain(0).unwrap_or_else(|| unreachable!("the line names no member")))
    }

    /// `name=a,b`.
    pub fn members(&self, name: &str) -> Vec<MemberId> {
        self.value(name).map(|names| names.split(',').map(member).collect()).unwrap_or_default()
    }

    /// `name=a:1,b:2`.
    pub fn by_member<T: FromStr>(&self, name: &str) -> Vec<(MemberId, T)> {
        let pair = |pair: &str| {
            let (who, value) = pair.split_once(':').unwrap_or_else(|| unreachable!("{pair} is not member:value"));
            (member(who), parse(value))
        };
        self.value(name).map(|pairs| pairs.split(',').map(pair).collect()).unwrap_or_default()
    }
}

pub fn parse<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| unreachable!("{word} is not what stands here"))
}

/// `a` is member 0.
pub fn member(name: &str) -> MemberId {
    match name.as_bytes() {
        [letter @ b'a'..=b'z'] => MemberId(i32::from(letter - b'a')),
        _ => unreachable!("{name} is no member"),
    }
}

pub fn name(member: MemberId) -> char {
    char::from(b'a' + u8::try_from(member.0).unwrap_or(u8::MAX - b'a'))
}

/// One direction between two members; a side that is left out is every member.
#[derive(Clone, Copy)]
pub struct Link {
    pub from: Option<MemberId>,
    pub to: Option<MemberId>,
}

impl Link {
    /// `a->b`, `a->`, `->b`; nothing or `all`: every one.
    pub fn parse(word: Option<&str>) -> Self {
        let Some((from, to)) = word.unwrap_or("all").split_once("->") else {
            return Self { from: None, to: None };
        };
        let side = |side: &str| (!side.is_empty()).then(|| member(side));
        Self { from: side(from), to: side(to) }
    }

    pub fn has(self, from: MemberId, to: MemberId) -> bool {
        self.from.is_none_or(|it| it == from) && self.to.is_none_or(|it| it == to)
    }

    /// Whether it names one direction between two members, on which the oldest message is meant and not every one.
    pub fn is_single(self) -> bool {
        self.from.is_some() && self.to.is_some()
    }
}

/// `2@7`: the entry of term 2 at second 7.
pub fn optime(word: &str) -> OpTime {
    let (term, seconds) = word.split_once('@').unwrap_or_else(|| unreachable!("{word} is no term@second"));
    OpTime { term: parse(term), timestamp: Timestamp { seconds: parse(seconds), increment: 1 } }
}

pub fn show(optime: OpTime) -> String {
    match optime == OpTime::ZERO {
        true => "nothing".to_owned(),
        false => format!("{}@{}", optime.term, optime.timestamp.seconds),
    }
}
