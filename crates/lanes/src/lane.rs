//! One lane: what it takes, what it has, and how it does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::arrivals::Arrivals;
use crate::breaker::Breaker;
use crate::bucket::{LENGTH_BUCKETS, QUESTION_BUCKETS};
use crate::estimate::Estimates;
use crate::{Ask, Limits, Outcome, Prior, length_bucket, question_bucket};

/// Answers that are looked at together, where they share the lane.
const TOGETHER: u32 = 8;
/// So often in a row a kind of request is refused before the lane is no longer asked.
const REFUSALS: u32 = 3;
/// For so long it is not asked then.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// A request that takes so many times its usual time, and so long at least, is stuck.
const STUCK_TIMES: f64 = 20.0;
const STUCK_SECONDS: f64 = 2.0;

/// A lane as it is set.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneSpec {
    /// Its name: what clients ask for, and a label of metrics.
    pub name: String,
    /// What it takes.
    pub limits: Limits,
    /// Whether it also takes what is beyond its limits, when it has nothing to do or nobody else can.
    pub helps: bool,
    /// What its requests take, before any is served.
    pub prior: Prior,
}

impl LaneSpec {
    /// A lane of which nothing was measured.
    pub fn new(name: impl Into<String>, limits: Limits) -> Self {
        Self {
            name: name.into(),
            limits,
            helps: false,
            prior: Prior::built_in(),
        }
    }
}

/// A request at a lane.
#[derive(Debug, Clone, Copy)]
struct Place {
    id: u64,
    since: Instant,
    ask: Ask,
    /// Seconds it takes alone.
    alone: f64,
    probe: bool,
    company: Company,
}

/// What else has been at the lane meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Company {
    Alone,
    Read,
    /// Something of which nobody knows how much it was.
    Unread,
}

impl Company {
    fn of(ask: &Ask) -> Self {
        if ask.is_read {
            Self::Read
        } else {
            Self::Unread
        }
    }
}

/// What happened to the requests of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answered, with a decision or a client's mistake.
    pub served: u64,
    /// Answered that it has too much to do.
    pub busy: u64,
    /// Answered 421: not for this lane.
    pub refused: u64,
    /// Lost, or answered 5xx.
    pub failed: u64,
    /// Given up: the client left, or its time was over.
    pub abandoned: u64,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) helps: bool,
    pub(crate) ready: bool,
    /// The process behind it, as far as it is known.
    pub(crate) generation: u64,
    pub(crate) breaker: Breaker,
    pub(crate) counts: Counts,
    /// Of requests within its limits.
    pub(crate) arrivals: Arrivals,
    estimates: Estimates,
    line: VecDeque<Place>,
    /// Since when the lane is at work on what is answered next.
    turned: Option<Instant>,
    together: Together,
    refused: Vec<Refused>,
}

/// Requests that shared the lane.
#[derive(Debug, Clone, Copy, Default)]
struct Together {
    count: u32,
    alone: f64,
    passed: f64,
}

/// A kind of request that the lane has refused.
#[derive(Debug, Clone, Copy, Default)]
struct Refused {
    times: u32,
    until: Option<Instant>,
}

impl Lane {
    pub(crate) fn new(spec: LaneSpec) -> Self {
        Self {
            name: spec.name,
            limits: spec.limits,
            helps: spec.helps,
            ready: false,
            generation: 0,
            breaker: Breaker::default(),
            counts: Counts::default(),
            arrivals: Arrivals::default(),
            estimates: Estimates::new(spec.prior),
            line: VecDeque::new(),
            turned: None,
            together: Together::default(),
            refused: vec![Refused::default(); LENGTH_BUCKETS * QUESTION_BUCKETS],
        }
    }

    /// What was measured is of something else: only what is observed from now on counts.
    pub(crate) fn forget(&mut self) {
        self.estimates = Estimates::new(Prior::built_in());
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.line.len()
    }

    /// Whether it has answered such a request just now.
    pub(crate) fn has_news(&self, ask: &Ask, now: Instant) -> bool {
        self.estimates.is_news(ask, now)
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.estimates.is_blank()
    }

    /// Seconds that a request takes alone.
    pub(crate) fn alone(&self, ask: &Ask) -> f64 {
        self.estimates.alone(ask)
    }

    /// Seconds until the lane is through with what it has.
    pub(crate) fn backlog(&self, now: Instant) -> f64 {
        let pace = self.estimates.pace();
        let mut waiting = self.line.iter();
        let Some(first) = waiting.next() else {
            return 0.0;
        };
        // What takes longer than was thought may well take as long again.
        let left = (first.alone * pace - self.at_first(first, now)).abs();
        left + waiting.map(|place| place.alone * pace).sum::<f64>()
    }

