//! What a worker says it is doing.

use std::fmt;
use std::str::FromStr;

/// The `phase` of a worker's log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Importing its libraries.
    Import,
    /// Downloading a checkpoint.
    Download,
    /// Reading a checkpoint into memory.
    Load,
    /// Compiling the model.
    Compile,
    /// Answering made-up requests so that the first real one is not slow.
    Warmup,
    /// Comparing its answers on this machine with those of the plain model.
    Parity,
    /// Ready to answer.
    Ready,
    /// Serving, and making another checkpoint ready.
    Preparing,
    /// Finishing what it has, taking nothing new.
    Draining,
}

impl Phase {
    const ALL: [Self; 9] = [
        Self::Import,
        Self::Download,
        Self::Load,
        Self::Compile,
        Self::Warmup,
        Self::Parity,
        Self::Ready,
        Self::Preparing,
        Self::Draining,
    ];

    /// The word the worker writes in its log, such as `warmup`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Download => "download",
            Self::Load => "load",
            Self::Compile => "compile",
            Self::Warmup => "warmup",
            Self::Parity => "parity",
            Self::Ready => "ready",
            Self::Preparing => "preparing",
            Self::Draining => "draining",
        }
    }

    /// What a waiting client is told, such as `warming up`.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Import => "importing its libraries",
            Self::Download => "downloading the checkpoint",
            Self::Load => "loading the checkpoint",
            Self::Compile => "compiling the model",
            Self::Warmup => "warming up",
            Self::Parity => "checking its answers on this machine",
            Self::Ready => "about to be ready",
            Self::Preparing => "preparing another checkpoint",
            Self::Draining => "finishing its last requests",
        }
    }

    /// Whether a worker in this phase may leave probes unanswered without being hung: it holds
    /// the interpreter for seconds at a time while it loads or compiles.
    pub const fn is_busy(self) -> bool {
        !matches!(self, Self::Ready | Self::Draining)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.name() == word)
            .ok_or(UnknownPhase)
    }
}

/// A word that names no [`Phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a phase of a worker")]
pub struct UnknownPhase;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_read_back_from_its_own_name() {
        for phase in Phase::ALL {
            assert_eq!(phase.name().parse(), Ok(phase));
        }
        assert_eq!("Ready".parse::<Phase>(), Err(UnknownPhase));
    }
}
