//! `cargo xtask test`: every check there is, in the order in which they are quick to fail.
//!
//! What needs only cargo and what needs only Python run side by side, the set-up of Python too: each leaves cores idle
//! that the other can use.

// The summary is for the person at the terminal.
#![allow(clippy::print_stderr)]

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::python::{self, Requirements};
use crate::step;

/// The folders with Python code of ours.
const PYTHON_FOLDERS: [&str; 4] = ["worker-py", "recipe", "tests", "benchmarks"];

/// The tests that mostly wait.
const SUPERVISION_TESTS: [&str; 6] = [
    "tests/test_service.py",
    "tests/test_stopping.py",
    "tests/test_supervision.py",
    "tests/test_supervision_matrix.py",
    "tests/test_supervision_of_the_real_worker.py",
    "tests/test_worker_command.py",
];

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

/// One check: its name and the command that decides.
struct Check {
    name: &'static str,
    command: Command,
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
    let (mut outcomes, beside) = side_by_side(
        || runner.run_all(rust_checks(root), Output::Live),
        || {
            python::set_up_for_checks(root)?;
            anyhow::Ok(runner.run_all(python_checks(root), Output::AtTheEnd))
        },
    );
    outcomes.extend(beside?);
    let (supervision, rest) = checks_of_the_whole(root);
    let (live, beside) = side_by_side(
        || runner.run_all(vec![rest], Output::Live),
        || runner.run_all(vec![supervision], Output::AtTheEnd),
    );
    outcomes.extend(live);
    outcomes.extend(beside);
    Ok(summarize(&outcomes, start.elapsed()))
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
        with_interpreter(
            root,
            &interpreter,
            "Tests across the process border",
            &[
                &["pytest", "tests"][..],
                &without_supervision().each_ref().map(String::as_str),
            ]
            .concat(),
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
    fn run_all(&self, checks: Vec<Check>, output: Output) -> Vec<Outcome> {
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

fn cargo(root: &Path, name: &'static str, args: &[&str]) -> Check {
    let mut command = python::cargo(root);
    command.args(args);
    Check { name, command }
}

fn build_binary(root: &Path) -> Check {
    cargo(
        root,
        "Build the binary for the tests",
        &["build", "--locked", "--package", "omni-jev"],
    )
}

fn rust_checks(root: &Path) -> Vec<Check> {
    let cargo = |name, args: &[&str]| cargo(root, name, args);
    let mut checks = vec![
        cargo("Rust format", &["fmt", "--all", "--check"]),
        cargo(
            "Rust lints",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ],
        ),
        cargo("Rust tests", &["test", "--workspace", "--locked"]),
        build_binary(root),
    ];
    if step::answers(python::cargo(root).args(["deny", "--version"])) {
        // Advisories come from a repository of their own, which a machine may not reach.
        let parts = ["licenses", "bans", "sources"];
        checks.push(cargo(
            "Licences and sources",
            &[&["deny", "--locked", "check"][..], &parts].concat(),
        ));
    } else {
        step::say(
            "Skipped: licences and sources (`cargo install cargo-deny --locked` brings the check)",
        );
    }
    checks
}

fn python_checks(root: &Path) -> Vec<Check> {
    let ruff_format = [&["ruff", "format", "--check"][..], &PYTHON_FOLDERS].concat();
    let ruff_check = [&["ruff", "check"][..], &PYTHON_FOLDERS].concat();
    vec![
        python(root, "Python format", &ruff_format),
        python(root, "Python lints", &ruff_check),
        python(root, "Python types", &["mypy"]),
        python(
            root,
            "Python types of the worker",
            &[
                "mypy",
                "--config-file",
                "worker-py/pyproject.toml",
                "worker-py/src",
                "worker-py/tests",
            ],
        ),
        python(root, "Python unit tests", &["pytest", "worker-py/tests"]),
        python(root, "Demo checkpoint", &["pytest", "recipe/demo"]),
    ]
}

/// Those that start the binary and its worker, and so need both: what mostly waits, for ends and restarts, and the
/// rest, which mostly calculates.
fn checks_of_the_whole(root: &Path) -> (Check, Check) {
    let others = without_supervision();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    (
        python(
            root,
            "Tests of supervision",
            &[&["pytest"][..], &SUPERVISION_TESTS].concat(),
        ),
        python(
            root,
            "Tests across the process border",
            &[&["pytest", "tests"][..], &others].concat(),
        ),
    )
}

/// What keeps pytest from the tests of supervision.
fn without_supervision() -> [String; SUPERVISION_TESTS.len()] {
    SUPERVISION_TESTS.map(|file| format!("--ignore={file}"))
}

fn python(root: &Path, name: &'static str, args: &[&str]) -> Check {
    with_interpreter(root, &python::interpreter(root), name, args)
}

fn with_interpreter(root: &Path, interpreter: &Path, name: &'static str, args: &[&str]) -> Check {
    let mut command = Command::new(interpreter);
    command.current_dir(root).arg("-m").args(args);
    // Two threads of arithmetic beside another busy process on two cores are many times slower than one.
    command.env("OMP_NUM_THREADS", "1");
    let binary = python::target_directory(root).join("debug/omni-jev");
    command.env("OMNI_JEV_BINARY", binary);
    Check { name, command }
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
