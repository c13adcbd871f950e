//! The rules in their order, then the backlog.

use std::time::{Duration, Instant};

use crate::breaker::{BreakerState, Trouble};
use crate::lane::Lane;
use crate::verdict::bit;
use crate::{Ask, Choice, LaneSpec, LaneView, Outcome, Reason, Refusal, Ticket, Tried};

/// Lanes that the rules choose between, and what is known of each.
#[derive(Debug)]
pub struct Chooser {
    lanes: Vec<Lane>,
    reasons: Vec<[u64; Reason::ALL.len()]>,
    next: u64,
}

/// A lane that is not the one made for a request has to be quicker by so much of what it takes.
const MARGIN: f64 = 0.1;

const NO_PARITY: &str = "has no traffic until its answers agree with the reference again";

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
enum Beyond {
    Questions,
    Tokens,
}

impl Chooser {
    /// Lanes in the order of the settings, none of them ready. 64 at most are of use.
    pub fn new(specs: Vec<LaneSpec>) -> Self {
        let lanes: Vec<Lane> = specs.into_iter().map(Lane::new).collect();
        Self {
            reasons: vec![[0; Reason::ALL.len()]; lanes.len()],
            lanes,
            next: 0,
        }
    }

    /// How many lanes there are.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The place of the lane of this name.
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.lanes
            .iter()
            .position(|lane| lane.name.as_bytes() == name)
    }

    /// A lane can be asked now, or not; `generation` is that of the process behind it. What was
    /// wrong with an older process is forgotten, and what is told of one is not heard any more.
    pub fn set_ready(&mut self, lane: usize, generation: Option<u64>) {
        let Some(lane) = self.lanes.get_mut(lane) else {
            return;
        };
        match generation {
            Some(generation) if generation < lane.generation => {}
            Some(generation) => {
                if generation > lane.generation {
                    lane.breaker.renewed();
                }
                lane.generation = generation;
                lane.ready = true;
            }
            None => lane.ready = false,
        }
    }

    /// What a lane says of its own parity.
    pub fn set_parity(&mut self, lane: usize, good: bool, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.breaker.parity(good, now);
        }
    }

    /// The lane for what is no decision: the first one that is ready, or that was asked for.
    ///
    /// # Errors
    ///
    /// If there is none, why.
    pub fn choose_default(
        &self,
        requested: Option<usize>,
        tried: Tried,
    ) -> Result<(usize, Reason), Refusal> {
        if let Some(at) = requested {
            self.check_ready(at)?;
            return Ok((at, Reason::LaneRequested));
        }
        let ready = |(_, lane): &(usize, &Lane)| {
            lane.ready && lane.breaker.trouble() != Some(Trouble::Parity)
        };
        let mut lanes = self.lanes.iter().enumerate();
        match lanes.find(|(at, lane)| ready(&(*at, lane)) && !tried.has(*at)) {
            Some((at, _)) => Ok((at, Reason::DefaultLane)),
            None if tried != Tried::default() => Err(Refusal::Lost),
            None => Err(Refusal::Unavailable {
                lane: None,
                why: "No lane is ready.".to_owned(),
            }),
        }
    }

    /// The lane for a decision; it has a place there from now on.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn choose(&mut self, ask: &Ask, tried: Tried, now: Instant) -> Result<Choice, Refusal> {
        for lane in &mut self.lanes {
            lane.look(now);
        }
        let backlogs: Vec<f64> = self.lanes.iter().map(|lane| lane.backlog(now)).collect();
        let (at, reason) = match ask.requested {
            Some(at) => (self.requested(at, ask, tried)?, Reason::LaneRequested),
            None => self.by_rules(ask, tried, now)?,
        };
        let alone = self.alone(at, ask);
        let id = self.next;
        self.next += 1;
        self.lanes[at].enter(id, *ask, alone, now);
        self.reasons[at][place(reason)] += 1;
        Ok(Choice {
            lane: at,
            reason,
            estimate: seconds(alone),
            backlogs: backlogs.into_iter().map(seconds).collect(),
            ticket: Ticket { lane: at, id },
        })
    }

    /// Counts what went to a lane without a place there: what is no decision.
    pub fn count(&mut self, lane: usize, reason: Reason) {
        if let Some(counts) = self.reasons.get_mut(lane) {
            counts[place(reason)] += 1;
        }
    }

    /// A request has left its lane.
    pub fn finish(&mut self, ticket: Ticket, outcome: Outcome, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(ticket.lane) {
            lane.leave(ticket.id, outcome, now);
        }
    }

    /// All lanes as they are now.
    pub fn view(&self, now: Instant) -> Vec<LaneView> {
        let lanes = self.lanes.iter().zip(&self.reasons);
        lanes
            .map(|(lane, reasons)| LaneView {
                name: lane.name.clone(),
                limits: lane.limits,
                ready: lane.ready,
                breaker: lane.breaker.state(now),
                opened: lane.breaker.opened(),
                in_flight: lane.in_flight(),
                backlog: seconds(lane.backlog(now)),
                counts: lane.counts,
                reasons: Reason::ALL
                    .into_iter()
                    .zip(reasons.iter().copied())
                    .collect(),
            })
            .collect()
    }

    /// The lane that was asked for, and no other.
    fn requested(&self, at: usize, ask: &Ask, tried: Tried) -> Result<usize, Refusal> {
        if tried.refused & bit(at) != 0 {
            let name = self.name(at);
            return Err(Refusal::NotObeyed(format!(
                "The lane {name} does not take this request."
            )));
        }
        if tried.lost & bit(at) != 0 {
            return Err(Refusal::Lost);
        }
        self.check_ready(at)?;
        let lane = &self.lanes[at];
        let (limits, name) = (lane.limits, &lane.name);
        if lane.helps {
            return Ok(at);
        }
        if let Some(most) = limits.max_questions.filter(|&most| ask.questions > most) {
            return Err(Refusal::NotObeyed(format!(
                "The lane {name} takes {most} questions at most, and this request has {}.",
                ask.questions
            )));
        }
        // Tokens that are only judged refuse nothing that was asked for by name: the lane counts them.
        let tokens = ask.tokens;
        if let Some(most) = limits
            .max_tokens
            .filter(|&most| tokens.exact && tokens.count > most)
        {
            return Err(Refusal::NotObeyed(format!(
                "The lane {name} takes {most} tokens at most, and this request has {}.",
                tokens.count
            )));
        }
        Ok(at)
    }

    fn check_ready(&self, at: usize) -> Result<(), Refusal> {
        match self.lanes.get(at) {
            Some(lane) if !lane.ready => Err(Refusal::Unavailable {
                lane: Some(at),
                why: format!("The lane {} is not ready.", lane.name),
            }),
            Some(lane) if lane.breaker.trouble() == Some(Trouble::Parity) => {
                Err(Refusal::Unavailable {
                    lane: Some(at),
                    why: format!("The lane {} {NO_PARITY}.", lane.name),
                })
            }
            Some(_) => Ok(()),
            None => Err(Refusal::NotObeyed("There is no such lane.".to_owned())),
        }
    }

    fn by_rules(&self, ask: &Ask, tried: Tried, now: Instant) -> Result<(usize, Reason), Refusal> {
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
                Some((_, best)) if tried.lost != 0 => Ok((best, Reason::LaneLost)),
                Some((_, best)) if tried.refused != 0 => Ok((best, Reason::LaneRefused)),
                Some((_, best)) => Ok((best, excluded(&fits).unwrap_or(Reason::SpareLane))),
                None => self.last_resort(&fits, ask, tried, now),
            };
        };
        if tried.lost != 0 {
            return Ok((best, Reason::LaneLost));
        }
        if tried.refused != 0 {
            return Ok((best, Reason::LaneRefused));
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

    /// A lane with nothing to do that would answer sooner than the best of those made for the request.
    fn spare(&self, helpers: &[usize], best: usize, ask: &Ask, now: Instant) -> Option<usize> {
        let idle = helpers
            .iter()
            .copied()
            .filter(|&at| self.lanes[at].in_flight() == 0);
        let soonest = idle.min_by(|&one, &other| {
            let alone = |at| self.alone(at, ask);
            alone(one).total_cmp(&alone(other))
        })?;
        let margin = MARGIN * self.alone(best, ask);
        let sooner = self.alone(soonest, ask) + margin
            < self.lanes[best].finish_in(self.alone(best, ask), now);
        let waits = self.lanes[best].in_flight() > 0;
        (waits && sooner).then_some(soonest)
    }

    /// A lane that is slow or fails now and then is better than no answer.
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
        match self.best(&troubled, ask, now) {
            Some((_, best)) => Ok((best, Reason::LastResort)),
            None => Err(self.none(fits, ask, tried)),
        }
    }

    fn fit(&self, at: usize, ask: &Ask, tried: Tried, now: Instant) -> Fit {
        let lane = &self.lanes[at];
        let over = |most: Option<u32>, value: u32| most.is_some_and(|most| value > most);
        if tried.has(at) {
            return Fit::Tried;
        }
        let beyond = if over(lane.limits.max_questions, ask.questions) {
            Some(Beyond::Questions)
        } else if over(lane.limits.max_tokens, ask.tokens.count) {
            Some(Beyond::Tokens)
        } else {
            None
        };
        if let Some(beyond) = beyond
            && !lane.helps
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
            BreakerState::HalfOpen(_) if lane.breaker.wants_probe(now) => Fit::Probe,
            BreakerState::Open(trouble) | BreakerState::HalfOpen(trouble) => Fit::Broken(trouble),
        }
    }

    /// Of these lanes the one made for the fewest requests, and the one that answers first.
    fn best(&self, lanes: &[usize], ask: &Ask, now: Instant) -> Option<(usize, usize)> {
        let preferred = *lanes
            .iter()
            .min_by_key(|&&at| self.lanes[at].limits.width())?;
        let finish = |at: usize| self.lanes[at].finish_in(self.alone(at, ask), now);
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

    /// Seconds that a request takes alone at this lane. One that has never been asked is thought
    /// to be as quick as the quickest, or it would never be.
    fn alone(&self, at: usize, ask: &Ask) -> f64 {
        let lane = &self.lanes[at];
        let known = self.lanes.iter().filter(|lane| !lane.is_blank());
        match known.map(|lane| lane.alone(ask)).min_by(f64::total_cmp) {
            Some(quickest) if lane.is_blank() => quickest,
            _ => lane.alone(ask),
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
        let about = if ask.tokens.exact { "" } else { "about " };
        Refusal::NotTaken(format!(
            "No lane takes this request: it has {about}{} tokens in its longest row, and questions: {}.",
            ask.tokens.count, ask.questions
        ))
    }

    fn name(&self, at: usize) -> &str {
        self.lanes.get(at).map_or("", |lane| &lane.name)
    }
}

fn beyond(fit: Fit) -> Option<Beyond> {
    match fit {
        Fit::Helps(beyond) | Fit::Beyond(beyond) => Some(beyond),
        _ => None,
    }
}

/// The first rule that has kept another lane out.
fn excluded(fits: &[Fit]) -> Option<Reason> {
    let has = |wanted: fn(&Fit) -> bool| fits.iter().any(wanted);
    if has(|fit| *fit == Fit::NotReady) {
        Some(Reason::LaneNotReady)
    } else if has(|fit| beyond(*fit) == Some(Beyond::Questions)) {
        Some(Reason::SeveralQuestions)
    } else if has(|fit| beyond(*fit) == Some(Beyond::Tokens)) {
        Some(Reason::TooLong)
    } else if has(|fit| *fit == Fit::NoArtifact) {
        Some(Reason::NoArtifact)
    } else if has(|fit| matches!(fit, Fit::Broken(_))) {
        Some(Reason::BreakerOpen)
    } else {
        None
    }
}

fn place(reason: Reason) -> usize {
    Reason::ALL
        .iter()
        .position(|&each| each == reason)
        .unwrap_or(0)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
