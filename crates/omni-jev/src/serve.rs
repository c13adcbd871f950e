//! The life of the process: listen, start the worker, wait for an end, and end well.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use omni_jev_frontend::{Backend, Config, Frontend, Registry, StartError};
use omni_jev_supervisor::{Failure, FailureKind, WorkerSpec};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::backends::Backends;
use crate::control::{self, server::Server};
use crate::cores::{self, Sharer};
use crate::notify::Notifier;
use crate::python::PythonError;
use crate::settings::{AdminBind, ProfileMismatch, Settings, Worker};
use crate::stop_signal::StopSignals;
use crate::team::Team;
use crate::{allocator, announce, counter, exit, logging, python, worker};

/// The worker's own server keeps idle connections for 75 s; a backend of somebody else's may close them after 5 s.
const WORKER_POOL_IDLE: Duration = Duration::from_mins(1);

/// A worker's end is known within milliseconds, and its last words within 300 of them.
const LOSS_GRACE: Duration = Duration::from_millis(600);

/// Requests at a worker at once: far more than a batch has, and read in a fraction of the second in
/// which a probe wants its answer.
const MOST_AT_WORKER: usize = 512;

/// Serves until a signal asks for an end or the worker cannot go on.
pub(crate) async fn run(settings: Settings) -> ExitCode {
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => return exit::unavailable(&format!("cannot listen for signals: {error}")),
    };
    if let Err(error) = omni_jev_supervisor::reap_orphans() {
        return exit::unavailable(&format!("cannot start a thread: {error}"));
    }
    let notifier = Notifier::from_environment();
    let specs = if settings.supervises() {
        match specs(&settings, &settings.busy_workers()) {
            Ok(specs) => specs,
            Err(error) => return exit::configuration(&error.to_string()),
        }
    } else {
        Vec::new()
    };
    let mut registry = Registry::default();
    logging::register(&mut registry);
    allocator::register(&mut registry);
    let backends = Backends::of(&settings);
    let counter = match counter::of(&settings) {
        Ok(counter) => counter,
        Err(error) => return exit::usage(&format!("OMNI_JEV_TOKENIZER: {error}")),
    };
    let frontend = match backends.frontend(config(&settings), counter, registry) {
        Ok(frontend) => frontend,
        Err(error) => return exit::unavailable(&start_failure(&error)),
    };
    log_listeners(&frontend);
    backends.log();
    backends.warn_of_gaps();
    if let Some(reason) = &settings.profile_note {
        warn!(%reason, "the profile is not used: estimates begin with those built in");
    }
    if settings.is_auto() {
        for reason in settings.unmeasured_limits() {
            warn!("{reason}");
        }
    }
    let seen = backends.any();

    if !settings.supervises() {
        notifier.ready();
        // What serves is elsewhere: nothing ends for want of this.
        let _told = control::server::without_workers()
            .inspect_err(|error| warn!("`omni-jev worker` does not find this process: {error}"));
        let failure = tokio::select! {
            signal = signals.next() => {
                info!(signal, "stopping; another signal ends it at once");
                None
            }
            failure = stray_profile(&settings, &frontend) => Some(failure),
        };
        return end(frontend, None, &mut signals, &notifier, failure).await;
    }
    let team = match Team::start(specs, &backends.workers()) {
        Ok(team) => Arc::new(team),
        Err(error) => return exit::unavailable(&error.to_string()),
    };
    let control = match Server::open(Arc::clone(&team)) {
        Ok(control) => control,
        Err(error) => return exit::unavailable(&error.to_string()),
    };
    backends.wire(&team, &frontend);
    let serving = backends.workers().into_iter();
    let serving = serving.filter_map(|place| team.supervision(place));
    tokio::spawn(notifier.clone().follow(serving.collect(), seen.clone()));
    let failure = tokio::select! {
        failure = until_an_end(&settings, &frontend, seen, &team, &mut signals) => failure,
        failure = stray_profile(&settings, &frontend) => Some(failure),
    };
    let code = end(frontend, Some(&team), &mut signals, &notifier, failure).await;
    // Asked to the end: a stop that takes long is one to look into.
    drop(control);
    code
}

/// Waits until a lane turns out to be another than the profile is of. That is a failure, unless it was said that such a
/// profile is to be ignored: its times are forgotten in any case.
async fn stray_profile(settings: &Settings, frontend: &Frontend) -> Failure {
    let reason = frontend.stray_profile().await;
    if settings.profile_mismatch == ProfileMismatch::Ignore {
        warn!(%reason, "the profile's times are not used for this lane");
        return std::future::pending().await;
    }
    let reason = format!(
        "{reason}: run `omni-jev calibrate`, or set OMNI_JEV_PROFILE_MISMATCH=ignore to go on without"
    );
    error!("{reason}");
    Failure {
        kind: FailureKind::Configuration,
        reason,
        exit_code: None,
    }
}

