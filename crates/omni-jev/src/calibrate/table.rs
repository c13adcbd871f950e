//! A profile for a person to read.

use std::path::Path;

use omni_jev_lanes::{Measured, Profile};

/// The medians by length and questions, what follows of them, and what else there is to know.
pub(super) fn shown(profile: &Profile, path: &Path, notes: &[String]) -> String {
    let mut lines = Vec::new();
    for lane in &profile.lanes {
        lines.push(format!("{}: {}", lane.name, lane.identity));
        lines.extend(lane.points.iter().map(|point| {
            let (tokens, questions) = (point.tokens, point.questions);
            let millis = point.seconds * 1000.0;
            format!("  {tokens:>5} tokens {questions:>3} questions {millis:>9.2} ms")
        }));
    }
    lines.extend(profile.lanes.iter().skip(1).map(worth));
    lines.extend_from_slice(notes);
    lines.push(format!("written to {}", path.display()));
    lines.join("\n") + "\n"
}

fn worth(Measured { name, takes, .. }: &Measured) -> String {
    match takes {
        Some(range) => format!(
            "{name} is quicker up to {} tokens and {} questions",
            range.max_tokens, range.max_questions
        ),
        None => format!("{name} is quicker at nothing: with --lanes auto it takes no requests"),
    }
}
