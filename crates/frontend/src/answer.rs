//! The one response that each request gets.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};

use crate::connection::Link;
use crate::fault::Fault;
use crate::headers;
use crate::identity::{X_REQUEST_ID, X_TYPESAFE_REQUEST_ID};

/// Methods that are forwarded, as `Allow` names them; others that are valid are too.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// A whole body, which tells its connection when the HTTP library has taken it.
pub(crate) struct Whole {
    data: Option<Bytes>,
    link: Rc<Link>,
}

impl Whole {
    pub(crate) fn new(data: Bytes, link: Rc<Link>) -> Self {
        Self {
            data: (!data.is_empty()).then_some(data),
            link,
        }
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.link.answer_taken.set(true);
    }
}

/// Makes the backend's answer ours: its hop's headers go, its framing becomes a
/// length, and the rest stays as it is.
pub(crate) fn from_backend(response: &mut Response<Bytes>, method: &Method) {
    let length = response.body().len();
    let status = response.status();
    headers::strip_hop_by_hop(response.headers_mut());
    // A HEAD's or a 304's length is that of a body which is not here (RFC 9110 8.6).
    if method != Method::HEAD && status != StatusCode::NOT_MODIFIED {
        headers::set_content_length(response.headers_mut(), length);
    }
    // The version is that of each hop; the library answers in the client's.
    *response.version_mut() = Version::HTTP_11;
}

/// The only place where a fault becomes a response.
pub(crate) fn from_fault(
    fault: &Fault,
    request_id: &HeaderValue,
    method: &Method,
) -> Response<Bytes> {
    let body = serde_json::json!({
        "detail": {
            "error_type": fault.error_type(),
            "message": fault.to_string(),
            "request_id": request_id.to_str().unwrap_or_default(),
        }
    });
    // A HEAD's answer has no body, and need not say how long it would be.
    let body = match *method {
        Method::HEAD => Bytes::new(),
        _ => Bytes::from(body.to_string()),
    };
    let mut response = own(fault.status(), body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(wait) = fault.retry_after() {
        headers.insert(header::RETRY_AFTER, whole_seconds(wait).into());
    }
    if *fault == Fault::MethodRefused {
        headers.insert(header::ALLOW, ALLOW);
    }
    response
}

/// What this server can do as a whole (RFC 9110 9.3.7), for `OPTIONS *`.
pub(crate) fn options() -> Response<Bytes> {
    let mut response = own(StatusCode::NO_CONTENT, Bytes::new());
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}

/// A response of our own, which like any origin's has a date (RFC 9110 6.6.1).
fn own(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

/// Adds the ids that every response has. A backend's own `x-typesafe-request-id`
/// stays, since it is what that backend's people can look up.
pub(crate) fn identify(headers: &mut HeaderMap, request_id: HeaderValue) {
    headers
        .entry(X_TYPESAFE_REQUEST_ID)
        .or_insert_with(|| request_id.clone());
    headers.insert(X_REQUEST_ID, request_id);
}

/// `Retry-After` counts whole seconds; rounding down would invite too early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_in_the_clients_own_error_shape() {
        let id = HeaderValue::from_static("id-1");
        let fault = Fault::Unavailable {
            message: "The worker is starting.".to_owned(),
            retry_after: Duration::from_millis(1200),
        };
        let response = from_fault(&fault, &id, &Method::POST);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["detail"]["error_type"], "service_unavailable");
        assert_eq!(body["detail"]["message"], "The worker is starting.");
        assert_eq!(body["detail"]["request_id"], "id-1");
    }
}
