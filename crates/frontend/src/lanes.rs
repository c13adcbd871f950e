//! What chooses between several backends, shared by all threads.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod timing;
pub(crate) mod trace;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use http::{HeaderMap, HeaderName};
use omni_jev_lanes::{
    Ask, Choice, Chooser, CountTokens, Identity, LaneSpec, Outcome, Reason, Refusal, Ticket, Tried,
};
use tokio::sync::watch;

use crate::Backend;
use crate::fault::Fault;
use crate::forward::upstream::Upstream;
use trace::Trace;

/// The lane that a client asks for, and that a response came from.
pub(crate) const X_LANE: HeaderName = HeaderName::from_static("x-omni-jev-lane");
/// The rule that chose it.
pub(crate) const X_REASON: HeaderName = HeaderName::from_static("x-omni-jev-routing-reason");

/// A client is told to come back so soon where nobody knows better.
const SOON: Duration = Duration::from_secs(1);

/// A backend that takes a part of the requests.
#[derive(Debug)]
pub struct LaneBackend {
    /// Its name, what it takes, and what was measured of it.
    pub spec: LaneSpec,
    /// What its measured times are of, if there are any. If something else serves there they are
    /// forgotten, which [`Frontend::stray_profile`](crate::Frontend::stray_profile) tells.
    pub measured: Option<Identity>,
    /// Where it is, or why it is not.
    pub backend: watch::Receiver<Backend>,
}

/// The lanes of a frontend. Locked for moments: a choice takes microseconds.
pub(crate) struct Lanes {
    chooser: Arc<Mutex<Chooser>>,
    names: Vec<(String, HeaderValue)>,
    /// What each lane's measured times are of.
    measured: Mutex<Vec<Option<Identity>>>,
    stray: watch::Sender<Option<String>>,
    counter: Option<Arc<dyn CountTokens>>,
    pub(crate) trace: Option<Trace>,
}

impl Lanes {
    pub(crate) fn new(
        specs: Vec<LaneSpec>,
        measured: Vec<Option<Identity>>,
        counter: Option<Arc<dyn CountTokens>>,
        trace: Option<Trace>,
    ) -> Self {
        let header =
            |name: &str| HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("unnamed"));
        let names = specs.iter().map(|spec| spec.name.clone());
        Self {
            names: names.map(|name| (name.clone(), header(&name))).collect(),
            chooser: Arc::new(Mutex::new(Chooser::new(specs))),
            measured: Mutex::new(measured),
            stray: watch::channel(None).0,
            counter,
            trace,
        }
    }

    /// Tells when a lane turns out to be another than was measured.
    pub(crate) fn stray(&self) -> watch::Receiver<Option<String>> {
        self.stray.subscribe()
    }

    /// Compares what serves at a lane with what was measured there, once.
    pub(crate) fn identify(&self, lane: usize, found: &Identity) {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = measured.get_mut(lane) else {
            return;
        };
        if let Some(was) = known.take_if(|known| known != found) {
            lock(&self.chooser).forget(lane);
            let name = self.name(lane);
            self.stray.send_replace(Some(format!(
                "the profile of the lane {name} is of {was}, and what serves there is {found}"
            )));
        }
    }

    /// For whoever shows them.
    pub(crate) fn chooser(&self) -> Arc<Mutex<Chooser>> {
        Arc::clone(&self.chooser)
    }

    pub(crate) fn name(&self, lane: usize) -> &str {
        self.names.get(lane).map_or("", |(name, _)| name)
    }

    pub(crate) fn header(&self, lane: usize) -> HeaderValue {
        let header = self.names.get(lane).map(|(_, header)| header.clone());
        header.unwrap_or(HeaderValue::from_static("unnamed"))
    }

    /// Takes notice of where a backend is now.
    pub(crate) fn follow(&self, lane: usize, upstream: &Upstream) {
        let generation = match upstream {
            Upstream::Ready(target) => Some(target.generation),
            Upstream::Unavailable { .. } => None,
        };
        lock(&self.chooser).set_ready(lane, generation);
    }

    pub(crate) fn set_parity(&self, lane: usize, good: bool) {
        lock(&self.chooser).set_parity(lane, good, Instant::now());
    }

    /// The lane that a request asks for; the header has done its work then, and goes.
    ///
    /// # Errors
    ///
    /// When there is no such lane, or several are named.
    pub(crate) fn requested(&self, headers: &mut HeaderMap) -> Result<Option<usize>, Fault> {
        let mut lines = headers.get_all(X_LANE).iter();
        let found = match (lines.next(), lines.next()) {
            (None, _) => return Ok(None),
            (Some(name), None) => self.named(name.as_bytes()),
            _ => Err("x-omni-jev-lane is there more than once: a request goes to one lane.".into()),
        };
        headers.remove(X_LANE);
        found.map(Some).map_err(|why| Fault::LaneNotObeyed { why })
    }

    fn named(&self, name: &[u8]) -> Result<usize, String> {
        lock(&self.chooser).named(name).ok_or_else(|| {
            let lanes: Vec<_> = self.names.iter().map(|(name, _)| name.as_str()).collect();
            let lanes = lanes.join(", ");
            format!("x-omni-jev-lane names no lane of this server, whose lanes are: {lanes}.")
        })
    }

    /// What a body asks for, or how much it may be where it cannot be read.
    pub(crate) fn read(&self, body: &[u8]) -> Ask {
        Ask::read(body, self.counter.as_deref()).unwrap_or_else(|| Ask::unread(body.len()))
    }

    /// A place at a lane, for a decision.
    pub(crate) fn choose(
        &self,
        ask: &Ask,
        tried: Tried,
        now: Instant,
    ) -> Result<(Choice, Seat), Refusal> {
        let choice = lock(&self.chooser).choose(ask, tried, now)?;
        let seat = Seat {
            chooser: Arc::clone(&self.chooser),
            ticket: Some(choice.ticket),
        };
        Ok((choice, seat))
    }

    /// The lane for what is no decision.
    pub(crate) fn choose_default(
        &self,
        requested: Option<usize>,
        tried: Tried,
    ) -> Result<(usize, Reason), Refusal> {
        let mut chooser = lock(&self.chooser);
        let (lane, reason) = chooser.choose_default(requested, tried)?;
        chooser.count(lane, reason);
        Ok((lane, reason))
    }
}

/// A request's place at its lane: given up when dropped, as by a client that leaves.
pub(crate) struct Seat {
    chooser: Arc<Mutex<Chooser>>,
    ticket: Option<Ticket>,
}

impl Seat {
    pub(crate) fn leave(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            lock(&self.chooser).finish(ticket, outcome, Instant::now());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

/// What a client is told that no lane takes.
pub(crate) fn fault(refusal: Refusal, wait: impl FnOnce(usize) -> Option<Duration>) -> Fault {
    match refusal {
        Refusal::NotObeyed(why) => Fault::LaneNotObeyed { why },
        Refusal::NotTaken(why) => Fault::NotTaken { why },
        Refusal::Unavailable { lane, why } => Fault::Unavailable {
            message: why,
            retry_after: lane.and_then(wait).unwrap_or(SOON),
        },
        Refusal::Lost => Fault::Died,
    }
}

pub(crate) fn lock(chooser: &Mutex<Chooser>) -> MutexGuard<'_, Chooser> {
    chooser.lock().unwrap_or_else(PoisonError::into_inner)
}
