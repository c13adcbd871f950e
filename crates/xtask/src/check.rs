//! `cargo xtask test`: every check there is, in the order in which they are quick to fail.

// The summary is for the person at the terminal.
#![allow(clippy::print_stderr)]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;

use crate::python::{self, Requirements};
use crate::step;

/// The folders with Python code of ours.
const PYTHON_FOLDERS: [&str; 4] = ["worker-py", "recipe", "tests", "benchmarks"];

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Stop at the first check that fails, rather than running all and saying which failed.
    #[arg(long)]
    fail_fast: bool,
}

/// One check: its name and the command that decides.
struct Check {
    name: &'static str,
    command: Command,
}

/// Sets up, runs every check and prints a summary.
///
/// # Errors
///
/// When the set-up fails. Checks that fail are in the summary and in the exit code instead.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    python::set_up(root, Requirements::Dev)?;
    let mut results = Vec::new();
    for mut check in checks(root) {
        step::say(check.name);
        let start = Instant::now();
        let outcome = step::run(&mut check.command);
        if let Err(error) = &outcome {
            step::say_error(&format!("{error:#}"));
        }
        results.push((check.name, outcome.is_ok(), start.elapsed()));
        if outcome.is_err() && options.fail_fast {
            break;
        }
    }
    Ok(summarize(&results))
}

fn checks(root: &Path) -> Vec<Check> {
    let cargo = |name, args: &[&str]| {
        let mut command = python::cargo(root);
        command.args(args);
        Check { name, command }
    };
    let python = |name, args: &[&str]| {
        let mut command = Command::new(python::interpreter(root));
        command.current_dir(root).arg("-m").args(args);
        // Two threads of arithmetic beside another busy process on two cores are many times slower than one.
        command.env("OMP_NUM_THREADS", "1");
        let binary = python::target_directory(root).join("debug/omni-jev");
        command.env("OMNI_JEV_BINARY", binary);
        Check { name, command }
    };
    let ruff_format = [&["ruff", "format", "--check"][..], &PYTHON_FOLDERS].concat();
    let ruff_check = [&["ruff", "check"][..], &PYTHON_FOLDERS].concat();
    vec![
        cargo("Rust format", &["fmt", "--all", "--check"]),
        python("Python format", &ruff_format),
        python("Python lints", &ruff_check),
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
        python("Python types", &["mypy"]),
        python(
            "Python types of the worker",
            &[
                "mypy",
                "--config-file",
                "worker-py/pyproject.toml",
                "worker-py/src",
                "worker-py/tests",
            ],
        ),
        cargo("Rust tests", &["test", "--workspace", "--locked"]),
        cargo(
            "Build the binary for the tests",
            &["build", "--locked", "--package", "omni-jev"],
        ),
        python("Python unit tests", &["pytest", "worker-py/tests"]),
        python("Demo checkpoint", &["pytest", "recipe/demo"]),
        python("Tests across the process border", &["pytest", "tests"]),
    ]
}

fn summarize(results: &[(&str, bool, Duration)]) -> ExitCode {
    eprintln!();
    for (name, passed, took) in results {
        let verdict = if *passed { "ok" } else { "FAILED" };
        eprintln!("{verdict:>8}  {:>6.1} s  {name}", took.as_secs_f64());
    }
    if results.iter().all(|(_, passed, _)| *passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
