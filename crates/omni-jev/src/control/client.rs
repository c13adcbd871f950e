//! The side of the control socket that asks: finds it, asks once, prints the answer.

mod table;

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use omni_jev_supervisor::PrivateFolder;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;

use super::report::{LogLine, Refusal, WorkerReport};
use super::{NO_WORKERS, One, SOCKET, Target, WorkerCommand};
use crate::exit;

/// A supervisor that lives answers at once.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
enum AskError {
    #[error(
        "no omni-jev of this user runs here (looked for its control socket in XDG_RUNTIME_DIR, TMPDIR and /tmp; \
         run this as the user, and with the XDG_RUNTIME_DIR, that it runs with)"
    )]
    NotRunning,
    #[error(
        "the omni-jev that runs here (process {0}) keeps no worker alive: it forwards to servers that something else \
         keeps (OMNI_JEV_BACKEND_URL or [[lane]] tables)"
    )]
    NoWorkers(u32),
    #[error("no omni-jev with the process id {0} runs here")]
    NoSuchProcess(u32),
    #[error("several omni-jev run here: choose one with --pid ({0})")]
    Several(String),
    #[error("there are several workers: name one of {0}")]
    Unnamed(String),
    #[error("there is no worker called {0}")]
    NoSuchWorker(String),
    #[error("{0}")]
    Refused(String),
    #[error("omni-jev does not answer: {0}")]
    Broken(String),
}

/// Does what the command says, and prints what came of it.
pub(crate) fn run(command: &WorkerCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return exit::unavailable(&format!("cannot start an event loop: {error}")),
    };
    match runtime.block_on(perform(command)) {
        Ok(text) => {
            let mut output = std::io::stdout();
            match output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush())
            {
                Ok(()) => ExitCode::SUCCESS,
                // Whoever reads has seen enough: `… | head`.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
                Err(error) => exit::failure(&format!("standard output cannot be written: {error}")),
            }
        }
        Err(error @ (AskError::Several(_) | AskError::Unnamed(_) | AskError::NoSuchWorker(_))) => {
            exit::usage(&error.to_string())
        }
        Err(error) => exit::unavailable(&error.to_string()),
    }
}

async fn perform(command: &WorkerCommand) -> Result<String, AskError> {
    match command {
        WorkerCommand::Status { name, json, target } => {
            let socket = find(target)?;
            let mut workers: Vec<WorkerReport> = ask(&socket, Method::GET, "/workers").await?;
            if let Some(name) = name {
                workers.retain(|worker| worker.name == *name);
                if workers.is_empty() {
                    return Err(AskError::NoSuchWorker(name.clone()));
                }
            }
            Ok(if *json {
                pretty(&workers)
            } else {
                table::workers(&workers)
            })
        }
        WorkerCommand::Restart { one } => change(one, "restart").await,
        WorkerCommand::Stop { one } => change(one, "stop").await,
        WorkerCommand::Logs { lines, json, one } => {
            let socket = find(&one.target)?;
            let name = name_of(&socket, one).await?;
            let path = format!("/workers/{name}/logs/{lines}");
            let lines: Vec<LogLine> = ask(&socket, Method::GET, &path).await?;
            Ok(lines
                .iter()
                .map(|line| {
                    if *json {
                        serde_json::to_string(line).unwrap_or_default() + "\n"
                    } else {
                        table::log_line(line)
                    }
                })
                .collect())
        }
    }
}

async fn change(one: &One, what: &str) -> Result<String, AskError> {
    let socket = find(&one.target)?;
    let name = name_of(&socket, one).await?;
    let path = format!("/workers/{name}/{what}");
    let worker: WorkerReport = ask(&socket, Method::POST, &path).await?;
    Ok(format!("{}: {}\n", worker.name, worker.message))
}

/// The control socket of the omni-jev that is meant: where none is named, the one in the first place that has any, since
/// that is where one with this environment would be.
fn find(target: &Target) -> Result<PathBuf, AskError> {
    let places = PrivateFolder::find();
    let found = with_file(&places, SOCKET, target);
    let without_workers = with_file(&places, NO_WORKERS, target);
    match (found.as_slice(), target.pid) {
        ([(_, socket)], _) => Ok(socket.clone()),
        ([], _) if !without_workers.is_empty() => Err(AskError::NoWorkers(without_workers[0].0)),
        ([], Some(pid)) => Err(AskError::NoSuchProcess(pid)),
        ([], None) => Err(AskError::NotRunning),
        (several, _) => {
            let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(AskError::Several(pids.join(", ")))
        }
    }
}

/// The files of this name of the processes that may be meant, in the first place that has any.
fn with_file(places: &[Vec<(u32, PathBuf)>], name: &str, target: &Target) -> Vec<(u32, PathBuf)> {
    let in_place = |place: &Vec<(u32, PathBuf)>| -> Vec<(u32, PathBuf)> {
        let meant = place.iter();
        let meant = meant.filter(|(pid, _)| target.pid.is_none_or(|wanted| wanted == *pid));
        let files = meant.map(|(pid, folder)| (*pid, folder.join(name)));
        files.filter(|(_, file)| file.exists()).collect()
    };
    let mut files = places.iter().map(in_place);
    files.find(|files| !files.is_empty()).unwrap_or_default()
}

/// The worker that is meant: the only one where none is named.
async fn name_of(socket: &PathBuf, one: &One) -> Result<String, AskError> {
    let workers: Vec<WorkerReport> = ask(socket, Method::GET, "/workers").await?;
    let names: Vec<String> = workers.into_iter().map(|worker| worker.name).collect();
    match (&one.name, names.as_slice()) {
        (Some(name), names) if names.contains(name) => Ok(name.clone()),
        (Some(name), _) => Err(AskError::NoSuchWorker(name.clone())),
        (None, [only]) => Ok(only.clone()),
        (None, names) => Err(AskError::Unnamed(names.join(", "))),
    }
}

async fn ask<T: DeserializeOwned>(
    socket: &PathBuf,
    method: Method,
    path: &str,
) -> Result<T, AskError> {
    let broken = |error: &dyn std::fmt::Display| AskError::Broken(error.to_string());
    let (status, body) = tokio::time::timeout(LIMIT, exchange(socket, method, path))
        .await
        .map_err(|_| broken(&format!("nothing came within {} s", LIMIT.as_secs())))?
        .map_err(|error| broken(&error))?;
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|error| broken(&error));
    }
    let refusal: Refusal = serde_json::from_slice(&body).map_err(|error| broken(&error))?;
    Err(AskError::Refused(refusal.error))
}

async fn exchange(
    socket: &PathBuf,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, "control")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn pretty(workers: &[WorkerReport]) -> String {
    // These types have nothing that cannot be written.
    serde_json::to_string_pretty(workers).unwrap_or_default() + "\n"
}
