//! The exit codes, and the one line that says why.
//!
//! They follow `sysexits.h`, as far as it has a word for the case.

use std::process::ExitCode;

use crate::logging;

const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const CONFIG: u8 = 78;

/// A setting or flag is wrong (64).
pub(crate) fn usage(why: &str) -> ExitCode {
    say(why, USAGE)
}

/// An address cannot be listened on, or the machine gives no more of something (69).
pub(crate) fn unavailable(why: &str) -> ExitCode {
    say(why, UNAVAILABLE)
}

/// The worker cannot work as it is configured (78).
pub(crate) fn configuration(why: &str) -> ExitCode {
    say(why, CONFIG)
}

/// The worker itself said that its flags (64) or its configuration (78) are wrong.
pub(crate) fn worker_refused(why: &str, code: i32) -> ExitCode {
    say(why, u8::try_from(code).unwrap_or(CONFIG))
}

/// Anything else that ended it before it was asked to end (1).
pub(crate) fn failure(why: &str) -> ExitCode {
    say(why, 1)
}

fn say(why: &str, code: u8) -> ExitCode {
    // One line, whatever the text holds. No event: the log may not be set up, or may be off.
    let line = why.lines().collect::<Vec<_>>().join(" ");
    logging::last_line(&format!("omni-jev: {line}"));
    ExitCode::from(code)
}
