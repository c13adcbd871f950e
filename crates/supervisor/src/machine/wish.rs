//! Reasons to replace a worker that works: they wait for a quiet moment.

use std::time::{Duration, Instant};

use super::child::{Child, Plan, Serving};
use super::{Action, Machine, NoteLevel, info};
use crate::Policy;

/// What one process gives reason to wish for.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Whether it has ever run as it was asked to. One that never did would not after a restart.
    was_good: bool,
    device: Device,
    /// Whether it has been asked to return and has not answered. It may have come back by itself
    /// meanwhile, and be lost again.
    asked: bool,
    memory: Option<Memory>,
}

/// Where its return to the device it lost stands.
#[derive(Debug, Default)]
enum Device {
    #[default]
    AsAsked,
    /// Lost; it may be asked to return from then on.
    Lost,
    /// It has been asked to return, and not answered.
    Returning,
    /// It cannot return, and why.
    Gone(String),
}

/// It is over its memory.
#[derive(Debug)]
struct Memory {
    reason: String,
    since: Instant,
}

impl Wishes {
    /// Its health says that it serves so.
    pub(super) fn on_health(&mut self, serving: &Serving) {
        match serving {
            Serving::Yes => {
                self.was_good = true;
                // Back by itself, or as asked.
                self.device = Device::AsAsked;
            }
            Serving::Degraded(how) if how.device && self.was_good => {
                if matches!(self.device, Device::AsAsked) {
                    self.device = Device::Lost;
                }
            }
            Serving::Degraded(_) | Serving::No => {}
        }
    }

    fn may_be_asked(&self) -> bool {
        matches!(self.device, Device::Lost) && !self.asked
    }
}

impl Child {
    /// When a wish next needs attention.
    pub(super) fn next_wish(&self, policy: &Policy) -> Option<Instant> {
        let quiet = self.quiet_at(policy);
        let device = match self.wishes.device {
            Device::Gone(_) => quiet,
            _ => None,
        };
        let memory = self.wishes.memory.as_ref().map(|memory| {
            let patience = memory.since + policy.quiet_patience;
            quiet.map_or(patience, |quiet| quiet.min(patience))
        });
        [device, memory].into_iter().flatten().min()
    }

    /// The replacement that is due now.
    fn due_plan(&self, now: Instant, policy: &Policy) -> Option<Plan> {
        if !self.is_serving() {
            return None;
        }
        let quiet = self.quiet_at(policy).is_some_and(|at| now >= at);
        if let Some(memory) = &self.wishes.memory
            && (quiet || now >= memory.since + policy.quiet_patience)
        {
            return Some(Plan {
                reason: memory.reason.clone(),
                // A limit that the worker cannot keep must not make it start for ever.
                counts: true,
            });
        }
        match &self.wishes.device {
            Device::Gone(why) if quiet => Some(Plan {
                reason: format!("it lost its device and cannot return to it: {why}"),
                counts: false,
            }),
            _ => None,
        }
    }
}

impl Machine {
    pub(super) fn on_memory(
        &mut self,
        now: Instant,
        generation: u64,
        bytes: u64,
        actions: &mut Vec<Action>,
    ) {
        let limit = self.policy.max_memory;
        let Some(child) = self.child(generation) else {
            return;
        };
        child.memory = Some(bytes);
        let Some(limit) = limit.filter(|limit| bytes > *limit) else {
            return;
        };
        if child.is_serving() && child.wishes.memory.is_none() {
            let reason = format!(
                "its memory of {} MiB is over the limit of {} MiB",
                bytes >> 20,
                limit >> 20
            );
            actions.push(Action::Note {
                level: NoteLevel::Warn,
                text: format!("the worker is to be replaced between requests: {reason}"),
            });
            child.wishes.memory = Some(Memory { reason, since: now });
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        generation: u64,
        failure: Option<String>,
        actions: &mut Vec<Action>,
    ) {
        let Some(child) = self.child(generation) else {
            return;
        };
        child.wishes.asked = false;
        if !matches!(child.wishes.device, Device::Returning) {
            return;
        }
        match failure {
            None => {
                // Its next health has the last word.
                child.wishes.device = Device::AsAsked;
                actions.push(info("the worker is back on its device".to_owned()));
            }
            Some(why) => {
                actions.push(Action::Note {
                    level: NoteLevel::Warn,
                    text: format!(
                        "the worker cannot return to its device ({why}): it is to be replaced in a quiet moment"
                    ),
                });
                child.wishes.device = Device::Gone(why);
            }
        }
    }

    /// Asks for a return to the device, and grants what is wished for.
    pub(super) fn grant_wishes(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let policy = self.policy.clone();
        let may_recover = policy.recover_device
            && self
                .recovered_at
                .is_none_or(|at| now >= at + policy.recover_pause);
        let super::Life::Alive(child) = &mut self.life else {
            return;
        };
        if may_recover && child.wishes.may_be_asked() {
            child.wishes.device = Device::Returning;
            child.wishes.asked = true;
            self.recovered_at = Some(now);
            actions.push(info(
                "the worker has lost its device: asking it to return".to_owned(),
            ));
            actions.push(Action::Recover {
                generation: child.generation,
            });
        }
        if let Some(plan) = child.due_plan(now, &policy) {
            self.leave(now, plan, actions);
        }
    }

    /// When a return to the device may next be asked for, if one is wished for.
    pub(super) fn next_recovery(&self) -> Option<Instant> {
        let super::Life::Alive(child) = &self.life else {
            return None;
        };
        let wanted =
            self.policy.recover_device && child.ending.is_none() && child.wishes.may_be_asked();
        let pause = |at: Instant| at + self.policy.recover_pause;
        wanted.then(|| self.recovered_at.map_or(child.spawned_at, pause))
    }
}

/// How long the worker had been there, for a sentence.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
