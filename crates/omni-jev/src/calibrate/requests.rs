//! Requests of a length, by the frontend's own count of it.

use omni_jev_lanes::{Ask, scan};
use serde_json::{Map, Value, json};

const WORDS: [&str; 8] = [
    "invoice", "parcel", "refund", "late", "charge", "box", "login", "open",
];

/// A request with so many questions whose longest row has so many tokens; different for each number. `None` if no state
/// is short enough for that.
pub(super) fn body(tokens: u32, questions: u32, number: u64) -> Option<Vec<u8>> {
    let question = json!({"type": "noul", "instructions": "Does the customer ask for a refund?"});
    let questions: Map<String, Value> = (0..questions)
        .map(|place| (format!("q{place}"), question.clone()))
        .collect();
    let with = |state: &str| {
        let body = json!({"state": state, "questions": questions}).to_string();
        let count = Ask::of(&scan(body.as_bytes())?).tokens.count;
        Some((body.into_bytes(), count))
    };
    let mut words = (number..).map(|at| {
        WORDS[usize::try_from(at.wrapping_mul(2_654_435_761) >> 7).unwrap_or(0) % WORDS.len()]
    });
    let mut state = format!("{number}");
    let (mut found, mut count) = with(&state)?;
    if count > tokens {
        return None;
    }
    loop {
        let longer = format!("{state} {}", words.next()?);
        let (body, more) = with(&longer)?;
        if more > tokens {
            break;
        }
        (found, count, state) = (body, more, longer);
    }
    // What a further word would pass is filled up letter by letter.
    while count < tokens {
        state.push('x');
        (found, count) = with(&state)?;
    }
    Some(found)
}

/// The tokens of the shortest request, whichever its number.
pub(super) fn shortest() -> Option<u32> {
    // More than are ever made: the longer the number, the more tokens it has.
    const LAST: u64 = 9_999_999;
    (1..100).find(|&tokens| body(tokens, 1, LAST).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_length_and_is_another() {
        for (tokens, questions) in [(32, 1), (64, 1), (128, 4), (512, 6)] {
            let one = body(tokens, questions, 1).unwrap();
            let ask = Ask::of(&scan(&one).unwrap());
            assert_eq!((ask.tokens.count, ask.questions), (tokens, questions));
            assert_ne!(one, body(tokens, questions, 2).unwrap());
        }
        assert_eq!(body(8, 1, 1), None);
        assert!(shortest().unwrap() < 32);
    }
}
