//! The part of the operating system in the machine's life, for its property tests.
//!
//! The world has at most the processes that the machine asked for; they die when it pleases, and
//! it also sends events about processes that are not the living one. After every event it compares
//! what the machine says with what is.

use std::time::{Duration, Instant};

use super::*;
use crate::{About, FailureKind, Outcome, Phase, RestartPolicy};

pub(super) const MAX_FAILURES: u32 = 3;
const MAX_MEMORY: u64 = 1 << 30;
const WINDOW: Duration = Duration::from_mins(1);

/// Something the world does next, as far as it can.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Wait(Duration),
    Wake,
    SpawnWorks,
    SpawnFails {
        cannot_run: bool,
    },
    Exits(Exit),
    ProbeEnds(ProbeKind),
    Says(Phase),
    Load {
        in_flight: usize,
        unanswered: Option<Duration>,
    },
    Memory {
        over: bool,
    },
    Recovered {
        works: bool,
    },
    Restart,
    Halt,
    Retire,
    Stray {
        offset: u64,
        kind: StrayKind,
    },
    Stop,
    Kill,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ProbeKind {
    Ready,
    NotReady,
    Degraded,
    OtherInstance,
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StrayKind {
    Spawned,
    SpawnFailed,
    Exited,
    Probed,
    Progress,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct World {
    machine: Machine,
    pub(super) now: Instant,
    /// Asked for and neither there nor refused.
    asked: Option<u64>,
    pub(super) living: Option<u64>,
    probing: Option<u64>,
    recovering: Option<u64>,
    /// Whether the last word on it was to have no process.
    halted: bool,
    retired: bool,
    /// Whether the living process has done anything that a worker does.
    begun: bool,
    /// Whether the living process was signalled.
    pub(super) signalled: bool,
    /// When it failed, and whether it was ready since.
    failures: Vec<(Instant, bool)>,
    stop_asked: bool,
    pub(super) never_again: bool,
    pub(super) outcome: Option<Outcome>,
}

fn policy() -> Policy {
    Policy {
        start_deadline: Duration::from_secs(20),
        max_memory: Some(MAX_MEMORY),
        restart: RestartPolicy {
            max_failures: MAX_FAILURES,
            window: WINDOW,
            ..RestartPolicy::default()
        },
        ..Policy::default()
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let now = Instant::now();
        Self {
            machine: Machine::new("main", policy(), seed, now),
            now,
            asked: None,
            living: None,
            probing: None,
            recovering: None,
            halted: false,
            retired: false,
            begun: false,
            signalled: false,
            failures: Vec::new(),
            stop_asked: false,
            never_again: false,
            outcome: None,
        }
    }

    pub(super) fn live(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(time) => {
                self.now += time;
                self.send(Event::Tick);
            }
            Step::Wake => {
                if let Some(wake) = self.machine.next_wake() {
                    self.now = self.now.max(wake);
                    self.send(Event::Tick);
                }
            }
            Step::SpawnWorks => {
                if let Some(generation) = self.asked.take() {
                    self.living = Some(generation);
                    self.signalled = false;
                    self.begun = false;
                    self.send(spawned(generation));
                }
            }
            Step::SpawnFails { cannot_run } => {
                if let Some(generation) = self.asked.take() {
                    self.failures.push((self.now, false));
                    self.never_again |= cannot_run && generation == 1;
                    self.send(spawn_failed(generation, cannot_run));
                }
            }
            Step::Exits(exit) => {
                if let Some(generation) = self.living.take() {
                    self.probing = None;
                    self.recovering = None;
                    self.failures.push((self.now, false));
                    let does_nothing = exit == Exit::Code(0) && !self.begun && !self.signalled;
                    self.never_again |= exit.is_configuration() || does_nothing;
                    self.send(exited(generation, exit));
                }
            }
            Step::ProbeEnds(kind) => {
                if let Some(generation) = self.probing.take() {
                    self.begun |= matches!(kind, ProbeKind::Ready | ProbeKind::Degraded);
                    self.send(probed(generation, kind));
                }
            }
            Step::Says(phase) => {
                self.begun |= self.living.is_some();
                self.send(says(self.machine.generation, phase));
            }
            Step::Load {
                in_flight,
                unanswered: unanswered_for,
            } => {
                let generation = self.machine.generation;
                let load = Load {
                    in_flight,
                    unanswered_for,
                };
                self.send(Event::Load { generation, load });
            }
            Step::Memory { over } => {
                let generation = self.machine.generation;
                let bytes = MAX_MEMORY + u64::from(over);
                self.send(Event::Memory { generation, bytes });
            }
            Step::Recovered { works } => {
                if let Some(generation) = self.recovering.take() {
                    let failure = (!works).then(|| "broken".to_owned());
                    self.send(Event::Recovered {
                        generation,
                        failure,
                    });
                }
            }
            Step::Restart => {
                self.halted = false;
                self.send(Event::RestartAsked);
            }
            Step::Halt => {
                self.halted = true;
                self.send(Event::HaltAsked);
            }
            Step::Retire => {
                self.retired = true;
                self.send(Event::RetireAsked);
            }
            // With no offset it would be the answer that was asked for, if one was.
            Step::Stray { offset: 0, .. } if self.asked.is_some() => {}
            Step::Stray { offset, kind } => self.send(self.stray(offset, kind)),
            Step::Stop => {
                self.stop_asked = true;
                self.send(Event::StopAsked);
            }
            Step::Kill => {
                self.stop_asked = true;
                self.send(Event::KillAsked);
            }
        }
    }

    /// An event about a process other than the living one, or one that comes a second time.
    fn stray(&self, offset: u64, kind: StrayKind) -> Event {
        let generation = self.machine.generation.wrapping_add(offset);
        match kind {
            StrayKind::Spawned => spawned(generation),
            StrayKind::SpawnFailed => spawn_failed(generation, true),
            StrayKind::Exited => exited(generation, Exit::Code(78)),
            StrayKind::Probed => probed(generation, ProbeKind::Ready),
            StrayKind::Progress => says(generation, Phase::Ready),
        }
    }

    fn send(&mut self, event: Event) {
        let actions = self.machine.handle(self.now, event);
        assert!(
            self.outcome.is_none() || actions.is_empty(),
            "something was done after the end: {actions:?}"
        );
        for (index, action) in actions.into_iter().enumerate() {
            self.perform(index, action);
        }
        self.check_status();
        self.check_it_goes_on();
    }

    fn perform(&mut self, index: usize, action: Action) {
        assert!(self.outcome.is_none(), "{action:?} after the end");
        match action {
            Action::Announce(status) => {
                assert_eq!(index, 0, "announced after acting");
                assert_eq!(&*status, self.machine.status());
            }
            Action::Spawn { generation } => {
                assert_eq!((self.living, self.asked), (None, None), "a second process");
                assert!(!self.stop_asked, "spawned after a stop");
                assert!(!self.halted, "spawned after a halt");
                assert!(!self.retired, "spawned after the last one");
                assert!(!self.never_again, "retried what is never retried");
                self.asked = Some(generation);
            }
            Action::Probe { generation } => {
                assert_eq!(self.living, Some(generation));
                assert_eq!(self.probing.replace(generation), None, "two probes at once");
            }
            Action::Recover { generation } => {
                assert_eq!(self.living, Some(generation));
                assert_eq!(self.recovering.replace(generation), None, "asked twice");
            }
            Action::Signal { generation, .. } => {
                assert_eq!(self.living, Some(generation));
                self.signalled = true;
            }
            Action::Note { text, .. } => assert!(!text.is_empty()),
            Action::Finish(outcome) => {
                self.check_outcome(&outcome);
                self.outcome = Some(outcome);
            }
        }
    }

    /// The failures that count by the policy's words.
    pub(super) fn counted(&self) -> u32 {
        let last = self.now;
        let counts = |(at, recovered): &&(Instant, bool)| !recovered || last - *at <= WINDOW;
        u32::try_from(self.failures.iter().filter(counts).count()).unwrap()
    }

    fn check_outcome(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Stopped { .. } => assert!(self.stop_asked || self.retired),
            Outcome::Failed(failure) => match failure.kind {
                FailureKind::Configuration | FailureKind::CannotRun => assert!(self.never_again),
                FailureKind::GaveUp => assert!(self.counted() >= MAX_FAILURES, "gave up early"),
                FailureKind::WontDie => {
                    assert!(self.stop_asked && self.living.is_some());
                    return;
                }
                FailureKind::Internal => panic!("{failure}"),
            },
        }
        assert_eq!(
            (self.living, self.asked),
            (None, None),
            "ended beside a process"
        );
    }

    fn check_status(&mut self) {
        let status = self.machine.status();
        if !status.state.is_serving() {
            return;
        }
        assert!(self.living.is_some(), "ready without a process");
        assert_eq!(self.living, Some(status.generation));
        assert_eq!(status.instance, self.living.map(instance));
        assert!(!self.signalled, "ready while it is being ended");
        for (_, recovered) in &mut self.failures {
            *recovered = true;
        }
    }

    /// Unless it is over, something it waits for must come: an answer or a time.
    fn check_it_goes_on(&self) {
        if self.outcome.is_some() {
            assert_eq!(self.machine.next_wake(), None);
            return;
        }
        let halted = self.halted && self.living.is_none();
        let answer_due = self.asked.is_some() || self.probing.is_some() || halted;
        assert!(
            answer_due || self.machine.next_wake().is_some(),
            "it waits for nothing"
        );
    }
}

