//! How an event becomes a line.

use std::cell::RefCell;
use std::fmt::{self, Debug, Write as _};
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::IgnoredAny;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::{ACCESS, WORKER};

/// The field of a worker's line that holds all that the supervisor does not know, as a JSON object.
const WORKERS_FIELDS: &str = "fields";

/// What the lines look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
}

/// Writes access lines itself, and in JSON those of workers, whose `fields` are an object there; it leaves all others to
/// the general formatter. Neither has a span: they are written where no span is open.
pub(super) struct Lines<F> {
    form: Form,
    general: F,
}

/// What one thread keeps from line to line.
struct Desk {
    line: Vec<u8>,
    /// The second of the last line and the text up to its fraction, which most lines share.
    second: u64,
    stamp: String,
}

thread_local! {
    static DESK: RefCell<Desk> = const {
        RefCell::new(Desk {
            line: Vec::new(),
            second: u64::MAX,
            stamp: String::new(),
        })
    };
}

// === impl Lines ===

impl<F> Lines<F> {
    pub(super) fn new(form: Form, general: F) -> Self {
        Self { form, general }
    }
}

impl<S, N, F> FormatEvent<S, N> for Lines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let is_ours = match event.metadata().target() {
            // A terminal's colours are the general formatter's.
            ACCESS => !writer.has_ansi_escapes(),
            WORKER => self.form == Form::Json,
            _ => false,
        };
        if !is_ours {
            return self.general.format_event(context, writer, event);
        }
        DESK.with_borrow_mut(|desk| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            desk.write(self.form, now.unwrap_or_default(), event);
            // Made of whole texts.
            writer.write_str(std::str::from_utf8(&desk.line).map_err(|_| fmt::Error)?)
        })
    }
}

// === impl Desk ===

impl Desk {
    fn write(&mut self, form: Form, now: Duration, event: &Event<'_>) {
        self.line.clear();
        let level = event.metadata().level().as_str();
        match form {
            Form::Text => {
                self.push_time(now);
                // As wide as the widest, which has five letters.
                self.line.extend_from_slice(&b"      "[level.len()..]);
                self.line.extend_from_slice(level.as_bytes());
                self.line.push(b' ');
                self.line.extend_from_slice(ACCESS.as_bytes());
                self.line.push(b':');
                event.record(&mut TextFields(&mut self.line));
            }
            Form::Json => {
                self.line.extend_from_slice(b"{\"timestamp\":\"");
                self.push_time(now);
                self.line.extend_from_slice(b"\",\"level\":\"");
                self.line.extend_from_slice(level.as_bytes());
                self.line.push(b'"');
                event.record(&mut JsonFields(&mut self.line));
                self.line.extend_from_slice(b",\"target\":\"");
                let target = event.metadata().target();
                self.line.extend_from_slice(target.as_bytes());
                self.line.extend_from_slice(b"\"}");
            }
        }
        self.line.push(b'\n');
    }

    /// RFC 3339, in microseconds.
    fn push_time(&mut self, now: Duration) {
        if now.as_secs() != self.second {
            self.second = now.as_secs();
            self.stamp.clear();
            let second = UNIX_EPOCH + Duration::from_secs(self.second);
            // Past the year 9999 there is no such text, and the line goes without.
            let _ = write!(self.stamp, "{}", humantime::format_rfc3339_seconds(second));
            self.stamp.pop();
        }
        self.line.extend_from_slice(self.stamp.as_bytes());
        self.line.push(b'.');
        let micros = now.subsec_micros();
        push_digits(&mut self.line, u64::from(micros), 6);
        self.line.push(b'Z');
    }
}

/// Adds ` name=value` for each field.
struct TextFields<'a>(&'a mut Vec<u8>);

/// Adds `,"name":value` for each field.
struct JsonFields<'a>(&'a mut Vec<u8>);

// === impl TextFields ===

impl TextFields<'_> {
    fn name(&mut self, field: &Field) {
        self.0.push(b' ');
        self.0.extend_from_slice(field.name().as_bytes());
        self.0.push(b'=');
    }
}

impl Visit for TextFields<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        push_digits(self.0, value, 1);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if is_plain(value) {
            self.name(field);
            self.0.push(b'"');
            self.0.extend_from_slice(value.as_bytes());
            self.0.push(b'"');
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.name(field);
        // Debug escapes the controls of a text, but not all types' Debug does.
        for character in format!("{value:?}").chars() {
            if character.is_control() {
                push(self.0, character.escape_default());
            } else {
                push(self.0, character);
            }
        }
    }
}

// === impl JsonFields ===

impl JsonFields<'_> {
    fn name(&mut self, field: &Field) {
        // Names are identifiers of ours, in need of no escape.
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(field.name().as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

impl Visit for JsonFields<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        push_digits(self.0, value, 1);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field);
        push(self.0, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field);
        self.0
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        self.0.push(b'"');
        if is_plain(value) {
            self.0.extend_from_slice(value.as_bytes());
        } else {
            push_escaped(self.0, value);
        }
        self.0.push(b'"');
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == WORKERS_FIELDS && is_json_object(&text) {
            self.name(field);
            push_object(self.0, &text);
        } else {
            self.record_str(field, &text);
        }
    }
}

/// Whether a text stands between quotes as it is: printable ASCII without quotes and backslashes.
fn is_plain(text: &str) -> bool {
    // All bytes whatever the first ones are: the compiler makes that a few instructions for many bytes.
    let special = |byte| !matches!(byte, b' '..=b'~') || byte == b'"' || byte == b'\\';
    !text.bytes().fold(false, |any, byte| any | special(byte))
}

/// Whether a text is a JSON object, which needs no quotes in JSON.
fn is_json_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// An object in JSON, with the controls escaped that JSON lets pass within its strings.
fn push_object(line: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        if character.is_control() {
            push(line, format_args!("\\u{:04x}", u32::from(character)));
        } else {
            push(line, character);
        }
    }
}

/// A JSON string's inside (RFC 8259 7). Controls that JSON would let pass, DEL and those past ASCII, are escaped
/// too: a terminal obeys them.
fn push_escaped(line: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        match character {
            '"' => line.extend_from_slice(b"\\\""),
            '\\' => line.extend_from_slice(b"\\\\"),
            '\n' => line.extend_from_slice(b"\\n"),
            '\r' => line.extend_from_slice(b"\\r"),
            '\t' => line.extend_from_slice(b"\\t"),
            _ if character.is_control() => {
                push(line, format_args!("\\u{:04x}", u32::from(character)));
            }
            _ => push(line, character),
        }
    }
}

/// Adds what `value` displays as.
fn push(line: &mut Vec<u8>, value: impl fmt::Display) {
    // A vector takes whatever is written.
    let _ = write!(line, "{value}");
}

/// A number in decimal digits, with zeros before it until there are `least`.
fn push_digits(line: &mut Vec<u8>, number: u64, least: usize) {
    const MOST: usize = 20;
    let mut digits = [b'0'; MOST];
    let (mut rest, mut start) = (number, MOST);
    while rest > 0 {
        start -= 1;
        // A remainder of ten fits.
        digits[start] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    let digits = &digits[start.min(MOST - least)..];
    line.extend_from_slice(digits);
}

#[cfg(test)]
mod tests;
