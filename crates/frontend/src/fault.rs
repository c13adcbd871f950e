//! Everything that can keep a request from a forwarded answer, as types.
//!
//! A fault says who is at fault; its status, its name on the wire and its label
//! in the metrics follow from it here, and [`answer`](crate::answer) is the only
//! place that makes a response of one.

use std::time::Duration;

use http::StatusCode;

/// Who a fault is laid at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Client,
    Backend,
    Frontend,
}

impl Origin {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Backend => "backend",
            Self::Frontend => "frontend",
        }
    }
}

/// Why a request was not answered by the backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("This method is not forwarded.")]
    MethodRefused,
    #[error("The request's head did not arrive in time.")]
    HeadTooSlow,
    #[error("The request's body did not arrive in time.")]
    BodyTooSlow,
    #[error("The request's body is over the limit of {limit} bytes.")]
    BodyTooLarge { limit: u64 },
    #[error("The request's target is over the limit of {limit} bytes.")]
    TargetTooLong { limit: usize },
    #[error(
        "The request's head is over the limit of {limit} bytes or has over {} headers.",
        crate::validate::MAX_HEADERS
    )]
    HeadTooLarge { limit: usize },
    #[error("The only transfer coding that a request may have is chunked, once.")]
    CodingUnknown,

    #[error("The backend could not be reached.")]
    Unreachable,
    #[error("The backend closed the connection without an answer.")]
    Died,
    #[error("The backend went away before it answered: {why}.")]
    Lost { why: String },
    #[error("The backend's answer was broken: {0}.")]
    AnswerBroken(&'static str),
    #[error("The backend's answer is over the limit of {limit} bytes.")]
    AnswerTooLarge { limit: usize },
    #[error("The backend did not answer within {}.", Seconds(*limit))]
    TimedOut { limit: Duration },

    #[error("{why}")]
    LaneNotObeyed { why: String },
    #[error("{why}")]
    NotTaken { why: String },

    #[error("Too many requests are in flight; try again shortly.")]
    TooManyInFlight,
    #[error("Too many large requests or answers are in flight; try again shortly.")]
    TooMuchBuffered,
    #[error("{message}")]
    Unavailable {
        message: String,
        retry_after: Duration,
    },
}

/// Why a request is not one that can be forwarded (RFC 9112).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("The request's head is not valid HTTP/1.1.")]
    Syntax,
    #[error("The request's protocol is not HTTP/1.0 or HTTP/1.1.")]
    Version,
    #[error("A line of the request's head ends without a carriage return.")]
    BareLineFeed,
    #[error("The request ended before its head did.")]
    HeadCut,
    #[error("The request's target has a form or a byte that cannot be forwarded.")]
    Target,
    #[error("The request has no Host header.")]
    HostMissing,
    #[error("The request has more than one Host header.")]
    HostRepeated,
    #[error("The request's Host is not a host name or address with an optional port.")]
    HostInvalid,
    #[error("The request's Content-Length is not one plain number.")]
    Length,
    #[error("The request has both Content-Length and Transfer-Encoding.")]
    LengthAndCoding,
    #[error("An HTTP/1.0 request cannot have Transfer-Encoding.")]
    OldCoding,
    #[error("The request's body is not validly chunked.")]
    Chunk,
    #[error("The request ended before its body did.")]
    BodyCut,
}

/// A duration in a sentence: `60 s`, `0.3 s`.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

