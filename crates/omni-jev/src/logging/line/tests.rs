use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format;

use super::*;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Memory {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Runs `log` with `lean` lines or the general formatter's.
fn written(form: Form, lean: bool, log: &dyn Fn()) -> String {
    let memory = Memory::default();
    let builder = tracing_subscriber::fmt()
        .with_writer(memory.clone())
        .with_ansi(false);
    let fields = format::JsonFields::new();
    let json = format::format().json().flatten_event(true);
    match (form, lean) {
        (Form::Text, true) => {
            let lines = Lines::new(form, format::format());
            tracing::subscriber::with_default(builder.event_format(lines).finish(), log);
        }
        (Form::Text, false) => tracing::subscriber::with_default(builder.finish(), log),
        (Form::Json, true) => {
            let builder = builder.fmt_fields(fields);
            let lines = builder.event_format(Lines::new(form, json)).finish();
            tracing::subscriber::with_default(lines, log);
        }
        (Form::Json, false) => {
            let builder = builder.fmt_fields(fields);
            tracing::subscriber::with_default(builder.event_format(json).finish(), log);
        }
    }
    let bytes = std::mem::take(&mut *memory.0.lock().unwrap());
    String::from_utf8(bytes).unwrap()
}

/// A line without its time, which differs.
fn timeless(line: &str) -> String {
    let time = line.find("20").unwrap();
    let end = time + "2026-11-30T09:40:39.123456Z".len();
    assert_eq!(&line[end - 1..end], "Z", "{line}");
    [&line[..time], &line[end..]].concat()
}

fn access(path: &str, reason: Option<&str>) {
    tracing::info!(
        target: ACCESS,
        method = "POST",
        path,
        status = 200u16,
        bytes_in = 400usize,
        took_us = u64::MAX,
        backend_us = Some(0u64),
        reason,
    );
}

#[test]
fn an_access_line_is_what_the_general_formatter_would_write() {
    for form in [Form::Text, Form::Json] {
        for path in ["/v1/systemone", "/a\"b\\c", "/\u{e9}/\u{4e2d}", "", "/a b"] {
            for reason in [None, Some("died")] {
                let log = || access(path, reason);
                let lean = written(form, true, &log);
                let general = written(form, false, &log);
                assert_eq!(timeless(&lean), timeless(&general), "{path:?}");
            }
        }
    }
}

#[test]
fn other_lines_are_the_general_formatters_own() {
    for form in [Form::Text, Form::Json] {
        let log = || tracing::warn!(error = %"a\nb", "cannot connect");
        let lean = written(form, true, &log);
        let general = written(form, false, &log);
        assert_eq!(timeless(&lean), timeless(&general));
    }
}

#[test]
fn a_time_has_all_its_digits_and_its_second_is_not_the_last_lines() {
    let mut desk = Desk {
        line: Vec::new(),
        second: u64::MAX,
        stamp: String::new(),
    };
    for (now, expected) in [
        (Duration::ZERO, "1970-01-01T00:00:00.000000Z"),
        (
            Duration::new(951_782_399, 1_999),
            "2000-02-28T23:59:59.000001Z",
        ),
        (
            Duration::new(951_782_400, 999_999_999),
            "2000-02-29T00:00:00.999999Z",
        ),
    ] {
        desk.line.clear();
        desk.push_time(now);
        assert_eq!(desk.line, expected.as_bytes());
    }
}

proptest! {
    #[test]
    fn any_text_is_one_json_line_that_reads_back_without_a_raw_control(text in any::<String>()) {
        let line = written(Form::Json, true, &|| access(&text, None));
        let line = line.strip_suffix('\n').unwrap();
        prop_assert!(!line.contains(char::is_control));
        let read: serde_json::Value = serde_json::from_str(line).unwrap();
        prop_assert_eq!(read["path"].as_str(), Some(text.as_str()));
    }

    #[test]
    fn any_text_is_one_text_line_without_a_raw_control(text in any::<String>()) {
        let line = written(Form::Text, true, &|| access(&text, None));
        prop_assert!(!line.strip_suffix('\n').unwrap().contains(char::is_control));
    }

    #[test]
    fn digits_are_those_of_the_standard_library(number: u64) {
        let mut line = Vec::new();
        push_digits(&mut line, number, 1);
        prop_assert_eq!(line, number.to_string().into_bytes());
    }
}

/// As the supervisor writes it.
fn workers_line(message: &str, fields: Option<&str>) {
    tracing::warn!(
        target: WORKER,
        worker = "main",
        pid = 7u32,
        phase = Some("load"),
        fields = fields.map(tracing::field::display),
        "{message}"
    );
}

#[test]
fn a_workers_fields_are_an_object_in_json() {
    let fields = "{\"ms\":1.5,\"path\":\"a \\\"b\\\" \u{7f}\u{85}\"}";
    let line = written(Form::Json, true, &|| workers_line("slow", Some(fields)));
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["fields"]["ms"], 1.5);
    assert_eq!(value["fields"]["path"], "a \"b\" \u{7f}\u{85}");
    assert_eq!(value["message"], "slow");
    assert!(!line.trim_end().contains(char::is_control), "{line}");
    // What is no object stays a text, and what is none is left out.
    let line = written(Form::Json, true, &|| workers_line("slow", Some("{no")));
    assert!(line.contains("\"fields\":\"{no\""), "{line}");
}

#[test]
fn all_else_of_a_workers_line_is_as_the_general_formatter_writes_it() {
    let log = |message: &'static str, fields| move || workers_line(message, fields);
    for message in ["plain", "a \"quoted\" \n line"] {
        let plain = log(message, None);
        assert_eq!(
            timeless(&written(Form::Json, true, &plain)),
            timeless(&written(Form::Json, false, &plain))
        );
        let whole = log(message, Some("{\"ms\":1}"));
        assert_eq!(
            timeless(&written(Form::Text, true, &whole)),
            timeless(&written(Form::Text, false, &whole))
        );
    }
}
