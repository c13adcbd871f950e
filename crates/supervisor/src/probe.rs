//! Asking a worker for its health.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, redirect};
use serde::Deserialize;

use crate::About;
use crate::machine::{Degradation, ProbeAnswer};

/// The host is never looked up: the socket decides where it goes.
const URL: &str = "http://worker/health";
/// The most of an answer that is read, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// The part of a health answer that decides something.
#[derive(Debug, Deserialize)]
struct Health {
    instance: String,
    ready: bool,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    device_mismatch: bool,
    #[serde(default)]
    device: Option<String>,
    #[serde(default)]
    requested_device: Option<String>,
    #[serde(default)]
    checkpoint: Option<String>,
    #[serde(default)]
    revision: Option<String>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    tuning: Option<Tuning>,
}

/// How the model runs, as far as it is not as asked.
#[derive(Debug, Deserialize)]
struct Tuning {
    #[serde(default)]
    reasons: Vec<String>,
}

/// Asks once, for at most `limit`.
pub(crate) async fn probe(socket: PathBuf, limit: Duration) -> ProbeAnswer {
    match tokio::time::timeout(limit, ask(socket)).await {
        Ok(Ok((status, health))) => ProbeAnswer::Answered {
            ready: health.ready && status == StatusCode::OK,
            degraded: health.degraded(),
            about: About {
                device: health.device,
                requested_device: health.requested_device,
                checkpoint: health.checkpoint,
                revision: health.revision,
                version: health.version,
            },
            instance: health.instance,
        },
        Ok(Err(reason)) => ProbeAnswer::Failed { reason },
        Err(_) => ProbeAnswer::Failed {
            reason: format!("no answer within {:.1} s", limit.as_secs_f64()),
        },
    }
}

async fn ask(socket: PathBuf) -> Result<(StatusCode, Health), String> {
    let response = client(socket)?.get(URL).send().await.map_err(chain)?;
    let status = response.status();
    if status != StatusCode::OK && status != StatusCode::SERVICE_UNAVAILABLE {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let body = read(response).await?;
    serde_json::from_slice(&body)
        .map(|health| (status, health))
        .map_err(|error| format!("its answer is no health report: {error}"))
}

/// A client of its own for each use: a new connection shows that the worker still accepts any.
pub(crate) fn client(socket: PathBuf) -> Result<Client, String> {
    Client::builder()
        .unix_socket(socket)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .build()
        .map_err(chain)
}

pub(crate) async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(chain)? {
        if body.len() + chunk.len() > MAX_ANSWER {
            return Err(format!("its answer is longer than {MAX_ANSWER} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The error with its causes: the outermost one alone never says what happened.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn chain(error: reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Health {
    fn degraded(&self) -> Option<Degradation> {
        if self.device_mismatch {
            let unknown = "an unknown device";
            let wanted = self.requested_device.as_deref().unwrap_or(unknown);
            let device = self.device.as_deref().unwrap_or(unknown);
            return Some(Degradation {
                why: format!("asked for {wanted}, it runs on {device}"),
                device: true,
            });
        }
        let reasons = self.tuning.as_ref().map(|tuning| &tuning.reasons[..]);
        let why = ["the worker says that it is degraded".to_owned()];
        let why = why.iter().chain(reasons.unwrap_or_default().first());
        (self.status.as_deref() == Some("degraded")).then(|| Degradation {
            why: why.map(String::as_str).collect::<Vec<_>>().join(": "),
            device: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(body: &str) -> Health {
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn another_device_or_a_degraded_status_is_degraded() {
        let other = health(
            r#"{"instance":"a","ready":true,"device_mismatch":true,"device":"cpu","requested_device":"mps"}"#,
        );
        let other = other.degraded().unwrap();
        assert_eq!(other.why, "asked for mps, it runs on cpu");
        assert!(other.device);
        let status = health(r#"{"instance":"a","ready":true,"status":"degraded"}"#);
        let status = status.degraded().unwrap();
        assert!(!status.device);
        assert_eq!(status.why, "the worker says that it is degraded");
        let reason = health(
            r#"{"instance":"a","ready":true,"status":"degraded","tuning":{"reasons":["--weights fp16: no","b"]}}"#,
        );
        assert_eq!(
            reason.degraded().unwrap().why,
            "the worker says that it is degraded: --weights fp16: no"
        );
        let fine = health(r#"{"instance":"a","ready":true,"status":"ready","extra":[1]}"#);
        assert_eq!(fine.degraded(), None);
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_a_failed_probe() {
        let answer = probe("/nonexistent/socket".into(), Duration::from_secs(5)).await;
        assert!(matches!(answer, ProbeAnswer::Failed { .. }), "{answer:?}");
    }
}
