//! What a lane takes.

/// The bounds of what a lane takes; `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// The most tokens of a request's longest row.
    pub max_tokens: Option<u32>,
    /// The most questions of a request; one about three states counts as three.
    pub max_questions: Option<u32>,
}

impl Limits {
    /// No bounds.
    pub const NONE: Self = Self {
        max_tokens: None,
        max_questions: None,
    };

    /// Whether there is a bound at all.
    pub fn any(&self) -> bool {
        *self != Self::NONE
    }

    /// For comparing lanes: of two, the one with the smaller value is made for fewer requests.
    pub(crate) fn width(&self) -> (u32, u32) {
        (
            self.max_tokens.unwrap_or(u32::MAX),
            self.max_questions.unwrap_or(u32::MAX),
        )
    }
}
