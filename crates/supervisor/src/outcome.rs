//! How supervision ended.

use std::fmt;

/// How supervision ended, once and for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was asked to stop, and the worker is gone.
    Stopped {
        /// Whether the worker had to be killed: it outlasted its grace, or a kill was asked for.
        forced: bool,
    },
    /// It gave up.
    Failed(Failure),
}

/// Why supervision gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// One sentence for a person. May hold what the worker wrote: for logs and terminals, not for
    /// clients.
    pub reason: String,
    /// The worker's own exit code, where its last end had one.
    pub exit_code: Option<i32>,
}

/// The kinds of [`Failure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The worker exited with 64 or 78: its flags or its configuration cannot work.
    Configuration,
    /// The program cannot be run as a worker: it does not exist, is not executable, or is
    /// something else.
    CannotRun,
    /// It failed too often within the window.
    GaveUp,
    /// It was still there after SIGKILL and a wait: stuck in the kernel.
    WontDie,
    /// The supervisor itself broke.
    Internal,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}
