//! Running one command at a time and saying which.
//!
//! The commands inherit the terminal: cargo, pip and uv each draw better progress than a wrapper could.

// Speaking to the person at the terminal is this module's whole purpose.
#![allow(clippy::print_stderr)]

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, bail};

/// Says what is about to happen.
pub(crate) fn say(message: &str) {
    eprintln!("==> {message}");
}

/// Says what went wrong; the last line of a failed task.
pub(crate) fn say_error(message: &str) {
    eprintln!("error: {message}");
}

/// Runs `command` to its end with the terminal's own input and output.
///
/// # Errors
///
/// When the program cannot be started, or ends with anything but 0; the error names the command line.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = command_line(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// The command as a person would type it (for messages only: it is never given to a shell).
fn command_line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
