//! One client connection in memory, judged byte for byte. For `fuzz` and the tests.
//!
//! The real path is taken: guard, HTTP library, validation, pool, exchange,
//! answer. Only the two sockets are pipes, so that it can be known, without a
//! clock, when nothing more will happen.

mod judge;
mod pipes;
mod wire;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Semaphore, watch};

use crate::admit::Gate;
use crate::life::Life;
use crate::metrics::Metrics;
use crate::shard::{Common, Shard};
use crate::way::Signs;
use crate::{Backend, Config, Registry, connection};

/// Small, so that short inputs reach the limits.
const MAX_TARGET: usize = 256;
const MAX_HEAD: usize = 1024;
const MAX_BODY: usize = 512;

/// More than any exchange here needs in a pipe at once.
const PIPE: usize = 64 * 1024;

/// Turns of the scheduler in which nothing moves before all is at rest.
const QUIET: u32 = 8;

/// Sends `input` on one connection, to a backend that answers every request, and
/// says how many requests were forwarded.
///
/// # Errors
///
/// What is wrong, in a sentence: with what was forwarded, with what was answered,
/// with what is left of it, or with how it depends on where the input is cut.
pub fn check(input: &[u8]) -> Result<usize, String> {
    let whole = converse(input, PIPE)?;
    judge::requests(input, &whole.forwarded)?;
    judge::answers(&whole)?;
    // One more cut for each input, so that all are tried and each is soon done.
    let sum = input
        .iter()
        .fold(0, |sum: usize, &byte| sum.wrapping_add(byte.into()));
    let cut = [1, 2, 3, 7, 61][sum % 5];
    let pieces = converse(input, cut)?;
    if !judge::alike(&pieces.forwarded, &whole.forwarded) {
        return Err(format!(
            "in one piece {whole}, but in pieces of {cut} {pieces}"
        ));
    }
    judge::answers(&pieces)?;
    judge::requests(input, &pieces.forwarded)
}

/// Sends `input` as a backend's whole answer, after which the backend closes, and
/// says with which status the client was answered.
///
/// # Errors
///
/// What is wrong with what the client got, in a sentence.
pub fn check_answer(input: &[u8]) -> Result<u16, String> {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    let seen = in_memory(Script::Says(input.to_vec()), |world| {
        world.talk(REQUEST, PIPE)
    })?;
    judge::answer(input, &seen)
}

/// What went over both sides' connections.
struct Seen {
    /// The bytes of each request, as far as they came.
    forwarded: Vec<Vec<u8>>,
    answered: Vec<u8>,
    /// Whether the frontend closed the client's connection.
    closed: bool,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forwarded = self.forwarded.iter().map(|it| String::from_utf8_lossy(it));
        let forwarded: Vec<_> = forwarded.collect();
        let answered = String::from_utf8_lossy(&self.answered);
        write!(f, "{forwarded:?} is forwarded and {answered:?} answered")
    }
}

fn converse(input: &[u8], cut: usize) -> Result<Seen, String> {
    in_memory(Script::Counts, |world| world.talk(input, cut))
}

/// What the backend does with each request.
enum Script {
    /// Answers with the number of requests before it, on this connection and all others.
    Counts,
    /// Answers with these bytes and closes.
    Says(Vec<u8>),
}

/// Whatever the two ends of one conversation share.
struct World {
    shard: Rc<Shard>,
    backend: Rc<BackendSide>,
    /// Counts what moves, to know when nothing does any more.
    moves: Rc<Cell<u64>>,
}

struct BackendSide {
    script: Script,
    forwarded: RefCell<Vec<Vec<u8>>>,
    moves: Rc<Cell<u64>>,
}

thread_local! {
    static RUNTIME: LocalRuntime = Builder::new_current_thread()
        .enable_time()
        .build_local(LocalOptions::default())
        .expect("a runtime without sockets starts");
    static BACKEND: RefCell<Option<Rc<BackendSide>>> = const { RefCell::new(None) };
}

