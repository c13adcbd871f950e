//! Workers and log lines for a person at a terminal.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use crate::control::report::{LogLine, WorkerReport};

const HEADINGS: [&str; 9] = [
    "NAME",
    "STATE",
    "PHASE",
    "PID",
    "UPTIME",
    "RESTARTS",
    "DEVICE",
    "MEMORY",
    "CHECKPOINT",
];

/// A table of the workers, and below it what there is to say of each.
pub(super) fn workers(workers: &[WorkerReport]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(workers.iter().map(row));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    for worker in workers {
        notes(&mut text, worker);
    }
    text
}

fn row(worker: &WorkerReport) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let checkpoint = match (&worker.checkpoint, &worker.revision) {
        (Some(checkpoint), Some(revision)) => Some(format!("{checkpoint}@{revision}")),
        (checkpoint, _) => checkpoint.clone(),
    };
    [
        worker.name.clone(),
        worker.state.clone(),
        or_dash(worker.phase.clone()),
        or_dash(worker.pid.map(|pid| pid.to_string())),
        or_dash(worker.uptime_s.map(span)),
        worker.restarts.to_string(),
        or_dash(worker.device.clone()),
        or_dash(
            worker
                .memory_bytes
                .map(|bytes| format!("{} MiB", bytes >> 20)),
        ),
        or_dash(checkpoint),
    ]
}

fn notes(text: &mut String, worker: &WorkerReport) {
    let _ = writeln!(text, "\n{}: {}", worker.name, worker.message);
    if let Some(why) = &worker.degraded {
        let _ = writeln!(text, "  degraded: {why}");
    }
    for end in &worker.ends {
        let kind = if end.planned { "replaced" } else { "failed" };
        let (ago, reason) = (span(end.seconds_ago), one_line(&end.reason));
        let _ = writeln!(
            text,
            "  {ago} ago, process {} {kind}: {reason}",
            end.generation
        );
    }
}

pub(super) fn log_line(line: &LogLine) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(line.at).unwrap_or_default();
    let pid = line.pid.map(|pid| format!("[{pid}]")).unwrap_or_default();
    format!(
        "{} {:5} {}{pid} {}\n",
        humantime::format_rfc3339_millis(at),
        line.level.to_uppercase(),
        line.by,
        one_line(&line.text)
    )
}

/// The worker's own text must not move a terminal's cursor or begin a line of its own.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn span(seconds: f64) -> String {
    let whole = Duration::from_secs(
        Duration::try_from_secs_f64(seconds)
            .unwrap_or_default()
            .as_secs(),
    );
    humantime::format_duration(whole).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::report::End;

    fn report() -> WorkerReport {
        WorkerReport {
            name: "main".to_owned(),
            state: "ready".to_owned(),
            since_s: 1.0,
            phase: Some("ready".to_owned()),
            message: "the worker is ready".to_owned(),
            pid: Some(4711),
            uptime_s: Some(3661.9),
            instance: None,
            restarts: 1,
            ends: vec![End {
                generation: 1,
                seconds_ago: 3662.0,
                planned: false,
                reason: "it ended with exit code 1: \u{1b}[31mboom\nline".to_owned(),
            }],
            device: Some("cpu".to_owned()),
            requested_device: None,
            degraded: None,
            checkpoint: Some("demo".to_owned()),
            revision: Some("abc".to_owned()),
            memory_bytes: Some(300 << 20),
        }
    }

    #[test]
    fn a_worker_is_a_row_under_its_headings_and_its_ends_follow() {
        let text = workers(&[report()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NAME  STATE  PHASE"));
        let column = lines[0].find("UPTIME").unwrap();
        assert_eq!(&lines[1][column..column + 8], "1h 1m 1s");
        assert!(lines[1].ends_with("300 MiB  demo@abc"), "{}", lines[1]);
        assert_eq!(
            lines[4],
            "  1h 1m 2s ago, process 1 failed: it ended with exit code 1:  [31mboom line"
        );
    }

    #[test]
    fn a_log_line_has_its_time_its_level_and_who_wrote_it() {
        let line = LogLine {
            at: 86_400.5,
            level: "warn".to_owned(),
            by: "worker".to_owned(),
            pid: Some(7),
            text: "slow".to_owned(),
        };
        assert_eq!(
            log_line(&line),
            "1970-01-02T00:00:00.500Z WARN  worker[7] slow\n"
        );
    }
}
