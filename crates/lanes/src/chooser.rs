//! Where each request goes, and what that makes of the lanes.

mod rules;

use std::time::{Duration, Instant};

use self::rules::{NO_PARITY, beyond};

use crate::breaker::Trouble;
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

    /// What was measured of a lane is not of what serves there now: it is forgotten.
    pub fn forget(&mut self, lane: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.forget();
        }
    }

    /// The lane for what is no decision: the one that was asked for, else the first one that is
    /// ready, rather one that is in no trouble.
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
        let mut ready = self.lanes.iter().enumerate().filter(|(at, lane)| {
            lane.ready && lane.breaker.trouble() != Some(Trouble::Parity) && !tried.has(*at)
        });
        let first = ready.clone().next();
        match ready
            .find(|(_, lane)| lane.breaker.trouble().is_none())
            .or(first)
        {
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
        if tried == Tried::default() {
            self.note_arrival(ask, now);
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
        // What could not be read is the lane's to judge.
        if lane.helps || !ask.is_read {
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

    fn note_arrival(&mut self, ask: &Ask, now: Instant) {
        for lane in &mut self.lanes {
            if lane.limits.any() && beyond(lane.limits, ask).is_none() {
                lane.arrivals.note(now);
            }
        }
    }

    /// Seconds that a request takes alone at this lane. One that has never been asked is thought
    /// to be as quick as the quickest, or it would never be.
    pub(crate) fn alone(&self, at: usize, ask: &Ask) -> f64 {
        let lane = &self.lanes[at];
        let known = self.lanes.iter().filter(|lane| !lane.is_blank());
        match known.map(|lane| lane.alone(ask)).min_by(f64::total_cmp) {
            Some(quickest) if lane.is_blank() => quickest,
            _ => lane.alone(ask),
        }
    }

    fn name(&self, at: usize) -> &str {
        self.lanes.get(at).map_or("", |lane| &lane.name)
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
#[cfg(test)]
mod unread_tests;
