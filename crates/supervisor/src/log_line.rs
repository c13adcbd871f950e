//! A worker's log line: one JSON object with `level`, `message`, perhaps `phase`, and more.

use serde_json::{Map, Value};
use tracing::Level;

use crate::Phase;
use crate::machine::Report;

/// A log line, understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogLine {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) phase: Option<Phase>,
    /// Its field `progress`, empty if it has none.
    progress: String,
    /// Everything else it holds, as a JSON object; none if that is nothing.
    pub(crate) fields: Option<String>,
}

impl LogLine {
    /// Reads a line; none if it is not a JSON object with a message, which is then simply text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        let mut fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        let Some(Value::String(message)) = fields.remove("message") else {
            return None;
        };
        let level = fields
            .get("level")
            .and_then(Value::as_str)
            .map_or(Level::INFO, level_named);
        fields.remove("level");
        let phase = fields
            .get("phase")
            .and_then(|phase| phase.as_str()?.parse().ok());
        if phase.is_some() {
            fields.remove("phase");
        }
        Some(Self {
            level,
            message,
            phase,
            progress: fields
                .get("progress")
                .map(Value::to_string)
                .unwrap_or_default(),
            fields: (!fields.is_empty()).then(|| Value::Object(fields).to_string()),
        })
    }

    /// What it says of the worker's progress: the message and a `progress` field count, so that
    /// a download that only counts bytes makes progress; a time stamp does not, so that a loop
    /// that repeats itself makes none.
    pub(crate) fn report(&self) -> Option<Report> {
        self.phase.map(|phase| Report {
            phase,
            detail: format!("{} {}", self.message, self.progress),
        })
    }
}

fn level_named(name: &str) -> Level {
    match name.to_ascii_lowercase().as_str() {
        "trace" => Level::TRACE,
        "debug" => Level::DEBUG,
        "warning" | "warn" => Level::WARN,
        "error" | "critical" | "fatal" => Level::ERROR,
        _ => Level::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_keeps_its_level_message_phase_and_fields() {
        let line = LogLine::parse(
            r#"{"level":"warning","message":"slow","phase":"load","progress":0.5,"file":"a"}"#,
        )
        .unwrap();
        assert_eq!(line.level, Level::WARN);
        assert_eq!(line.message, "slow");
        assert_eq!(line.phase, Some(Phase::Load));
        assert_eq!(
            line.fields.as_deref(),
            Some(r#"{"file":"a","progress":0.5}"#)
        );
        assert_eq!(line.report().unwrap().detail, "slow 0.5");
    }

    #[test]
    fn a_line_that_is_no_log_line_is_text() {
        for text in [
            "plain",
            "{",
            "[1]",
            r#"{"message":5}"#,
            r#"{"level":"info"}"#,
            "{}",
        ] {
            assert_eq!(LogLine::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_unknown_level_is_info_and_an_unknown_phase_is_a_field() {
        let line = LogLine::parse(r#"{"level":7,"message":"m","phase":"dancing"}"#).unwrap();
        assert_eq!((line.level, line.phase), (Level::INFO, None));
        assert_eq!(line.fields.as_deref(), Some(r#"{"phase":"dancing"}"#));
        assert_eq!(line.report(), None);
    }
}
