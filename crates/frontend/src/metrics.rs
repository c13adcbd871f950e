//! What is counted, under Prometheus' conventions; the crate's page lists it.

use std::cell::RefCell;
use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::fault::Fault;

/// Seconds; from a forward that costs nothing to the default time-out.
const BUCKETS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// The known paths by name, and all others together: labels have to be few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    SystemOne,
    Models,
    Health,
    Other,
}

impl Route {
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/v1/systemone" => Self::SystemOne,
            "/v1/models" => Self::Models,
            "/health" => Self::Health,
            _ => Self::Other,
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::SystemOne => "systemone",
            Self::Models => "models",
            Self::Health => "health",
            Self::Other => "other",
        };
        name.encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// All of the data path's metrics; counting is one atomic addition.
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    refused: Family<ReasonLabels, Counter>,
    pub(crate) duration: Histogram,
    pub(crate) backend_duration: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) backend_connected: Counter,
    pub(crate) backend_connect_failed: Counter,
    pub(crate) backend_reuses: Counter,
    pub(crate) retries: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("omni_jev_frontend");
        let backend_connects = Family::<ResultLabels, Counter>::default();
        let connects = |result| backend_connects.get_or_create_owned(&ResultLabels { result });
        let metrics = Self {
            requests: Family::default(),
            refused: Family::default(),
            duration: Histogram::new(BUCKETS),
            backend_duration: Histogram::new(BUCKETS),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            accepted: Counter::default(),
            gave_way: Counter::default(),
            accept_errors: Counter::default(),
            backend_connected: connects("ok"),
            backend_connect_failed: connects("failed"),
            backend_reuses: Counter::default(),
            retries: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
        };
        registry.register(
            "backend_connects",
            "Connections made to the backend, by result",
            backend_connects,
        );
        metrics.register(registry);
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests answered, by route class and status; 499 is a client that left",
            self.requests.clone(),
        );
        registry.register(
            "refused",
            "Requests that the backend did not answer, by reason",
            self.refused.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "From a request's first byte to its answer's last",
            self.duration.clone(),
        );
        registry.register(
            "backend_duration_seconds",
            "From a request's dispatch to the backend's answer, whole",
            self.backend_duration.clone(),
        );
        registry.register(
            "in_flight_requests",
            "Requests at the backend now",
            self.in_flight.clone(),
        );
        registry.register(
            "connections",
            "Client connections open now",
            self.connections.clone(),
        );
        registry.register(
            "connections_accepted",
            "Client connections accepted",
            self.accepted.clone(),
        );
        registry.register(
            "connections_gave_way",
            "Idle client connections closed because new ones waited for a place",
            self.gave_way.clone(),
        );
        registry.register(
            "accept_errors",
            "Failures to accept a connection, such as too many open files",
            self.accept_errors.clone(),
        );
        registry.register(
            "backend_reuses",
            "Requests sent on a backend connection that was kept from an earlier one",
            self.backend_reuses.clone(),
        );
        registry.register(
            "retries",
            "Requests sent again because a kept connection died before any answer",
            self.retries.clone(),
        );
        registry.register(
            "received_bytes",
            "Bytes of request bodies received",
            self.received_bytes.clone(),
        );
        registry.register(
            "sent_bytes",
            "Bytes of response bodies sent",
            self.sent_bytes.clone(),
        );
    }

    pub(crate) fn count_refusal(&self, fault: &Fault) {
        self.refused
            .get_or_create(&ReasonLabels {
                reason: fault.reason(),
            })
            .inc();
    }
}

/// One thread's way to the request counters, past the lock that guards new ones.
pub(crate) struct RequestCounters {
    metrics: Arc<Metrics>,
    /// Few pairs occur, and nearly all requests have the first.
    known: RefCell<Vec<(Route, StatusCode, Counter)>>,
}

impl RequestCounters {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            known: RefCell::default(),
        }
    }

    pub(crate) fn count(&self, route: Route, status: StatusCode) {
        let mut known = self.known.borrow_mut();
        let found = known
            .iter()
            .find(|(its_route, its_status, _)| (*its_route, *its_status) == (route, status));
        if let Some((_, _, counter)) = found {
            counter.inc();
            return;
        }
        let counter = self.metrics.requests.get_or_create_owned(&RequestLabels {
            route,
            status: status.as_u16(),
        });
        counter.inc();
        known.push((route, status, counter));
    }
}
