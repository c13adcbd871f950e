//! Carries out what the machine decides, and tells it what happened.

use std::collections::VecDeque;
use std::future::pending;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::folder::PrivateFolder;
use crate::journal::Journal;
use crate::machine::{Action, Event, Load, Machine, ProbeAnswer, Report, Signal};
use crate::process::Process;
use crate::{Exit, Outcome, WorkerSpec, WorkerStatus, memory, probe, random, recover};

/// What the owner of a [`Handle`](crate::Handle) asks for.
#[derive(Debug)]
pub(crate) enum Command {
    Stop,
    Kill,
    Restart,
    Halt,
    Retire,
    Load { generation: u64, load: Load },
}

/// One worker's supervision.
#[derive(Debug)]
pub(crate) struct Driver {
    spec: WorkerSpec,
    machine: Machine,
    folder: PrivateFolder,
    journal: Journal,
    status: watch::Sender<WorkerStatus>,
    /// None once every handle is gone.
    commands: Option<mpsc::UnboundedReceiver<Command>>,
    process: Option<Process>,
    reports: Option<watch::Receiver<Option<Report>>>,
    probe: Option<JoinHandle<Probed>>,
    recovery: Option<JoinHandle<Option<String>>>,
}

/// What a look at the process showed.
#[derive(Debug)]
struct Probed {
    answer: ProbeAnswer,
    memory: Option<u64>,
}

impl Driver {
    pub(crate) fn new(
        spec: WorkerSpec,
        machine: Machine,
        folder: PrivateFolder,
        journal: Journal,
        status: watch::Sender<WorkerStatus>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self {
            spec,
            machine,
            folder,
            journal,
            status,
            commands: Some(commands),
            process: None,
            reports: None,
            probe: None,
            recovery: None,
        }
    }

    /// Runs until the worker is stopped or given up.
    pub(crate) async fn run(mut self) -> Outcome {
        let mut answers = VecDeque::from([Event::Tick]);
        loop {
            let event = match answers.pop_front() {
                Some(event) => event,
                None => self.next_event(&mut answers).await,
            };
            for action in self.machine.handle(Instant::now(), event) {
                match action {
                    Action::Announce(status) => {
                        self.status.send_replace(*status);
                    }
                    Action::Spawn { generation } => answers.push_back(self.spawn(generation)),
                    Action::Probe { .. } => self.probe(),
                    Action::Recover { .. } => self.recover(),
                    Action::Signal { signal, .. } => self.signal(signal),
                    Action::Note { level, text } => {
                        let pid = self.process.as_ref().map(Process::pid);
                        self.journal.note(pid, level, text);
                    }
                    Action::Finish(outcome) => return outcome,
                }
            }
        }
    }

    fn spawn(&mut self, generation: u64) -> Event {
        let failed = |reason, cannot_run| Event::SpawnFailed {
            generation,
            reason,
            cannot_run,
        };
        let (instance, token) = match (random::name(), random::name()) {
            (Ok(instance), Ok(token)) => (instance, token),
            (Err(error), _) | (_, Err(error)) => return failed(error.to_string(), false),
        };
        let socket = self.folder.socket(generation);
        match Process::spawn(&self.spec, instance.clone(), token, &socket, &self.journal) {
            Ok((process, reports)) => {
                let pid = process.pid();
                self.process = Some(process);
                self.reports = Some(reports);
                Event::Spawned {
                    generation,
                    pid,
                    instance,
                    socket,
                }
            }
            Err(error) => failed(error.to_string(), error.cannot_run()),
        }
    }

    fn probe(&mut self) {
        let status = self.machine.status();
        if let (Some(socket), Some(pid)) = (status.socket.clone(), status.pid) {
            let limit = self.spec.policy.probe.timeout;
            self.probe = Some(tokio::spawn(async move {
                let (answer, memory) =
                    tokio::join!(probe::probe(socket, limit), memory::resident(pid));
                Probed { answer, memory }
            }));
        }
    }

    fn recover(&mut self) {
        let socket = self.machine.status().socket.clone();
        if let (Some(socket), Some(process)) = (socket, &self.process) {
            let token = process.control_token().to_owned();
            self.recovery = Some(tokio::spawn(recover::recover(socket, token)));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    async fn next_event(&mut self, more: &mut VecDeque<Event>) -> Event {
        let generation = self.machine.status().generation;
        let wake = self.machine.next_wake();
        tokio::select! {
            command = next_command(&mut self.commands) => match command {
                Command::Stop => Event::StopAsked,
                Command::Kill => Event::KillAsked,
                Command::Restart => Event::RestartAsked,
                Command::Halt => Event::HaltAsked,
                Command::Retire => Event::RetireAsked,
                Command::Load { generation, load } => Event::Load { generation, load },
            },
            exit = exit_of(&mut self.process) => self.on_exit(generation, exit).await,
            probed = answer_of(&mut self.probe) => {
                more.extend(probed.memory.map(|bytes| Event::Memory { generation, bytes }));
                Event::Probed { generation, answer: probed.answer }
            }
            failure = recovery_of(&mut self.recovery) => Event::Recovered { generation, failure },
            report = next_report(&mut self.reports) => Event::Progress { generation, report },
            () = sleep_until(wake) => Event::Tick,
        }
    }

    async fn on_exit(&mut self, generation: u64, exit: Exit) -> Event {
        self.reports = None;
        if let Some(probe) = self.probe.take() {
            probe.abort();
        }
        if let Some(recovery) = self.recovery.take() {
            recovery.abort();
        }
        let last_words = match self.process.take() {
            Some(process) => process.bury().await,
            None => None,
        };
        Event::Exited {
            generation,
            exit,
            last_words,
        }
    }
}

async fn next_command(commands: &mut Option<mpsc::UnboundedReceiver<Command>>) -> Command {
    let Some(queue) = commands else {
        return pending().await;
    };
    if let Some(command) = queue.recv().await {
        return command;
    }
    // Nobody is left who could ask for it.
    *commands = None;
    Command::Stop
}

async fn exit_of(process: &mut Option<Process>) -> Exit {
    match process {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}

async fn answer_of(probe: &mut Option<JoinHandle<Probed>>) -> Probed {
    let Some(task) = probe else {
        return pending().await;
    };
    let probed = task.await.unwrap_or_else(|error| Probed {
        answer: ProbeAnswer::Failed {
            reason: format!("the probe broke: {error}"),
        },
        memory: None,
    });
    *probe = None;
    probed
}

async fn recovery_of(recovery: &mut Option<JoinHandle<Option<String>>>) -> Option<String> {
    let Some(task) = recovery else {
        return pending().await;
    };
    let failure = task
        .await
        .unwrap_or_else(|error| Some(format!("the asking broke: {error}")));
    *recovery = None;
    failure
}

async fn next_report(reports: &mut Option<watch::Receiver<Option<Report>>>) -> Report {
    let Some(latest) = reports else {
        return pending().await;
    };
    while latest.changed().await.is_ok() {
        if let Some(report) = latest.borrow_and_update().clone() {
            return report;
        }
    }
    // It has closed its pipes; nothing more will come.
    *reports = None;
    pending().await
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake.into()).await,
        None => pending().await,
    }
}
