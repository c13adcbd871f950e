//! Which lane a decision goes to.
//!
//! A *lane* is a server of decisions that takes one kind of request, or every kind. This library
//! knows nothing of sockets, processes or clocks: it is told what is known of a request and what
//! time it is, and says where the request goes and why. The same calls at the same times give the
//! same choices.
//!
//! ```
//! use std::time::Instant;
//! use omni_jev_lanes::{Ask, Chooser, LaneSpec, Limits, Outcome, Reason, Tried, scan};
//!
//! let mut lanes = Chooser::new(vec![
//!     LaneSpec::new("main", Limits::NONE),
//!     LaneSpec::new("quick", Limits { max_tokens: Some(128), max_questions: Some(1) }),
//! ]);
//! let now = Instant::now();
//! lanes.set_ready(0, Some(1));
//! lanes.set_ready(1, Some(1));
//!
//! let body = br#"{"state":"Refund me.","questions":{"q":{"type":"noul","instructions":"Refund?"}}}"#;
//! let ask = Ask::of(&scan(body).expect("is a request"));
//! let choice = lanes.choose(&ask, Tried::default(), now).expect("a lane takes it");
//! assert_eq!((choice.lane, choice.reason), (1, Reason::ShortAndSingle));
//! lanes.finish(choice.ticket, Outcome::Served, now);
//! ```

mod arrivals;
mod ask;
mod breaker;
mod bucket;
mod chooser;
mod estimate;
mod lane;
mod limits;
mod prior;
mod profile;
mod reason;
mod scan;
mod verdict;

pub use ask::{Ask, CountTokens, Tokens};
pub use breaker::{Breaker, BreakerState, Trouble};
pub use bucket::{LENGTHS, length_bucket, question_bucket};
pub use chooser::Chooser;
pub use lane::{Counts, LaneSpec};
pub use limits::Limits;
pub use prior::{Point, Prior};
pub use profile::{Identity, Machine, Measured, Profile, Range};
pub use reason::Reason;
pub use scan::{Scan, Weight, scan};
pub use verdict::{Choice, LaneView, Outcome, Refusal, Ticket, Tried};
