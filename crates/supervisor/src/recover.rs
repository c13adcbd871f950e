//! Asking a worker to return to the device it lost.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;

use crate::probe;

const URL: &str = "http://worker/control/recover-device";
/// Carries the token that the supervisor gave the worker: the frontend forwards any path, and a
/// client must not reach this one.
const TOKEN: &str = "x-omni-jev-control";
/// Weights are moved, which takes seconds, after what is queued has been answered.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
struct Recovery {
    recovered: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// Asks once, in bounded time; none is a success, else why it failed.
pub(crate) async fn recover(socket: PathBuf, token: String) -> Option<String> {
    match tokio::time::timeout(LIMIT, ask(socket, token)).await {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(_) => Some(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

async fn ask(socket: PathBuf, token: String) -> Result<(), String> {
    let request = probe::client(socket)?.post(URL).header(TOKEN, token);
    let response = probe::send(request).await?;
    let status = response.status();
    if status == StatusCode::NOT_FOUND {
        return Err("it does not know how to".to_owned());
    }
    if status != StatusCode::OK {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let body = probe::read(response).await?;
    let recovery: Recovery =
        serde_json::from_slice(&body).map_err(|error| format!("its answer is odd: {error}"))?;
    if recovery.recovered {
        return Ok(());
    }
    Err(recovery
        .reason
        .unwrap_or_else(|| "it does not say why".to_owned()))
}
