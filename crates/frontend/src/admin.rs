//! The admin listener: whether it lives, whether it is ready, what it counted.

use std::convert::Infallible;
use std::future::ready;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use omni_jev_lanes::{Chooser, Trouble};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceBuilder;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::Backend;
use crate::lanes::lock;
use crate::life::Life;

/// Probes and scrapers are few, and must not be kept out by one that is stuck.
const MAX_CONNECTIONS: usize = 64;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Nothing here takes long; a connection that does is let go.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(2);

/// What the admin pages show.
pub(crate) struct Pages {
    registry: Registry,
    /// Never none; several only with lanes.
    backends: Vec<watch::Receiver<Backend>>,
    lanes: Option<Arc<Mutex<Chooser>>>,
    life: watch::Receiver<Life>,
}

/// Serves the pages until the frontend has stopped.
pub(crate) async fn run(listener: std::net::TcpListener, pages: Pages) {
    let mut life = pages.life.clone();
    let serving = serve(listener, Rc::new(pages));
    tokio::select! {
        () = serving => {}
        _ = life.wait_for(|life| *life == Life::Stopped) => {}
    }
}

async fn serve(listener: std::net::TcpListener, pages: Rc<Pages>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the admin pages cannot be served");
            return;
        }
    };
    let places = Rc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (pages, places) = (Rc::clone(&pages), Rc::clone(&places));
                tokio::task::spawn_local(async move {
                    let Ok(_place) = places.try_acquire() else {
                        return;
                    };
                    let connection = serve_connection(stream, pages);
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for the admin pages");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, pages: Rc<Pages>) {
    let service = ServiceBuilder::new()
        // Every answer is of this moment only.
        .layer(SetResponseHeaderLayer::overriding(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-store"),
        ))
        .service_fn(move |request: Request<hyper::body::Incoming>| {
            ready(Ok::<_, Infallible>(
                pages.answer(request.method(), request.uri().path()),
            ))
        });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "admin connection ended");
    }
}

impl Pages {
    pub(crate) fn new(
        registry: Registry,
        backends: Vec<watch::Receiver<Backend>>,
        lanes: Option<Arc<Mutex<Chooser>>>,
        life: watch::Receiver<Life>,
    ) -> Self {
        Self {
            registry,
            backends,
            lanes,
            life,
        }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(header::ALLOW, allowed);
            return refused;
        }
        match path {
            "/livez" => text(StatusCode::OK, "text/plain", "ok\n"),
            "/readyz" => self.readiness(),
            "/metrics" => self.metrics(),
            "/" | "/status" => self.status(),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n"),
        }
    }

    /// 200 while requests are forwarded; else 503, and why.
    fn readiness(&self) -> Response<Full<Bytes>> {
        let state = self.state();
        let status = if state["ready"] == true {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        text(status, "application/json", format!("{state}\n"))
    }

    fn state(&self) -> Value {
        let serving = *self.life.borrow() == Life::Serving;
        let mut state = self.backend();
        if !serving {
            state["ready"] = json!(false);
            state["message"] = json!("The frontend is draining.");
        }
        state["frontend"] = json!(if serving { "serving" } else { "draining" });
        if let Some(lanes) = self.lanes() {
            state["lanes"] = lanes;
        }
        state
    }

    /// The backend, or of several the first one that is ready.
    fn backend(&self) -> Value {
        let ready = self.backends.iter().find(|it| it.borrow().is_ready());
        let backend = ready.unwrap_or(&self.backends[0]).borrow();
        json!({
            "ready": backend.is_ready(),
            "message": message(&backend),
            "backend": backend.detail(),
        })
    }

    fn lanes(&self) -> Option<Value> {
        let lanes = lock(self.lanes.as_ref()?).view(Instant::now());
        let lanes = lanes.iter().zip(&self.backends).map(|(lane, backend)| {
            let backend = backend.borrow();
            json!({
                "name": lane.name,
                "ready": backend.is_ready(),
                "message": message(&backend),
                "backend": backend.detail(),
                "breaker": lane.breaker.name(),
                "trouble": lane.breaker.trouble().map(Trouble::name),
                "in_flight": lane.in_flight,
                "backlog_ms": lane.backlog.as_secs_f64() * 1000.0,
                "max_tokens": lane.limits.max_tokens,
                "max_questions": lane.limits.max_questions,
            })
        });
        Some(lanes.collect())
    }

    fn status(&self) -> Response<Full<Bytes>> {
        let mut state = self.state();
        state["version"] = json!(env!("CARGO_PKG_VERSION"));
        state["endpoint"] = match &*self.backends[0].borrow() {
            Backend::Ready { endpoint, .. } => json!(endpoint.to_string()),
            Backend::Unavailable { .. } => Value::Null,
        };
        text(StatusCode::OK, "application/json", format!("{state:#}\n"))
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut body = String::new();
        match prometheus_text::encode(&mut body, &self.registry) {
            Ok(()) => text(StatusCode::OK, prometheus_text::CONTENT_TYPE, body),
            // A metric that cannot be written is a defect of whoever registered it.
            Err(_) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                "a metric cannot be written\n",
            ),
        }
    }
}

fn message(backend: &Backend) -> Option<&str> {
    match backend {
        Backend::Ready { .. } => None,
        Backend::Unavailable { message, .. } => Some(message),
    }
}

fn text(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