fn instance(generation: u64) -> String {
    format!("instance-{generation}")
}

fn spawned(generation: u64) -> Event {
    Event::Spawned {
        generation,
        pid: 7,
        instance: instance(generation),
        socket: "socket".into(),
    }
}

fn spawn_failed(generation: u64, cannot_run: bool) -> Event {
    Event::SpawnFailed {
        generation,
        reason: "refused".to_owned(),
        cannot_run,
    }
}

fn exited(generation: u64, exit: Exit) -> Event {
    Event::Exited {
        generation,
        exit,
        last_words: None,
    }
}

fn probed(generation: u64, kind: ProbeKind) -> Event {
    let answered = |instance, ready, degraded: Option<&str>| ProbeAnswer::Answered {
        instance,
        ready,
        degraded: degraded.map(|why| Degradation {
            why: why.to_owned(),
            device: true,
        }),
        about: About::default(),
    };
    let own = instance(generation);
    let answer = match kind {
        ProbeKind::Ready => answered(own, true, None),
        ProbeKind::NotReady => answered(own, false, None),
        ProbeKind::Degraded => answered(own, true, Some("slow")),
        ProbeKind::OtherInstance => answered("other".to_owned(), true, None),
        ProbeKind::Failed => ProbeAnswer::Failed {
            reason: "silence".to_owned(),
        },
    };
    Event::Probed { generation, answer }
}

fn says(generation: u64, phase: Phase) -> Event {
    let report = Report {
        phase,
        detail: String::new(),
    };
    Event::Progress { generation, report }
}
