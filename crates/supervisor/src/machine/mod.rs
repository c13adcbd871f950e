//! What to do about a worker: a pure state machine.
//!
//! [`Machine::handle`] takes what happened and the time, and returns what to do. Nothing in here
//! reads a clock, waits, or touches a process, so every life a worker can have is a list of events
//! that a test can write down.
//!
//! ```text
//!            spawned            probe says ready
//!  resting ──────────▶ alive ─────────────────────▶ alive, serving
//!     ▲                  │ exited, or hung: abort, kill     │
//!     └──── failure ◀────┴──────────────────────────────────┘
//!              │ too many, or one that cannot be helped            stop asked, from anywhere:
//!              ▼                                                   terminate, kill, ended
//!            ended
//! ```
//!
//! What always holds, and is tested with made-up lives: no second process is spawned while one
//! lives; the status is never `ready` for a process that is gone; exit codes 64 and 78 are never
//! retried, nor is an exit 0 before the process did anything a worker does; a stop always comes to
//! an end, even with a process that will not die.

mod child;
mod ending;
mod event;
mod exits;
mod failures;
mod snapshot;
mod wish;

#[cfg(test)]
mod life;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod replacements;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::child::{Child, ProbeVerdict};
pub use self::event::{Action, Degradation, Event, Load, NoteLevel, ProbeAnswer, Report, Signal};
use self::failures::Failures;
use crate::random::Jitter;
use crate::{Exit, LastExit, Phase, Policy, WorkerStatus};

/// The life of one worker. See the [module](self).
#[derive(Debug)]
pub struct Machine {
    policy: Policy,
    jitter: Jitter,
    life: Life,
    stop: Option<Stop>,
    /// Whether there is to be no process until a restart is asked for.
    halt: bool,
    /// Whether there is to be no further process.
    retired: bool,
    generation: u64,
    failures: Failures,
    last_start_took: Option<Duration>,
    last_exit: Option<LastExit>,
    history: Arc<Vec<LastExit>>,
    /// When a return to the device was last asked for.
    recovered_at: Option<Instant>,
    exits: BTreeMap<Exit, u64>,
    status: WorkerStatus,
}

#[derive(Debug)]
enum Life {
    /// No process until then.
    Resting { until: Instant },
    /// A process was asked for; the answer is on its way.
    Spawning,
    /// A process lives.
    Alive(Box<Child>),
    /// No process until one is asked for.
    Halted,
    /// Over.
    Ended { failed: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Graceful,
    Now,
}

impl Machine {
    /// A worker called `name` that has not been started: the first [`Event::Tick`] asks for its
    /// process. `seed` decides the jitter.
    pub fn new(name: &str, policy: Policy, seed: u64, now: Instant) -> Self {
        Self {
            status: snapshot::unborn(name, now, &policy),
            policy,
            jitter: Jitter::seeded(seed),
            life: Life::Resting { until: now },
            stop: None,
            halt: false,
            retired: false,
            generation: 0,
            failures: Failures::default(),
            last_start_took: None,
            last_exit: None,
            history: Arc::default(),
            recovered_at: None,
            exits: BTreeMap::new(),
        }
    }

    /// The worker's status as announced last.
    pub fn status(&self) -> &WorkerStatus {
        &self.status
    }

    /// When to send [`Event::Tick`] at the latest; none when only other events can change anything.
    pub fn next_wake(&self) -> Option<Instant> {
        match &self.life {
            Life::Resting { until } => Some(*until),
            Life::Alive(child) => {
                let recovery = self.next_recovery().filter(|_| !self.retired);
                let wakes = [child.next_wake(&self.policy, self.retired), recovery];
                wakes.into_iter().flatten().min()
            }
            Life::Spawning | Life::Halted | Life::Ended { .. } => None,
        }
    }

