//! A request's way where there are several backends: to the lane that is chosen for it, and on to
//! another one if that lane refuses it or is lost with it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use omni_jev_lanes::{Ask, Outcome, Reason, Refusal, Tried};

use super::upstream::Upstream;
use super::{attempt, loss, outgoing};
use crate::access::Record;
use crate::connection::Link;
use crate::fault::Fault;
use crate::lanes::trace::Line;
use crate::lanes::{self, Lanes, Seat, timing};
use crate::shard::Shard;

/// What came of a request at one lane.
type Answer = Result<Response<Bytes>, Fault>;

/// Where a request is sent, and its place there if it is a decision.
struct Chosen {
    lane: usize,
    reason: Reason,
    seat: Option<Seat>,
}

/// What came of a request at the last lane that did not send it away.
struct Last {
    lane: usize,
    /// The backend's process: another may be there by now.
    generation: u64,
    answer: Answer,
}

/// How an answer counts for its lane, and whether another lane may be asked instead.
struct Verdict {
    outcome: Outcome,
    again: bool,
}

/// Answers a request by one of the lanes. Nothing of it is changed but the header that names a lane.
///
/// # Errors
///
/// Why no lane answered.
pub(super) async fn travel(
    shard: &Rc<Shard>,
    lanes: &Arc<Lanes>,
    link: &Link,
    mut parts: Parts,
    body: Bytes,
    record: &mut Record,
) -> Answer {
    let requested = lanes.requested(&mut parts.headers)?;
    let is_decision = parts.method == Method::POST && is_decision(parts.uri.path());
    let received = Instant::now();
    let ask = is_decision.then(|| Ask {
        requested,
        ..lanes.read(&body)
    });
    let mut entry = ask.map(|ask| Line::new(lanes, record.id(), link.begun.get(), ask));
    let deadline = received + shard.config.backend_timeout;
    let mut tried = Tried::default();
    let mut last: Option<Last> = None;
    let answer = loop {
        follow(shard, lanes);
        let asked = Instant::now();
        let chosen = match choose(lanes, ask.as_ref(), requested, tried, asked, entry.as_mut()) {
            Ok(chosen) => chosen,
            Err(refusal) => break given_up(shard, link, refusal, last).await,
        };
        record.routed(lanes.header(chosen.lane), chosen.reason.name());
        let routed = Instant::now();
        let (lane, upstream) = (chosen.lane, shard.ways[chosen.lane].upstream(&shard.config));
        let Upstream::Ready(target) = &*upstream else {
            // It went away between the look and the choice, which sees it next time.
            tried.lost(lane);
            continue;
        };
        record.dispatched(routed);
        link.alarm.set(deadline);
        let way = &shard.ways[lane];
        let request = outgoing::request(parts.clone(), body.clone(), target, shard, link.peer);
        let mut answer = match request {
            Ok(request) => {
                let sent = attempt(shard, link, way, target, request, is_decision);
                Box::pin(sent).await
            }
            Err(fault) => Err(fault),
        };
        let returned = Instant::now();
        record.returned(returned);
        let verdict = verdict(&answer);
        if let Some(entry) = &mut entry {
            entry.at_lane(
                routed,
                returned,
                answer
                    .as_ref()
                    .ok()
                    .and_then(|it| timing::read(it.headers())),
            );
        }
        if let Some(seat) = chosen.seat {
            seat.leave(verdict.outcome);
        }
        if !verdict.again || !is_decision {
            if let Ok(response) = &mut answer {
                let waited = routed.saturating_duration_since(received);
                let there = returned.saturating_duration_since(routed);
                timing::add(response.headers_mut(), waited, there);
            }
            break loss::explained(shard, link, way, target.generation, answer).await;
        }
        match verdict.outcome {
            Outcome::Refused => tried.refused(lane),
            Outcome::Busy => tried.busy(lane),
            _ => tried.lost(lane),
        }
        if let Some(entry) = &mut entry {
            entry.moved_on(lane);
        }
        tracing::debug!(lane = lanes.name(lane), outcome = ?verdict.outcome, "the request goes on to another lane");
        // A lane that does not take it says nothing of why another did not answer.
        if last.is_none() || !matches!(verdict.outcome, Outcome::Refused) {
            last = Some(Last {
                lane,
                generation: target.generation,
                answer,
            });
        }
    };
    if let Some(entry) = &mut entry {
        let fault_status = |fault: &Fault| fault.status();
        entry.answered(answer.as_ref().map_or_else(fault_status, Response::status));
    }
    answer
}

/// The paths that ask for decisions.
fn is_decision(path: &str) -> bool {
    matches!(path, "/v1/systemone" | "/v1/systemone/batch")
}

/// Whoever was told of a change finds the choice knowing it.
fn follow(shard: &Shard, lanes: &Lanes) {
    for (lane, way) in shard.ways.iter().enumerate() {
        if way.has_news() {
            lanes.follow(lane, &way.upstream(&shard.config));
        }
    }
}

fn choose(
    lanes: &Lanes,
    ask: Option<&Ask>,
    requested: Option<usize>,
    tried: Tried,
    now: Instant,
    entry: Option<&mut Line>,
) -> Result<Chosen, Refusal> {
    let Some(ask) = ask else {
        let (lane, reason) = lanes.choose_default(requested, tried)?;
        return Ok(Chosen {
            lane,
            reason,
            seat: None,
        });
    };
    let (choice, seat) = lanes.choose(ask, tried, now)?;
    if let Some(entry) = entry {
        entry.routed(
            choice.lane,
            choice.reason,
            choice.estimate,
            &choice.backlogs,
        );
    }
    Ok(Chosen {
        lane: choice.lane,
        reason: choice.reason,
        seat: Some(seat),
    })
}

/// A decision changes nothing, so that one that was lost may be asked for again, elsewhere.
fn verdict(answer: &Answer) -> Verdict {
    let (outcome, again) = match answer {
        Ok(response) => match response.status() {
            status if status.is_success() => (Outcome::Served, false),
            StatusCode::MISDIRECTED_REQUEST => (Outcome::Refused, true),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                (Outcome::Busy, true)
            }
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY => (Outcome::Failed, true),
            StatusCode::GATEWAY_TIMEOUT => (Outcome::Failed, false),
            _ => (Outcome::Answered, false),
        },
        Err(fault) if loss::is_a_loss(fault) => (Outcome::Failed, true),
        Err(Fault::Lost { .. }) => (Outcome::Failed, true),
        Err(Fault::TimedOut { .. }) => (Outcome::Failed, false),
        // No fault of the lane's: what came is too much for this process.
        Err(_) => (Outcome::Abandoned, false),
    };
    Verdict { outcome, again }
}

/// No further lane takes the request: the last one's answer, or why there is none.
async fn given_up(shard: &Shard, link: &Link, refusal: Refusal, last: Option<Last>) -> Answer {
    let refused = |answer: &Answer| matches!(answer, Ok(it) if it.status() == StatusCode::MISDIRECTED_REQUEST);
    match last {
        Some(last) if !refused(&last.answer) => {
            let way = &shard.ways[last.lane];
            loss::explained(shard, link, way, last.generation, last.answer).await
        }
        _ => Err(lanes::fault(refusal, |lane| wait(shard, lane))),
    }
}

/// When a lane that is not ready may be.
fn wait(shard: &Shard, lane: usize) -> Option<Duration> {
    match &*shard.ways.get(lane)?.upstream(&shard.config) {
        Upstream::Unavailable { retry_after, .. } => Some(*retry_after),
        Upstream::Ready(_) => None,
    }
}
