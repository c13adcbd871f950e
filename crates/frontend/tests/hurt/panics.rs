//! A defect in one connection's task. None is known, so one is brought in from
//! outside: whoever listens to the access log panics at one path.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

use crate::support::*;

/// The path whose log line is too much.
const FATAL: &str = "/panic";

struct Fragile;

impl<S: Subscriber> Layer<S> for Fragile {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Listener);
    }
}

struct Listener;

impl Visit for Listener {
    fn record_str(&mut self, field: &Field, value: &str) {
        assert!(
            field.name() != "path" || value != FATAL,
            "brought in by the test"
        );
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

#[test]
fn a_panic_in_one_connection_ends_that_connection_only() {
    tracing::subscriber::set_global_default(Registry::default().with(Fragile)).unwrap();
    let (asked, wait) = std::sync::mpsc::channel();
    let backend = RawBackend::start(move |mut talk, _| {
        while let Some(request) = talk.request() {
            if request.line().contains(FATAL) && !request.body.is_empty() {
                // Never answered: the client leaves.
                asked.send(()).unwrap();
                talk.wait_for_close();
                return;
            }
            talk.say(OK);
        }
    });
    let config = omni_jev_frontend::Config {
        max_in_flight: 1,
        max_connections: 2,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut other = fixture.connect();
    for _ in 0..5 {
        // At the end of an answer.
        let mut broken = fixture.connect();
        broken.send(get(FATAL, ""));
        // The answer may have been written by then.
        while broken.try_reply(false).is_some() {}
        // In the middle of an exchange.
        let mut leaves = fixture.connect();
        leaves.send(post(FATAL, "x"));
        wait.recv_timeout(PATIENCE).unwrap();
        drop(leaves);
        // What they held is free again: there is one place in flight, and one
        // connection beside this.
        eventually("the other client is answered", || {
            other.send(get("/", ""));
            other.reply().status == 200
        });
    }
}
