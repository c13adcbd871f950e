//! How a process is brought to its end: asked, then killed, then waited for, but not for ever.

use std::time::Instant;

use super::child::{Child, EndStep, Ending, Plan, Serving};
use super::failures::Failures;
use super::{Action, Life, Machine, NoteLevel, Signal, Stop, info};
use crate::{Failure, FailureKind, Outcome};

impl Child {
    /// Whether it was sent SIGKILL.
    pub(super) fn was_killed(&self) -> bool {
        self.ending
            .as_ref()
            .is_some_and(|ending| ending.step == EndStep::Killed)
    }
}

impl Child {
    /// Whether it works and is on its way out for another to take its place.
    pub(super) fn is_being_replaced(&self) -> bool {
        self.ending
            .as_ref()
            .is_some_and(|ending| ending.plan.is_some())
    }
}

impl Machine {
    pub(super) fn on_stop_asked(&mut self, now: Instant, how: Stop, actions: &mut Vec<Action>) {
        let before = self.stop;
        self.stop = before.max(Some(how));
        if matches!(self.life, Life::Resting { .. } | Life::Halted) {
            return self.finish(Outcome::Stopped { forced: false }, actions);
        }
        if self.stop != before {
            self.end_if_stopping(now, actions);
        }
    }

    /// Sends the living process on its way, as gently as the stop that was asked for.
    pub(super) fn end_if_stopping(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (Some(how), Life::Alive(child)) = (self.stop, &self.life) else {
            return;
        };
        match (how, &child.ending) {
            (Stop::Graceful, None) => self.end(now, EndStep::Terminated, None, actions),
            (Stop::Graceful, Some(ending))
                if matches!(ending.step, EndStep::Leaving { .. } | EndStep::Departing) =>
            {
                self.end(now, EndStep::Terminated, None, actions);
            }
            // Already on its way, for a failure.
            (Stop::Graceful, Some(_)) => {}
            (Stop::Now, Some(ending)) if ending.step == EndStep::Killed => {}
            (Stop::Now, _) => self.end(now, EndStep::Killed, None, actions),
        }
    }

    /// Ends a process for a failure: it first gets the chance to write where it is stuck.
    pub(super) fn abort(&mut self, now: Instant, cause: String, actions: &mut Vec<Action>) {
        let already_ending = match &self.life {
            Life::Alive(child) => child.ending.is_some(),
            _ => true,
        };
        if already_ending {
            return;
        }
        actions.push(Action::Note {
            level: NoteLevel::Warn,
            text: format!("ending the worker: {cause}"),
        });
        self.end(now, EndStep::Aborted, Some(cause), actions);
    }

    /// Replaces a process that works: it is sent nothing more, then asked to end.
    pub(super) fn leave(&mut self, now: Instant, plan: Plan, actions: &mut Vec<Action>) {
        let limit = self.policy.leave_limit;
        let Life::Alive(child) = &mut self.life else {
            return;
        };
        if child.ending.is_some() {
            return;
        }
        actions.push(info(format!("replacing the worker: {}", plan.reason)));
        // One that does not serve has nothing to finish.
        let due = if child.is_serving() { now + limit } else { now };
        child.serving = Serving::No;
        child.ending = Some(Ending {
            step: EndStep::Leaving { since: now },
            due,
            cause: None,
            plan: Some(plan),
        });
    }

    /// Somebody else asked the process to end: it is sent nothing more, and left to finish.
    pub(super) fn depart(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let patience = self.policy.leave_limit + self.policy.stop_grace;
        let Life::Alive(child) = &mut self.life else {
            return;
        };
        if child.ending.is_some() {
            return;
        }
        actions.push(info(format!(
            "the worker (pid {}) was asked to stop by somebody else: it finishes what it has",
            child.pid
        )));
        child.serving = Serving::No;
        child.ending = Some(Ending {
            step: EndStep::Departing,
            due: now + patience,
            cause: None,
            plan: Some(Plan {
                reason: "somebody else asked it to stop".to_owned(),
                // Whoever does that again and again must not have it start for ever.
                counts: true,
            }),
        });
    }

    /// Lets the living process be the last one.
    pub(super) fn on_retire_asked(&mut self, actions: &mut Vec<Action>) {
        self.retired = true;
        if matches!(self.life, Life::Resting { .. } | Life::Halted) {
            self.finish(Outcome::Stopped { forced: false }, actions);
        }
    }

    pub(super) fn on_restart_asked(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.stop.is_some() || self.retired {
            return;
        }
        self.halt = false;
        // Whoever asks has changed something: what failed before says nothing now.
        self.failures = Failures::default();
        match &self.life {
            Life::Halted | Life::Resting { .. } => self.life = Life::Resting { until: now },
            _ => self.leave(now, by_hand("a restart"), actions),
        }
    }

    pub(super) fn on_halt_asked(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.stop.is_some() {
            return;
        }
        self.halt = true;
        match &self.life {
            Life::Resting { .. } => self.life = Life::Halted,
            _ => self.leave(now, by_hand("a stop"), actions),
        }
    }

    /// The next step for a process that did not end after the last one.
    pub(super) fn on_ending_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Life::Alive(child) = &mut self.life else {
            return;
        };
        let policy = &self.policy;
        let step = child.ending.as_ref().map(|ending| ending.step);
        if let Some(EndStep::Leaving { since }) = step
            && child.left_at(since, policy).is_some_and(|at| now >= at)
        {
            return self.end(now, EndStep::Terminated, None, actions);
        }
        let Some(ending) = child.ending.as_mut().filter(|ending| now >= ending.due) else {
            return;
        };
        let (step, cause, pid) = (ending.step, ending.cause.take(), child.pid);
        match step {
            EndStep::Leaving { .. } | EndStep::Departing => {
                self.end(now, EndStep::Terminated, cause, actions);
            }
            EndStep::Aborted | EndStep::Terminated => {
                actions.push(info(format!(
                    "killing the worker (pid {pid}), it did not end"
                )));
                self.end(now, EndStep::Killed, cause, actions);
            }
            EndStep::Killed if self.stop.is_some() => self.finish(
                Outcome::Failed(Failure {
                    kind: FailureKind::WontDie,
                    reason: format!("the worker (pid {pid}) does not die, even after SIGKILL"),
                    exit_code: None,
                }),
                actions,
            ),
            EndStep::Killed => {
                // Never a second process beside it: there is nothing to do but to wait.
                actions.push(Action::Note {
                    level: NoteLevel::Warn,
                    text: format!("the worker (pid {pid}) is still there after SIGKILL"),
                });
                self.end(now, EndStep::Killed, cause, actions);
            }
        }
    }

    fn end(
        &mut self,
        now: Instant,
        step: EndStep,
        cause: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let Life::Alive(child) = &mut self.life else {
            return;
        };
        let (signal, patience) = match step {
            EndStep::Leaving { .. } | EndStep::Departing => return,
            EndStep::Aborted => (Signal::Abort, self.policy.abort_grace),
            EndStep::Terminated => (Signal::Terminate, self.policy.stop_grace),
            EndStep::Killed => (Signal::Kill, self.policy.kill_wait),
        };
        let (earlier, plan) = child
            .ending
            .take()
            .map_or((None, None), |ending| (ending.cause, ending.plan));
        child.serving = Serving::No;
        child.ending = Some(Ending {
            step,
            due: now + patience,
            cause: cause.or(earlier),
            plan,
        });
        actions.push(Action::Signal {
            generation: child.generation,
            signal,
        });
    }
}

fn by_hand(what: &str) -> Plan {
    Plan {
        reason: format!("{what} was asked for"),
        counts: false,
    }
}
