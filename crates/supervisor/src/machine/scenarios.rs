//! Single lives, written down event by event.

use std::time::{Duration, Instant};

use super::*;
use crate::{About, Phase, WorkerState};

/// A machine with a clock that only moves when told to.
pub(super) struct Life {
    pub(super) machine: Machine,
    pub(super) now: Instant,
    pub(super) last: Vec<Action>,
}

impl Life {
    pub(super) fn new() -> Self {
        Self::with(Policy::default())
    }

    pub(super) fn with(policy: Policy) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new("main", policy, 1, now),
            now,
            last: Vec::new(),
        }
    }

    /// A worker that has just become ready, 3 s after its spawn.
    pub(super) fn ready() -> Self {
        Self::ready_with(Policy::default())
    }

    pub(super) fn ready_with(policy: Policy) -> Self {
        let mut life = Self::with(policy);
        life.spawned();
        life.after(Duration::from_secs(3), Event::Tick);
        life.probed(true);
        assert_eq!(life.state(), WorkerState::Ready);
        life
    }

    pub(super) fn on(&mut self, event: Event) -> &[Action] {
        self.last = self.machine.handle(self.now, event);
        &self.last
    }

    pub(super) fn after(&mut self, time: Duration, event: Event) -> &[Action] {
        self.now += time;
        self.on(event)
    }

    /// Lets time pass up to what the machine waits for.
    pub(super) fn wake(&mut self) -> &[Action] {
        self.now = self.machine.next_wake().expect("it waits for something");
        self.on(Event::Tick)
    }

    pub(super) fn generation(&self) -> u64 {
        self.machine.status().generation
    }

    pub(super) fn state(&self) -> WorkerState {
        self.machine.status().state
    }

    pub(super) fn spawned(&mut self) {
        let wanted = self
            .wake()
            .iter()
            .any(|action| matches!(action, Action::Spawn { .. }));
        assert!(wanted, "no process was asked for: {:?}", self.last);
        self.spawned_now();
    }

    /// The process that was asked for is there.
    pub(super) fn spawned_now(&mut self) {
        let generation = self.generation();
        self.on(Event::Spawned {
            generation,
            pid: 100 + u32::try_from(generation).unwrap(),
            instance: format!("instance-{generation}"),
            socket: format!("{generation}.sock").into(),
        });
    }

    pub(super) fn probed(&mut self, ready: bool) {
        let generation = self.generation();
        self.on(Event::Probed {
            generation,
            answer: ProbeAnswer::Answered {
                instance: format!("instance-{generation}"),
                ready,
                degraded: None,
                about: About::default(),
            },
        });
    }

    /// Its health says that it runs on another device, or that it is degraded otherwise.
    pub(super) fn degrades(&mut self, device: bool) -> &[Action] {
        let generation = self.generation();
        self.on(Event::Probed {
            generation,
            answer: ProbeAnswer::Answered {
                instance: format!("instance-{generation}"),
                ready: true,
                degraded: Some(Degradation {
                    why: "asked for mps, it runs on cpu".to_owned(),
                    device,
                }),
                about: About::default(),
            },
        })
    }

    pub(super) fn load(&mut self, in_flight: usize, unanswered: Option<u64>) -> &[Action] {
        let generation = self.generation();
        self.on(Event::Load {
            generation,
            load: Load {
                in_flight,
                unanswered_for: unanswered.map(Duration::from_secs),
            },
        })
    }

    pub(super) fn probe_failed(&mut self) -> &[Action] {
        let generation = self.generation();
        self.on(Event::Probed {
            generation,
            answer: ProbeAnswer::Failed {
                reason: "no answer".to_owned(),
            },
        })
    }

    pub(super) fn says(&mut self, phase: Phase) {
        let generation = self.generation();
        self.on(Event::Progress {
            generation,
            report: Report {
                phase,
                detail: String::new(),
            },
        });
    }

    pub(super) fn exits(&mut self, exit: Exit, last_words: Option<&str>) {
        let generation = self.generation();
        self.on(Event::Exited {
            generation,
            exit,
            last_words: last_words.map(str::to_owned),
        });
    }

    pub(super) fn signals(&self) -> Vec<Signal> {
        let signal = |action: &Action| match action {
            Action::Signal { signal, .. } => Some(*signal),
            _ => None,
        };
        self.last.iter().filter_map(signal).collect()
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match self.last.last() {
            Some(Action::Finish(outcome)) => Some(outcome),
            _ => None,
        }
    }
}

