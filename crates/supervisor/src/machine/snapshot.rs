//! The machine's state as others see it, and the sentences about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::child::{Child, Serving};
use super::{Life, Machine};
use crate::{Exit, Policy, WorkerState, WorkerStatus};

impl Machine {
    /// The status now.
    pub(super) fn snapshot(&self, now: Instant) -> WorkerStatus {
        let child = match &self.life {
            Life::Alive(child) => Some(child.as_ref()),
            _ => None,
        };
        let state = self.state();
        WorkerStatus {
            name: self.status.name.clone(),
            state,
            since: if state == self.status.state {
                self.status.since
            } else {
                now
            },
            phase: child.and_then(Child::phase),
            message: self.message(state, child),
            socket: child.map(|child| child.socket.clone()),
            pid: child.map(|child| child.pid),
            instance: child.map(|child| child.instance.clone()),
            generation: self.generation,
            restarts: self.generation.saturating_sub(1),
            started_at: child.map(|child| child.spawned_at),
            last_exit: self.last_exit.clone(),
            history: Arc::clone(&self.history),
            exits: self.exits.clone(),
            degraded: match child.map(|child| &child.serving) {
                Some(Serving::Degraded(how)) => Some(how.why.clone()),
                _ => None,
            },
            about: child.and_then(|child| child.about.clone()),
            memory: child.and_then(|child| child.memory),
            expected_ready_at: self.expected_ready_at(state, now),
        }
    }

    fn state(&self) -> WorkerState {
        let first_start = self.generation <= 1 && self.last_exit.is_none();
        match &self.life {
            Life::Ended { failed: true } => WorkerState::Failed,
            Life::Ended { failed: false } => WorkerState::Stopping,
            Life::Halted => WorkerState::Halted,
            _ if self.stop.is_some() || self.halt => WorkerState::Stopping,
            Life::Alive(child) if child.ending.is_some() => WorkerState::Restarting,
            Life::Alive(child) => match child.serving {
                Serving::Yes => WorkerState::Ready,
                Serving::Degraded(_) => WorkerState::Degraded,
                Serving::No if first_start || child.ready_at.is_some() => WorkerState::Starting,
                Serving::No => WorkerState::Restarting,
            },
            Life::Resting { .. } | Life::Spawning if first_start => WorkerState::Starting,
            Life::Resting { .. } | Life::Spawning => WorkerState::Restarting,
        }
    }

    fn expected_ready_at(&self, state: WorkerState, now: Instant) -> Option<Instant> {
        if !matches!(state, WorkerState::Starting | WorkerState::Restarting) {
            return None;
        }
        let took = self.last_start_took.unwrap_or(self.policy.assumed_start);
        Some(match &self.life {
            Life::Alive(child) if child.ending.is_none() => child.spawned_at + took,
            Life::Resting { until } => *until + took,
            // Between two processes: kept as it was said first, so that it does not run away.
            _ => self.status.expected_ready_at.unwrap_or(now + took),
        })
    }

    /// One sentence for clients.
    fn message(&self, state: WorkerState, child: Option<&Child>) -> String {
        let planned = self.last_exit.as_ref().is_some_and(|last| last.planned);
        let doing = child.map_or("starting its process", doing);
        match state {
            WorkerState::Ready => "the worker is ready".to_owned(),
            WorkerState::Degraded => {
                "the worker is ready, but not as it was asked to be".to_owned()
            }
            WorkerState::Failed => "the worker has failed and is not tried again".to_owned(),
            WorkerState::Stopping => "the worker is stopping".to_owned(),
            WorkerState::Halted => {
                "the worker was stopped by hand and waits to be started".to_owned()
            }
            WorkerState::Starting if child.is_some_and(|child| child.ready_at.is_some()) => {
                format!("the worker is not ready at the moment: {doing}")
            }
            WorkerState::Starting => format!("the worker is starting: {doing}"),
            WorkerState::Restarting => match child {
                Some(child) if child.is_being_replaced() => {
                    "the worker is being replaced by a new one".to_owned()
                }
                Some(child) if child.ending.is_some() => {
                    "the worker stopped answering and is being restarted".to_owned()
                }
                Some(_) => format!("the worker is starting again: {doing}"),
                None if planned => "the worker is being replaced by a new one".to_owned(),
                None => "the worker ended unexpectedly and is being restarted".to_owned(),
            },
        }
    }
}

/// The status of a worker that has not been started.
pub(super) fn unborn(name: &str, now: Instant, policy: &Policy) -> WorkerStatus {
    WorkerStatus {
        name: name.to_owned(),
        state: WorkerState::Starting,
        since: now,
        phase: None,
        message: "the worker is starting: starting its process".to_owned(),
        socket: None,
        pid: None,
        instance: None,
        generation: 0,
        restarts: 0,
        started_at: None,
        last_exit: None,
        history: Arc::default(),
        exits: BTreeMap::new(),
        degraded: None,
        about: None,
        memory: None,
        expected_ready_at: Some(now + policy.assumed_start),
    }
}

/// What the process is doing, in words.
pub(super) fn doing(child: &Child) -> &'static str {
    child
        .phase()
        .map_or("starting its process", crate::Phase::in_words)
}

/// Why a process ended, in words for clients.
pub(super) fn exit_summary(exit: Exit, killed_by_us: bool, failed: bool, planned: bool) -> String {
    if failed {
        "the worker stopped answering and was ended".to_owned()
    } else if planned || killed_by_us {
        "the worker was replaced before it answered".to_owned()
    } else if exit.is_sigkill() {
        format!("the worker was killed by {exit}, likely because memory ran out")
    } else {
        format!("the worker ended with {exit}")
    }
}

/// Why a process ended, as far as anyone can tell.
pub(super) fn exit_reason(
    exit: Exit,
    killed_by_us: bool,
    cause: Option<String>,
    last_words: Option<&str>,
) -> String {
    let mut reason = match cause {
        Some(cause) => return format!("{cause} ({exit})"),
        None if exit.is_sigkill() && !killed_by_us => {
            format!("it was killed by {exit}, likely because memory ran out")
        }
        None => format!("it ended with {exit}"),
    };
    if let Some(words) = last_words {
        reason.push_str(": ");
        reason.push_str(words);
    }
    reason
}
