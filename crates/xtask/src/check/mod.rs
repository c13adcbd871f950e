//! `cargo xtask test`: every check there is, in the order in which they are quick to fail.
//!
//! They run in two lanes, since each leaves cores idle that the other can use. One begins with what needs only cargo, the
//! other with the set-up of Python; then both take what is left, in its order.

// The summary is for the person at the terminal.
#![allow(clippy::print_stderr)]

mod backlog;
mod list;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::iter;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use self::backlog::{Backlog, Need};
use self::list::{
    Check, SUPERVISION_TESTS, build_binary, checks_in_python, ignoring, python, rust_checks,
    with_interpreter,
};
use crate::python::{self, Requirements};
use crate::step;

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Stop at the first check that fails, rather than running all and saying which failed.
    #[arg(long)]
    fail_fast: bool,
    /// Run the tests of the worker and those across the processes with another laya than the pinned one.
    #[arg(long, value_enum, value_name = "RELEASE")]
    laya: Option<Laya>,
    /// Run the tests that hold for every checkpoint on a published one, if the hub or its cache has it; 75: not run.
    #[arg(long, value_name = "NAME", conflicts_with = "laya")]
    contract: Option<String>,
    /// The device for `--contract`: cpu, mps or cuda.
    #[arg(long, requires = "contract")]
    device: Option<String>,
    /// The worker's own flags for `--contract`, after `--`
    #[arg(last = true, requires = "contract")]
    worker_flags: Vec<OsString>,
}

/// A laya that is not the pinned one.
#[derive(Clone, Copy, ValueEnum)]
enum Laya {
    /// The newest 0.4 release that the package index has.
    Latest,
}

/// Where a check's output goes.
#[derive(Clone, Copy)]
enum Output {
    /// To the terminal as it comes.
    Live,
    /// To the terminal when the check has ended, whole, so that it stands apart from what runs beside it.
    AtTheEnd,
}

/// What came of one check.
struct Outcome {
    name: &'static str,
    passed: bool,
    took: Duration,
}

/// Sets up, runs every check and prints a summary.
///
/// # Errors
///
/// When the set-up fails. Checks that fail are in the summary and in the exit code instead.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(Laya::Latest) = options.laya {
        return run_with_latest_laya(root, options);
    }
    if let Some(name) = &options.contract {
        return become_contract(root, name, options);
    }
    let start = Instant::now();
    // On a terminal its progress would be drawn over cargo's; elsewhere nobody waits for it alone.
    if io::stderr().is_terminal() {
        python::set_up_for_checks(root)?;
    }
    let runner = Runner::new(options);
    let backlog = Backlog::new(checks_in_python(root));
    let rest = |output| runner.run_all(iter::from_fn(|| backlog.next()), output);
    let (mut outcomes, beside) = side_by_side(
        || {
            let mut outcomes = runner.run_all(rust_checks(root), Output::Live);
            backlog.is_there(Need::Binary);
            outcomes.extend(rest(Output::Live));
            outcomes
        },
        || {
            python::set_up(root, Requirements::Dev)
                .inspect_err(|_| backlog.give_up(Need::Python))?;
            backlog.is_there(Need::Python);
            let (mut outcomes, set_up) =
                side_by_side(|| rest(Output::AtTheEnd), || set_up_more(root, &backlog));
            outcomes.extend(set_up);
            anyhow::Ok(outcomes)
        },
    );
    outcomes.extend(beside?);
    Ok(summarize(&outcomes, start.elapsed()))
}

/// Sets up what a few checks need, beside those that do without, and lets those run that wait for it.
fn set_up_more(root: &Path, backlog: &Backlog<Check>) -> [Outcome; 2] {
    [
        (
            "Set-up of the documentation site",
            Requirements::Docs,
            Need::Site,
        ),
        (
            "Set-up of the published clients",
            Requirements::Clients,
            Need::Clients,
        ),
    ]
    .map(|(name, requirements, need)| {
        let start = Instant::now();
        let result = python::set_up(root, requirements);
        match &result {
            Ok(()) => backlog.is_there(need),
            Err(error) => {
                step::say_error(&format!("{error:#}"));
                backlog.give_up(need);
            }
        }
        Outcome {
            name,
            passed: result.is_ok(),
            took: start.elapsed(),
        }
    })
}

