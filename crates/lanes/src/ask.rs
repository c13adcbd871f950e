//! What is known of one request.

use crate::Scan;

/// The tokens of a request's longest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// How many.
    pub count: u32,
    /// Whether they were counted; else they are judged by the text's length.
    pub exact: bool,
}

/// A decision that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The longest row.
    pub tokens: Tokens,
    /// Questions, those about several states counted for each state. Never zero.
    pub questions: u32,
    /// The lane that the client asks for, by its place.
    pub requested: Option<usize>,
}

impl Ask {
    /// What a scan of the body tells.
    pub fn of(scan: &Scan) -> Self {
        Self {
            tokens: Tokens {
                count: scan.tokens(),
                exact: false,
            },
            questions: scan.questions.saturating_mul(scan.states).max(1),
            requested: None,
        }
    }
}
