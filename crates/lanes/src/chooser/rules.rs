//! The rules in their order.

use std::time::Instant;

use super::Chooser;
use crate::breaker::{BreakerState, Trouble};
use crate::{Ask, Limits, Reason, Refusal, Tried};

/// A lane that is not the one made for a request has to be quicker by so much of what it takes.
pub(super) const MARGIN: f64 = 0.1;

/// What a request waits counts so many times for the lane that was made for it, when it is to help with others.
const OWN_KIND: f64 = 20.0;

pub(super) const NO_PARITY: &str =
    "has no traffic until its answers agree with the reference again";

/// What a lane is to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Takes,
    /// Beyond its limits, but it helps out.
    Helps(Beyond),
    Probe,
    Tried,
    NotReady,
    Beyond(Beyond),
    NoArtifact,
    Broken(Trouble),
}

/// The limit that a request is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    Questions,
    Tokens,
    /// Nobody knows.
    NotRead,
}

impl Chooser {
    /// The lane for a decision that asks for none by name.
    pub(super) fn by_rules(
        &self,
        ask: &Ask,
        tried: Tried,
        now: Instant,
    ) -> Result<(usize, Reason), Refusal> {
        let (at, reason) = self.by_fit(ask, tried, now)?;
        let reason = match reason {
            // These say what has happened to it, and would not be known from `not_read`.
            Reason::LaneLost
            | Reason::LaneBusy
            | Reason::LaneRefused
            | Reason::BreakerProbe
            | Reason::LastResort => reason,
            _ if !ask.is_read => Reason::NotRead,
            _ => reason,
        };
        Ok((at, reason))
    }

    fn by_fit(&self, ask: &Ask, tried: Tried, now: Instant) -> Result<(usize, Reason), Refusal> {
        let fits: Vec<Fit> = (0..self.lanes.len())
            .map(|at| self.fit(at, ask, tried, now))
            .collect();
        let which = |wanted: Fit| {
            let fits = fits.iter().enumerate();
            fits.filter(move |(_, fit)| **fit == wanted)
                .map(|(at, _)| at)
        };
        if let Some(at) = which(Fit::Probe).next() {
            return Ok((at, Reason::BreakerProbe));
        }
        let candidates: Vec<usize> = which(Fit::Takes).collect();
        let helpers: Vec<usize> = (0..fits.len())
            .filter(|&at| matches!(fits[at], Fit::Helps(_)))
            .collect();
        let Some((preferred, best)) = self.best(&candidates, ask, now) else {
            return match self.best(&helpers, ask, now) {
                Some((_, best)) => {
                    let reason = tried.reason().or_else(|| excluded(&fits));
                    Ok((best, reason.unwrap_or(Reason::SpareLane)))
                }
                None => self.last_resort(&fits, ask, tried, now),
            };
        };
        if let Some(reason) = tried.reason() {
            return Ok((best, reason));
        }
        if let Some(spare) = self.spare(&helpers, best, ask, now) {
            return Ok((spare, Reason::SpareLane));
        }
        if candidates.len() == 1
            && let Some(reason) = excluded(&fits)
        {
            return Ok((best, reason));
        }
        let reason = if best != preferred {
            Reason::ShorterBacklog
        } else if !self.lanes[best].limits.any() {
            Reason::FirstLane
        } else if ask.questions == 1 {
            Reason::ShortAndSingle
        } else {
            Reason::WithinLimits
        };
        Ok((best, reason))
    }

    /// A lane with nothing to do that would answer sooner than the best of those made for the request,
    /// if that is worth what its own kind of requests would wait for it meanwhile.
    fn spare(&self, helpers: &[usize], best: usize, ask: &Ask, now: Instant) -> Option<usize> {
        // Of what was not read nobody knows how long it would keep a lane from its own kind.
        if self.lanes[best].in_flight() == 0 || !ask.is_read {
            return None;
        }
        let wait = self.lanes[best].finish_in(self.alone(best, ask), now);
        let gain = |at: usize| {
            let alone = self.alone(at, ask);
            let delayed = self.lanes[at].arrivals.within(alone, now);
            wait - alone - OWN_KIND * delayed * alone / 2.0
        };
        let idle = helpers
            .iter()
            .filter(|&&at| self.lanes[at].in_flight() == 0);
        let (at, gain) = idle
            .map(|&at| (at, gain(at)))
            .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (gain > MARGIN * self.alone(best, ask)).then_some(at)
    }

    /// A lane that is slow or fails now and then is better than no answer, and so is one that has refused such requests:
    /// what counts as such is a range of lengths, of which it may take a part.
    fn last_resort(
        &self,
        fits: &[Fit],
        ask: &Ask,
        tried: Tried,
        now: Instant,
    ) -> Result<(usize, Reason), Refusal> {
        let troubled: Vec<usize> = (0..fits.len())
            .filter(|&at| {
                let trouble = fits[at];
                trouble == Fit::Broken(Trouble::Slow) || trouble == Fit::Broken(Trouble::Failing)
            })
            .collect();
        let has_parity = |at: &usize| self.lanes[*at].breaker.trouble() != Some(Trouble::Parity);
        let refusing: Vec<usize> = (0..fits.len())
            .filter(|&at| fits[at] == Fit::NoArtifact)
            .filter(has_parity)
            .collect();
        let best = self.best(&troubled, ask, now);
        match best.or_else(|| self.best(&refusing, ask, now)) {
            Some((_, best)) => Ok((best, Reason::LastResort)),
            None => Err(self.none(fits, ask, tried)),
        }
    }

