//! One living process, as far as the machine knows it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::event::{Degradation, Load, ProbeAnswer, Report};
use super::snapshot;
use super::wish::Wishes;
use crate::{About, Phase, Policy};

/// A process that has been spawned and not waited for.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) generation: u64,
    pub(super) pid: u32,
    pub(super) instance: String,
    pub(super) socket: PathBuf,
    pub(super) spawned_at: Instant,
    pub(super) serving: Serving,
    pub(super) report: Option<Report>,
    reported_at: Instant,
    /// Set once this process has been ready.
    pub(super) ready_at: Option<Instant>,
    /// Set once it is on its way out.
    pub(super) ending: Option<Ending>,
    /// What it says of itself.
    pub(super) about: Option<About>,
    /// Bytes, as measured last.
    pub(super) memory: Option<u64>,
    /// Reasons to replace it that can wait.
    pub(super) wishes: Wishes,
    pub(super) quietness: Quietness,
    progress_at: Instant,
    /// When it last ended something long that it said it would do.
    busy_until: Instant,
    probe_at: Instant,
    probe_in_flight: bool,
    failed_probes: u32,
    note_at: Instant,
}

/// Whether requests may be sent to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Serving {
    No,
    Yes,
    /// Yes, but not as asked, and why.
    Degraded(Degradation),
}

/// Whether requests are in flight, as far as anyone said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quietness {
    /// Nobody counts.
    Unknown,
    Busy,
    Quiet {
        since: Instant,
    },
}

/// A process on its way out.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) step: EndStep,
    /// When the next step is due.
    pub(super) due: Instant,
    /// The failure for which it is being ended; none when it was asked to stop.
    pub(super) cause: Option<String>,
    /// Why it is being replaced although it did not fail.
    pub(super) plan: Option<Plan>,
}

/// Why a process that did not fail is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) reason: String,
    /// Whether it counts as a failure: what would otherwise go on for ever does.
    pub(super) counts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndStep {
    /// It is sent nothing more, and finishes what it has.
    Leaving {
        since: Instant,
    },
    /// It says that somebody else asked it to end: it finishes what it has, and ends by itself.
    /// A second SIGTERM would make it drop that.
    Departing,
    Aborted,
    Terminated,
    Killed,
}

/// What a probe's answer changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProbeVerdict {
    /// It has become ready for the first time.
    FirstReady,
    /// It counts as hung, and why.
    Hung(String),
    /// Nothing to act on.
    Fine,
}

impl Child {
    pub(super) fn new(
        (generation, pid): (u64, u32),
        instance: String,
        socket: PathBuf,
        now: Instant,
        policy: &Policy,
    ) -> Self {
        Self {
            generation,
            pid,
            instance,
            socket,
            spawned_at: now,
            serving: Serving::No,
            report: None,
            reported_at: now,
            ready_at: None,
            ending: None,
            about: None,
            memory: None,
            wishes: Wishes::default(),
            quietness: Quietness::Unknown,
            progress_at: now,
            busy_until: now,
            probe_at: now + policy.probe.starting_interval,
            probe_in_flight: false,
            failed_probes: 0,
            note_at: now + policy.still_waiting_every,
        }
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        self.report.as_ref().map(|report| report.phase)
    }

    /// Whether it has done anything that a worker does.
    pub(super) fn has_begun(&self) -> bool {
        self.report.is_some() || self.ready_at.is_some()
    }

    pub(super) fn is_serving(&self) -> bool {
        self.serving != Serving::No
    }

    pub(super) fn on_report(&mut self, now: Instant, report: Report) {
        if self.report.as_ref() == Some(&report) {
            return;
        }
        self.progress_at = now;
        if self.phase().is_some_and(Phase::is_busy) && !report.phase.is_busy() {
            self.busy_until = now;
        }
        if report.phase == Phase::Ready && !self.is_serving() {
            // It listens now: no need to wait for the next round.
            self.probe_at = now;
        }
        self.report = Some(report);
        self.reported_at = now;
    }

    /// What is waited for, in its own last words where there are any: it may have ended since what their phase calls it.
    pub(super) fn awaited(&self, now: Instant) -> String {
        let words = self.report.as_ref().map(|report| report.detail.trim());
        match words.filter(|words| !words.is_empty()) {
            Some(words) => format!(
                "the last it said, {} s ago, was {words:?}",
                now.saturating_duration_since(self.reported_at).as_secs()
            ),
            None => snapshot::doing(self).to_owned(),
        }
    }

    pub(super) fn on_probe(
        &mut self,
        now: Instant,
        answer: ProbeAnswer,
        policy: &Policy,
    ) -> ProbeVerdict {
        self.probe_in_flight = false;
        let verdict = match answer {
            ProbeAnswer::Answered { instance, .. } if instance != self.instance => {
                self.on_failed_probe(now, "another instance answered its probe", policy)
            }
            ProbeAnswer::Answered {
                ready,
                degraded,
                about,
                ..
            } => {
                if self.ending.is_none() {
                    self.about = Some(about);
                }
                self.on_answer(now, ready, degraded)
            }
            ProbeAnswer::Failed { reason } => self.on_failed_probe(now, &reason, policy),
        };
        self.probe_at = now
            + if self.is_serving() {
                policy.probe.ready_interval
            } else {
                policy.probe.starting_interval
            };
        verdict
    }