#[test]
fn a_ready_phase_is_probed_at_once_and_only_the_probe_makes_it_ready() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Warmup);
    assert_eq!(
        life.machine.status().message,
        "the worker is starting: warming up"
    );
    life.says(Phase::Ready);
    assert!(
        life.last.contains(&Action::Probe { generation: 1 }),
        "{:?}",
        life.last
    );
    assert_eq!(life.state(), WorkerState::Starting);
    life.probed(true);
    assert_eq!(life.state(), WorkerState::Ready);
}

#[test]
fn an_answer_from_another_instance_is_not_ready() {
    let mut life = Life::new();
    life.spawned();
    life.on(Event::Probed {
        generation: 1,
        answer: ProbeAnswer::Answered {
            instance: "someone-else".to_owned(),
            ready: true,
            degraded: None,
            about: About::default(),
        },
    });
    assert_eq!(life.state(), WorkerState::Starting);
}

#[test]
fn progress_extends_the_start_deadline_and_repeating_oneself_does_not() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Download);
    life.after(Duration::from_secs(599), Event::Tick);
    life.says(Phase::Load);
    life.after(Duration::from_secs(599), Event::Tick);
    life.says(Phase::Load);
    assert_eq!(life.signals(), []);
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(life.signals(), [Signal::Abort]);
    life.wake();
    assert_eq!(life.signals(), [Signal::Kill]);
    life.exits(Exit::Signal(9), None);
    let reason = &life.machine.status().last_exit.as_ref().unwrap().reason;
    assert!(
        reason.starts_with("no progress for 600 s while loading"),
        "{reason}"
    );
    assert!(!reason.contains("memory"), "{reason}");
}

#[test]
fn a_wait_is_noted_every_ten_seconds_with_the_phase() {
    let mut life = Life::new();
    life.spawned();
    life.says(Phase::Load);
    let mut notes = Vec::new();
    for _ in 0..350 {
        life.after(Duration::from_millis(100), Event::Tick);
        notes.extend(life.last.iter().filter_map(|action| match action {
            Action::Note { text, .. } => Some(text.clone()),
            _ => None,
        }));
    }
    let wait = |s| format!("still waiting for the worker after {s} s: loading the checkpoint");
    assert_eq!(notes, [wait(10), wait(20), wait(30)]);
}

#[test]
fn failed_probes_in_a_row_are_a_hang_unless_it_said_it_is_busy() {
    let mut life = Life::ready();
    life.probe_failed();
    life.probed(true);
    for _ in 0..2 {
        life.probe_failed();
        assert_eq!(life.state(), WorkerState::Ready);
    }
    life.says(Phase::Preparing);
    life.probe_failed();
    assert_eq!(
        life.state(),
        WorkerState::Ready,
        "preparing a checkpoint is no hang"
    );
    life.says(Phase::Ready);
    life.probe_failed();
    assert_eq!(life.signals(), [Signal::Abort]);
    assert_eq!(life.state(), WorkerState::Restarting);
}

#[test]
fn a_request_that_is_too_old_is_a_hang_although_health_answers() {
    let mut life = Life::ready();
    life.load(1, Some(74));
    life.on(Event::Load {
        generation: 2,
        load: Load {
            in_flight: 1,
            unanswered_for: Some(Duration::from_secs(80)),
        },
    });
    assert_eq!(life.state(), WorkerState::Ready);
    life.says(Phase::Preparing);
    life.load(1, Some(80));
    assert_eq!(life.state(), WorkerState::Ready, "preparing is no hang");
    life.says(Phase::Ready);
    life.load(0, Some(75));
    assert_eq!(life.signals(), [Signal::Abort]);
}

#[test]
fn readiness_taken_back_and_given_again_is_the_same_process() {
    let mut life = Life::ready();
    life.probed(false);
    assert_eq!(life.state(), WorkerState::Starting);
    life.probed(true);
    assert_eq!((life.state(), life.generation()), (WorkerState::Ready, 1));
}

#[test]
fn a_sigkill_from_elsewhere_is_reported_as_memory() {
    let mut life = Life::ready();
    life.exits(Exit::Signal(9), None);
    assert_eq!(life.state(), WorkerState::Restarting);
    let status = life.machine.status();
    assert!(status.last_exit.as_ref().unwrap().reason.contains("memory"));
    assert_eq!(status.exits[&Exit::Signal(9)], 1);
    life.spawned();
    life.probed(true);
    assert_eq!(
        (life.state(), life.machine.status().restarts),
        (WorkerState::Ready, 1)
    );
}

