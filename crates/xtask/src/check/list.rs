//! The checks: their names and commands.

use std::path::Path;
use std::process::Command;

use super::backlog::Need;
use crate::python;
use crate::step;

/// The folders with Python code of ours.
const PYTHON_FOLDERS: [&str; 5] = ["worker-py", "recipe", "tests", "benchmarks", "docs"];

/// The tests that mostly wait.
pub(super) const SUPERVISION_TESTS: [&str; 6] = [
    "tests/test_service.py",
    "tests/test_stopping.py",
    "tests/test_supervision.py",
    "tests/test_supervision_matrix.py",
    "tests/test_supervision_of_the_real_worker.py",
    "tests/test_worker_command.py",
];

/// The tests across the processes that are about what clients send and get.
const PROTOCOL_TESTS: [&str; 4] = [
    "tests/test_conformance.py",
    "tests/test_contract.py",
    "tests/test_openapi.py",
    "tests/test_other_checkpoints.py",
];

/// The tests of published clients, which have an environment of their own.
const CLIENT_TESTS: [&str; 2] = [
    "tests/test_client_recipes.py",
    "tests/test_published_clients.py",
];

/// The test of the documentation's site, which is built with packages of its own.
const SITE_TESTS: [&str; 1] = ["tests/test_site.py"];

const PYTHON: &[Need] = &[Need::Python];
const BINARY: &[Need] = &[Need::Python, Need::Binary];
const CLIENTS: &[Need] = &[Need::Python, Need::Binary, Need::Clients];
const SITE: &[Need] = &[Need::Python, Need::Site];

/// The tests of the worker that start it as a process of its own.
const WORKER_PROCESS_TESTS: [&str; 7] = [
    "worker-py/tests/test_connection.py",
    "worker-py/tests/test_hostile_traffic.py",
    "worker-py/tests/test_openapi_page.py",
    "worker-py/tests/test_other_checkpoints.py",
    "worker-py/tests/test_pool.py",
    "worker-py/tests/test_process.py",
    "worker-py/tests/test_successor.py",
];

/// One check: its name and the command that decides.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) command: Command,
}

fn cargo(root: &Path, name: &'static str, args: &[&str]) -> Check {
    let mut command = python::cargo(root);
    command.args(args);
    Check { name, command }
}

pub(super) fn build_binary(root: &Path) -> Check {
    cargo(
        root,
        "Build the binary for the tests",
        &["build", "--locked", "--package", "omni-jev"],
    )
}

pub(super) fn rust_checks(root: &Path) -> Vec<Check> {
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
        // Exactly what the tests need, the binary among it: built apart, it would be built for another set of features.
        cargo(
            "Rust build",
            &["build", "--workspace", "--all-targets", "--locked"],
        ),
        cargo("Rust tests", &["test", "--workspace", "--locked"]),
        documentation(root),
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

/// The pages of the crates, none of whose links may lead nowhere.
fn documentation(root: &Path) -> Check {
    let args = ["doc", "--workspace", "--no-deps", "--locked"];
    let mut check = cargo(root, "Rust documentation", &args);
    check.command.env("RUSTDOCFLAGS", "-D warnings");
    check
}

/// What is in Python, the quick ones first, then so that neither lane ends long before the other.
pub(super) fn checks_in_python(root: &Path) -> Vec<(&'static [Need], Check)> {
    let ruff_format = [&["ruff", "format", "--check"][..], &PYTHON_FOLDERS].concat();
    let ruff_check = [&["ruff", "check"][..], &PYTHON_FOLDERS].concat();
    let apart = [
        &SUPERVISION_TESTS[..],
        &PROTOCOL_TESTS[..],
        &CLIENT_TESTS[..],
        &SITE_TESTS[..],
    ]
    .concat();
    let python = |name, args: &[&str]| python(root, name, args);
    vec![
        (PYTHON, python("Python format", &ruff_format)),
        (PYTHON, python("Python lints", &ruff_check)),
        (PYTHON, python("Python types", &["mypy"])),
        (
            PYTHON,
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
        ),
        (
            PYTHON,
            ignoring(
                &WORKER_PROCESS_TESTS,
                python("Python unit tests", &["pytest", "worker-py/tests"]),
            ),
        ),
        (
            PYTHON,
            python(
                "Tests of the worker's process",
                &[&["pytest"][..], &WORKER_PROCESS_TESTS].concat(),
            ),
        ),
        (
            BINARY,
            python(
                "Tests of supervision",
                &[&["pytest"][..], &SUPERVISION_TESTS].concat(),
            ),
        ),
        (
            BINARY,
            ignoring(
                &apart,
                python("Tests across the process border", &["pytest", "tests"]),
            ),
        ),
        (
            BINARY,
            python(
                "Tests of the protocol",
                &[&["pytest"][..], &PROTOCOL_TESTS].concat(),
            ),
        ),
        (
            CLIENTS,
            python(
                "Tests of published clients",
                &[&["pytest"][..], &CLIENT_TESTS].concat(),
            ),
        ),
        (
            SITE,
            python(
                "Documentation site",
                &[&["pytest"][..], &SITE_TESTS].concat(),
            ),
        ),
        (
            PYTHON,
            python("Demo checkpoint", &["pytest", "recipe/demo"]),
        ),
    ]
}

/// Keeps a check that is pytest from some files.
pub(super) fn ignoring(files: &[&str], mut check: Check) -> Check {
    let arguments = files.iter().map(|file| format!("--ignore={file}"));
    check.command.args(arguments);
    check
}

pub(super) fn python(root: &Path, name: &'static str, args: &[&str]) -> Check {
    with_interpreter(root, &python::interpreter(root), name, args)
}

pub(super) fn with_interpreter(
    root: &Path,
    interpreter: &Path,
    name: &'static str,
    args: &[&str],
) -> Check {
    let mut command = Command::new(interpreter);
    command.current_dir(root).arg("-m").args(args);
    // Two threads of arithmetic beside another busy process on two cores are many times slower than one.
    command.env("OMP_NUM_THREADS", "1");
    let binary = python::target_directory(root).join("debug/omni-jev");
    command.env("OMNI_JEV_BINARY", binary);
    Check { name, command }
}
