//! Several backends, each of which takes a part of the requests.

mod routing;
mod seen;
mod troubles;
mod unread;

use omni_jev_frontend::{Backend, Config, Frontend, LaneBackend, LaneSpec, Limits, Registry};
use serde_json::json;
use tokio::sync::watch;

use crate::support::*;

const QUICK: Limits = Limits {
    max_tokens: Some(128),
    max_questions: Some(1),
};

/// A frontend before a lane for everything, `main`, and one for short single questions, `quick`.
pub(super) struct Lanes {
    pub(super) fixture: Frontend,
    pub(super) states: Vec<watch::Sender<Backend>>,
}

impl Lanes {
    pub(super) fn start(config: Config, main: Backend, quick: Backend) -> Self {
        let (mut states, mut lanes) = (Vec::new(), Vec::new());
        for (name, limits, backend) in [("main", Limits::NONE, main), ("quick", QUICK, quick)] {
            let (state, seen) = watch::channel(backend);
            states.push(state);
            lanes.push(LaneBackend {
                spec: LaneSpec::new(name, limits),
                measured: None,
                backend: seen,
            });
        }
        let fixture =
            Frontend::start_lanes(config, lanes, None, Registry::default()).expect("starts");
        Self { fixture, states }
    }

    pub(super) fn before(main: &RawBackend, quick: &RawBackend) -> Self {
        Self::start(config(), main.ready(), quick.ready())
    }

    pub(super) fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = Client::connect(self.fixture.address());
        client.send(request);
        client.reply()
    }
}

/// A decision's body, with so many questions about a text of so many words.
pub(super) fn body(words: usize, questions: usize) -> String {
    let question = json!({"type": "noul", "instructions": "Is it about money?"});
    let questions = (0..questions).map(|number| (format!("q{number}"), question.clone()));
    json!({
        "state": "invoice ".repeat(words),
        "questions": questions.collect::<serde_json::Map<_, _>>(),
    })
    .to_string()
}

pub(super) fn decision(body: &str, headers: &str) -> String {
    format!(
        "POST /v1/systemone HTTP/1.1\r\nhost: h\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) fn short() -> String {
    decision(&body(3, 1), "")
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers with its own name.
pub(super) fn named(name: &'static str) -> RawBackend {
    RawBackend::answering(answer("200 OK", "", name))
}

/// The lane, the rule, and the answer's text.
pub(super) fn route(reply: &Reply) -> (String, String, String) {
    let one = |name| reply.values(name).join("|");
    (
        one("x-omni-jev-lane"),
        one("x-omni-jev-routing-reason"),
        reply.text(),
    )
}

pub(super) fn routed(lane: &str, reason: &str, text: &str) -> (String, String, String) {
    (lane.to_owned(), reason.to_owned(), text.to_owned())
}

/// Rather than a look at a lane's health.
pub(super) fn is_decision(request: &Request) -> bool {
    request.line().starts_with("POST ")
}
