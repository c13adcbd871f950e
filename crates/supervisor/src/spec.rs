//! What to run, and how patiently.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The worker to run: `<program> <args…> --uds <path>`.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// Its name in logs and messages.
    pub name: String,
    /// The program, found through `PATH` where it has no slash.
    pub program: PathBuf,
    /// Its arguments; `--uds <path>` comes after them.
    pub args: Vec<OsString>,
    /// Variables added to the environment that the supervisor has itself.
    pub env: Vec<(OsString, OsString)>,
    /// Where the private folder for the socket is made. Unset: `$XDG_RUNTIME_DIR`, else the
    /// folder for temporary files, else `/tmp`, the first that can hold it.
    pub runtime_dir: Option<PathBuf>,
    /// How patient to be.
    pub policy: Policy,
}

impl WorkerSpec {
    /// A worker with no arguments and the default [`Policy`].
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            runtime_dir: None,
            policy: Policy::default(),
        }
    }
}

/// Every wait and limit of a worker's life.
#[derive(Debug, Clone)]
pub struct Policy {
    /// How long a worker that is not ready may show no progress. A first start may download
    /// hundreds of megabytes: default 10 minutes since the last sign of progress.
    pub start_deadline: Duration,
    /// From SIGTERM to SIGKILL. Default 10 s.
    pub stop_grace: Duration,
    /// From SIGABRT, which makes a hung worker write its stacks, to SIGKILL. Default 2 s.
    pub abort_grace: Duration,
    /// How long to wait for a process to go after SIGKILL: one stuck in a driver never does.
    /// Default 5 s.
    pub kill_wait: Duration,
    /// How often a wait for a worker that is not ready is logged. Default 10 s.
    pub still_waiting_every: Duration,
    /// How long a start is said to take until one has succeeded. Default 10 s.
    pub assumed_start: Duration,
    /// How long no request may be answered, although one waits or gave up waiting, before the
    /// worker counts as hung although its health answers. Default 75 s: 15 s after the frontend's
    /// own deadline.
    pub oldest_request_limit: Duration,
    /// Whether a worker that lost its device is asked to return to it, and restarted in a quiet
    /// moment if it cannot. Default true.
    pub recover_device: bool,
    /// The least time between two returns to the device. Default 1 minute.
    pub recover_pause: Duration,
    /// The memory, in bytes, over which the worker is replaced between requests. Default none.
    pub max_memory: Option<u64>,
    /// How long no request may have been in flight to make a quiet moment, and how long the last
    /// one must have been answered before a process that is to be replaced is ended. Default 500 ms.
    pub quiet: Duration,
    /// How long a worker over its memory waits for a quiet moment before one is made by sending it
    /// nothing more. Default 30 s.
    pub quiet_patience: Duration,
    /// How long a worker that is to be replaced may take to answer what it has. Default 60 s.
    pub leave_limit: Duration,
    /// When to try again, and when to give up.
    pub restart: RestartPolicy,
    /// How often health is asked for.
    pub probe: ProbePolicy,
    /// Last words after which trying again is no use. Default none.
    pub hopeless: Option<Hopeless>,
}

/// What a program writes that ends before it is ready and would every time, although its exit code
/// does not say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hopeless {
    /// The part of its last words by which it is known.
    pub last_words: String,
    /// The reason given in their place: what is wrong, and what to do.
    pub cure: String,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start_deadline: Duration::from_mins(10),
            stop_grace: Duration::from_secs(10),
            abort_grace: Duration::from_secs(2),
            kill_wait: Duration::from_secs(5),
            still_waiting_every: Duration::from_secs(10),
            assumed_start: Duration::from_secs(10),
            oldest_request_limit: Duration::from_secs(75),
            recover_device: true,
            recover_pause: Duration::from_mins(1),
            max_memory: None,
            quiet: Duration::from_millis(500),
            quiet_patience: Duration::from_secs(30),
            leave_limit: Duration::from_mins(1),
            restart: RestartPolicy::default(),
            probe: ProbePolicy::default(),
            hopeless: None,
        }
    }
}

/// When a worker that failed is tried again, and when no more.
#[derive(Debug, Clone)]
pub struct RestartPolicy {
    /// The wait after the first failure; it doubles with each further one. Default 250 ms.
    pub first_delay: Duration,
    /// The longest wait, jitter included. Default 30 s.
    pub max_delay: Duration,
    /// The part of a wait that chance takes away, 0 to 1. Default 0.2.
    pub jitter: f64,
    /// How long a failure counts. Default 10 minutes. Failures in a row, with no start that
    /// became ready since, count however old they are: slow failures must end as well.
    pub window: Duration,
    /// The number of counted failures at which the supervisor gives up. Default 5; 0 acts as 1.
    pub max_failures: u32,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(30),
            jitter: 0.2,
            window: Duration::from_mins(10),
            max_failures: 5,
        }
    }
}

/// How often a worker's health is asked for.
///
/// [`ProbePolicy::finding_hangs_within`] gives one for a time in which a hang is to be found.
#[derive(Debug, Clone)]
pub struct ProbePolicy {
    /// Between probes of a worker that is not ready yet. Default 200 ms.
    pub starting_interval: Duration,
    /// Between probes of a worker that is ready. Default 1 s.
    pub ready_interval: Duration,
    /// How long one probe may take. Default 4 s.
    pub timeout: Duration,
    /// The number of failed probes in a row at which a ready worker counts as hung. Default 3,
    /// which finds a silent worker within 15 s.
    pub max_failures: u32,
}

impl Default for ProbePolicy {
    fn default() -> Self {
        Self {
            starting_interval: Duration::from_millis(200),
            ready_interval: Duration::from_secs(1),
            timeout: Duration::from_secs(4),
            max_failures: 3,
        }
    }
}

impl ProbePolicy {
    /// The default, with a silent worker found within `limit` rather than 15 s.
    pub fn finding_hangs_within(limit: Duration) -> Self {
        let base = Self::default();
        // Three waits for an answer, and three pauses: one before the first, as it may just have begun.
        let ready_interval = (limit / 15).min(base.ready_interval);
        let waits = limit.saturating_sub(ready_interval * base.max_failures);
        Self {
            starting_interval: base.starting_interval.min(ready_interval),
            ready_interval,
            timeout: waits / base.max_failures,
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_finds_a_hang_within_fifteen_seconds() {
        let policy = ProbePolicy::finding_hangs_within(Duration::from_secs(15));
        assert_eq!(policy.timeout, ProbePolicy::default().timeout);
        assert_eq!(policy.ready_interval, ProbePolicy::default().ready_interval);
    }

    #[test]
    fn every_limit_holds_its_waits_and_pauses() {
        for millis in [300, 2_000, 15_000, 120_000] {
            let limit = Duration::from_millis(millis);
            let policy = ProbePolicy::finding_hangs_within(limit);
            let all = (policy.ready_interval + policy.timeout) * policy.max_failures;
            assert!(all <= limit, "{all:?} over {limit:?}");
            assert!(all >= limit * 9 / 10, "{all:?} is far under {limit:?}");
        }
    }
}
