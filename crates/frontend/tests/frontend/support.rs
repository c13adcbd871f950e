//! A backend that says exactly what a test tells it to, and a client that shows
//! exactly what it got.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use omni_jev_frontend::{Backend, Config, Frontend, Registry};
use tokio::sync::watch;

/// Longer than anything here takes, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

/// A frontend, and the means to say where its backend is.
pub(crate) struct Fixture {
    pub(crate) frontend: Frontend,
    pub(crate) state: watch::Sender<Backend>,
}

/// A configuration for tests: a free port and no admin pages.
pub(crate) fn config() -> Config {
    Config {
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        admin_bind: None,
        // A stop in a test need not wait for a load balancer.
        drain_grace: Duration::from_millis(50),
        ..Config::default()
    }
}

pub(crate) fn start(config: Config, backend: Backend) -> Fixture {
    let (state, seen) = watch::channel(backend);
    let frontend = Frontend::start(config, seen, Registry::default()).expect("starts");
    Fixture { frontend, state }
}

/// A frontend before a raw backend, all defaults.
pub(crate) fn before(backend: &RawBackend) -> Fixture {
    start(config(), backend.ready())
}

impl Fixture {
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.frontend.address())
    }

    /// One request on a connection of its own, and its reply.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = self.connect();
        client.send(request);
        client.reply()
    }
}

/// Listens on a port of its own; each connection runs the given conversation.
pub(crate) struct RawBackend {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

/// A request as the backend got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn line(&self) -> String {
        let end = self.head.windows(2).position(|w| w == b"\r\n").unwrap();
        String::from_utf8_lossy(&self.head[..end]).into_owned()
    }

    /// All values of a header, in order, as bytes.
    pub(crate) fn values(&self, name: &str) -> Vec<Vec<u8>> {
        header_values(&self.head, name)
    }
}

pub(crate) fn header_values(head: &[u8], name: &str) -> Vec<Vec<u8>> {
    head.split(|&byte| byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            let (found, value) = line.split_at(colon);
            found
                .eq_ignore_ascii_case(name.as_bytes())
                .then(|| value[1..].trim_ascii().to_vec())
        })
        .collect()
}

impl RawBackend {
    /// `converse` gets each connection and its number, from 0.
    pub(crate) fn start(converse: impl Fn(Conversation, usize) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        Self::on(listener, converse)
    }

    pub(crate) fn on(
        listener: TcpListener,
        converse: impl Fn(Conversation, usize) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("has an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (log, count, converse) = (
            Arc::clone(&seen),
            Arc::clone(&connections),
            Arc::new(converse),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (log, converse) = (Arc::clone(&log), Arc::clone(&converse));
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
                    converse(
                        Conversation {
                            stream,
                            read: Vec::new(),
                            log,
                        },
                        number,
                    );
                });
            }
        });
        Self {
            address,
            seen,
            connections,
        }
    }

    /// Answers every request on every connection with the same bytes.
    pub(crate) fn answering(answer: impl AsRef<[u8]>) -> Self {
        let answer = answer.as_ref().to_vec();
        Self::start(move |mut talk, _| {
            while talk.request().is_some() {
                talk.say(&answer);
            }
        })
    }

    /// Answers each connection's first request with the same bytes, then closes it.
    pub(crate) fn answering_once(answer: impl AsRef<[u8]>) -> Self {
        let answer = answer.as_ref().to_vec();
        Self::start(move |mut talk, _| {
            if talk.request().is_some() {
                talk.say(&answer);
            }
        })
    }

    pub(crate) fn ready(&self) -> Backend {
        Backend::ready(self.url("").parse().expect("is an endpoint"), 1)
    }

    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("http://{}{prefix}", self.address)
    }

    /// Every request that came, in order.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("not poisoned").clone()
    }

    pub(crate) fn last(&self) -> Request {
        self.seen().pop().expect("a request came")
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One connection, from the backend's side.
pub(crate) struct Conversation {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Conversation {
    /// The next request, or `None` when the frontend closed.
    pub(crate) fn request(&mut self) -> Option<Request> {
        let head = read_head(&mut self.stream, &mut self.read)?;
        let length = header_values(&head, "content-length")
            .first()
            .map_or(0, |value| {
                String::from_utf8_lossy(value).parse().expect("a number")
            });
        let body = read_exactly(&mut self.stream, &mut self.read, length)?;
        let request = Request { head, body };
        self.log.lock().expect("not poisoned").push(request.clone());
        Some(request)
    }

    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        // The frontend may have left, which is for the test to find out.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Until the frontend closes its side.
    pub(crate) fn wait_for_close(&mut self) {
        let mut rest = [0; 1024];
        while !matches!(
            uninterrupted(|| self.stream.read(&mut rest)),
            Ok(0) | Err(_)
        ) {}
    }
}

/// Calls again what a signal broke off: with a time limit the system does not begin it anew
/// (signal(7)), and a child of another test's that ends is signal enough.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 16 * 1024];
    match uninterrupted(|| stream.read(&mut piece)) {
        Ok(0) => None,
        Ok(length) => {
            buffer.extend_from_slice(&piece[..length]);
            Some(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!(
                "nothing came for {PATIENCE:?}; so far: {:?}",
                String::from_utf8_lossy(buffer)
            )
        }
        Err(_) => None,
    }
}

fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            return Some(buffer.drain(..end + 4).collect());
        }
        read_more(stream, buffer)?;
    }
}

fn read_exactly(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        read_more(stream, buffer)?;
    }
    Some(buffer.drain(..length).collect())
}

/// A client that sends what it is told to.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// A response as the client got it.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).expect("connects"))
    }

    pub(crate) fn on(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The frontend may answer and close before it has read everything.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// The next response, whole.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(false).expect("a whole response came")
    }

    /// The next response, to a HEAD: without the body that its length is of.
    pub(crate) fn reply_to_head(&mut self) -> Reply {
        self.try_reply(true).expect("a whole response came")
    }

    /// The next response, or `None` when the frontend closed without a whole one.
    pub(crate) fn try_reply(&mut self, to_head: bool) -> Option<Reply> {
        let head = read_head(&mut self.stream, &mut self.read)?;
        let status = String::from_utf8_lossy(&head[9..12])
            .parse()
            .expect("a status");
        let length = match header_values(&head, "content-length").as_slice() {
            [length] if !to_head => String::from_utf8_lossy(length).parse().expect("a number"),
            _ => 0,
        };
        assert!(
            header_values(&head, "transfer-encoding").is_empty(),
            "answers have a length"
        );
        let body = read_exactly(&mut self.stream, &mut self.read, length)?;
        Some(Reply { status, head, body })
    }

    /// Whether the frontend closes now, without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.read.is_empty() && read_more(&mut self.stream, &mut self.read).is_none()
    }
}

impl Reply {
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        header_values(&self.head, name)
            .iter()
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Checks that this is an error of the frontend's own: whole, in the clients'
    /// shape, with its ids. Gives its message.
    pub(crate) fn own_error(&self, status: u16, error_type: &str) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.values("content-type"), ["application/json"]);
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("is JSON");
        let detail = &body["detail"];
        assert_eq!(detail["error_type"], error_type);
        let ids = self.values("x-request-id");
        assert_eq!(ids.len(), 1);
        assert_eq!(self.values("x-typesafe-request-id"), ids);
        assert_eq!(detail["request_id"], ids[0].as_str());
        detail["message"].as_str().expect("a message").to_owned()
    }
}

/// A POST with a body of its own length.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A GET with more header lines, each with its line end.
pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n")
}

/// Tries again until something holds that has no event of its own to wait for.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