    fn on_answer(
        &mut self,
        now: Instant,
        ready: bool,
        degraded: Option<Degradation>,
    ) -> ProbeVerdict {
        self.failed_probes = 0;
        if self.ending.is_some() {
            return ProbeVerdict::Fine;
        }
        if !ready {
            if self.is_serving() {
                // It took its readiness back: it has a whole start deadline to return.
                self.serving = Serving::No;
                self.progress_at = now;
            }
            return ProbeVerdict::Fine;
        }
        self.serving = degraded.map_or(Serving::Yes, Serving::Degraded);
        self.wishes.on_health(&self.serving);
        if self.ready_at.is_some() {
            return ProbeVerdict::Fine;
        }
        self.ready_at = Some(now);
        ProbeVerdict::FirstReady
    }

    fn on_failed_probe(&mut self, now: Instant, reason: &str, policy: &Policy) -> ProbeVerdict {
        if !self.is_serving() {
            return ProbeVerdict::Fine;
        }
        self.failed_probes += 1;
        if self.failed_probes < policy.probe.max_failures || self.may_be_silent(now, policy) {
            return ProbeVerdict::Fine;
        }
        ProbeVerdict::Hung(format!(
            "its health failed {} times in a row: {reason}",
            self.failed_probes
        ))
    }

    pub(super) fn on_load(&mut self, now: Instant, load: Load) {
        self.quietness = match self.quietness {
            _ if load.in_flight > 0 => Quietness::Busy,
            Quietness::Quiet { since } => Quietness::Quiet { since },
            Quietness::Unknown | Quietness::Busy => Quietness::Quiet { since: now },
        };
    }

    /// How long it has owed an answer: what waited while it was busy is owed from then on.
    pub(super) fn owed_for(&self, now: Instant, unanswered: Duration) -> Duration {
        unanswered.min(now.saturating_duration_since(self.busy_until))
    }

    /// From when on the moment is quiet if nothing is sent; none while something is in flight.
    /// Where nobody counts, every moment is as quiet as another.
    pub(super) fn quiet_at(&self, policy: &Policy) -> Option<Instant> {
        match self.quietness {
            Quietness::Unknown => Some(self.spawned_at),
            Quietness::Busy => None,
            Quietness::Quiet { since } => Some(since + policy.quiet),
        }
    }

    /// When all that was sent to it has been answered, if it has not been sent anything since
    /// `since`: what was on its way at that time may be counted a little later.
    pub(super) fn left_at(&self, since: Instant, policy: &Policy) -> Option<Instant> {
        match self.quietness {
            Quietness::Unknown => Some(since),
            Quietness::Busy => None,
            Quietness::Quiet { since: quiet } => Some(quiet.max(since) + policy.quiet),
        }
    }

    /// Whether it does something long that it said it would do, and still makes progress.
    pub(super) fn may_be_silent(&self, now: Instant, policy: &Policy) -> bool {
        self.phase().is_some_and(Phase::is_busy) && now < self.progress_at + policy.start_deadline
    }

    /// Whether it has shown no progress towards readiness for as long as it may.
    pub(super) fn overdue(&self, now: Instant, policy: &Policy) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.progress_at);
        (!self.is_serving() && waited >= policy.start_deadline).then_some(waited)
    }

    /// Whether a probe is to be sent now. Counts it as sent.
    pub(super) fn take_probe(&mut self, now: Instant) -> bool {
        let due = !self.probe_in_flight && now >= self.probe_at;
        self.probe_in_flight |= due;
        due
    }

    /// Whether a "still waiting" is due now. Counts it as given.
    pub(super) fn take_note(&mut self, now: Instant, policy: &Policy) -> bool {
        if self.is_serving() {
            self.note_at = now + policy.still_waiting_every;
            return false;
        }
        let due = now >= self.note_at;
        if due {
            self.note_at = now + policy.still_waiting_every;
        }
        due
    }

    /// When it next needs attention.
    pub(super) fn next_wake(&self, policy: &Policy, retired: bool) -> Option<Instant> {
        if let Some(ending) = &self.ending {
            let left = match ending.step {
                EndStep::Leaving { since } => self.left_at(since, policy),
                _ => None,
            };
            return Some(left.map_or(ending.due, |left| left.min(ending.due)));
        }
        let probe = (!self.probe_in_flight).then_some(self.probe_at);
        let patience = (!self.is_serving())
            .then(|| self.note_at.min(self.progress_at + policy.start_deadline));
        let wish = self.next_wish(policy).filter(|_| !retired);
        [probe, patience, wish].into_iter().flatten().min()
    }
}
