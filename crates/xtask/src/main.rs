//! The task runner: `cargo xtask serve`, `test`, `setup`, `build`, `bench` and `soak`.
//!
//! Each command first makes the Python environment (`.venv` at the root of the repository), so that
//! none of them needs anything prepared beyond Rust and Python. A benchmark says what else it needs.

mod bench;
mod check;
mod python;
mod release;
mod serve;
mod soak;
mod step;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::python::Requirements;

/// Set up, run and check omni-jev.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up, build in release and start the frontend with its worker on the demo checkpoint.
    Serve {
        /// The worker's own flags, after `--`: `cargo xtask serve -- --model english --device mps`
        #[arg(last = true)]
        worker_flags: Vec<OsString>,
    },
    /// Set up and run every check: format, lints, types, unit tests and the tests across processes.
    Test(check::Options),
    /// Make or refresh `.venv` with the locked Python packages, and nothing else.
    Setup {
        /// Also install what the checks need, with the clients that they try in `.venv-clients` and what the
        /// documentation's site is built with in `.venv-docs`.
        #[arg(long)]
        dev: bool,
    },
    /// Build `target/release/omni-jev` as `serve` does, for a service manager to start.
    Build,
    /// Run for long under load and account for every request: random faults (half an hour, with a fake worker), or
    /// `soak worker` (an hour of decisions, each answer checked).
    Soak(soak::Soak),
    /// Measure, on a machine that does nothing else meanwhile.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            step::say_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let root = repository_root()?;
    match cli.task {
        Task::Serve { worker_flags } => serve::run(&root, &worker_flags),
        Task::Test(options) => check::run(&root, &options),
        Task::Setup { dev } => {
            if dev {
                python::set_up_for_checks(&root)?;
            } else {
                python::set_up(&root, Requirements::Runtime)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Task::Build => {
            let binary = release::build(&root)?;
            step::say(&format!("Built {}", binary.display()));
            Ok(ExitCode::SUCCESS)
        }
        Task::Soak(soak) => soak::run(&root, &soak),
        Task::Bench(bench) => bench::run(&root, &bench),
    }
}

/// The folder of the workspace's `Cargo.toml`, two above this crate's.
fn repository_root() -> anyhow::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .ancestors()
        .nth(2)
        .map(PathBuf::from)
        .with_context(|| format!("{} is not inside the repository", manifest.display()))
}
