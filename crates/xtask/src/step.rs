//! Running one command at a time and saying which.
//!
//! The commands inherit the terminal: cargo, pip and uv each draw better progress than a wrapper could.

// Speaking to the person at the terminal is this module's whole purpose.
#![allow(clippy::print_stderr)]

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, bail};

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

/// Runs `command` to its end and gives what it wrote, and whether it went well.
///
/// # Errors
///
/// When the program cannot be started; the inner error is [`run`]'s.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<(Vec<u8>, anyhow::Result<()>)> {
    let line = command_line(command);
    let ended = command
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    let result = if ended.status.success() {
        Ok(())
    } else {
        Err(anyhow!("`{line}` failed ({})", ended.status))
    };
    Ok(([ended.stdout, ended.stderr].concat(), result))
}

/// Whether a program is there: it starts and exits with 0. Its output is thrown away.
pub(crate) fn answers(command: &mut Command) -> bool {
    let ended = command.stdin(Stdio::null()).output();
    ended.is_ok_and(|ended| ended.status.success())
}

/// The command as a person would type it (for messages only: it is never given to a shell).
fn command_line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
