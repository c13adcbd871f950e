//! `cargo xtask bench frontend`: omni-jev's frontend against nginx and against no proxy.
//!
//! wrk, the proxy and the backend share one core. Each round starts every target afresh, in a shuffled
//! order, and ratios are taken within a round: what else the machine does then falls on all of them.

mod client;
mod memory;
mod report;
mod results;
mod rounds;
mod servers;
mod wrk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;

use self::results::Results;
use self::servers::Programs;
use self::wrk::Wrk;
use super::interrupt;
use super::machine::{self, Environment};
use crate::{python, release, step};

/// A thousand connections, as many to the backend, and room.
const OPEN_FILES: u64 = 8192;

/// What `cargo xtask bench frontend` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// The core that everything runs on [default: the last that this process may use]
    #[arg(long)]
    core: Option<usize>,
    /// How many rounds; each measures every target once.
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a round keeps each target under load, in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Three rounds of a second each: tells whether it works, not how fast it is.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// Write every sample of every round to this file too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure this omni-jev instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Shuffle as the run that printed this seed did.
    #[arg(long)]
    seed: Option<u64>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct Plan {
    rounds: u32,
    load_seconds: u32,
    latency_milliseconds: u64,
    memory_starts: u32,
    seed: u64,
}

impl Plan {
    fn of(options: &Options) -> Self {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        if options.quick {
            return Self {
                rounds: 3,
                load_seconds: 1,
                latency_milliseconds: 400,
                memory_starts: 1,
                seed,
            };
        }
        Self {
            rounds: options.rounds,
            load_seconds: options.seconds,
            latency_milliseconds: 500,
            memory_starts: 3,
            seed,
        }
    }
}

/// Builds, measures, and prints the report.
///
/// # Errors
///
/// See [`super::run`].
pub(super) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    if !cfg!(target_os = "linux") {
        bail!("this benchmark needs Linux: it reads /proc and keeps everything on one core");
    }
    let [nginx, wrk, taskset] = machine::need(
        ["nginx", "wrk", "taskset"],
        "on Debian and Ubuntu `apt-get install nginx-light wrk util-linux`",
    )?;
    let wrk = Wrk {
        program: wrk,
        script: root.join("benchmarks/frontend/post.lua"),
    };
    // Before the build, which is a load of its own and over when the measurement begins.
    let load = machine::load();
    let programs = programs(root, options, nginx)?;
    let core = options.core.map_or_else(machine::last_core, Ok)?;
    let environment = Environment::record(root, core, load, versions(&programs, &wrk));
    machine::allow_open_files(OPEN_FILES)?;
    machine::pin(&taskset, core)?;
    interrupt::watch()?;

    let plan = Plan::of(options);
    let backend = servers::start_backend(&programs)?;
    let samples = rounds::measure(&plan, &programs, &wrk, backend.address)?;
    let memory = rounds::measure_memory(&plan, &programs, backend.address)?;
    let results = Results {
        environment,
        plan,
        samples,
        memory,
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&results).context("cannot write JSON")?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    report::print(&results)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds what is ours and finds the rest.
fn programs(root: &Path, options: &Options, nginx: PathBuf) -> anyhow::Result<Programs> {
    let template = root.join("benchmarks/frontend/nginx.conf");
    let nginx_template = fs::read_to_string(&template)
        .with_context(|| format!("cannot read {}", template.display()))?;
    step::say("Building the benchmark's backend in release");
    step::run(python::cargo(root).args([
        "build",
        "--release",
        "--locked",
        "--package",
        "omni-jev-frontend",
        "--example",
        "bench_backend",
    ]))?;
    let omni_jev = if let Some(binary) = &options.binary {
        // It is started in another folder, so it needs its whole path.
        fs::canonicalize(binary)
            .with_context(|| format!("--binary {}: cannot be found", binary.display()))?
    } else {
        release::build(root)?
    };
    Ok(Programs {
        nginx,
        nginx_template,
        omni_jev,
        backend: python::target_directory(root).join("release/examples/bench_backend"),
    })
}

fn versions(programs: &Programs, wrk: &Wrk) -> Vec<String> {
    let version = |program: &Path, flag| machine::version(Command::new(program).arg(flag));
    vec![
        version(&programs.nginx, "-v"),
        version(&wrk.program, "-v"),
        version(&programs.omni_jev, "--version"),
        version(Path::new("rustc"), "--version"),
    ]
}
