//! The side of the control socket that answers.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use omni_jev_supervisor::{PrivateFolder, StartError};
use serde::Serialize;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use super::report::{LogLine, Refusal, WorkerReport};
use super::{NO_WORKERS, SOCKET};
use crate::team::Team;

/// Nothing here takes long; a connection that does is let go.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers until it is dropped; its socket goes with it.
#[derive(Debug)]
pub(crate) struct Server {
    serving: JoinHandle<()>,
    _folder: PrivateFolder,
}

/// Why there is no control socket.
#[derive(Debug, Error)]
pub(crate) enum ControlError {
    #[error(transparent)]
    Folder(#[from] StartError),
    #[error("cannot make the control socket: {0}")]
    Listen(#[from] io::Error),
}

impl Server {
    pub(crate) fn open(team: Arc<Team>) -> Result<Self, ControlError> {
        let folder = PrivateFolder::create(None)?;
        let path = folder.path().join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        // Nobody else can have reached it before this: the folder is closed to others.
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        debug!(socket = %path.display(), "control socket");
        Ok(Self {
            serving: tokio::spawn(accept(listener, team)),
            _folder: folder,
        })
    }
}

/// Tells whoever looks for the control socket, until it is dropped, that this process keeps no worker alive.
pub(crate) fn without_workers() -> Result<PrivateFolder, ControlError> {
    let folder = PrivateFolder::create(None)?;
    fs::write(folder.path().join(NO_WORKERS), "")?;
    Ok(folder)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: UnixListener, team: Arc<Team>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&team));
                tokio::spawn(tokio::time::timeout(CONNECTION_TIMEOUT, connection));
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection on the control socket");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, team: Arc<Team>) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(&team, &request);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "control connection ended");
    }
}

fn answer(team: &Team, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["workers"]) => {
            let now = Instant::now();
            let statuses = team.statuses();
            let reports = statuses.iter().map(|status| WorkerReport::new(status, now));
            json(StatusCode::OK, &reports.collect::<Vec<_>>())
        }
        (&Method::GET, ["workers", name, "logs", lines]) => {
            let lines = lines.parse().unwrap_or(100);
            match team.log(name, lines) {
                Ok(log) => json(
                    StatusCode::OK,
                    &log.into_iter().map(LogLine::from).collect::<Vec<_>>(),
                ),
                Err(error) => refuse(StatusCode::NOT_FOUND, &error),
            }
        }
        (&Method::POST, ["workers", name, "restart"]) => match team.restart(name) {
            Ok(Ok(())) => accepted(team, name, "restart"),
            Ok(Err(error)) => refuse(StatusCode::SERVICE_UNAVAILABLE, &error),
            Err(error) => refuse(StatusCode::NOT_FOUND, &error),
        },
        (&Method::POST, ["workers", name, "stop"]) => match team.halt(name) {
            Ok(()) => accepted(team, name, "stop"),
            Err(error) => refuse(StatusCode::NOT_FOUND, &error),
        },
        _ => refuse(StatusCode::NOT_FOUND, &"there is nothing to do here"),
    }
}

fn accepted(team: &Team, name: &str, what: &'static str) -> Response<Full<Bytes>> {
    info!(
        worker = name,
        "a {what} was asked for on the control socket"
    );
    match team.status(name) {
        Ok(status) => json(
            StatusCode::ACCEPTED,
            &WorkerReport::new(&status, Instant::now()),
        ),
        Err(error) => refuse(StatusCode::NOT_FOUND, &error),
    }
}

fn refuse(status: StatusCode, error: &dyn std::fmt::Display) -> Response<Full<Bytes>> {
    let error = error.to_string();
    json(status, &Refusal { error })
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    // These types have nothing that cannot be written.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    response
}
