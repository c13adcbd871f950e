//! What a backend can do to one request, and what its client must then see.

/// How long the frontend waits for the backend here.
pub(crate) const BACKEND_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Largest answer that the frontend passes on here.
pub(crate) const MAX_ANSWER: usize = 256 * 1024;

/// The request names its plan, so that both ends know the right outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plan {
    Plain,
    Large,
    Chunked,
    UntilClose,
    Interim,
    OddStatus,
    InPieces,
    Late,
    /// Answers, then closes without having said so: the next request may die of it.
    ThenCloses,
    /// Closes if this connection has carried a request before, else answers.
    DiesIfKept,
    ResetsIfKept,
    Closes,
    Resets,
    CutHead,
    CutBody,
    CutChunks,
    Garbage,
    BadChunk,
    TwoLengths,
    Extra,
    TooLarge,
    SwitchesProtocols,
    Stalls,
    StallsInHead,
    StallsInBody,
    /// A whole answer, once the frontend has given up.
    TooLate,
    /// The client leaves; its connection to the backend has to end too.
    ClientLeaves,
    /// The client leaves in the middle of its body.
    ClientLeavesEarly,
}

/// What the client must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The backend's own answer with this status, unchanged.
    Answer(u16),
    /// The frontend's own error with this status.
    Error(u16),
    /// Nothing: it is gone.
    Nothing,
}

use Plan::{
    BadChunk, Chunked, ClientLeaves, ClientLeavesEarly, Closes, CutBody, CutChunks, CutHead,
    DiesIfKept, Extra, Garbage, InPieces, Interim, Large, Late, OddStatus, Plain, Resets,
    ResetsIfKept, Stalls, StallsInBody, StallsInHead, SwitchesProtocols, ThenCloses, TooLarge,
    TooLate, TwoLengths, UntilClose,
};

/// Every plan and its weight: a stall costs a second each time, so it is rare.
const PLANS: [(Plan, u32); 28] = [
    (Plain, 300),
    (Large, 20),
    (Chunked, 100),
    (UntilClose, 40),
    (Interim, 40),
    (OddStatus, 40),
    (InPieces, 40),
    (Late, 20),
    (ThenCloses, 60),
    (DiesIfKept, 60),
    (ResetsIfKept, 40),
    (Closes, 30),
    (Resets, 30),
    (CutHead, 30),
    (CutBody, 30),
    (CutChunks, 30),
    (Garbage, 30),
    (BadChunk, 10),
    (TwoLengths, 10),
    (Extra, 10),
    (TooLarge, 10),
    (SwitchesProtocols, 10),
    (Stalls, 2),
    (StallsInHead, 1),
    (StallsInBody, 1),
    (TooLate, 2),
    (ClientLeaves, 10),
    (ClientLeavesEarly, 10),
];

impl Plan {
    pub(crate) fn draw(random: &mut fastrand::Rng) -> Self {
        let total = PLANS.iter().map(|(_, weight)| weight).sum();
        let mut at = random.u32(0..total);
        for (plan, weight) in PLANS {
            if at < weight {
                return plan;
            }
            at -= weight;
        }
        Plain
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        PLANS.iter().map(|(plan, _)| *plan)
    }

    /// As the header says it.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().find(|plan| plan.name() == name)
    }

    pub(crate) fn expected(self) -> Expected {
        match self {
            Plain | Large | Chunked | UntilClose | Interim | InPieces | Late | ThenCloses
            | DiesIfKept | ResetsIfKept => Expected::Answer(200),
            OddStatus => Expected::Answer(429),
            Closes | Resets | CutHead | CutBody | CutChunks | Garbage | BadChunk | TwoLengths
            | Extra | TooLarge | SwitchesProtocols => Expected::Error(502),
            Stalls | StallsInHead | StallsInBody | TooLate => Expected::Error(504),
            ClientLeaves | ClientLeavesEarly => Expected::Nothing,
        }
    }

    /// The body of the backend's answer to request `number`: no two are alike.
    pub(crate) fn body(self, number: u64) -> Vec<u8> {
        let length = match self {
            Large => 200_000,
            _ => 100 + usize::try_from(number % 700).unwrap_or(0),
        };
        let pattern = format!("{self:?} {number};");
        pattern.bytes().cycle().take(length).collect()
    }
}
