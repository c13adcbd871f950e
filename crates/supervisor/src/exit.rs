//! How a process ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

/// `sysexits.h`: the command line was wrong.
const USAGE: i32 = 64;
/// `sysexits.h`: a configuration that cannot work.
const CONFIG: i32 = 78;

/// How a process ended: by itself with a code, or by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// It ended itself with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It is gone, but the operating system did not say how.
    Unknown,
}

impl Exit {
    /// The exit code, if it ended itself.
    pub const fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) | Self::Unknown => None,
        }
    }

    /// Whether the worker says that trying again cannot help: wrong flags (64) or a configuration
    /// that cannot work (78).
    pub const fn is_configuration(self) -> bool {
        matches!(self, Self::Code(USAGE | CONFIG))
    }

    /// Whether it was killed by SIGKILL, which nothing but the kernel (out of memory) or a person
    /// sends unless the supervisor did.
    pub const fn is_sigkill(self) -> bool {
        matches!(self, Self::Signal(number) if number == Signal::SIGKILL as i32)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match Signal::try_from(number) {
                Ok(signal) => write!(f, "signal {number} ({signal})"),
                Err(_) => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("an end that could not be observed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_names_its_code_or_its_signal() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(Exit::from(ExitStatus::from_raw(0x4e00)), Exit::Code(78));
        assert_eq!(Exit::from(ExitStatus::from_raw(6)), Exit::Signal(6));
    }

    #[test]
    fn only_64_and_78_are_configuration_errors() {
        let configuration: Vec<i32> = (0..=255)
            .filter(|&code| Exit::Code(code).is_configuration())
            .collect();
        assert_eq!(configuration, [64, 78]);
        assert!(!Exit::Signal(64).is_configuration());
    }
}
