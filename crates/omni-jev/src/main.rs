//! `omni-jev`: the frontend and the worker it keeps alive, wired together. See this crate's README.

mod announce;
mod control;
mod exit;
mod flags;
mod logging;
mod notify;
mod python;
mod serve;
mod settings;
mod stop_signal;
mod team;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::flags::Flags;
use crate::settings::Settings;

fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(help)
            if matches!(
                help.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            help.exit()
        }
        Err(error) => return exit::usage(&flag_error(&error)),
    };
    if let Some(command) = &flags.command {
        return control::client::run(command);
    }
    let settings = match Settings::load(&flags) {
        Ok(settings) => settings,
        Err(error) => return exit::usage(&error.to_string()),
    };
    let _until_the_end = logging::start(&settings.log, settings.log_format);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(serve::run(settings)),
        Err(error) => exit::unavailable(&format!("cannot start an event loop: {error}")),
    }
}

/// The first line of clap's message, which names the flag; the rest repeats `--help`.
fn flag_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line} (omni-jev --help lists the flags)")
}
