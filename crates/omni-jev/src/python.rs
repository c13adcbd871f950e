//! Where the worker's Python is.

use std::path::{Path, PathBuf};

use thiserror::Error;

const INTERPRETER: &str = ".venv/bin/python";

/// There is no interpreter to run the worker with.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum PythonError {
    #[error("{setting}: there is no {path}")]
    NotThere { setting: String, path: String },
    #[error("{setting}: it must not be empty")]
    Unnamed { setting: String },
    #[error(
        "no Python environment (.venv) here or above the binary: run `cargo xtask setup` to make it, \
         or name an interpreter in {setting}"
    )]
    NoEnvironment { setting: String },
}

/// The interpreter that was asked for by a setting, else the `.venv` of the working directory, else
/// that of the repository which the binary was built in.
pub(crate) fn find(asked: Option<&Path>, setting: &str) -> Result<PathBuf, PythonError> {
    let setting = setting.to_owned();
    if let Some(path) = asked {
        if path.as_os_str().is_empty() {
            return Err(PythonError::Unnamed { setting });
        }
        // A bare name is looked up on the PATH when it is run.
        let bare = path.components().count() == 1;
        return if bare || path.is_file() {
            Ok(path.to_owned())
        } else {
            Err(PythonError::NotThere {
                setting,
                path: path.display().to_string(),
            })
        };
    }
    let here = std::env::current_dir().ok();
    let binary = std::env::current_exe().ok();
    let above = binary.iter().flat_map(|path| path.ancestors().skip(1));
    first_with_environment(here.as_deref().into_iter().chain(above))
        .ok_or(PythonError::NoEnvironment { setting })
}

fn first_with_environment<'a>(folders: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    folders
        .map(|folder| folder.join(INTERPRETER))
        .find(|path| path.is_file())
}
