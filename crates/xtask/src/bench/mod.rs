//! `cargo xtask bench …`: measurements, and what they share.

mod frontend;
pub(crate) mod interrupt;
mod laya;
mod machine;
mod process;
mod statistics;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The frontend against nginx and against no proxy at all: throughput, CPU, latency, memory.
    Frontend(frontend::Options),
    /// The whole system on this machine: becomes a program of `benchmarks/laya`, with its own flags.
    #[command(disable_help_flag = true)]
    Laya(laya::Options),
}

/// Measures and prints the result as Markdown on standard output.
///
/// # Errors
///
/// When something that the measurement needs is missing, when a program it started does not do its
/// part, or when it is interrupted. A result that misses its bar is not an error.
pub(crate) fn run(root: &Path, bench: &Bench) -> anyhow::Result<ExitCode> {
    match bench {
        Bench::Frontend(options) => frontend::run(root, options),
        Bench::Laya(options) => laya::run(root, options),
    }
}
