//! `cargo xtask bench laya NAME …`: sets up and becomes one of the programs of `benchmarks/laya`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::python::{self, Requirements};
use crate::release;

/// What `cargo xtask bench laya` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// The program.
    #[arg(value_enum)]
    name: Program,
    /// Its own flags; `--help` tells them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The programs, by the names of their files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Program {
    BenchInproc,
    BenchHttp,
    Paired,
    Lengths,
    LateLoad,
    Fallback,
    Overhead,
    Profile,
    Shortlist,
    Report,
    Again,
}

impl Program {
    /// Whether it starts the frontend.
    fn needs_binary(self) -> bool {
        !matches!(
            self,
            Self::BenchInproc | Self::Shortlist | Self::Report | Self::Again
        )
    }

    /// The file, without its ending.
    fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// Becomes the program (`exec`), so that signals and the exit code are its own.
///
/// # Errors
///
/// When the set-up or the build fails. On success it does not return.
pub(super) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    // Its bars, plots and upstream's server need packages that the worker does not.
    python::set_up(root, Requirements::Dev)?;
    let mut program = Command::new(python::interpreter(root));
    if options.name.needs_binary() && std::env::var_os("OMNI_JEV_BINARY").is_none() {
        program.env("OMNI_JEV_BINARY", release::build(root)?);
    }
    let name = options.name.name();
    let error = program
        .arg(root.join("benchmarks/laya").join(format!("{name}.py")))
        .args(&options.arguments)
        .exec();
    Err(error).with_context(|| format!("cannot start {name}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{Program, ValueEnum as _};
    use crate::bench::Bench;
    use crate::{Cli, Task, repository_root};

    #[test]
    fn every_program_is_a_file() {
        let root = repository_root().unwrap();
        for program in Program::value_variants() {
            let file = format!("benchmarks/laya/{}.py", program.name());
            assert!(root.join(&file).is_file(), "{file}");
        }
    }
    #[test]
    fn a_programs_flags_are_its_own_whatever_they_look_like() {
        let line = ["xtask", "bench", "laya", "late_load", "--help", "--", "-x"];
        let Task::Bench(Bench::Laya(options)) = Cli::try_parse_from(line).unwrap().task else {
            panic!("another task");
        };
        assert_eq!(options.name, Program::LateLoad);
        assert_eq!(options.arguments, ["--help", "--", "-x"]);
    }
}
