//! What is known of one request.

use crate::Scan;

/// Counts the tokens of a request's longest row, where that can be done exactly.
pub trait CountTokens: std::fmt::Debug + Send + Sync {
    /// The tokens of the longest row of a request's body; `None` where they cannot be told.
    fn longest_row(&self, body: &[u8]) -> Option<u32>;
}

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

    /// What a body asks for, its tokens exact where they can be counted. `None` if it cannot be read.
    pub fn read(body: &[u8], counter: Option<&dyn CountTokens>) -> Option<Self> {
        let judged = Self::of(&crate::scan(body)?);
        let exact = counter.and_then(|counter| counter.longest_row(body));
        Some(Self {
            tokens: exact.map_or(judged.tokens, |count| Tokens { count, exact: true }),
            ..judged
        })
    }
}