    /// Seconds until such a request would be answered; it takes `alone` by itself.
    pub(crate) fn finish_in(&self, alone: f64, now: Instant) -> f64 {
        if self.line.is_empty() {
            alone
        } else {
            self.backlog(now) + alone * self.estimates.pace()
        }
    }

    /// Notices a request that is stuck.
    pub(crate) fn look(&mut self, now: Instant) {
        // Nothing is usual for what was not read: what waits behind it is looked at.
        let is_read = |place: &&Place| place.ask.is_read;
        let before = self.line.iter().take_while(|place| !is_read(place));
        let before: f64 = before.map(|place| place.alone).sum();
        if let Some(first) = self.line.iter().find(is_read)
            && let Some(usual) = self.usual(&first.ask)
            && self.at_first(first, now) > ((before + usual) * STUCK_TIMES).max(STUCK_SECONDS)
        {
            self.breaker.stuck(now);
        }
    }

    /// Whether the lane has refused such requests of late.
    pub(crate) fn has_refused(&self, ask: &Ask, now: Instant) -> bool {
        let until = self.refused[kind(ask)].until;
        ask.is_read && until.is_some_and(|until| now < until)
    }

    pub(crate) fn enter(&mut self, id: u64, ask: Ask, alone: f64, now: Instant) -> bool {
        if self.line.is_empty() {
            self.turned = Some(now);
            self.together = Together::default();
        }
        let others = self.line.iter().map(|place| Company::of(&place.ask));
        let company = others.max().unwrap_or(Company::Alone);
        for place in &mut self.line {
            place.company = place.company.max(Company::of(&ask));
        }
        let probe = self.breaker.wants_probe(now);
        if probe {
            self.breaker.probe(now);
        }
        self.line.push_back(Place {
            id,
            since: now,
            ask,
            alone,
            probe,
            company,
        });
        probe
    }

    pub(crate) fn leave(&mut self, id: u64, outcome: Outcome, now: Instant) {
        let Some(at) = self.line.iter().position(|place| place.id == id) else {
            return;
        };
        let Some(place) = self.line.remove(at) else {
            return;
        };
        match outcome {
            Outcome::Served => {
                self.counts.served += 1;
                if place.ask.is_read {
                    self.refused[kind(&place.ask)] = Refused::default();
                }
                self.served(&place, now);
            }
            Outcome::Answered => {
                self.counts.served += 1;
                self.breaker.answered(place.probe);
            }
            Outcome::Busy => {
                self.counts.busy += 1;
                self.breaker.answered(place.probe);
            }
            Outcome::Refused => {
                self.counts.refused += 1;
                self.refused_by_it(&place, now);
            }
            Outcome::Failed => {
                self.counts.failed += 1;
                self.breaker.failed(place.probe, now);
            }
            Outcome::Abandoned => {
                self.counts.abandoned += 1;
                self.breaker.abandoned(place.probe);
            }
        }
    }

    fn served(&mut self, place: &Place, now: Instant) {
        let usual = self.usual(&place.ask);
        let passed = self.at_first(place, now);
        self.turned = Some(now);
        match place.company {
            Company::Alone => self.estimates.observe_alone(&place.ask, passed, now),
            Company::Read if place.ask.is_read => self.served_together(place.alone, passed),
            // How much of the time was whose nobody knows.
            Company::Read | Company::Unread => self.together = Together::default(),
        }
        self.breaker.served(place.probe, passed, usual, now);
    }

    fn served_together(&mut self, alone: f64, passed: f64) {
        let together = &mut self.together;
        together.count += 1;
        together.alone += alone;
        together.passed += passed;
        if together.count >= TOGETHER || self.line.is_empty() {
            self.estimates
                .observe_together(together.alone, together.passed);
            *together = Together::default();
        }
    }

    fn refused_by_it(&mut self, place: &Place, now: Instant) {
        self.breaker.answered(place.probe);
        // The next of so many bytes may be another kind.
        if !place.ask.is_read {
            return;
        }
        let refused = &mut self.refused[kind(&place.ask)];
        refused.times += 1;
        // Where tokens are only judged, a neighbour of the same bucket may still be taken.
        if place.ask.tokens.exact || refused.times >= REFUSALS {
            refused.until = Some(now + REFUSED_FOR);
        }
    }

    fn usual(&self, ask: &Ask) -> Option<f64> {
        self.estimates.usual(ask)
    }

    /// How long the lane has been at work on the first request.
    fn at_first(&self, first: &Place, now: Instant) -> f64 {
        let since = self.turned.map_or(first.since, |at| at.max(first.since));
        now.saturating_duration_since(since).as_secs_f64()
    }
}

fn kind(ask: &Ask) -> usize {
    length_bucket(ask.tokens.count) * QUESTION_BUCKETS + question_bucket(ask.questions)
}
