//! `cargo xtask serve`: from a clean clone to a running frontend and worker.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;

use crate::python::{self, Requirements};
use crate::{release, step};

/// Sets up, builds in release and becomes the frontend (`exec`), so that signals and the exit code are its own.
///
/// # Errors
///
/// When the set-up or the build fails. On success it does not return.
pub(crate) fn run(root: &Path, worker_flags: &[OsString]) -> anyhow::Result<ExitCode> {
    python::set_up(root, Requirements::Runtime)?;
    let binary = release::build(root)?;
    step::say("Starting omni-jev and its worker (Ctrl-C stops both)");
    let error = Command::new(&binary).arg("--").args(worker_flags).exec();
    Err(error).with_context(|| format!("cannot start {}", binary.display()))
}
