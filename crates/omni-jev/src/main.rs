//! `omni-jev`: the frontend and the worker it keeps alive, wired together. See this crate's README.

mod allocator;
mod announce;
mod backends;
mod calibrate;
mod control;
mod cores;
mod counter;
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

use std::io;
use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::flags::{Command, Flags};
use crate::settings::Settings;

/// A process that may open fewer files does not start.
const FEWEST_FILES: usize = 40;

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
        Err(error) => return exit::usage(&flags::complaint(&error)),
    };
    match &flags.command {
        Some(Command::Worker(command)) => return control::client::run(command),
        Some(Command::Calibrate(asked)) => return calibrate::run(asked),
        None => {}
    }
    if let Err(error) = can_open_files() {
        return exit::unavailable(&format!(
            "this process may not open the files that it needs (ulimit -n shows how many it may): {error}"
        ));
    }
    let settings = match Settings::load(&flags) {
        Ok(settings) => settings,
        Err(error) => return exit::usage(&error.to_string()),
    };
    if let Some(args) = worker::only_prints(&settings) {
        return worker::become_it(&settings, &args);
    }
    let _until_the_end = logging::start(&settings.log, settings.log_format);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(serve::run(settings)),
        Err(error) => exit::unavailable(&format!("cannot start an event loop: {error}")),
    }
}

/// Whether there are descriptors for the event loops, the listeners, the worker's pipes and a few connections. Some of
/// what needs one panics where there is none.
fn can_open_files() -> io::Result<()> {
    let sockets = std::iter::repeat_with(UnixDatagram::unbound).take(FEWEST_FILES);
    sockets.collect::<io::Result<Vec<_>>>().map(drop)
}
