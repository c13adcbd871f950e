//! The names of the rules.

/// The rule that decided where a request goes: its name is what clients, metrics and the trace get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The client asked for this lane.
    LaneRequested,
    /// It is no decision: the first lane that is ready answers.
    DefaultLane,
    /// Its body cannot be read: of the lanes that take everything the one that would answer it first.
    NotRead,
    /// Another lane lost the request half-way.
    LaneLost,
    /// Another lane had no room for the request.
    LaneBusy,
    /// Another lane answered that it is not for it.
    LaneRefused,
    /// A lane that was in trouble is tried again.
    BreakerProbe,
    /// Every lane that takes it is in trouble, or has refused such requests: better this one than none.
    LastResort,
    /// The others are not ready.
    LaneNotReady,
    /// The others do not take so many questions.
    SeveralQuestions,
    /// The others do not take so many tokens.
    TooLong,
    /// The others have said that they have nothing for its length.
    NoArtifact,
    /// The others are in trouble.
    BreakerOpen,
    /// This lane is the one for short requests of one question.
    ShortAndSingle,
    /// Its lane is the one with the narrowest limits that takes it.
    WithinLimits,
    /// No lane is made for it, so the first one takes it.
    FirstLane,
    /// The lane made for it would take longer to get to it.
    ShorterBacklog,
    /// A lane that is made for others has nothing to do, and would answer it sooner.
    SpareLane,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::LaneRequested,
        Self::DefaultLane,
        Self::NotRead,
        Self::LaneLost,
        Self::LaneBusy,
        Self::LaneRefused,
        Self::BreakerProbe,
        Self::LastResort,
        Self::LaneNotReady,
        Self::SeveralQuestions,
        Self::TooLong,
        Self::NoArtifact,
        Self::BreakerOpen,
        Self::ShortAndSingle,
        Self::WithinLimits,
        Self::FirstLane,
        Self::ShorterBacklog,
        Self::SpareLane,
    ];

    /// Its name, such as `too_long`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LaneRequested => "lane_requested",
            Self::DefaultLane => "default_lane",
            Self::NotRead => "not_read",
            Self::LaneLost => "lane_lost",
            Self::LaneBusy => "lane_busy",
            Self::LaneRefused => "lane_refused",
            Self::BreakerProbe => "breaker_probe",
            Self::LastResort => "last_resort",
            Self::LaneNotReady => "lane_not_ready",
            Self::SeveralQuestions => "several_questions",
            Self::TooLong => "too_long",
            Self::NoArtifact => "no_artifact",
            Self::BreakerOpen => "breaker_open",
            Self::ShortAndSingle => "short_and_single",
            Self::WithinLimits => "within_limits",
            Self::FirstLane => "first_lane",
            Self::ShorterBacklog => "shorter_backlog",
            Self::SpareLane => "spare_lane",
        }
    }
}
