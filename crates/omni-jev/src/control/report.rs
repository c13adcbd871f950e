//! A worker as the control socket shows it.

use std::time::{Instant, SystemTime};

use omni_jev_supervisor::{LastExit, LogEntry, Phase, WorkerStatus};
use serde::{Deserialize, Serialize};

/// One worker. Times are in seconds, memory in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) since_s: f64,
    pub(crate) phase: Option<String>,
    pub(crate) message: String,
    pub(crate) pid: Option<u32>,
    pub(crate) uptime_s: Option<f64>,
    pub(crate) instance: Option<String>,
    pub(crate) restarts: u64,
    /// The last ends of its processes, oldest first.
    pub(crate) ends: Vec<End>,
    pub(crate) device: Option<String>,
    pub(crate) requested_device: Option<String>,
    pub(crate) degraded: Option<String>,
    pub(crate) checkpoint: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
}

/// How a process of the worker ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) generation: u64,
    pub(crate) seconds_ago: f64,
    /// Whether it was wanted.
    pub(crate) planned: bool,
    pub(crate) reason: String,
}

/// One line of a worker's log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogLine {
    /// Seconds since 1970.
    pub(crate) at: f64,
    pub(crate) level: String,
    /// `worker` or `supervisor`.
    pub(crate) by: String,
    pub(crate) pid: Option<u32>,
    pub(crate) text: String,
}

/// The answer to a request that cannot be granted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
}

impl WorkerReport {
    pub(crate) fn new(status: &WorkerStatus, now: Instant) -> Self {
        let ago = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
        let about = status.about.clone().unwrap_or_default();
        Self {
            name: status.name.clone(),
            state: status.state.name().to_owned(),
            since_s: ago(status.since),
            phase: status.phase.map(Phase::name).map(str::to_owned),
            message: status.message.clone(),
            pid: status.pid,
            uptime_s: status.started_at.map(ago),
            instance: status.instance.clone(),
            restarts: status.restarts,
            ends: status
                .history
                .iter()
                .map(|end| End::new(end, now))
                .collect(),
            device: about.device,
            requested_device: about.requested_device,
            degraded: status.degraded.clone(),
            checkpoint: about.checkpoint,
            revision: about.revision,
            memory_bytes: status.memory,
        }
    }
}

impl End {
    fn new(end: &LastExit, now: Instant) -> Self {
        Self {
            generation: end.generation,
            seconds_ago: now.saturating_duration_since(end.at).as_secs_f64(),
            planned: end.planned,
            reason: end.reason.clone(),
        }
    }
}

impl From<LogEntry> for LogLine {
    fn from(entry: LogEntry) -> Self {
        let since = entry.at.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            at: since.unwrap_or_default().as_secs_f64(),
            level: entry.level.to_owned(),
            by: if entry.supervisor {
                "supervisor"
            } else {
                "worker"
            }
            .to_owned(),
            pid: entry.pid,
            text: entry.text,
        }
    }
}
