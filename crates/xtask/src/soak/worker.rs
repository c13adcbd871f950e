//! `cargo xtask soak worker`: sets up, builds, and becomes the program that soaks (`benchmarks/worker/soak.py`).

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use crate::python::{self, Requirements};
use crate::{release, step};

/// What `cargo xtask soak worker` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// How long; the first five of them do not count for the footprint.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Clients that ask one after the other.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Decides the requests and their order; printed, so that a run can be done again.
    #[arg(long)]
    seed: Option<u32>,
    /// Where to write what each second held, as JSON lines.
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// The `omni-jev` to run, in place of one that is built for it.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Becomes the program (`exec`), so that signals and the exit code are its own: 1 if a bar was missed.
///
/// # Errors
///
/// When the set-up or the build fails. On success it does not return.
pub(super) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    python::set_up(root, Requirements::Runtime)?;
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => release::build(root)?,
    };
    let mut soak = Command::new(python::interpreter(root));
    soak.current_dir(root)
        .args(["-m", "benchmarks.worker.soak", "--binary"])
        .arg(binary)
        .args(["--minutes", &options.minutes.to_string()])
        .args(["--clients", &options.clients.to_string()]);
    if let Some(seed) = options.seed {
        soak.args(["--seed", &seed.to_string()]);
    }
    if let Some(samples) = &options.samples {
        soak.arg("--samples").arg(std::path::absolute(samples)?);
    }
    step::say("Soaking the worker");
    let error = soak.exec();
    Err(error).context("cannot start the soak")
}