impl Fault {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Malformed(_)
            | Self::MethodRefused
            | Self::HeadTooSlow
            | Self::BodyTooSlow
            | Self::BodyTooLarge { .. }
            | Self::TargetTooLong { .. }
            | Self::HeadTooLarge { .. }
            | Self::CodingUnknown
            | Self::LaneNotObeyed { .. }
            | Self::NotTaken { .. } => Origin::Client,
            Self::Unreachable
            | Self::Died
            | Self::Lost { .. }
            | Self::AnswerBroken(_)
            | Self::AnswerTooLarge { .. }
            | Self::TimedOut { .. } => Origin::Backend,
            Self::TooManyInFlight | Self::TooMuchBuffered | Self::Unavailable { .. } => {
                Origin::Frontend
            }
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::LaneNotObeyed { .. } => StatusCode::BAD_REQUEST,
            Self::NotTaken { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::MethodRefused => StatusCode::METHOD_NOT_ALLOWED,
            Self::HeadTooSlow | Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TargetTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::CodingUnknown => StatusCode::NOT_IMPLEMENTED,
            Self::Unreachable
            | Self::Died
            | Self::Lost { .. }
            | Self::AnswerBroken(_)
            | Self::AnswerTooLarge { .. } => StatusCode::BAD_GATEWAY,
            Self::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::TooManyInFlight | Self::TooMuchBuffered | Self::Unavailable { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// `error_type` of the body, in the words of the clients' own error shape.
    pub(crate) fn error_type(&self) -> &'static str {
        match (self, self.origin()) {
            (_, Origin::Client) => "invalid_request_error",
            (Self::TimedOut { .. }, _) => "timeout_error",
            (_, Origin::Backend) => "backend_error",
            (_, Origin::Frontend) => "service_unavailable",
        }
    }

    /// The label in the metrics and the access log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(why) => why.reason(),
            Self::MethodRefused => "method_refused",
            Self::HeadTooSlow => "head_too_slow",
            Self::BodyTooSlow => "body_too_slow",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::TargetTooLong { .. } => "target_too_long",
            Self::HeadTooLarge { .. } => "head_too_large",
            Self::CodingUnknown => "coding_unknown",
            Self::Unreachable => "backend_unreachable",
            Self::Died => "backend_died",
            Self::Lost { .. } => "backend_lost",
            Self::AnswerBroken(_) => "answer_broken",
            Self::AnswerTooLarge { .. } => "answer_too_large",
            Self::TimedOut { .. } => "backend_timeout",
            Self::LaneNotObeyed { .. } => "lane_not_obeyed",
            Self::NotTaken { .. } => "lane_not_taken",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::TooMuchBuffered => "too_much_buffered",
            Self::Unavailable { .. } => "backend_unavailable",
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyInFlight | Self::TooMuchBuffered => Some(Duration::from_secs(1)),
            Self::Unavailable { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

impl Malformed {
    fn reason(self) -> &'static str {
        match self {
            Self::Syntax => "bad_syntax",
            Self::Version => "bad_version",
            Self::BareLineFeed => "bare_line_feed",
            Self::HeadCut => "head_cut",
            Self::Target => "bad_target",
            Self::HostMissing => "host_missing",
            Self::HostRepeated => "host_repeated",
            Self::HostInvalid => "bad_host",
            Self::Length => "bad_length",
            Self::LengthAndCoding => "length_and_coding",
            Self::OldCoding => "coding_on_http10",
            Self::Chunk => "bad_chunk",
            Self::BodyCut => "body_cut",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_request_is_never_a_server_error_but_for_an_unknown_coding() {
        for fault in [
            Fault::Malformed(Malformed::Syntax),
            Fault::MethodRefused,
            Fault::HeadTooSlow,
            Fault::BodyTooSlow,
            Fault::BodyTooLarge { limit: 1 },
            Fault::TargetTooLong { limit: 1 },
            Fault::HeadTooLarge { limit: 1 },
        ] {
            assert!(fault.status().is_client_error(), "{fault:?}");
            assert_eq!(fault.error_type(), "invalid_request_error");
        }
        assert_eq!(Fault::CodingUnknown.status(), StatusCode::NOT_IMPLEMENTED);
    }

    #[test]
    fn a_time_limit_is_told_in_seconds() {
        let limit = Duration::from_millis(300);
        assert_eq!(
            Fault::TimedOut { limit }.to_string(),
            "The backend did not answer within 0.3 s."
        );
    }
}
