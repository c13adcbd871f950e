//! What is known of one request.

use crate::{LENGTHS, Scan};

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
    /// Whether its body could be read. If not, tokens and questions only say how much it may be.
    pub is_read: bool,
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
            is_read: true,
        }
    }

    /// What is thought of a body of so many bytes that cannot be read, as it is compressed, say:
    /// that each of them is a token, up to the longest row there is.
    pub fn unread(bytes: usize) -> Self {
        let most = LENGTHS.last().copied().unwrap_or(u32::MAX);
        let count = u32::try_from(bytes).unwrap_or(most).clamp(1, most);
        Self {
            tokens: Tokens {
                count,
                exact: false,
            },
            questions: 1,
            requested: None,
            is_read: false,
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