/// The other end of a new connection to the backend in memory, if there is one.
pub(crate) fn backend() -> Option<DuplexStream> {
    let side = BACKEND.with_borrow(Clone::clone)?;
    let (ours, theirs) = tokio::io::duplex(PIPE);
    tokio::task::spawn_local(side.serve(theirs));
    Some(ours)
}

/// Runs one conversation in a world of its own, and checks that nothing stays behind.
fn in_memory<T, F: Future<Output = T>>(
    script: Script,
    talk: impl FnOnce(Rc<World>) -> F,
) -> Result<T, String> {
    let moves = Rc::new(Cell::new(0));
    let backend = Rc::new(BackendSide {
        script,
        forwarded: RefCell::default(),
        moves: Rc::clone(&moves),
    });
    BACKEND.set(Some(Rc::clone(&backend)));
    let (common, _senders) = common();
    let metrics = Arc::clone(&common.metrics);
    let gate = Arc::clone(&common.gate);
    let world = Rc::new(World {
        shard: Rc::new(Shard::new(&common)),
        backend,
        moves,
    });
    let outcome = RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let outcome = talk(Rc::clone(&world)).await;
            world.rest().await;
            outcome
        })
    });
    BACKEND.set(None);
    if metrics.in_flight.get() != 0 {
        return Err("a request is still counted as in flight".to_owned());
    }
    if gate.buffered() != 0 {
        return Err("bytes are still counted as held".to_owned());
    }
    Ok(outcome)
}

fn common() -> (Common, (watch::Sender<Backend>, watch::Sender<Life>)) {
    let config = Config {
        max_target_bytes: MAX_TARGET,
        max_head_bytes: MAX_HEAD,
        max_request_bytes: MAX_BODY,
        max_response_bytes: 4 * MAX_BODY,
        ..Config::default()
    };
    let endpoint = "http://in-memory".parse().expect("is an endpoint");
    let (state, backend) = watch::channel(Backend::ready(endpoint, 1));
    let (life, life_seen) = watch::channel(Life::Serving);
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let common = Common {
        gate: Arc::new(Gate::new(&config, Arc::clone(&metrics))),
        config: Arc::new(config),
        metrics,
        backends: vec![Signs {
            backend,
            lost: watch::channel(None).1,
            waiting: Arc::default(),
            places: Arc::new(Semaphore::new(1)),
        }],
        lanes: None,
        life: life_seen,
    };
    (common, (state, life))
}

impl World {
    /// Sends `input` through a pipe that holds `cut` bytes, waits until all is at
    /// rest, and leaves.
    async fn talk(self: Rc<Self>, input: &[u8], cut: usize) -> Seen {
        let (ours, theirs) = pipes::pair(cut, PIPE);
        let (mut reader, mut writer) = tokio::io::split(ours);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let connection =
            tokio::task::spawn_local(connection::serve(Rc::clone(&self.shard), theirs, peer));
        let moves = Rc::clone(&self.moves);
        let bytes = input.to_vec();
        let writing = tokio::task::spawn_local(async move {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let Ok(written) = writer.write(rest).await else {
                    break;
                };
                rest = &rest[written..];
                moves.set(moves.get() + 1);
            }
            // Kept: a client that closes its side has left.
            writer
        });
        let answered = Rc::new(RefCell::new(Vec::new()));
        let closed = Rc::new(Cell::new(false));
        let (log, end, moves) = (
            Rc::clone(&answered),
            Rc::clone(&closed),
            Rc::clone(&self.moves),
        );
        let reading = tokio::task::spawn_local(async move {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut piece).await {
                log.borrow_mut().extend_from_slice(&piece[..length]);
                moves.set(moves.get() + 1);
            }
            end.set(true);
        });
        self.rest().await;
        let seen = Seen {
            forwarded: self.backend.forwarded.take(),
            answered: answered.take(),
            closed: closed.get(),
        };
        // The client leaves.
        reading.abort();
        writing.abort();
        let _ = (reading.await, writing.await);
        self.rest().await;
        connection.abort();
        let _ = connection.await;
        seen
    }

    /// Until nothing moves any more.
    async fn rest(&self) {
        let mut quiet = 0;
        while quiet < QUIET {
            let before = self.moves.get();
            // Comes back when every other task waits for something.
            tokio::task::yield_now().await;
            quiet = if self.moves.get() == before {
                quiet + 1
            } else {
                0
            };
        }
    }
}

