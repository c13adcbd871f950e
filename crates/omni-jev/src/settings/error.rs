//! What can be wrong with a setting, as one line that names it and where it was set.

use figment::error::Kind;
use figment::{Error, Figment, Metadata, Source};
use thiserror::Error as ThisError;

use super::sources::ENV_PREFIX;

/// A setting that stops the start. It is shown as one line and never holds the setting's value.
#[derive(Debug, ThisError, PartialEq, Eq)]
pub(crate) enum SettingError {
    /// A value that its setting cannot take.
    #[error("{setting}: {reason}")]
    Invalid { setting: String, reason: String },

    /// No setting of this name exists.
    #[error("{setting}: there is no such setting")]
    Unknown { setting: String },

    /// A file that is not there or cannot be read.
    #[error("{file}: {reason}")]
    NoFile { file: String, reason: String },

    /// A file that is not TOML.
    #[error("{path}: {reason}")]
    BadFile { path: String, reason: String },

    /// Two settings that do not go together.
    #[error("{setting}: {reason}")]
    Contradiction {
        setting: &'static str,
        reason: &'static str,
    },
}

impl SettingError {
    /// The first of figment's errors, without the value it holds.
    pub(super) fn from_figment(figment: &Figment, error: Error) -> Self {
        let Some(error) = error.into_iter().next() else {
            return Self::Unknown {
                setting: "a setting".to_owned(),
            };
        };
        let key = written(&error.path);
        match &error.kind {
            Kind::UnknownField(field, _) => {
                // Of a table the path names the table alone, or the field as well.
                let mut path = error.path.clone();
                if path.last() != Some(field) {
                    path.push(field.clone());
                }
                let found = figment.find_metadata(field);
                let metadata = error.metadata.as_ref().or(found);
                Self::Unknown {
                    setting: named(&written(&path), metadata),
                }
            }
            Kind::Message(reason) if key.is_empty() => Self::BadFile {
                path: error
                    .metadata
                    .as_ref()
                    .map_or_else(|| "the settings".to_owned(), place),
                reason: reason.lines().next().unwrap_or("not TOML").to_owned(),
            },
            kind => Self::Invalid {
                setting: named(&key, error.metadata.as_ref()),
                reason: reason(kind),
            },
        }
    }
}

/// A path as a person writes it: `worker[1].python`.
fn written(path: &[String]) -> String {
    let mut text = String::new();
    for part in path {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            text.extend(["[", part, "]"]);
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
    }
    text
}

/// What was expected, and nothing of what was found.
fn reason(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.clone(),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            format!("it must be {expected}")
        }
        Kind::UnknownVariant(_, expected) => format!("it must be one of {}", expected.join(", ")),
        _ => "it cannot be read".to_owned(),
    }
}

/// The setting as it was written: variable, flag or key of a file.
fn named(key: &str, metadata: Option<&Metadata>) -> String {
    match metadata {
        Some(metadata) if metadata.name.contains("environment") => {
            format!("{ENV_PREFIX}{}", key.to_uppercase())
        }
        // The one flag that has another name than its setting.
        Some(metadata) if metadata.name == "flags" && key == "worker_recover_device" => {
            "--recover-device".to_owned()
        }
        Some(metadata) if metadata.name == "flags" => format!("--{}", key.replace('_', "-")),
        Some(metadata) => format!("{key} in {}", place(metadata)),
        None => key.to_owned(),
    }
}

fn place(metadata: &Metadata) -> String {
    match &metadata.source {
        Some(Source::File(path)) => path.display().to_string(),
        _ => metadata.name.to_string(),
    }
}
