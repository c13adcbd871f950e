//! What can be seen of it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use omni_jev_frontend::{Backend, Config};
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::*;

fn with_admin(backend: Backend) -> Fixture {
    let config = Config {
        admin_bind: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        drain_grace: Duration::from_millis(500),
        ..config()
    };
    start(config, backend)
}

fn page(fixture: &Fixture, path: &str) -> Reply {
    let mut client = Client::connect(fixture.frontend.admin_address().expect("is set"));
    client.send(get(path, "connection: close\r\n"));
    client.reply()
}

#[test]
fn readiness_follows_the_backend_and_the_drain() {
    let fixture = with_admin(Backend::Unavailable {
        message: "The worker is loading.".to_owned(),
        retry_after: Duration::from_secs(1),
        detail: serde_json::json!({"state": "starting", "phase": "load"}),
    });
    let reply = page(&fixture, "/readyz");
    assert_eq!(reply.status, 503);
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["ready"], false);
    assert_eq!(body["message"], "The worker is loading.");
    assert_eq!(body["backend"]["phase"], "load");
    assert_eq!(page(&fixture, "/livez").status, 200);

    let backend = RawBackend::answering(OK);
    fixture.state.send_replace(backend.ready());
    assert_eq!(page(&fixture, "/readyz").status, 200);
    let status: Value = serde_json::from_slice(&page(&fixture, "/status").body).unwrap();
    assert_eq!(status["endpoint"], backend.url(""));

    fixture.frontend.drain();
    let reply = page(&fixture, "/readyz");
    assert_eq!(reply.status, 503);
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["frontend"], "draining");
    // Within the grace, requests are still taken.
    assert_eq!(fixture.ask(get("/", "")).status, 200);
}

#[test]
fn a_client_that_left_before_its_request_was_looked_at_is_counted_all_the_same() {
    let backend = RawBackend::start(|mut talk, _| talk.wait_for_close());
    let fixture = with_admin(backend.ready());
    for _ in 0..50 {
        let mut client = fixture.connect();
        client.send(post("/", "x"));
        drop(client);
    }
    eventually("all are counted", || {
        let metrics = page(&fixture, "/metrics").text();
        metrics.contains("requests_total{route=\"other\",status=\"499\"} 50")
    });
}

#[test]
fn other_pages_and_methods_are_refused() {
    let fixture = with_admin(Backend::unavailable("", Duration::ZERO));
    assert_eq!(page(&fixture, "/v1/systemone").status, 404);
    let mut client = Client::connect(fixture.frontend.admin_address().unwrap());
    client.send(post("/livez", "x"));
    assert_eq!(client.reply().status, 405);
}

#[test]
fn what_happened_is_counted() {
    let backend = RawBackend::answering(OK);
    let fixture = with_admin(backend.ready());
    for _ in 0..3 {
        assert_eq!(fixture.ask(post("/v1/systemone?x=1", "abc")).status, 200);
    }
    assert_eq!(fixture.ask("bad\r\n\r\n").status, 400);
    let wanted = [
        "omni_jev_frontend_requests_total{route=\"systemone\",status=\"200\"} 3",
        "omni_jev_frontend_requests_total{route=\"other\",status=\"400\"} 1",
        "omni_jev_frontend_refused_total{reason=\"bad_syntax\"} 1",
        "omni_jev_frontend_request_duration_seconds_count 4",
        "omni_jev_frontend_backend_duration_seconds_count 3",
        "omni_jev_frontend_backend_connects_total{result=\"ok\"} 1",
        "omni_jev_frontend_backend_reuses_total 2",
        "omni_jev_frontend_retries_total 0",
        "omni_jev_frontend_in_flight_requests 0",
        "omni_jev_frontend_connections_accepted_total 4",
        "omni_jev_frontend_received_bytes_total 9",
    ];
    eventually("the last answer is counted, too", || {
        let text = page(&fixture, "/metrics").text();
        wanted
            .iter()
            .all(|line| text.lines().any(|found| found == *line))
    });
}

/// Collects what this thread's subscriber writes. Records are made on the
/// frontend's threads, so it is the process's subscriber, set once.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn each_request_has_its_line_and_no_line_has_a_secret() {
    let lines = Lines::default();
    tracing_subscriber::fmt()
        .json()
        .with_writer(lines.clone())
        .init();
    let line_of = |id: &str| {
        let mut found = None;
        eventually("its line is written", || {
            let text = lines.0.lock().unwrap().clone();
            found = String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .find(|line| line["fields"]["request_id"] == id);
            found.is_some()
        });
        found.unwrap()["fields"].clone()
    };

    let backend = RawBackend::start(|mut talk, _| {
        while let Some(request) = talk.request() {
            if request.line().contains("/stuck") {
                talk.wait_for_close();
            }
            talk.say(OK);
        }
    });
    let fixture = before(&backend);
    fixture.ask(
        "POST /v1/systemone?key=hunter2 HTTP/1.1\r\nhost: h\r\nauthorization: Bearer hunter2\r\n\
         x-request-id: line-1\r\ntraceparent: 00-a-b-01\r\ncontent-length: 7\r\n\r\nhunter2",
    );
    let line = line_of("line-1");
    assert_eq!(line["method"], "POST");
    assert_eq!(line["path"], "/v1/systemone");
    assert_eq!(line["status"], 200);
    assert_eq!(
        (&line["bytes_in"], &line["bytes_out"]),
        (&7.into(), &2.into())
    );
    assert_eq!(line["ended_by"], "backend");
    assert_eq!(line["traceparent"], "00-a-b-01");
    assert!(line["took_us"].as_u64() >= line["backend_us"].as_u64());

    fixture.ask("GET /x?key=hunter2 HTTP/1.1\r\nx-request-id: line-2\r\n\r\n");
    let line = line_of("line-2");
    assert_eq!(
        (&line["status"], &line["path"]),
        (&400.into(), &"/x".into())
    );
    assert_eq!(
        (&line["ended_by"], &line["reason"]),
        (&"client".into(), &"host_missing".into())
    );

    let mut leaving = fixture.connect();
    leaving.send(get("/stuck", "x-request-id: line-3\r\n"));
    eventually("it is at the backend", || {
        backend.last().line().contains("/stuck")
    });
    drop(leaving);
    let line = line_of("line-3");
    assert_eq!(
        (&line["status"], &line["ended_by"]),
        (&499.into(), &"client".into())
    );

    let text = lines.0.lock().unwrap().clone();
    assert!(!String::from_utf8_lossy(&text).contains("hunter2"));
}
