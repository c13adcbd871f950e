//! A life that a test writes down, and the words to write it in.

use std::time::{Duration, Instant};

use super::*;
use crate::{About, Outcome, Phase, WorkerState};

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
        self.reports(phase, "");
    }

    pub(super) fn reports(&mut self, phase: Phase, words: &str) {
        let generation = self.generation();
        self.on(Event::Progress {
            generation,
            report: Report {
                phase,
                detail: words.to_owned(),
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