    fn fit(&self, at: usize, ask: &Ask, tried: Tried, now: Instant) -> Fit {
        let lane = &self.lanes[at];
        if tried.has(at) {
            return Fit::Tried;
        }
        let beyond = beyond(lane.limits, ask);
        // What was not read may well be within them: the lane knows, where nobody else can be asked.
        let may_help = lane.helps || !ask.is_read;
        if let Some(beyond) = beyond
            && !may_help
        {
            return Fit::Beyond(beyond);
        }
        if !lane.ready {
            return Fit::NotReady;
        }
        if lane.has_refused(ask, now) {
            return Fit::NoArtifact;
        }
        match lane.breaker.state(now) {
            BreakerState::Closed => beyond.map_or(Fit::Takes, Fit::Helps),
            BreakerState::HalfOpen(_)
                if lane.breaker.wants_probe(now) && beyond != Some(Beyond::NotRead) =>
            {
                Fit::Probe
            }
            BreakerState::Open(trouble) | BreakerState::HalfOpen(trouble) => Fit::Broken(trouble),
        }
    }

    /// Of these lanes the one made for the fewest requests, and the one that answers first. For what
    /// was not read it is the one made for the most, and none of narrower limits.
    fn best(&self, lanes: &[usize], ask: &Ask, now: Instant) -> Option<(usize, usize)> {
        let width = |at: &usize| self.lanes[*at].limits.width();
        if !ask.is_read {
            let widest = lanes.iter().map(width).max()?;
            let widest = lanes.iter().copied().filter(|at| width(at) == widest);
            return self.first_of(&widest.collect::<Vec<_>>(), ask, now);
        }
        self.first_of(lanes, ask, now)
    }

    fn first_of(&self, lanes: &[usize], ask: &Ask, now: Instant) -> Option<(usize, usize)> {
        let preferred = *lanes
            .iter()
            .min_by_key(|&&at| self.lanes[at].limits.width())?;
        let finish = |at: usize| {
            let lane = &self.lanes[at];
            // One that is left alone for what it once took would never show that it takes less now.
            if at == preferred && lane.in_flight() == 0 && !lane.has_news(ask, now) {
                let quickest = lanes.iter().map(|&at| self.alone(at, ask));
                return quickest.min_by(f64::total_cmp).unwrap_or_default();
            }
            lane.finish_in(self.alone(at, ask), now)
        };
        let others = lanes.iter().copied().filter(|&at| at != preferred);
        let soonest = others
            .map(|at| (at, finish(at)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other));
        // Estimates are not exact enough to leave a lane that was made for this for less.
        let margin = MARGIN * self.alone(preferred, ask);
        match soonest {
            Some((at, then)) if then + margin < finish(preferred) => Some((preferred, at)),
            _ => Some((preferred, preferred)),
        }
    }

    /// Why no lane is left.
    fn none(&self, fits: &[Fit], ask: &Ask, tried: Tried) -> Refusal {
        let waits = |fit: &Fit| matches!(fit, Fit::NotReady | Fit::Broken(_));
        if let Some(at) = fits.iter().position(waits) {
            let why = match fits[at] {
                Fit::Broken(Trouble::Parity) => NO_PARITY,
                _ => "is not ready",
            };
            return Refusal::Unavailable {
                lane: Some(at),
                why: format!("The lane {} takes this request and {why}.", self.name(at)),
            };
        }
        if tried.lost != 0 {
            return Refusal::Lost;
        }
        if !ask.is_read {
            return Refusal::NotTaken(
                "No lane takes this request: each said that it is not for it, and its body, which is \
                 compressed or no JSON with questions, could not be read here to tell why."
                    .to_owned(),
            );
        }
        let about = if ask.tokens.exact { "" } else { "about " };
        Refusal::NotTaken(format!(
            "No lane takes this request: it has {about}{} tokens in its longest row, and questions: {}.",
            ask.tokens.count, ask.questions
        ))
    }
}

/// The first rule that has kept another lane out.
fn excluded(fits: &[Fit]) -> Option<Reason> {
    let has = |wanted: fn(&Fit) -> bool| fits.iter().any(wanted);
    if has(|fit| *fit == Fit::NotReady) {
        Some(Reason::LaneNotReady)
    } else if has(|fit| fit.beyond() == Some(Beyond::Questions)) {
        Some(Reason::SeveralQuestions)
    } else if has(|fit| fit.beyond() == Some(Beyond::Tokens)) {
        Some(Reason::TooLong)
    } else if has(|fit| *fit == Fit::NoArtifact) {
        Some(Reason::NoArtifact)
    } else if has(|fit| matches!(fit, Fit::Broken(_))) {
        Some(Reason::BreakerOpen)
    } else {
        None
    }
}

/// The limit that a request is beyond, if any.
pub(super) fn beyond(limits: Limits, ask: &Ask) -> Option<Beyond> {
    if !ask.is_read {
        return limits.any().then_some(Beyond::NotRead);
    }
    let over = |most: Option<u32>, value: u32| most.is_some_and(|most| value > most);
    if over(limits.max_questions, ask.questions) {
        Some(Beyond::Questions)
    } else if over(limits.max_tokens, ask.tokens.count) {
        Some(Beyond::Tokens)
    } else {
        None
    }
}

impl Fit {
    fn beyond(self) -> Option<Beyond> {
        match self {
            Self::Helps(beyond) | Self::Beyond(beyond) => Some(beyond),
            _ => None,
        }
    }
}
