//! What can be done to a worker, or to the binary.

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL of the worker while it is ready.
    Killed,
    /// SIGKILL, and again during the start that follows.
    KilledTwice,
    /// SIGSTOP.
    Stopped,
    /// Health answers, and no decision does.
    InferenceHangs,
    /// Nothing answers.
    Silent,
    /// Health answers 500.
    Unhealthy,
    /// It writes to its log as fast as it can, for a while.
    Floods,
    /// It forks a process that keeps its socket and its connections, and is killed.
    Grandchild,
    /// It closes its socket and lives on.
    ClosesSocket,
    /// Its memory grows over the limit.
    Grows,
    /// It loses its device, and returns to it when it is asked.
    LosesDevice,
    /// It loses its device for good.
    LosesDeviceForGood,
    /// It ends by itself.
    Exits,
    /// `omni-jev worker restart`.
    RestartAsked,
    /// SIGTERM of the binary, which is then started again.
    BinaryTerminated,
    /// SIGKILL of the binary, which is then started again.
    BinaryKilled,
    /// SIGKILL of the binary 200 ms after it has spawned a worker.
    BinaryKilledEarly,
}

impl Fault {
    /// Every one.
    pub(crate) const ALL: [Self; 17] = [
        Self::Killed,
        Self::KilledTwice,
        Self::Stopped,
        Self::InferenceHangs,
        Self::Silent,
        Self::Unhealthy,
        Self::Floods,
        Self::Grandchild,
        Self::ClosesSocket,
        Self::Grows,
        Self::LosesDevice,
        Self::LosesDeviceForGood,
        Self::Exits,
        Self::RestartAsked,
        Self::BinaryTerminated,
        Self::BinaryKilled,
        Self::BinaryKilledEarly,
    ];

    /// The vice of the fake worker that does it, if one does.
    pub(crate) fn vice(self) -> Option<&'static str> {
        match self {
            Self::InferenceHangs => Some("hang-inference"),
            Self::Silent => Some("silent"),
            Self::Unhealthy => Some("unhealthy"),
            Self::Floods => Some("flood"),
            Self::Grandchild => Some("grandchild"),
            Self::ClosesSocket => Some("close-socket"),
            Self::Grows => Some("grow"),
            Self::LosesDevice => Some("lost-device"),
            Self::LosesDeviceForGood => Some("lost-for-good"),
            Self::Exits => Some("exit-now"),
            _ => None,
        }
    }

    /// What is printed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Killed => "SIGKILL of the worker",
            Self::KilledTwice => "SIGKILL of the worker, and of the next one while it starts",
            Self::Stopped => "SIGSTOP of the worker",
            Self::InferenceHangs => "health fine, inference hangs",
            Self::Silent => "accepts and is silent",
            Self::Unhealthy => "health fails",
            Self::Floods => "floods its log",
            Self::Grandchild => "a grandchild keeps its socket, SIGKILL",
            Self::ClosesSocket => "closes its socket and lives",
            Self::Grows => "memory over the limit",
            Self::LosesDevice => "loses its device, and returns",
            Self::LosesDeviceForGood => "loses its device for good",
            Self::Exits => "exits by itself",
            Self::RestartAsked => "`omni-jev worker restart`",
            Self::BinaryTerminated => "SIGTERM of the frontend, started again",
            Self::BinaryKilled => "SIGKILL of the frontend, started again",
            Self::BinaryKilledEarly => {
                "SIGKILL of the frontend 200 ms after a spawn, started again"
            }
        }
    }
}
