//! The log as a list of events.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

#[derive(Debug, Clone)]
pub struct Logged {
    pub target: String,
    pub level: Level,
    pub fields: BTreeMap<String, String>,
}

impl Logged {
    pub fn message(&self) -> &str {
        &self.fields["message"]
    }
}

/// Gives threads that capture nothing a subscriber too, which every test does before it logs.
///
/// `tracing` asks once for each place that logs whether anybody listens; while a program has one
/// subscriber it asks that of the thread which comes there first. A test that captures nothing would
/// so switch the place off for the one that does, which runs beside it.
pub fn listen_everywhere() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
    });
}

/// Keeps what is logged, and can be made to get stuck.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    events: Mutex<Vec<Logged>>,
    stuck: Mutex<bool>,
    freed: Condvar,
}

impl Log {
    /// Takes the log of this thread, and of what it starts, while the guard lives.
    pub fn capture() -> (Self, DefaultGuard) {
        listen_everywhere();
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn events(&self) -> Vec<Logged> {
        self.0.events.lock().unwrap().clone()
    }

    pub fn len(&self) -> usize {
        self.0.events.lock().unwrap().len()
    }

    /// The first event whose message begins so.
    pub fn find(&self, start: &str) -> Option<Logged> {
        let events = self.0.events.lock().unwrap();
        events
            .iter()
            .find(|event| event.message().starts_with(start))
            .cloned()
    }

    /// From now on whoever logs has to wait.
    pub fn get_stuck(&self) {
        *self.0.stuck.lock().unwrap() = true;
    }

    pub fn get_free(&self) {
        *self.0.stuck.lock().unwrap() = false;
        self.0.freed.notify_all();
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        if target != "worker" && target != "omni_jev_supervisor" {
            return;
        }
        let stuck = self.0.stuck.lock().unwrap();
        drop(self.0.freed.wait_while(stuck, |stuck| *stuck).unwrap());
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.events.lock().unwrap().push(Logged {
            target: target.to_owned(),
            level: *event.metadata().level(),
            fields: fields.0,
        });
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}
