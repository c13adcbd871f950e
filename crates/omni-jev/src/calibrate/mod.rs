//! `omni-jev calibrate`: what each lane takes for requests of each length and number of questions, on this machine.
//!
//! The workers of the settings are started as they would be to serve, without a frontend, and asked one request at a
//! time, directly and in turn, so that what else the machine does is the same for all.

mod client;
mod requests;
mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use omni_jev_frontend::{Endpoint, Point};
use omni_jev_lanes::{Identity, Profile};
use omni_jev_supervisor::Outcome;
use thiserror::Error;
use tracing::info;

use self::client::{AskError, Client};
use crate::flags::{Flags, SettingFlags};
use crate::settings::{SettingError, Settings, machine};
use crate::team::Team;
use crate::{exit, logging, serve};

/// What is measured, and where it is written.
#[derive(Debug, Args)]
pub(crate) struct CalibrateFlags {
    /// The settings file [default: omni-jev.toml here, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the profile is written [default: what `OMNI_JEV_PROFILE` says, else omni-jev-profile.json]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Tokens of the requests' longest rows
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "32,64,96,128,192,256,384,512"
    )]
    lengths: Vec<u32>,

    /// Questions of the requests
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,6")]
    questions: Vec<u32>,

    /// Requests before those that count, of each kind
    #[arg(long, default_value_t = 5)]
    warmup: u32,

    /// Requests that count, of each kind
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
}

/// Why there is no profile.
#[derive(Debug, Error)]
enum CalibrateError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{0}")]
    CannotStart(String),
    #[error("the worker {name} cannot be measured: {reason}")]
    NoWorker { name: String, reason: String },
    #[error("the lane {name} cannot be measured: {source}")]
    Ask { name: String, source: AskError },
    #[error("no lane takes any of these requests")]
    Nothing,
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// A lane that is measured.
struct Subject {
    name: String,
    client: Client,
    identity: Identity,
    points: Vec<Point>,
}

/// Measures all lanes of the settings, writes the profile, and shows it.
pub(crate) fn run(asked: &CalibrateFlags) -> ExitCode {
    match calibrate(asked) {
        Ok((profile, path)) => {
            let mut output = std::io::stdout();
            // Whoever reads has seen enough: the file has all of it.
            let _ = output.write_all(table::shown(&profile, &path).as_bytes());
            ExitCode::SUCCESS
        }
        Err(error @ CalibrateError::Setting(_)) => exit::usage(&error.to_string()),
        Err(error @ CalibrateError::NoWorker { .. }) => exit::configuration(&error.to_string()),
        Err(error) => exit::unavailable(&error.to_string()),
    }
}

fn calibrate(asked: &CalibrateFlags) -> Result<(Profile, PathBuf), CalibrateError> {
    let flags = Flags {
        config: asked.config.clone(),
        settings: SettingFlags::default(),
        command: None,
        for_worker: Vec::new(),
    };
    let settings = Settings::load_unmeasured(&flags)?;
    let _until_the_end = logging::start(&settings.log, settings.log_format);
    let path = asked.profile.clone();
    let path = path.unwrap_or_else(|| settings.profile_path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            CalibrateError::CannotStart(format!("cannot start an event loop: {error}"))
        })?;
    let lanes = runtime.block_on(async {
        let (team, endpoints) = started(&settings).await?;
        let measured = measured(asked, endpoints).await;
        if let Some(team) = &team {
            team.stop();
            team.gone().await;
        }
        measured
    })?;
    let profile = Profile::new(machine(), lanes);
    write(&path, &profile.text()).map_err(|source| CalibrateError::Write {
        path: path.clone(),
        source,
    })?;
    Ok((profile, path))
}

/// In one step: whoever reads it meanwhile finds the old one or the new one.
fn write(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text)?;
    std::fs::rename(beside, path)
}

