//! One line in the log for each request, and its place in the metrics.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::HeaderValue;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, StatusCode};

use crate::fault::{Fault, Origin};
use crate::lanes::{X_LANE, X_REASON};
use crate::metrics::Route;
use crate::shard::Shard;
use crate::validate::head::Description;

/// The target of the access log's events, for filters.
const TARGET: &str = "omni_jev::access";

/// nginx's word, in logs only, for a client that left before its answer.
const CLIENT_LEFT: u16 = 499;

/// What is to be said of one request. Said when dropped, so that no end of a
/// request, however sudden, goes without its line.
pub(crate) struct Record {
    shard: Rc<Shard>,
    method: Option<Method>,
    path: Path,
    request_id: HeaderValue,
    traceparent: Option<HeaderValue>,
    begun: Instant,
    /// When the answer's last byte was given to the system; the line is
    /// complete then, and the client left before if it never was.
    ended: Option<Instant>,
    dispatched: Option<Instant>,
    backend: Option<Duration>,
    received: usize,
    answered: Option<Answered>,
    /// Where there are lanes: the one that it went to, and why. Boxed, since this is moved with
    /// every request and nearly none has it.
    lane: Option<Box<(HeaderValue, &'static str)>>,
}

struct Answered {
    status: StatusCode,
    sent: usize,
    /// Who made the answer, or whose fault it is that another was made.
    by: Origin,
    reason: Option<&'static str>,
}

enum Path {
    Of(Option<PathAndQuery>),
    Told(String),
}

impl Record {
    pub(crate) fn new(
        shard: &Rc<Shard>,
        request: &Parts,
        request_id: HeaderValue,
        begun: Instant,
    ) -> Self {
        const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
        Self {
            shard: Rc::clone(shard),
            method: Some(request.method.clone()),
            path: Path::Of(request.uri.path_and_query().cloned()),
            request_id,
            traceparent: request.headers.get(TRACEPARENT).cloned(),
            begun,
            ended: None,
            dispatched: None,
            backend: None,
            received: 0,
            answered: None,
            lane: None,
        }
    }

    /// The request was refused by its head, of which so much is known.
    pub(crate) fn describe(&mut self, about: Description) {
        self.method = about.method;
        self.path = Path::Told(about.path);
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.received = bytes;
    }

    /// It is on its way; a second time if a lane was lost with it.
    pub(crate) fn dispatched(&mut self, now: Instant) {
        self.dispatched.get_or_insert(now);
    }

    /// A lane was chosen for it.
    pub(crate) fn routed(&mut self, lane: HeaderValue, reason: &'static str) {
        self.lane = Some(Box::new((lane, reason)));
    }

    /// Tells the client which lane it was, where there are lanes.
    pub(crate) fn tell_lane(&self, headers: &mut HeaderMap) {
        if let Some((lane, reason)) = self.lane.as_deref() {
            headers.insert(X_LANE, lane.clone());
            headers.insert(X_REASON, HeaderValue::from_static(reason));
        }
    }

    /// The request's id.
    pub(crate) fn id(&self) -> &HeaderValue {
        &self.request_id
    }

    /// The backend has answered, or failed to.
    pub(crate) fn returned(&mut self, now: Instant) {
        self.backend = self.dispatched.map(|at| now.saturating_duration_since(at));
    }

    pub(crate) fn answered(&mut self, status: StatusCode, bytes: usize, fault: Option<&Fault>) {
        self.answered = Some(Answered {
            status,
            sent: bytes,
            by: fault.map_or(Origin::Backend, Fault::origin),
            reason: fault.map(Fault::reason),
        });
    }

    /// The answer is wholly written.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.ended = Some(now);
    }

    fn path(&self) -> &str {
        match &self.path {
            Path::Of(target) => target.as_ref().map_or("", PathAndQuery::path),
            Path::Told(path) => path,
        }
    }

    /// Status, bytes sent, who ended it and why.
    fn outcome(&self) -> (StatusCode, usize, &'static str, Option<&'static str>) {
        let left = StatusCode::from_u16(CLIENT_LEFT).unwrap_or(StatusCode::BAD_REQUEST);
        match &self.answered {
            Some(answered) if self.ended.is_some() => (
                answered.status,
                answered.sent,
                answered.by.as_str(),
                answered.reason,
            ),
            // Nobody but this process ends a request once it stops at once.
            _ if self.shard.is_stopped() => (left, 0, "frontend", Some("stopped")),
            _ => (left, 0, "client", None),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (status, sent, by, reason) = self.outcome();
        let ended = self.ended.unwrap_or_else(Instant::now);
        let took = ended.saturating_duration_since(self.begun);
        let shard = &self.shard;
        shard.requests.count(Route::of(self.path()), status);
        shard.metrics.duration.observe(took.as_secs_f64());
        if let Some(backend) = self.backend {
            shard
                .metrics
                .backend_duration
                .observe(backend.as_secs_f64());
        }
        if self.received > 0 {
            shard.metrics.received_bytes.inc_by(as_u64(self.received));
        }
        shard.metrics.sent_bytes.inc_by(as_u64(sent));
        tracing::info!(
            target: TARGET,
            method = self.method.as_ref().map_or("-", Method::as_str),
            path = self.path(),
            status = status.as_u16(),
            bytes_in = self.received,
            bytes_out = sent,
            took_us = micros(took),
            backend_us = self.backend.map(micros),
            request_id = self.request_id.to_str().unwrap_or_default(),
            ended_by = by,
            lane = self.lane.as_deref().and_then(|(lane, _)| lane.to_str().ok()),
            routing_reason = self.lane.as_deref().map(|(_, reason)| reason),
            reason,
            traceparent = self.traceparent.as_ref().and_then(|value| value.to_str().ok()),
        );
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