/// Every worker's program and patience; those at `busy` are at work at the same time, and share the cores.
pub(crate) fn specs(settings: &Settings, busy: &[usize]) -> Result<Vec<WorkerSpec>, PythonError> {
    let workers = settings.workers();
    let sharers = workers.iter().enumerate();
    let sharers = sharers.filter(|(place, _)| busy.contains(place));
    let sharers = sharers.map(|(_, worker)| Sharer {
        name: &worker.name,
        flags: &worker.args.0,
    });
    let sharers: Vec<_> = sharers.collect();
    let cores = cores::physical();
    let threads = cores::shares(cores, &sharers);
    let spec = |(place, worker): (usize, &Worker)| {
        let python = python::find(worker.python.as_deref(), &worker.python_setting)?;
        let sharer = busy.iter().position(|&busy| busy == place);
        let threads = sharer.and_then(|sharer| threads[sharer]);
        Ok(worker::spec(
            worker,
            settings.backend_timeout.0,
            python,
            threads,
        ))
    };
    let specs = workers.iter().enumerate().map(spec);
    let specs = specs.collect::<Result<_, _>>()?;
    // Only what is started: a start that ends here says why in one line.
    cores::log(cores, &sharers, &threads);
    Ok(specs)
}

fn config(settings: &Settings) -> Config {
    let mut config = Config {
        bind: settings.bind.0,
        admin_bind: match settings.admin_bind {
            AdminBind::Off => None,
            AdminBind::At(address) => Some(address.0),
        },
        backend_timeout: settings.backend_timeout.0,
        max_request_bytes: settings.max_request_bytes.bytes(),
        max_response_bytes: settings.max_response_bytes.bytes(),
        max_in_flight: settings.max_in_flight,
        max_connections: settings.max_connections,
        drain_timeout: settings.drain_timeout.0,
        trace: settings.trace.clone(),
        ..Config::default()
    };
    if settings.supervises() {
        config.pool_idle = WORKER_POOL_IDLE;
        config.loss_grace = LOSS_GRACE;
        config.max_at_worker = MOST_AT_WORKER;
    }
    config
}

/// Why nothing listens, and the setting that would change it.
fn start_failure(error: &StartError) -> String {
    match error {
        StartError::Bind { .. } => format!("{error}; OMNI_JEV_BIND names another address"),
        StartError::AdminBind { .. } => {
            format!("{error}; OMNI_JEV_ADMIN_BIND names another address, or is `off`")
        }
        StartError::Trace { .. } => format!("{error}; OMNI_JEV_TRACE names another file"),
        _ => error.to_string(),
    }
}

fn log_listeners(frontend: &Frontend) {
    info!(listener = "frontend", address = %frontend.address(), "listening");
    if let Some(address) = frontend.admin_address() {
        info!(listener = "admin", %address, "listening");
    }
}

/// Waits for a signal (nothing is returned) or for the worker's failure, and announces readiness meanwhile.
async fn until_an_end(
    settings: &Settings,
    frontend: &Frontend,
    mut backend: watch::Receiver<Backend>,
    team: &Team,
    signals: &mut StopSignals,
) -> Option<Failure> {
    let announced = async {
        // As the frontend knows it: the next request is forwarded.
        if backend.wait_for(Backend::is_ready).await.is_ok() {
            info!(address = %frontend.address(), "ready");
            announce::ready(settings, frontend.address());
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // A signal first: one that reached the workers too may have ended them already.
        biased;
        signal = signals.next() => {
            info!(signal, "stopping; another signal ends it at once");
            None
        }
        failure = team.failed() => failure,
        () = announced => None,
    }
}

/// Answers what is in flight, then stops the workers.
async fn end(
    mut frontend: Frontend,
    team: Option<&Team>,
    signals: &mut StopSignals,
    notifier: &Notifier,
    failure: Option<Failure>,
) -> ExitCode {
    notifier.stopping();
    if let Some(failure) = &failure
        && matches!(failure.kind, FailureKind::WontDie | FailureKind::Internal)
    {
        // Of the other kinds the log has it already.
        error!(reason = %failure, "the worker cannot be supervised any more");
    }
    if let Some(team) = team {
        // Whoever stops this process may stop the workers with it: an end of theirs is no failure now.
        team.retire();
    }
    frontend.drain();
    let drained = tokio::select! {
        drained = frontend.finished() => drained,
        signal = signals.next() => {
            warn!(signal, "ending now");
            if let Some(team) = team {
                team.kill();
                team.gone().await;
            }
            return exit::failure("ended by a second signal before everything in flight was answered");
        }
    };
    if let Some(team) = team {
        stop(team, signals).await;
    }
    match (failure, drained) {
        (Some(failure), _) => failed(&failure),
        (None, Ok(drained)) if drained.abandoned == 0 => ExitCode::SUCCESS,
        (None, Ok(drained)) => exit::failure(&format!(
            "{} requests were not answered within OMNI_JEV_DRAIN_TIMEOUT",
            drained.abandoned
        )),
        (None, Err(error)) => exit::failure(&error.to_string()),
    }
}

async fn stop(team: &Team, signals: &mut StopSignals) {
    team.stop();
    tokio::select! {
        () = team.gone() => {}
        signal = signals.next() => {
            warn!(signal, "killing the workers");
            team.kill();
            team.gone().await;
        }
    }
}

fn failed(failure: &Failure) -> ExitCode {
    match (failure.kind, failure.exit_code) {
        (FailureKind::Configuration, Some(code)) => exit::worker_refused(&failure.reason, code),
        (FailureKind::Configuration | FailureKind::CannotRun, _) => {
            exit::configuration(&failure.reason)
        }
        _ => exit::failure(&failure.reason),
    }
}