/// Where each lane is, once it serves.
async fn started(
    settings: &Settings,
) -> Result<(Option<Team>, Vec<(String, Endpoint)>), CalibrateError> {
    let servers = settings.servers();
    if !servers.is_empty() {
        return Ok((None, servers));
    }
    let cannot = |error: &dyn std::error::Error| CalibrateError::CannotStart(error.to_string());
    omni_jev_supervisor::reap_orphans().map_err(|error| cannot(&error))?;
    let all: Vec<usize> = (0..settings.workers().len()).collect();
    let specs = serve::specs(settings, &all).map_err(|error| cannot(&error))?;
    let team = Team::start(specs, &[]).map_err(|error| cannot(&error))?;
    let mut endpoints = Vec::new();
    for (place, worker) in settings.workers().into_iter().enumerate() {
        let name = worker.name;
        let Some(supervision) = team.supervision(place) else {
            continue;
        };
        let handle = supervision.borrow().clone();
        let mut status = handle.status();
        let socket = tokio::select! {
            Ok(status) = status.wait_for(|status| status.state.is_serving()) => status.socket.clone(),
            outcome = handle.outcome() => {
                let reason = match outcome {
                    Outcome::Failed(failure) => failure.to_string(),
                    Outcome::Stopped { .. } => "it was stopped".to_owned(),
                };
                return Err(CalibrateError::NoWorker { name, reason });
            }
        };
        let endpoint = socket.and_then(|path| Endpoint::unix(&path).ok());
        let Some(endpoint) = endpoint else {
            let reason = "it has no socket".to_owned();
            return Err(CalibrateError::NoWorker { name, reason });
        };
        endpoints.push((name, endpoint));
    }
    Ok((Some(team), endpoints))
}

async fn measured(
    asked: &CalibrateFlags,
    endpoints: Vec<(String, Endpoint)>,
) -> Result<Vec<(String, Identity, Vec<Point>)>, CalibrateError> {
    let mut subjects = Vec::new();
    for (name, endpoint) in endpoints {
        let failed = |source| CalibrateError::Ask {
            name: name.clone(),
            source,
        };
        let mut client = Client::connect(&endpoint).await.map_err(failed)?;
        let health = client.health().await.map_err(failed)?;
        subjects.push(Subject {
            identity: Identity::of(&health),
            name,
            client,
            points: Vec::new(),
        });
    }
    let mut made = 0;
    for &questions in &asked.questions {
        for &tokens in &asked.lengths {
            kind(asked, tokens, questions, &mut subjects, &mut made).await?;
        }
    }
    if subjects.iter().all(|subject| subject.points.is_empty()) {
        return Err(CalibrateError::Nothing);
    }
    let lanes = subjects.into_iter();
    Ok(lanes
        .map(|subject| (subject.name, subject.identity, subject.points))
        .collect())
}

/// Measures one kind of request at every lane, in turn. A lane that does not take it has no such point.
async fn kind(
    asked: &CalibrateFlags,
    tokens: u32,
    questions: u32,
    subjects: &mut [Subject],
    made: &mut u64,
) -> Result<(), CalibrateError> {
    let mut times: Vec<Option<Vec<Duration>>> = vec![Some(Vec::new()); subjects.len()];
    for round in 0..asked.warmup + asked.iterations {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            let Some(kept) = times else {
                continue;
            };
            let Some(body) = requests::body(tokens, questions, *made) else {
                return Ok(());
            };
            *made += 1;
            let begun = Instant::now();
            let status = subject.client.decide(body).await;
            let took = begun.elapsed();
            let status = status.map_err(|source| CalibrateError::Ask {
                name: subject.name.clone(),
                source,
            })?;
            if !status.is_success() {
                *times = None;
            } else if round >= asked.warmup {
                kept.push(took);
            }
        }
    }
    for (subject, times) in subjects.iter_mut().zip(times) {
        let median = times.and_then(median);
        info!(
            lane = subject.name,
            tokens,
            questions,
            p50_ms = median.map(|median| median.as_secs_f64() * 1000.0),
            "measured"
        );
        subject.points.extend(median.map(|median| Point {
            tokens,
            questions,
            seconds: median.as_secs_f64(),
        }));
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
