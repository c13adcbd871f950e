//! The command line. Each flag is a setting and wins over its other sources; what follows `--` is the worker's.

mod complaint;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use serde::Serialize;

pub(crate) use self::complaint::complaint;
use crate::calibrate::CalibrateFlags;
use crate::control::WorkerCommand;

/// The settings that are no flags, at the end of the help.
const WITHOUT_A_FLAG: &str = "\
Settings without a flag, each also in omni-jev.toml (`worker_max_rss = \"6GiB\"`):
  OMNI_JEV_PROFILE_MISMATCH          `ignore` goes on without a profile of something else [default: refuse]
  OMNI_JEV_TOKENIZER                 A checkpoint's folder, to count tokens by (--features tokenizer)
  OMNI_JEV_ALLOW_WITHOUT_KEY         Serve other machines without LAYA_API_KEY [default: false]
  OMNI_JEV_WORKER_ARGS               The worker's flags, where none follow `--`
  OMNI_JEV_WORKER_START_DEADLINE     Without progress for so long a start is given up [default: 10m]
  OMNI_JEV_WORKER_STOP_GRACE         Between SIGTERM and SIGKILL [default: 10s]
  OMNI_JEV_WORKER_RESTART_WINDOW     Failures within it count [default: 10m]
  OMNI_JEV_WORKER_MAX_FAILURES       So many end it [default: 5]
  OMNI_JEV_WORKER_MAX_RESTART_DELAY  The longest wait before a restart [default: 30s]
  OMNI_JEV_WORKER_HANG_TIMEOUT       Silent for so long a worker is replaced [default: 15s]
  OMNI_JEV_WORKER_MAX_RSS            A worker that holds more memory is replaced [default: none]

Tables of workers and lanes are in the file alone: crates/omni-jev/README.md has all of it.";

/// Serves Laya behind the Jev API: forwards `/v1/systemone` unchanged and keeps the worker alive that answers it.
///
/// Every flag but --config is also a setting of omni-jev.toml (`backend_timeout = "60s"`) and an environment variable
/// (`OMNI_JEV_BACKEND_TIMEOUT=60s`), of the same name where its line names no other. A flag wins over the variable, the
/// variable over the file.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true, after_help = WITHOUT_A_FLAG)]
pub(crate) struct Flags {
    /// The settings file [default: omni-jev.toml here, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingFlags,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// The worker's own flags, after `--`: `omni-jev -- --model english --device mps`
    #[arg(last = true, value_name = "WORKER FLAGS")]
    pub(crate) for_worker: Vec<String>,
}

/// What else than serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows, restarts or stops the workers of a running omni-jev
    #[command(subcommand)]
    Worker(WorkerCommand),

    /// Measures every lane on this machine, and writes what `--lanes auto` reads
    Calibrate(CalibrateFlags),
}

/// The settings as flags: text, read by the same code as the file and the environment.
#[derive(Args, Debug, Default, Serialize)]
pub(crate) struct SettingFlags {
    /// Where the frontend listens; port 0 takes a free one and prints it [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    bind: Option<String>,

    /// Forward there and start no worker: `http://host:port[/prefix]`, `https://…` or `unix:/path`
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_url: Option<String>,

    /// From a request's dispatch to its answer's last byte, then 504 [default: 60s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_timeout: Option<String>,

    /// Where `/livez`, `/readyz` and `/metrics` are, or `off` [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_bind: Option<String>,

    /// The largest request body, then 413 [default: 8MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_request_bytes: Option<String>,

    /// The largest answer, then 502 [default: 16MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_response_bytes: Option<String>,

    /// Requests forwarded at a time, then 503 [default: 512]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_in_flight: Option<String>,

    /// Client connections at a time, then accepting waits [default: 4096]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<String>,

    /// How long a stop waits for what is in flight [default: 30s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_timeout: Option<String>,

    /// `auto`: every worker is a lane, and takes what the profile says that it is quicker at
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lanes: Option<String>,

    /// What `omni-jev calibrate` has measured [default with --lanes auto: omni-jev-profile.json]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,

    /// Write a line of JSON there for each decision: where it went, why, and when what happened to it
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,

    /// What is logged: error, warn, info, debug, trace, or directives by target [default: info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,

    /// `text` or `json` [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<String>,

    /// The worker's Python interpreter [default: .venv/bin/python]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_python: Option<String>,

    /// Bring a worker that lost its device back to it, by a restart if it must be; the setting is `worker_recover_device`,
    /// the variable `OMNI_JEV_WORKER_RECOVER_DEVICE` [default: true]
    #[arg(
        long = "recover-device",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_recover_device: Option<String>,
}
