//! One connection to a lane, without a frontend between.

use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use omni_jev_frontend::Endpoint;
use serde_json::Value;
use thiserror::Error;
use tokio::net::{TcpStream, UnixStream};

/// Far longer than any answer takes.
const LIMIT: Duration = Duration::from_mins(2);

/// Why a lane did not answer.
#[derive(Debug, Error)]
pub(super) enum AskError {
    #[error("only http:// and unix: can be measured")]
    Scheme,
    #[error("it cannot be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("its answer is broken: {0}")]
    Broken(#[from] hyper::Error),
    #[error("its /health is no JSON")]
    Health,
    #[error("it does not answer")]
    Late,
    #[error("its address cannot be asked for")]
    Address,
}

/// What an answer says of its request.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The tokens of all its rows, where it tells them.
    pub(super) tokens: Option<u32>,
    /// Whether a row was cut to the window.
    pub(super) is_cut: bool,
}

/// A kept connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    prefix: String,
    host: String,
}

impl Client {
    pub(super) async fn connect(endpoint: &Endpoint) -> Result<Self, AskError> {
        if endpoint.is_tls() {
            return Err(AskError::Scheme);
        }
        let sender = match (endpoint.socket_path(), endpoint.host()) {
            (Some(path), _) => handshake(UnixStream::connect(path).await?).await?,
            (None, Some(host)) => {
                let stream = TcpStream::connect((host, endpoint.port())).await?;
                stream.set_nodelay(true)?;
                handshake(stream).await?
            }
            (None, None) => return Err(AskError::Address),
        };
        Ok(Self {
            sender,
            prefix: endpoint.prefix().to_owned(),
            host: endpoint.host_header().to_owned(),
        })
    }

    pub(super) async fn health(&mut self) -> Result<Value, AskError> {
        let (_, body) = self.ask(Method::GET, "/health", Vec::new()).await?;
        serde_json::from_slice(&body).map_err(|_| AskError::Health)
    }

    /// Asks for a decision; what it is does not matter here.
    pub(super) async fn decide(&mut self, body: Vec<u8>) -> Result<Answer, AskError> {
        let (status, body) = self.ask(Method::POST, "/v1/systemone", body).await?;
        let told: Value = serde_json::from_slice(&body).unwrap_or_default();
        let tokens = told["usage"]["input_tokens"].as_u64();
        let answers = told["answers"].as_object();
        let mut answers = answers.into_iter().flat_map(|answers| answers.values());
        Ok(Answer {
            status,
            tokens: tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            is_cut: answers.any(|answer| answer.get("x_truncated").is_some()),
        })
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| AskError::Address)?;
        let key = std::env::var("LAYA_API_KEY").unwrap_or_default();
        if !key.is_empty()
            && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {key}"))
        {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, body))
        };
        tokio::time::timeout(LIMIT, answer)
            .await
            .unwrap_or(Err(AskError::Late))
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, AskError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Its end is seen by whoever sends next.
        let _ = connection.await;
    });
    Ok(sender)
}
