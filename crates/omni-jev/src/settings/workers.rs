//! The workers: `[[worker]]` tables of the file, of which the single `worker_*` settings change the first.

use std::path::PathBuf;
use std::time::Duration;

use super::takes::lane_table;
use super::{SettingError, Settings, Size, Span, WorkerArgs};

/// The name of the worker where there are no tables.
const DEFAULT_NAME: &str = "worker";
/// Longer names make tables that nobody can read.
const MAX_NAME: usize = 40;

lane_table! {
    /// One `[[worker]]` table. What it leaves out is as the defaults are.
    WorkerTable {
        name: Option<String>,
        python: Option<PathBuf>,
        args: Option<WorkerArgs>,
        start_deadline: Option<Span>,
        stop_grace: Option<Span>,
        restart_window: Option<Span>,
        #[serde(deserialize_with = "super::values::maybe_at_least_one")]
        max_failures: Option<usize>,
        max_restart_delay: Option<Span>,
        hang_timeout: Option<Span>,
        max_rss: Option<Size>,
        #[serde(deserialize_with = "super::values::maybe_truth")]
        recover_device: Option<bool>,
    }
}

/// One worker, with every setting decided.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) python: Option<PathBuf>,
    /// What a person calls the setting of that.
    pub(crate) python_setting: String,
    pub(crate) args: WorkerArgs,
    pub(crate) start_deadline: Duration,
    pub(crate) stop_grace: Duration,
    pub(crate) restart_window: Duration,
    pub(crate) max_failures: usize,
    pub(crate) max_restart_delay: Duration,
    pub(crate) hang_timeout: Duration,
    pub(crate) max_rss: Option<u64>,
    pub(crate) recover_device: bool,
}

impl Settings {
    /// The workers in order; the first one answers the requests, with others that take a part of them if any do.
    pub(crate) fn workers(&self) -> Vec<Worker> {
        let mut tables = self.worker.clone();
        if tables.is_empty() {
            tables.push(WorkerTable::default());
        }
        tables[0] = self.first_settings().over(&tables[0]);
        let mut workers: Vec<_> = tables.iter().map(Worker::decided).collect();
        "OMNI_JEV_WORKER_PYTHON".clone_into(&mut workers[0].python_setting);
        workers
    }

    /// The flags of the worker that answers the requests.
    pub(crate) fn first_args(&self) -> WorkerArgs {
        self.workers().swap_remove(0).args
    }

    /// The single settings, which are those of the first worker.
    fn first_settings(&self) -> WorkerTable {
        WorkerTable {
            name: None,
            python: self.worker_python.clone(),
            args: self.worker_args.clone(),
            start_deadline: self.worker_start_deadline,
            stop_grace: self.worker_stop_grace,
            restart_window: self.worker_restart_window,
            max_failures: self.worker_max_failures,
            max_restart_delay: self.worker_max_restart_delay,
            hang_timeout: self.worker_hang_timeout,
            max_rss: self.worker_max_rss,
            recover_device: self.worker_recover_device,
            ..WorkerTable::default()
        }
    }

    /// Checks what a table alone cannot know.
    pub(super) fn check_workers(&self) -> Result<(), SettingError> {
        if self.backend_url.is_some() && !self.worker.is_empty() {
            return Err(SettingError::Contradiction {
                setting: "OMNI_JEV_BACKEND_URL",
                reason: "with a backend of its own no worker is started, so there is none for the [[worker]] tables",
            });
        }
        let mut names = Names::default();
        for (number, table) in self.worker.iter().enumerate() {
            if let Err(reason) = names.take(table.name.as_deref()) {
                return Err(SettingError::Invalid {
                    setting: format!("worker[{number}].name"),
                    reason: reason.to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// The names that are taken.
#[derive(Default)]
pub(super) struct Names<'a>(Vec<&'a str>);

impl<'a> Names<'a> {
    /// Takes another one, or says why it cannot be.
    pub(super) fn take(&mut self, name: Option<&'a str>) -> Result<(), &'static str> {
        match name {
            None => Err("each of these tables needs a name"),
            Some(name) if !is_name(name) => {
                Err("it must be small letters, digits and hyphens, at most 40 of them")
            }
            Some(name) if self.0.contains(&name) => Err("two of them have this name"),
            Some(name) => {
                self.0.push(name);
                Ok(())
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_plain)
}

impl WorkerTable {
    /// This one's settings, and those of the other where it has none.
    fn over(self, below: &Self) -> Self {
        Self {
            name: self.name.or_else(|| below.name.clone()),
            python: self.python.or_else(|| below.python.clone()),
            args: self.args.or_else(|| below.args.clone()),
            start_deadline: self.start_deadline.or(below.start_deadline),
            stop_grace: self.stop_grace.or(below.stop_grace),
            restart_window: self.restart_window.or(below.restart_window),
            max_failures: self.max_failures.or(below.max_failures),
            max_restart_delay: self.max_restart_delay.or(below.max_restart_delay),
            hang_timeout: self.hang_timeout.or(below.hang_timeout),
            max_rss: self.max_rss.or(below.max_rss),
            recover_device: self.recover_device.or(below.recover_device),
            takes: self.takes.or(below.takes),
            max_tokens: self.max_tokens.or(below.max_tokens),
            max_questions: self.max_questions.or(below.max_questions),
            helps: self.helps.or(below.helps),
        }
    }
}

impl Worker {
    fn decided(table: &WorkerTable) -> Self {
        let or = |span: Option<Span>, seconds| span.unwrap_or(Span::seconds(seconds)).0;
        let name = table.name.as_deref().unwrap_or(DEFAULT_NAME).to_owned();
        Self {
            python: table.python.clone(),
            python_setting: format!("`python` of the [[worker]] {name}"),
            name,
            args: table.args.clone().unwrap_or_default(),
            start_deadline: or(table.start_deadline, 600),
            stop_grace: or(table.stop_grace, 10),
            restart_window: or(table.restart_window, 600),
            max_failures: table.max_failures.unwrap_or(5),
            max_restart_delay: or(table.max_restart_delay, 30),
            hang_timeout: or(table.hang_timeout, 15),
            max_rss: table.max_rss.map(|size| size.0),
            recover_device: table.recover_device.unwrap_or(true),
        }
    }
}
