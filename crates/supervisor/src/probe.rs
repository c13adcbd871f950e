//! Asking a worker for its health.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use serde::Deserialize;

use crate::About;
use crate::machine::{Degradation, ProbeAnswer};

/// The host is never looked up: the socket decides where it goes.
const URL: &str = "http://worker/health";
/// The most of an answer that is read, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// Between attempts to connect while the worker is behind with accepting.
const BEHIND_PAUSE: Duration = Duration::from_millis(5);

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
    let response = send(client(socket)?.get(URL)).await?;
    let status = response.status();
    if status != StatusCode::OK && status != StatusCode::SERVICE_UNAVAILABLE {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let body = read(response).await?;
    serde_json::from_slice(&body)
        .map(|health| (status, health))
        .map_err(|error| format!("its answer is no health report: {error}"))
}

/// Sends a request, and waits where the worker is behind with accepting: a burst of
/// clients fills its socket's queue, and is no sign that it is stuck.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, String> {
    while let Some(attempt) = request.try_clone() {
        match attempt.send().await {
            Err(error) if is_behind(&error) => tokio::time::sleep(BEHIND_PAUSE).await,
            done => return done.map_err(chain),
        }
    }
    // A body that can be sent once only.
    request.send().await.map_err(chain)
}

/// Whether a socket's queue of connections was full. Linux says so (connect(2), `EAGAIN`);
/// elsewhere it refuses, as a socket does that nobody listens on.
fn is_behind(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let refused = error.kind() == io::ErrorKind::ConnectionRefused;
            return error.kind() == io::ErrorKind::WouldBlock
                || (refused && cfg!(not(target_os = "linux")));
        }
        cause = error.source();
    }
    false
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

    #[cfg(target_os = "linux")]
    mod behind {
        use super::*;
        use std::io::{Read as _, Write as _};
        use std::os::unix::net::{UnixListener, UnixStream};

        const HEALTH: &str = r#"{"instance":"a","ready":true}"#;

        /// A socket whose queue is full with one connection, which comes with it.
        fn full(path: &std::path::Path) -> (UnixListener, UnixStream) {
            let listener = UnixListener::bind(path).unwrap();
            socket2::SockRef::from(&listener).listen(0).unwrap();
            let first = UnixStream::connect(path).unwrap();
            (listener, first)
        }

        #[tokio::test]
        async fn a_worker_that_is_behind_with_accepting_is_waited_for() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("worker.sock");
            let (listener, _first) = full(&path);
            let mut probing = tokio::spawn(probe(path, Duration::from_secs(30)));
            let given_up = tokio::time::timeout(BEHIND_PAUSE * 4, &mut probing).await;
            assert!(given_up.is_err(), "{given_up:?}");
            std::thread::spawn(move || {
                let _others = listener.accept().unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                    HEALTH.len()
                );
                stream.write_all((head + HEALTH).as_bytes()).unwrap();
            });
            let answer = probing.await.unwrap();
            assert!(
                matches!(answer, ProbeAnswer::Answered { ready: true, .. }),
                "{answer:?}"
            );
        }

        #[tokio::test]
        async fn a_worker_that_never_accepts_fails_its_probe_in_time() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("worker.sock");
            let (_listener, _first) = full(&path);
            let answer = probe(path, Duration::from_millis(100)).await;
            let ProbeAnswer::Failed { reason } = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(reason, "no answer within 0.1 s");
        }
    }
}
