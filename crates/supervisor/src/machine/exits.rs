//! What follows the end of a process: another one after a wait, or the end of trying.

use std::sync::Arc;
use std::time::Instant;

use super::{Action, Life, Machine, NoteLevel, failures, info, snapshot};
use crate::{Exit, Failure, FailureKind, LastExit, Outcome};

/// How many ends of processes are remembered.
const MAX_HISTORY: usize = 20;

impl Machine {
    pub(super) fn on_spawn_failed(
        &mut self,
        now: Instant,
        reason: String,
        hopeless: bool,
        actions: &mut Vec<Action>,
    ) {
        let summary = "the worker's process could not be started".to_owned();
        self.remember(LastExit {
            generation: self.generation,
            exit: None,
            planned: false,
            summary,
            reason: reason.clone(),
            at: now,
        });
        if self.stop.is_some() || self.retired {
            self.finish(Outcome::Stopped { forced: false }, actions);
        } else if hopeless {
            self.give_up(FailureKind::CannotRun, reason, None, actions);
        } else {
            self.on_failure(now, &reason, None, actions);
        }
    }

    pub(super) fn on_exited(
        &mut self,
        now: Instant,
        generation: u64,
        exit: Exit,
        last_words: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let Some(child) = self.child(generation) else {
            return;
        };
        let (cause, plan) = child
            .ending
            .as_mut()
            .map_or((None, None), |end| (end.cause.take(), end.plan.take()));
        let forced = child.was_killed();
        let pid = child.pid;
        let does_nothing =
            exit == Exit::Code(0) && !child.has_begun() && cause.is_none() && plan.is_none();
        let never_ready = child.ready_at.is_none();
        // Whatever comes next, this process is gone.
        self.life = Life::Resting { until: now };
        *self.exits.entry(exit).or_default() += 1;
        let summary = snapshot::exit_summary(exit, forced, cause.is_some(), plan.is_some());
        let cause = cause.or_else(|| plan.as_ref().map(|plan| plan.reason.clone()));
        let reason = snapshot::exit_reason(exit, forced, cause, last_words.as_deref());
        self.remember(LastExit {
            generation,
            exit: Some(exit),
            planned: plan.is_some() || self.stop.is_some() || self.retired,
            summary,
            reason: reason.clone(),
            at: now,
        });
        if self.stop.is_some() || self.retired {
            actions.push(info(format!("the worker (pid {pid}) is gone: {exit}")));
            self.finish(Outcome::Stopped { forced }, actions);
        } else if exit.is_configuration() {
            let said = match &last_words {
                // They are in the log already.
                Some(_) => {
                    format!("another start cannot change {exit}; what it wrote last says why")
                }
                None => reason.clone(),
            };
            let failure = Failure {
                kind: FailureKind::Configuration,
                reason: last_words.unwrap_or(reason),
                exit_code: exit.code(),
            };
            self.give_up_saying(&said, failure, actions);
        } else if does_nothing {
            let reason = "the worker ended with exit code 0 before it began to start, as it does after `--help`: \
                          what it wrote is in the log";
            self.give_up(FailureKind::CannotRun, reason.to_owned(), None, actions);
        } else if let Some(cure) = self.cure(never_ready, last_words.as_deref()) {
            self.give_up(FailureKind::CannotRun, cure, None, actions);
        } else if plan.is_some_and(|plan| !plan.counts) {
            actions.push(info(format!("the worker (pid {pid}) is gone: {exit}")));
            self.rest_until(now);
        } else {
            self.on_failure(now, &reason, exit.code(), actions);
        }
    }

    /// What to do where the last words of a process that was never ready are known to be the last
    /// of any other too.
    fn cure(&self, never_ready: bool, last_words: Option<&str>) -> Option<String> {
        let known = self.policy.hopeless.as_ref().filter(|_| never_ready)?;
        last_words?
            .contains(&known.last_words)
            .then(|| known.cure.clone())
    }

    /// Counts a failure, and rests or gives up.
    pub(super) fn on_failure(
        &mut self,
        now: Instant,
        reason: &str,
        exit_code: Option<i32>,
        actions: &mut Vec<Action>,
    ) {
        let policy = &self.policy.restart;
        let most = policy.max_failures;
        let count = self.failures.record(now, policy);
        if count >= most {
            let reason = format!("the worker failed {count} times, the last time because {reason}");
            return self.give_up(FailureKind::GaveUp, reason, exit_code, actions);
        }
        let delay = failures::delay(policy, count, &mut self.jitter);
        actions.push(Action::Note {
            level: NoteLevel::Warn,
            text: format!(
                "the worker failed ({count} of at most {most}): {reason}; next start in {:.1} s",
                delay.as_secs_f64()
            ),
        });
        self.rest_until(now + delay);
    }

    fn rest_until(&mut self, until: Instant) {
        self.life = if self.halt {
            Life::Halted
        } else {
            Life::Resting { until }
        };
    }

    /// Keeps how a process ended, or why it could not be started.
    fn remember(&mut self, last: LastExit) {
        let history = Arc::make_mut(&mut self.history);
        if history.len() == MAX_HISTORY {
            history.remove(0);
        }
        history.push(last.clone());
        self.last_exit = Some(last);
    }

    pub(super) fn give_up(
        &mut self,
        kind: FailureKind,
        reason: String,
        exit_code: Option<i32>,
        actions: &mut Vec<Action>,
    ) {
        let failure = Failure {
            kind,
            reason,
            exit_code,
        };
        self.give_up_saying(&failure.to_string(), failure, actions);
    }

    fn give_up_saying(&mut self, said: &str, failure: Failure, actions: &mut Vec<Action>) {
        actions.push(Action::Note {
            level: NoteLevel::Error,
            text: format!("giving up on the worker: {said}"),
        });
        self.finish(Outcome::Failed(failure), actions);
    }

    pub(super) fn finish(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        self.life = Life::Ended {
            failed: matches!(outcome, Outcome::Failed(_)),
        };
        actions.push(Action::Finish(outcome));
    }
}
