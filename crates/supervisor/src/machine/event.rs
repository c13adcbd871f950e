//! What happens to the machine, and what it wants done.

use std::path::PathBuf;
use std::time::Duration;

use crate::{About, Exit, Outcome, Phase, WorkerStatus};

/// Something that happened. All but the last six carry the generation of the process they are
/// about; what is said of a process that is no longer the living one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The process asked for with [`Action::Spawn`] runs.
    Spawned {
        /// The generation in the action.
        generation: u64,
        /// Its process id, which is also the id of its process group.
        pid: u32,
        /// The random name it was given.
        instance: String,
        /// Where it is to listen.
        socket: PathBuf,
    },
    /// The process asked for with [`Action::Spawn`] could not be started.
    SpawnFailed {
        /// The generation in the action.
        generation: u64,
        /// What went wrong, naming the program.
        reason: String,
        /// Whether the program is not there or not executable.
        cannot_run: bool,
    },
    /// It said what it is doing.
    Progress {
        /// Which process.
        generation: u64,
        /// What it said.
        report: Report,
    },
    /// The probe asked for with [`Action::Probe`] came to an end.
    Probed {
        /// Which process was probed.
        generation: u64,
        /// What came of it.
        answer: ProbeAnswer,
    },
    /// Someone counted its requests.
    Load {
        /// Which process has the requests.
        generation: u64,
        /// What was counted.
        load: Load,
    },
    /// Its memory was measured.
    Memory {
        /// Which process.
        generation: u64,
        /// What it holds of the machine's memory, in bytes.
        bytes: u64,
    },
    /// The return to its device, asked for with [`Action::Recover`], came to an end.
    Recovered {
        /// Which process.
        generation: u64,
        /// Why it did not come to pass, if so.
        failure: Option<String>,
    },
    /// It is gone, and has been waited for.
    Exited {
        /// Which process.
        generation: u64,
        /// How it ended.
        exit: Exit,
        /// The last error it logged, or the last thing it wrote.
        last_words: Option<String>,
    },
    /// Someone asked for another process in place of the one that runs, or for one after a halt.
    RestartAsked,
    /// Someone asked for no process until a restart is asked for.
    HaltAsked,
    /// Someone asked for no further process: the one that lives goes on until it ends.
    RetireAsked,
    /// Time went by; see [`Machine::next_wake`](super::Machine::next_wake).
    Tick,
    /// Someone asked to stop.
    StopAsked,
    /// Someone asked to stop without grace.
    KillAsked,
}

/// A worker's own word on what it is doing. A report unlike the one before is progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The phase.
    pub phase: Phase,
    /// The rest of what it said: compared, and told in the log.
    pub detail: String,
}

/// The requests of a worker, as whoever sends them sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests that wait for their answer now.
    pub in_flight: usize,
    /// For how long no request has been answered although one waits, or gave up waiting.
    pub unanswered_for: Option<Duration>,
}

/// Why a worker is not as it was asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// In words. May be the worker's own.
    pub why: String,
    /// Whether it runs on another device than it was asked to.
    pub device: bool,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A worker answered.
    Answered {
        /// The instance that it says it is.
        instance: String,
        /// Whether it says it is ready.
        ready: bool,
        /// Why it is not as it was asked to be, if so.
        degraded: Option<Degradation>,
        /// What it says of itself.
        about: About,
    },
    /// Nothing answered in time, or nothing sensible.
    Failed {
        /// What went wrong.
        reason: String,
    },
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Publish this status. Always before the other actions of the same event.
    Announce(Box<WorkerStatus>),
    /// Start a process and answer with `Spawned` or `SpawnFailed`.
    Spawn {
        /// Which process this will be.
        generation: u64,
    },
    /// Ask the process for its health and answer with `Probed`, always and in bounded time.
    Probe {
        /// Which process.
        generation: u64,
    },
    /// Ask the process to return to its device and answer with `Recovered`, always and in bounded
    /// time.
    Recover {
        /// Which process.
        generation: u64,
    },
    /// Send a signal to the process's group.
    Signal {
        /// Which process.
        generation: u64,
        /// Which signal.
        signal: Signal,
    },
    /// Log this.
    Note {
        /// How much it matters.
        level: NoteLevel,
        /// A sentence.
        text: String,
    },
    /// It is over. Nothing follows.
    Finish(Outcome),
}

/// The signals the machine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: please end.
    Terminate,
    /// SIGABRT: write where you are stuck, and end.
    Abort,
    /// SIGKILL.
    Kill,
}

/// How much a note matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteLevel {
    /// As hoped.
    Info,
    /// A failure that is being dealt with.
    Warn,
    /// The end of trying.
    Error,
}

impl NoteLevel {
    /// The level's name, such as `warn`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}
