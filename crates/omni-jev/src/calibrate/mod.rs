//! `omni-jev calibrate`: what each lane takes for requests of each length and number of questions, on this machine.
//!
//! The workers of the settings are started as they would be to serve, without a frontend, and asked one request at a
//! time, directly and in turn, so that what else the machine does is the same for all.

mod client;
mod measure;
mod requests;
mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use omni_jev_frontend::Endpoint;
use omni_jev_lanes::Profile;
use omni_jev_supervisor::Outcome;
use thiserror::Error;

use self::client::AskError;
use self::measure::{Measurement, measured};
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

    /// Tokens of the requests' longest rows, as the frontend judges them
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
        default_value = "32,64,96,128,192,256,384,512"
    )]
    lengths: Vec<u32>,

    /// Questions of the requests
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
        default_value = "1,2,4,6"
    )]
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
    #[error("--lengths: no request is as short as {tokens} tokens; {shortest} are the fewest")]
    TooShort { tokens: u32, shortest: u32 },
    #[error("--lengths: none of them fits the window of {window} tokens of the lane {name}")]
    TooLong { name: String, window: u32 },
    #[error("no lane takes any of these requests")]
    Nothing,
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Measures all lanes of the settings, writes the profile, and shows it.
pub(crate) fn run(asked: &CalibrateFlags) -> ExitCode {
    match calibrate(asked) {
        Ok(text) => {
            let mut output = std::io::stdout();
            // Whoever reads has seen enough: the file has all of it.
            let _ = output.write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(
            error @ (CalibrateError::Setting(_)
            | CalibrateError::TooShort { .. }
            | CalibrateError::TooLong { .. }),
        ) => exit::usage(&error.to_string()),
        Err(error @ CalibrateError::NoWorker { .. }) => exit::configuration(&error.to_string()),
        Err(error) => exit::unavailable(&error.to_string()),
    }
}

/// What a person reads of it, once the profile is written.
fn calibrate(asked: &CalibrateFlags) -> Result<String, CalibrateError> {
    if let Some(&tokens) = asked.lengths.iter().min()
        && let Some(shortest) = requests::shortest()
        && tokens < shortest
    {
        return Err(CalibrateError::TooShort { tokens, shortest });
    }
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
    let Measurement { lanes, mut notes } = runtime.block_on(async {
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
    notes.extend(settings.unmeasured_limits());
    Ok(table::shown(&profile, &path, &notes))
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