impl BackendSide {
    /// Notes and answers what comes on one connection.
    async fn serve(self: Rc<Self>, mut stream: DuplexStream) {
        let mut at = None;
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut piece).await {
            self.moves.set(self.moves.get() + 1);
            let place = *at.get_or_insert_with(|| {
                let mut forwarded = self.forwarded.borrow_mut();
                forwarded.push(Vec::new());
                forwarded.len() - 1
            });
            let request = {
                let mut forwarded = self.forwarded.borrow_mut();
                // The harness has taken the log; what comes now is noise after the end.
                let Some(request) = forwarded.get_mut(place) else {
                    return;
                };
                request.extend_from_slice(&piece[..length]);
                wire::request(request)
            };
            let wire::Reading::Whole(request) = request else {
                continue;
            };
            // Whatever follows it is the next one's, and judged as that.
            let rest = self.forwarded.borrow_mut()[place].split_off(request.length);
            at = None;
            if !rest.is_empty() {
                self.forwarded.borrow_mut().push(rest);
                at = Some(self.forwarded.borrow().len() - 1);
            }
            let answer = self.answer(place, request.method == "HEAD");
            if stream.write_all(&answer).await.is_err() || matches!(self.script, Script::Says(_)) {
                return;
            }
        }
    }

    fn answer(&self, place: usize, to_head: bool) -> Vec<u8> {
        match &self.script {
            Script::Says(bytes) => bytes.clone(),
            Script::Counts => {
                let body = format!("answer {place}");
                let head = format!(
                    "HTTP/1.1 200 OK\r\nx-place: {place}\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                if to_head {
                    head.into()
                } else {
                    (head + &body).into()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every seed that fuzzing has found worth keeping.
    fn seeds(of: &str) -> Vec<(String, Vec<u8>)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/");
        let mut seeds: Vec<_> = std::fs::read_dir(format!("{folder}{of}"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                (path.display().to_string(), std::fs::read(path).unwrap())
            })
            .collect();
        seeds.sort();
        seeds
    }

    #[test]
    fn every_seed_of_requests_leads_to_well_formed_requests_only() {
        let seeds = seeds("request");
        let mut forwarded = 0;
        for (name, bytes) in &seeds {
            match check(bytes) {
                Ok(count) => forwarded += count,
                Err(why) => panic!("{name}: {why}"),
            }
        }
        // Neither an empty folder nor a harness that forwards nothing passes.
        assert!(seeds.len() > 50 && forwarded > 50, "{forwarded} forwarded");
    }

    #[test]
    fn every_seed_of_answers_leads_to_one_well_formed_answer() {
        let seeds = seeds("answer");
        let mut whole = 0;
        for (name, bytes) in &seeds {
            match check_answer(bytes) {
                Ok(502) => {}
                Ok(_) => whole += 1,
                Err(why) => panic!("{name}: {why}"),
            }
        }
        assert!(seeds.len() > 10 && whole > 5, "{whole} passed on");
    }

    #[test]
    fn the_judge_finds_a_request_that_was_smuggled() {
        let input = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
        let as_sent =
            b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\nx-request-id: 1\r\n\r\nabc";
        assert_eq!(judge::requests(input, &[as_sent.to_vec()]), Ok(1));
        let second = b"GET /x HTTP/1.1\r\nhost: h\r\nx-request-id: 1\r\n\r\n".to_vec();
        for forwarded in [
            vec![as_sent.to_vec(), second],
            vec![as_sent[..as_sent.len() - 1].to_vec()],
            vec![[&as_sent[..], b"G"].concat()],
            vec![
                b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nx-request-id: 1\r\n\r\nab"
                    .to_vec(),
            ],
            vec![
                b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\nx-request-id: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
                    .to_vec(),
            ],
        ] {
            judge::requests(input, &forwarded).unwrap_err();
        }
    }
}
