//! The binary as people run it: built in release, with the better allocator where that can be built.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{python, step};

/// Builds `omni-jev` in release and gives its path.
///
/// # Errors
///
/// When cargo fails.
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = python::cargo(root);
    cargo.args(["build", "--release", "--locked", "--package", "omni-jev"]);
    if cfg!(target_os = "linux") {
        // A compiler is there, since Rust links with it.
        if step::answers(Command::new("make").arg("--version")) {
            cargo.args(["--features", "jemalloc"]);
        } else {
            step::say(
                "There is no `make`, so jemalloc is left out: omni-jev will need more memory and time",
            );
        }
    }
    step::say("Building omni-jev in release, where it has changed (the first time: minutes)");
    step::run(&mut cargo)?;
    Ok(python::target_directory(root).join("release/omni-jev"))
}
