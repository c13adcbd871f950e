//! What the binary can be told, and from where: defaults, `omni-jev.toml`, `OMNI_JEV_*`, flags, in rising order.

mod error;
#[cfg(test)]
mod lane_tests;
mod profile;
mod sources;
mod takes;
#[cfg(test)]
mod tests;
mod values;
mod workers;

use std::path::PathBuf;

use omni_jev_frontend::Endpoint;
use omni_jev_lanes::Profile;
use serde::Deserialize;

pub(crate) use self::error::SettingError;
pub(crate) use self::profile::{LanesMode, ProfileMismatch, machine};
pub(crate) use self::takes::{Lane, LaneTable};
pub(crate) use self::values::{Address, AdminBind, LogFilter, LogFormat, Size, Span, WorkerArgs};
pub(crate) use self::workers::{Worker, WorkerTable};

/// Every setting, checked. The table with their meanings is in this crate's README.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) bind: Address,
    #[serde(deserialize_with = "values::endpoint")]
    pub(crate) backend_url: Option<Endpoint>,
    pub(crate) backend_timeout: Span,
    pub(crate) admin_bind: AdminBind,
    pub(crate) max_request_bytes: Size,
    pub(crate) max_response_bytes: Size,
    #[serde(deserialize_with = "values::at_least_one")]
    pub(crate) max_in_flight: usize,
    #[serde(deserialize_with = "values::at_least_one")]
    pub(crate) max_connections: usize,
    pub(crate) drain_timeout: Span,
    /// Whether the lanes' limits are those of the profile.
    lanes: Option<LanesMode>,
    profile: Option<PathBuf>,
    /// What is done with a profile of another machine or checkpoint.
    pub(crate) profile_mismatch: ProfileMismatch,
    /// What the profile says, once it was read.
    #[serde(skip)]
    measured: Option<Profile>,
    /// Why it is not used, if that was asked for.
    #[serde(skip)]
    pub(crate) profile_note: Option<String>,
    /// The checkpoint whose tokenizer counts, where there are lanes.
    pub(crate) tokenizer: Option<PathBuf>,
    /// Where a line is written for each decision.
    pub(crate) trace: Option<PathBuf>,
    pub(crate) log: LogFilter,
    pub(crate) log_format: LogFormat,
    /// Offer a supervised worker without a key to other machines too.
    #[serde(deserialize_with = "values::truth")]
    pub(crate) allow_without_key: bool,
    worker_python: Option<PathBuf>,
    worker_args: Option<WorkerArgs>,
    worker_start_deadline: Option<Span>,
    worker_stop_grace: Option<Span>,
    worker_restart_window: Option<Span>,
    #[serde(deserialize_with = "values::maybe_at_least_one")]
    worker_max_failures: Option<usize>,
    worker_max_restart_delay: Option<Span>,
    worker_hang_timeout: Option<Span>,
    worker_max_rss: Option<Size>,
    #[serde(deserialize_with = "values::maybe_truth")]
    worker_recover_device: Option<bool>,
    /// The tables of the file; [`Settings::workers`] puts them together with the above.
    worker: Vec<WorkerTable>,
    /// Servers that are not supervised, each of which takes a part of the requests.
    lane: Vec<LaneTable>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bind: Address::loopback(8080),
            backend_url: None,
            backend_timeout: Span::seconds(60),
            admin_bind: AdminBind::At(Address::loopback(8081)),
            max_request_bytes: Size::mebibytes(8),
            max_response_bytes: Size::mebibytes(16),
            max_in_flight: 512,
            max_connections: 4096,
            drain_timeout: Span::seconds(30),
            lanes: None,
            profile: None,
            profile_mismatch: ProfileMismatch::Refuse,
            measured: None,
            profile_note: None,
            tokenizer: None,
            trace: None,
            log: LogFilter::default(),
            log_format: LogFormat::Text,
            allow_without_key: false,
            worker_python: None,
            worker_args: None,
            worker_start_deadline: None,
            worker_stop_grace: None,
            worker_restart_window: None,
            worker_max_failures: None,
            worker_max_restart_delay: None,
            worker_hang_timeout: None,
            worker_max_rss: None,
            worker_recover_device: None,
            worker: Vec::new(),
            lane: Vec::new(),
        }
    }
}
