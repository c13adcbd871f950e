//! What others see of a worker.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Exit, Phase};

/// The wait named when a start takes longer than the last one did: nobody knows, ask again soon.
const OVERDUE_WAIT: Duration = Duration::from_secs(5);

/// Where a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerState {
    /// Not ready yet, for the first time; or it says itself that it is no longer ready.
    Starting,
    /// Alive, and its own health endpoint says that it answers.
    Ready,
    /// As `Ready`, but not as it was asked to be: on another device, say.
    Degraded,
    /// It failed, and is being ended, waited for or started again.
    Restarting,
    /// Given up. Nothing runs any more.
    Failed,
    /// Being stopped because that was asked for, or stopped for good.
    Stopping,
    /// Stopped by hand; a restart that is asked for starts it again.
    Halted,
}

impl WorkerState {
    /// Whether requests may be sent to it.
    pub const fn is_serving(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }

    /// The state's name, such as `ready`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Restarting => "restarting",
            Self::Failed => "failed",
            Self::Stopping => "stopping",
            Self::Halted => "halted",
        }
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A worker, as it was when this was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The worker's name.
    pub name: String,
    /// Where it stands.
    pub state: WorkerState,
    /// Since when it stands there.
    pub since: Instant,
    /// What the living process said last that it is doing.
    pub phase: Option<Phase>,
    /// One sentence that may be shown to clients: nothing in it comes from the worker's own text.
    pub message: String,
    /// The socket of the living process. It answers only while the state [is
    /// serving](WorkerState::is_serving).
    pub socket: Option<PathBuf>,
    /// The living process.
    pub pid: Option<u32>,
    /// The random name that the supervisor gave the living process.
    pub instance: Option<String>,
    /// The number of processes started so far: another generation is another process.
    pub generation: u64,
    /// How many of these were restarts.
    pub restarts: u64,
    /// When the living process was spawned.
    pub started_at: Option<Instant>,
    /// Why the last process ended, or could not be started.
    pub last_exit: Option<LastExit>,
    /// The same of the last few, oldest first, the last one included.
    pub history: Arc<Vec<LastExit>>,
    /// How often processes ended in each way.
    pub exits: BTreeMap<Exit, u64>,
    /// Why a worker that is `Degraded` is so. May hold the worker's own text.
    pub degraded: Option<String>,
    /// What the living process says of itself, once it has answered.
    pub about: Option<About>,
    /// What the living process holds of the machine's memory, in bytes, measured about as often
    /// as its health is asked for.
    pub memory: Option<u64>,
    /// When a worker that is not ready should be, judged by how long the last start took.
    pub expected_ready_at: Option<Instant>,
}

impl WorkerStatus {
    /// How long a client should wait before it tries again: zero while serving, none when there
    /// is nothing to wait for. Never less than a second otherwise.
    pub fn estimated_wait(&self, now: Instant) -> Option<Duration> {
        if self.state.is_serving() {
            return Some(Duration::ZERO);
        }
        let left = self.expected_ready_at?.saturating_duration_since(now);
        Some(if left.is_zero() {
            OVERDUE_WAIT
        } else {
            left.max(Duration::from_secs(1))
        })
    }
}

/// Why a process ended, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastExit {
    /// Which process.
    pub generation: u64,
    /// How it ended; none if it never ran.
    pub exit: Option<Exit>,
    /// Whether it was replaced or stopped because that was wanted, rather than failed.
    pub planned: bool,
    /// The reason in words that may be shown to clients: nothing in it comes from the worker.
    pub summary: String,
    /// One sentence for a person. May hold what the worker wrote: for logs and administrators.
    pub reason: String,
    /// When.
    pub at: Instant,
}

/// What a worker says of itself in its health. It is the worker's own text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The device it runs on.
    pub device: Option<String>,
    /// The device it was asked to run on.
    pub requested_device: Option<String>,
    /// The checkpoint it serves.
    pub checkpoint: Option<String>,
    /// The checkpoint's revision.
    pub revision: Option<String>,
    /// Its version.
    pub version: Option<String>,
}
