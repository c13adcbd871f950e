//! How many tokens the rows of a request have, as the worker lays them out.
//!
//! A checkpoint's own tokenizer counts, and `rows` lays out what the worker's `rows.py` does: the
//! tests compare the two on generated requests. What the worker would lay out in a way that is not
//! done here (options that do not fit one row, numbers that the two languages write differently) is
//! not counted at all, rather than wrongly.

mod json;
mod request;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};

use omni_jev_lanes::CountTokens;
use serde::Deserialize;
use tokenizers::Tokenizer;

use request::Request;
use rows::Layout;

/// Counts by one checkpoint's tokenizer.
pub struct Counter {
    tokenizer: Tokenizer,
    layout: Layout,
    mask: String,
}

/// Why a checkpoint's tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// A file of the checkpoint cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file of the checkpoint is not of its form.
    #[error("{} is not a checkpoint's: {reason}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// The part of `rl_agent_config.json` that bounds rows; laya's numbers where it says nothing.
#[derive(Deserialize)]
struct AgentConfig {
    #[serde(default = "window")]
    max_len: usize,
    #[serde(default = "head")]
    head_max_len: usize,
}

const fn window() -> usize {
    512
}

const fn head() -> usize {
    192
}

#[derive(Deserialize)]
struct TokenizerConfig {
    mask_token: MaskToken,
}

/// A text, or an object with one.
#[derive(Deserialize)]
#[serde(untagged)]
enum MaskToken {
    Text(String),
    Added { content: String },
}

impl Counter {
    /// Reads a checkpoint's folder: `rl_agent_config.json`, `tokenizer/tokenizer.json` and
    /// `tokenizer/tokenizer_config.json`.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    pub fn of(checkpoint: &Path) -> Result<Self, CounterError> {
        let agent: AgentConfig = read(&checkpoint.join("rl_agent_config.json"))?;
        let folder = checkpoint.join("tokenizer");
        let config: TokenizerConfig = read(&folder.join("tokenizer_config.json"))?;
        let path = folder.join("tokenizer.json");
        let mut tokenizer = Tokenizer::from_file(&path).map_err(|error| CounterError::Form {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let form = |error: tokenizers::Error| CounterError::Form {
            path: path.clone(),
            reason: error.to_string(),
        };
        tokenizer.with_truncation(None).map_err(form)?;
        tokenizer.with_padding(None);
        Ok(Self {
            tokenizer,
            layout: Layout {
                window: agent.max_len,
                budget: agent.head_max_len,
            },
            mask: match config.mask_token {
                MaskToken::Text(content) | MaskToken::Added { content } => content,
            },
        })
    }

    /// The tokens of the longest row of a request's body; `None` where it cannot be told exactly.
    pub fn longest(&self, body: &[u8]) -> Option<usize> {
        let request: Request = serde_json::from_slice(body).ok()?;
        let states = request
            .states()?
            .iter()
            .map(|state| self.tokens(&state.text()?))
            .collect::<Option<Vec<usize>>>()?;
        let state = states.into_iter().max()?;
        let mut longest = 0;
        for question in request.questions() {
            let read = question.read()?;
            let lead = self.tokens(&format!("{} question: {}", read.kind, read.instructions))?;
            let options = read
                .options
                .iter()
                .map(|option| self.tokens(&format!(" {option}")))
                .collect::<Option<Vec<usize>>>()?;
            longest = longest.max(self.layout.row(lead, &options, state)?);
        }
        Some(longest)
    }

    fn tokens(&self, text: &str) -> Option<usize> {
        let encoded = self.tokenizer.encode_fast(self.clean(text), false).ok()?;
        Some(encoded.len())
    }

    fn clean(&self, text: &str) -> String {
        text.replace(&self.mask, " ")
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counter")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl CountTokens for Counter {
    fn longest_row(&self, body: &[u8]) -> Option<u32> {
        u32::try_from(self.longest(body)?).ok()
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, CounterError> {
    let text = fs::read_to_string(path).map_err(|source| CounterError::Read {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|error| CounterError::Form {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}
