//! Raw requests, each with the outcome that is right and the reason why.
//!
//! Each case is sent on a connection of its own to a frontend with small limits
//! before a backend that notes what it gets. What must not be forwarded must not
//! be seen there either, in whole or in part, and what is forwarded must be one
//! well-formed request.
//!
//! Where nginx is installed, the same cases run before it (`nginx.rs`).

// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used)]

mod bodies;
mod heads;
mod hosts;
mod lengths;
mod nginx;
#[allow(dead_code)]
#[path = "../frontend/support.rs"]
mod support;
mod targets;

use std::time::Duration;

use omni_jev_frontend::Config;

use support::{Client, OK, RawBackend, Request, start};

/// One connection's bytes, what must come of them, and why.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) send: &'static [u8],
    pub(crate) outcome: Outcome,
    pub(crate) why: &'static str,
    /// What nginx makes of it, with the limits of [`limits`].
    pub(crate) nginx: Nginx,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    /// The frontend's own answer, the connection's end, and nothing at the backend.
    Refused(u16),
    /// One request at the backend, with this line and body.
    Forwarded(&'static str, &'static [u8]),
    /// So many requests at the backend, then a refusal.
    ForwardedThenRefused(usize, u16),
    /// An answer of the frontend's own that is no error.
    Answered(u16),
    /// The connection's end without a word, and nothing at the backend. Never ours.
    Dropped,
    /// One request at the backend, with this line, and an answer without a head. Never ours.
    ForwardedBare(&'static str),
}

pub(crate) use Outcome::{
    Answered, Dropped, Forwarded, ForwardedBare, ForwardedThenRefused, Refused,
};
pub(crate) use nginx::Nginx::{self, Differs, Same};

/// What a client saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Of the answer after those that were expected before it.
    status: Option<u16>,
    /// Whether it was the last, and its connection then ended.
    closed: bool,
    /// Whether it is in the frontend's own words, with an id.
    ours: bool,
}

impl Outcome {
    /// How many answers of the backend come before the one that counts.
    fn before(self) -> usize {
        match self {
            ForwardedThenRefused(before, _) => before,
            _ => 0,
        }
    }

    fn check(self, found: Found, forwarded: &[Request]) -> Result<(), String> {
        let count = forwarded.len();
        let as_expected = match self {
            Refused(status) | ForwardedThenRefused(_, status) => {
                found.status == Some(status) && found.closed && count == self.before()
            }
            Answered(status) => found.status == Some(status) && count == 0,
            Dropped => found.status.is_none() && count == 0,
            ForwardedBare(line) => matches!(
                forwarded,
                [request] if found.status.is_none() && request.line() == line
            ),
            Forwarded(line, body) => matches!(
                forwarded,
                [request] if found.status == Some(200)
                    && request.line() == line
                    && request.body == body
            ),
        };
        if as_expected {
            Ok(())
        } else {
            let forwarded: Vec<_> = forwarded
                .iter()
                .map(|request| (request.line(), String::from_utf8_lossy(&request.body)))
                .collect();
            Err(format!("{found:?}, forwarded {forwarded:?}"))
        }
    }
}

fn all() -> impl Iterator<Item = &'static Case> {
    [
        heads::CASES,
        targets::CASES,
        hosts::CASES,
        lengths::CASES,
        bodies::CASES,
    ]
    .into_iter()
    .flatten()
}

fn limits() -> Config {
    Config {
        max_target_bytes: 1024,
        max_head_bytes: 4096,
        max_request_bytes: 1000,
        head_timeout: Duration::from_millis(500),
        body_timeout: Duration::from_millis(500),
        ..support::config()
    }
}

#[test]
fn every_case_has_its_outcome() {
    let mut wrong = Vec::new();
    for case in all() {
        if let Err(found) = check(case) {
            wrong.push(format!(
                "{}: {found}, not {:?}\n    {}",
                case.name, case.outcome, case.why
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_reason() {
    let mut names: Vec<_> = all()
        .map(|case| {
            assert!(!case.why.is_empty(), "{}", case.name);
            case.name
        })
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn check(case: &Case) -> Result<(), String> {
    let backend = RawBackend::answering(OK);
    let fixture = start(limits(), backend.ready());
    let mut client = fixture.connect();
    let found = converse(&mut client, case.send, case.outcome.before());
    if found.status.is_some_and(|status| status >= 400) && !found.ours {
        return Err("a refusal without an id, or in other words".to_owned());
    }
    case.outcome.check(found, &backend.seen())
}

/// What comes after `before` answers, and whether the connection then ends.
fn converse(client: &mut Client, send: &[u8], before: usize) -> Found {
    client.send(send);
    for _ in 0..before {
        client.try_reply(false);
    }
    let Some(reply) = client.try_reply(false) else {
        return Found {
            status: None,
            closed: true,
            ours: false,
        };
    };
    let ends = reply.values("connection") == ["close"];
    Found {
        status: Some(reply.status),
        closed: ends && client.is_closed(),
        ours: reply.values("x-request-id").len() == 1 && reply.text().contains("error_type"),
    }
}