/// Runs only what another laya can change.
fn run_with_latest_laya(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    python::set_up(root, Requirements::Dev)?;
    let (interpreter, version) = python::with_latest_laya(root)?;
    step::say(&format!("With laya {version}"));
    let checks = vec![
        build_binary(root),
        with_interpreter(
            root,
            &interpreter,
            "Python unit tests",
            &["pytest", "worker-py/tests"],
        ),
        ignoring(
            &SUPERVISION_TESTS,
            with_interpreter(
                root,
                &interpreter,
                "Tests across the process border",
                &["pytest", "tests"],
            ),
        ),
    ];
    let outcomes = Runner::new(options).run_all(checks, Output::Live);
    Ok(summarize(&outcomes, start.elapsed()))
}

/// Sets up, builds, and becomes `tests/contract.py` (`exec`), whose exit code says whether anything was run.
fn become_contract(root: &Path, name: &str, options: &Options) -> anyhow::Result<ExitCode> {
    python::set_up(root, Requirements::Dev)?;
    let Check { mut command, .. } = build_binary(root);
    step::run(&mut command)?;
    let Check { mut command, .. } = python(root, "Contract", &["tests.contract", name]);
    if let Some(device) = &options.device {
        command.args(["--device", device]);
    }
    let error = command.arg("--").args(&options.worker_flags).exec();
    Err(error).context("cannot start the contract tests")
}

/// Does two things at once, the second on a thread of its own, and gives what both gave.
fn side_by_side<A, B: Send>(here: impl FnOnce() -> A, beside: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let beside = scope.spawn(beside);
        let here = here();
        match beside.join() {
            Ok(beside) => (here, beside),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

struct Runner {
    fail_fast: bool,
    failed: AtomicBool,
}

impl Runner {
    fn new(options: &Options) -> Self {
        Self {
            fail_fast: options.fail_fast,
            failed: AtomicBool::new(false),
        }
    }

    /// Runs checks one after the other.
    fn run_all(&self, checks: impl IntoIterator<Item = Check>, output: Output) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for Check { name, mut command } in checks {
            if self.fail_fast && self.failed.load(Ordering::Relaxed) {
                break;
            }
            step::say(name);
            let start = Instant::now();
            let result = match output {
                Output::Live => step::run(&mut command),
                Output::AtTheEnd => run_quietly(name, &mut command),
            };
            if let Err(error) = &result {
                step::say_error(&format!("{error:#}"));
                self.failed.store(true, Ordering::Relaxed);
            }
            outcomes.push(Outcome {
                name,
                passed: result.is_ok(),
                took: start.elapsed(),
            });
        }
        outcomes
    }
}

/// Runs a command and prints all that it wrote when it has ended.
fn run_quietly(name: &str, command: &mut Command) -> anyhow::Result<()> {
    let (output, result) = step::capture(command)?;
    let text = format!("==> {name}, which ran beside this, wrote:\n");
    // Nobody can be told that the terminal is gone.
    let _ = io::stderr()
        .lock()
        .write_all(&[text.as_bytes(), &output].concat());
    result
}

fn summarize(outcomes: &[Outcome], total: Duration) -> ExitCode {
    eprintln!();
    for Outcome { name, passed, took } in outcomes {
        let verdict = if *passed { "ok" } else { "FAILED" };
        eprintln!("{verdict:>8}  {:>6.1} s  {name}", took.as_secs_f64());
    }
    eprintln!(
        "          {:>6.1} s  in all, with the set-up",
        total.as_secs_f64()
    );
    if outcomes.iter().all(|outcome| outcome.passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