    /// Takes what happened at `now` and returns what to do, in order.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if matches!(self.life, Life::Ended { .. }) {
            return actions;
        }
        self.on_event(now, event, &mut actions);
        // With every event, so that many events cannot keep time from passing.
        self.on_time(now, &mut actions);
        let status = self.snapshot(now);
        if status != self.status {
            self.status = status.clone();
            actions.insert(0, Action::Announce(Box::new(status)));
        }
        actions
    }

    fn on_event(&mut self, now: Instant, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Spawned {
                generation,
                pid,
                instance,
                socket,
            } if self.is_spawning(generation) => {
                let ids = (generation, pid);
                let child = Child::new(ids, instance, socket, now, &self.policy);
                self.life = Life::Alive(Box::new(child));
                self.end_if_stopping(now, actions);
                if self.halt {
                    self.on_halt_asked(now, actions);
                }
            }
            Event::SpawnFailed {
                generation,
                reason,
                cannot_run,
            } if self.is_spawning(generation) => {
                // Only the first time: a program that has run before may be back in a moment.
                let hopeless = cannot_run && generation == 1;
                self.on_spawn_failed(now, reason, hopeless, actions);
            }
            Event::Progress { generation, report } => {
                self.on_progress(now, generation, report, actions);
            }
            Event::Probed { generation, answer } => {
                self.on_probed(now, generation, answer, actions);
            }
            Event::Load { generation, load } => self.on_load(now, generation, load, actions),
            Event::Memory { generation, bytes } => self.on_memory(now, generation, bytes, actions),
            Event::Recovered {
                generation,
                failure,
            } => self.on_recovered(generation, failure, actions),
            Event::Exited {
                generation,
                exit,
                last_words,
            } => self.on_exited(now, generation, exit, last_words, actions),
            Event::StopAsked => self.on_stop_asked(now, Stop::Graceful, actions),
            Event::KillAsked => self.on_stop_asked(now, Stop::Now, actions),
            Event::RestartAsked => self.on_restart_asked(now, actions),
            Event::HaltAsked => self.on_halt_asked(now, actions),
            Event::RetireAsked => self.on_retire_asked(actions),
            Event::Tick | Event::Spawned { .. } | Event::SpawnFailed { .. } => {}
        }
    }

    fn is_spawning(&self, generation: u64) -> bool {
        matches!(self.life, Life::Spawning) && generation == self.generation
    }

    fn child(&mut self, generation: u64) -> Option<&mut Child> {
        match &mut self.life {
            Life::Alive(child) if child.generation == generation => Some(child),
            _ => None,
        }
    }

    fn on_progress(
        &mut self,
        now: Instant,
        generation: u64,
        report: Report,
        actions: &mut Vec<Action>,
    ) {
        let Some(child) = self.child(generation) else {
            return;
        };
        let drains = report.phase == Phase::Draining;
        child.on_report(now, report);
        if drains {
            self.depart(now, actions);
        }
    }

    fn on_probed(
        &mut self,
        now: Instant,
        generation: u64,
        answer: ProbeAnswer,
        actions: &mut Vec<Action>,
    ) {
        let policy = self.policy.clone();
        let Some(child) = self.child(generation) else {
            return;
        };
        match child.on_probe(now, answer, &policy) {
            ProbeVerdict::Fine => {}
            ProbeVerdict::Hung(cause) => self.abort(now, cause, actions),
            ProbeVerdict::FirstReady => {
                let took = now.saturating_duration_since(child.spawned_at);
                actions.push(info(format!(
                    "the worker is ready after {:.1} s",
                    took.as_secs_f64()
                )));
                self.last_start_took = Some(took);
                self.failures.recovered();
            }
        }
    }

    fn on_load(&mut self, now: Instant, generation: u64, load: Load, actions: &mut Vec<Action>) {
        let policy = self.policy.clone();
        let Some(child) = self.child(generation) else {
            return;
        };
        child.on_load(now, load);
        let owed = |age| child.owed_for(now, age);
        if let Some(age) = load.unanswered_for.map(owed)
            && age >= policy.oldest_request_limit
            && child.is_serving()
            && !child.may_be_silent(now, &policy)
        {
            let cause = format!("no request has been answered for {}", wish::seconds(age));
            self.abort(now, cause, actions);
        }
    }

    fn on_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.life {
            Life::Resting { until } if now >= *until => {
                self.generation += 1;
                self.life = Life::Spawning;
                actions.push(Action::Spawn {
                    generation: self.generation,
                });
            }
            Life::Alive(child) if child.ending.is_some() => self.on_ending_due(now, actions),
            Life::Alive(_) => {
                self.watch_child(now, actions);
                if !self.retired {
                    self.grant_wishes(now, actions);
                }
            }
            Life::Resting { .. } | Life::Spawning | Life::Halted | Life::Ended { .. } => {}
        }
    }

    /// Probes, patience and its end, for a living process that may live on.
    fn watch_child(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Life::Alive(child) = &mut self.life else {
            return;
        };
        if let Some(waited) = child.overdue(now, &self.policy) {
            let cause = format!(
                "no progress for {} s while {}",
                waited.as_secs(),
                snapshot::doing(child)
            );
            return self.abort(now, cause, actions);
        }
        if child.take_note(now, &self.policy) {
            actions.push(info(format!(
                "still waiting for the worker after {} s: {}",
                now.saturating_duration_since(child.spawned_at).as_secs(),
                child.awaited(now)
            )));
        }
        if child.take_probe(now) {
            actions.push(Action::Probe {
                generation: child.generation,
            });
        }
    }
}

fn info(text: String) -> Action {
    Action::Note {
        level: NoteLevel::Info,
        text,
    }
}