#[test]
fn a_worker_that_dies_soon_after_each_ready_is_given_up() {
    let mut life = Life::ready();
    for failure in 1..=5 {
        assert_eq!(life.outcome(), None, "given up after {failure} failures");
        life.after(Duration::from_secs(5), Event::Tick);
        life.exits(Exit::Code(1), Some("boom"));
        if failure < 5 {
            life.spawned();
            life.probed(true);
        }
    }
    let Some(Outcome::Failed(failure)) = life.outcome() else {
        panic!("{:?}", life.last);
    };
    assert_eq!(
        (failure.kind, failure.exit_code),
        (FailureKind::GaveUp, Some(1))
    );
    assert!(failure.reason.contains("boom"), "{failure}");
    assert_eq!(life.state(), WorkerState::Failed);
    assert_eq!(life.machine.status().estimated_wait(life.now), None);
}

#[test]
fn the_estimate_is_the_last_start_less_what_has_passed() {
    let mut life = Life::ready();
    let wait = |life: &Life| life.machine.status().estimated_wait(life.now).unwrap();
    assert_eq!(wait(&life), Duration::ZERO);
    life.exits(Exit::Code(1), None);
    assert!(
        wait(&life) > Duration::from_secs(3),
        "the rest before it counts"
    );
    life.spawned();
    assert_eq!(wait(&life), Duration::from_secs(3));
    life.after(Duration::from_secs(1), Event::Tick);
    assert_eq!(wait(&life), Duration::from_secs(2));
    life.after(Duration::from_secs(5), Event::Tick);
    assert_eq!(wait(&life), Duration::from_secs(5), "overdue: nobody knows");
}

#[test]
fn a_program_that_cannot_run_is_given_up_the_first_time_and_retried_later() {
    let fails = |generation| Event::SpawnFailed {
        generation,
        reason: "cannot run /x: not found".to_owned(),
        cannot_run: true,
    };
    let mut life = Life::new();
    life.wake();
    life.on(fails(1));
    assert!(matches!(life.outcome(), Some(Outcome::Failed(failure))
            if failure.kind == FailureKind::CannotRun && failure.reason.contains("/x")));
    let mut life = Life::ready();
    life.exits(Exit::Code(1), None);
    life.wake();
    life.on(fails(2));
    assert_eq!(life.outcome(), None);
    life.spawned();
}

#[test]
fn a_stop_is_announced_before_the_signal_and_a_second_one_kills_now() {
    let mut life = Life::ready();
    life.on(Event::StopAsked);
    assert!(
        matches!(life.last[0], Action::Announce(_)),
        "{:?}",
        life.last
    );
    assert_eq!(life.signals(), [Signal::Terminate]);
    life.on(Event::StopAsked);
    assert_eq!(life.signals(), []);
    life.on(Event::KillAsked);
    assert_eq!(life.signals(), [Signal::Kill]);
    life.exits(Exit::Signal(9), None);
    assert_eq!(life.outcome(), Some(&Outcome::Stopped { forced: true }));
}

#[test]
fn a_stop_while_a_process_is_being_spawned_ends_that_process() {
    let mut life = Life::new();
    life.wake();
    life.on(Event::StopAsked);
    assert_eq!(life.outcome(), None);
    life.on(Event::Spawned {
        generation: 1,
        pid: 101,
        instance: "instance-1".to_owned(),
        socket: "1.sock".into(),
    });
    assert_eq!(life.signals(), [Signal::Terminate]);
    assert_eq!(life.state(), WorkerState::Stopping);
}

#[test]
fn a_process_that_is_being_ended_is_no_longer_ready_or_degraded_whatever_it_says() {
    let mut life = Life::new();
    life.spawned();
    life.on(Event::StopAsked);
    life.probed(true);
    assert_eq!(life.last, [], "nothing to announce or to note");

    let mut life = Life::ready();
    life.degrades(false);
    assert_eq!(life.state(), WorkerState::Degraded);
    life.on(Event::StopAsked);
    assert_eq!(life.state(), WorkerState::Stopping);
    assert_eq!(life.machine.status().degraded, None);
}
