//! What is asked of the chooser, and what it answers.

use std::time::Duration;

use crate::breaker::BreakerState;
use crate::lane::Counts;
use crate::{Limits, Reason};

/// A request's place at a lane, until it is [finished](crate::Chooser::finish).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) lane: usize,
    pub(crate) id: u64,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The lane, by its place.
    pub lane: usize,
    /// The rule that decided.
    pub reason: Reason,
    /// What the request is thought to take there, once it has its turn.
    pub estimate: Duration,
    /// What each lane had before it, as the rule saw it.
    pub backlogs: Vec<Duration>,
    /// Its place there.
    pub ticket: Ticket,
}

/// How a request left its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with a decision.
    Served,
    /// Answered with something else, a client's mistake say, which tells nothing of its times.
    Answered,
    /// Answered that it has too much to do, or does not begin anything now.
    Busy,
    /// Answered 421: not for this lane.
    Refused,
    /// The lane was lost, or answered 5xx.
    Failed,
    /// The client left, or its time was over.
    Abandoned,
}

/// The lanes that a request has been at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tried {
    pub(crate) lost: u64,
    /// Of those that lost it, the ones that had no room.
    pub(crate) busy: u64,
    pub(crate) refused: u64,
}

impl Tried {
    /// A lane that lost it.
    pub fn lost(&mut self, lane: usize) {
        self.lost |= bit(lane);
    }

    /// A lane that had no room for it.
    pub fn busy(&mut self, lane: usize) {
        self.lost(lane);
        self.busy |= bit(lane);
    }

    /// Why it is somewhere else now, if it was tried before.
    pub(crate) fn reason(self) -> Option<Reason> {
        if self.lost != self.busy {
            Some(Reason::LaneLost)
        } else if self.busy != 0 {
            Some(Reason::LaneBusy)
        } else {
            (self.refused != 0).then_some(Reason::LaneRefused)
        }
    }

    /// A lane that answered 421.
    pub fn refused(&mut self, lane: usize) {
        self.refused |= bit(lane);
    }

    pub(crate) fn has(self, lane: usize) -> bool {
        (self.lost | self.refused) & bit(lane) != 0
    }
}

pub(crate) fn bit(lane: usize) -> u64 {
    u32::try_from(lane)
        .ok()
        .and_then(|lane| 1_u64.checked_shl(lane))
        .unwrap_or(0)
}

/// Why a request goes nowhere, as a sentence for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The lane that was asked for does not take it.
    NotObeyed(String),
    /// No lane takes such requests.
    NotTaken(String),
    /// A lane takes such requests, and cannot now.
    Unavailable {
        /// Which, if it is one.
        lane: Option<usize>,
        /// The sentence.
        why: String,
    },
    /// It has been at every lane that could take it, and was lost by the last one.
    Lost,
}

/// A lane as metrics and the status page show it.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneView {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub limits: Limits,
    /// Whether it can be asked at all.
    pub ready: bool,
    /// Its breaker.
    pub breaker: BreakerState,
    /// How often the breaker has opened.
    pub opened: u64,
    /// Requests there now.
    pub in_flight: usize,
    /// Until it is through with them.
    pub backlog: Duration,
    /// What happened to its requests.
    pub counts: Counts,
    /// How often each rule chose it.
    pub reasons: Vec<(Reason, u64)>,
}
