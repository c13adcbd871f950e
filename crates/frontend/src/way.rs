//! The way to one backend, as one thread has it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::fault::Fault;
use crate::forward::find::Turns;
use crate::forward::pool::Pool;
use crate::forward::upstream::Upstream;
use crate::waiting::{Lost, WaitingList};
use crate::{Backend, Config, Requests};

/// What all threads know of one backend.
#[derive(Clone)]
pub(crate) struct Signs {
    pub(crate) backend: watch::Receiver<Backend>,
    pub(crate) lost: watch::Receiver<Option<Lost>>,
    /// Each thread is given its own.
    pub(crate) waiting: Arc<WaitingList>,
    /// The places of requests at the backend, if it is a worker; of all threads together.
    pub(crate) places: Arc<Semaphore>,
}

/// What is known of each backend: for whoever looks after it, and for each thread.
pub(crate) fn signs(
    backends: &[watch::Receiver<Backend>],
    config: &Config,
    threads: usize,
) -> (Vec<Requests>, Vec<Vec<Signs>>) {
    let mut of_threads = vec![Vec::new(); threads];
    let requests = backends.iter().map(|backend| {
        let (lost, lost_seen) = watch::channel(None::<Lost>);
        let places = Arc::new(Semaphore::new(config.max_at_worker));
        let lists = of_threads.iter_mut().map(|signs| {
            let waiting = Arc::<WaitingList>::default();
            signs.push(Signs {
                backend: backend.clone(),
                lost: lost_seen.clone(),
                waiting: Arc::clone(&waiting),
                places: Arc::clone(&places),
            });
            waiting
        });
        Requests::new(lists.collect(), lost)
    });
    (requests.collect(), of_threads)
}

/// One thread's connections to a backend, and its view of it.
pub(crate) struct Way {
    upstream: RefCell<Rc<Upstream>>,
    backend: RefCell<watch::Receiver<Backend>>,
    pub(crate) pool: Pool,
    pub(crate) turns: Turns,
    pub(crate) waiting: Arc<WaitingList>,
    pub(crate) places: Arc<Semaphore>,
    lost: RefCell<Option<Lost>>,
}

impl Way {
    pub(crate) fn new(signs: &Signs, config: &Config) -> Self {
        Self {
            upstream: RefCell::new(Rc::new(Upstream::new(&signs.backend.borrow(), config))),
            backend: RefCell::new(signs.backend.clone()),
            pool: Pool::new(config.pool_idle),
            turns: Turns::default(),
            waiting: Arc::clone(&signs.waiting),
            places: Arc::clone(&signs.places),
            lost: RefCell::default(),
        }
    }

    /// Where requests go now: whoever was told of a change finds every thread knowing it.
    pub(crate) fn upstream(&self, config: &Config) -> Rc<Upstream> {
        let mut backend = self.backend.borrow_mut();
        // An error says that the sender is gone: the backend then stays what it last was.
        if backend.has_changed().unwrap_or(false) {
            self.follow(&backend.borrow_and_update(), config);
        }
        Rc::clone(&self.upstream.borrow())
    }

    /// Whether the backend has changed since the last look.
    pub(crate) fn has_news(&self) -> bool {
        self.backend.borrow().has_changed().unwrap_or(false)
    }

    fn follow(&self, backend: &Backend, config: &Config) {
        let upstream = Upstream::new(backend, config);
        if let Upstream::Ready(target) = &upstream {
            self.pool.keep_only(target.generation);
        }
        *self.upstream.borrow_mut() = Rc::new(upstream);
    }

    /// What a request to this generation of the backend is answered, if it is known to be gone.
    pub(crate) fn lost(&self, generation: u64) -> Option<Fault> {
        self.lost.borrow().as_ref()?.fault(generation)
    }

    /// The last process that is known to be gone.
    pub(crate) fn set_lost(&self, lost: Option<Lost>) {
        *self.lost.borrow_mut() = lost;
    }
}
