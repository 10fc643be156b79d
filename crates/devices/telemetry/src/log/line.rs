//! One line of the log, in both of its forms.
//!
//! Invariants: the JSON form is one valid JSON object without line breaks, whatever a client put into an attribute; an
//! attribute is cut at 10 KiB, and the line says so.
//! What it does not do: write it anywhere.

use chrono::{DateTime, Utc};
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// An attribute longer than this is cut (mongod's `maxLogSizeKB`).
const ATTRIBUTE_SIZE_MAX_BYTES: usize = 10 * 1024;
/// A field with this prefix holds JSON.
const JSON_PREFIX: &str = "json.";

/// Whom the calling thread works for, as mongod names it: a connection, or what the thread is named after.
fn context() -> String {
    match baton_machine::connection() {
        Some(id) => format!("conn{id}"),
        None => std::thread::current().name().unwrap_or("-").to_owned(),
    }
}

/// An event, taken apart.
pub(super) struct Line {
    time: DateTime<Utc>,
    severity: &'static str,
    component: &'static str,
    id: i64,
    context: String,
    message: String,
    /// Names, and values as JSON.
    attributes: Vec<(&'static str, String)>,
    /// Names and full sizes of the attributes that were cut.
    cut: Vec<(&'static str, usize)>,
    pub(super) startup_warning: bool,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut line = Self {
            time: Utc::now(),
            severity: match *metadata.level() {
                Level::ERROR => "E",
                Level::WARN => "W",
                Level::INFO => "I",
                Level::DEBUG => "D1",
                Level::TRACE => "D2",
            },
            component: component_of(metadata.target()),
            id: 0,
            context: context(),
            message: String::new(),
            attributes: Vec::new(),
            cut: Vec::new(),
            startup_warning: false,
        };
        event.record(&mut line);
        line
    }

    /// mongod's form.
    pub(super) fn json(&self) -> String {
        let mut out = String::with_capacity(256);
        let time = self.time.format("%Y-%m-%dT%H:%M:%S%.3f+00:00");
        // Writing to a string does not fail.
        let _ = write!(
            out,
            r#"{{"t":{{"$date":"{time}"}},"s":"{}","c":"{}","id":{},"ctx":{},"msg":{}"#,
            self.severity,
            self.component,
            self.id,
            quoted(&self.context),
            quoted(&self.message)
        );
        if !self.attributes.is_empty() {
            out.push_str(r#","attr":{"#);
            append_members(&mut out, self.attributes.iter().map(|(name, value)| (*name, value)));
            out.push('}');
        }
        if self.startup_warning {
            out.push_str(r#","tags":["startupWarnings"]"#);
        }
        if !self.cut.is_empty() {
            out.push_str(r#","truncated":{"#);
            append_members(&mut out, self.cut.iter().map(|(name, size)| (*name, size)));
            out.push('}');
        }
        out.push('}');
        out
    }

    /// The form for eyes: time, severity, component, context, message, then the attributes.
    pub(super) fn human(&self) -> String {
        let time = self.time.format("%H:%M:%S%.3f");
        let mut out = format!(
            "{time} {:<2} {:<8} {:<9} {}",
            self.severity,
            self.component,
            self.context,
            one_line(&self.message)
        );
        for (name, value) in &self.attributes {
            let _ = write!(out, "  {name}={value}");
        }
        out
    }

    fn text(&mut self, field: &Field, text: &str) {
        match field.name() {
            "message" => text.clone_into(&mut self.message),
            "ctx" => text.clone_into(&mut self.context),
            name => {
                let (kept, cut) = cut_at(text, ATTRIBUTE_SIZE_MAX_BYTES);
                if cut {
                    self.cut.push((name, text.len()));
                }
                match name.strip_prefix(JSON_PREFIX) {
                    Some(bare) if !cut && is_one_line_json(text) => self.attributes.push((bare, text.to_owned())),
                    Some(bare) => self.attributes.push((bare, quoted(kept))),
                    None => self.attributes.push((name, quoted(kept))),
                }
            }
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "id" => self.id = value,
            name => self.attributes.push((name, value.to_string())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.attributes.push((field.name(), value.to_string())),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "startupWarning" => self.startup_warning = value,
            "fatal" if value => self.severity = "F",
            "fatal" => {}
            name => self.attributes.push((name, value.to_string())),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinities.
        let value = if value.is_finite() { value.to_string() } else { quoted(&value.to_string()) };
        self.attributes.push((field.name(), value));
    }
}

fn append_members<'m>(out: &mut String, members: impl Iterator<Item = (&'m str, impl fmt::Display)>) {
    for (at, (name, value)) in members.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{}:{value}", quoted(name));
    }
}

/// mongod's components are in capitals; what other crates log has none.
fn component_of(target: &'static str) -> &'static str {
    if target.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') { target } else { "-" }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn is_one_line_json(text: &str) -> bool {
    // Behind valid JSON's strings no raw line break is possible, between its tokens it is.
    !text.contains(['\n', '\r']) && serde_json::from_str::<serde_json::Value>(text).is_ok()
}

/// The text's beginning of at most so many bytes, and whether something is missing.
fn cut_at(text: &str, size: usize) -> (&str, bool) {
    if text.len() <= size {
        return (text, false);
    }
    let end = (0..=size).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    (&text[..end], true)
}
