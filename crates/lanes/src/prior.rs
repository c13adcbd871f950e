//! What a request takes before anything was observed.

use serde::{Deserialize, Serialize};

/// A measured time: so many questions of so many tokens take so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Tokens of the longest row.
    pub tokens: u32,
    /// Questions of the request.
    pub questions: u32,
    /// The median, in seconds.
    pub seconds: f64,
}

/// A first idea of a lane's times: measured on this machine, or built in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prior {
    /// By the number of questions, then by length; each list has an entry.
    curves: Vec<(u32, Vec<(u32, f64)>)>,
}

/// Built in: what a request takes at all, and what each token of it takes. Only their proportion
/// matters, since the first requests correct the rest.
const BASE_SECONDS: f64 = 0.004;
const TOKEN_SECONDS: f64 = 0.000_1;

impl Prior {
    /// Nothing was measured.
    pub const fn built_in() -> Self {
        Self { curves: Vec::new() }
    }

    /// From measurements; those that are no time are left out.
    pub fn measured(points: impl IntoIterator<Item = Point>) -> Self {
        let mut points: Vec<Point> = points
            .into_iter()
            .filter(|point| point.seconds.is_finite() && point.seconds > 0.0)
            .collect();
        points.sort_by_key(|point| (point.questions, point.tokens));
        let mut curves: Vec<(u32, Vec<(u32, f64)>)> = Vec::new();
        for point in points {
            let entry = (point.tokens, point.seconds);
            match curves.last_mut() {
                Some((questions, curve)) if *questions == point.questions => curve.push(entry),
                _ => curves.push((point.questions, vec![entry])),
            }
        }
        Self { curves }
    }

    /// Whether it comes from measurements.
    pub fn is_measured(&self) -> bool {
        !self.curves.is_empty()
    }

    /// Seconds for a request, straight lines between what was measured. Always above zero.
    pub fn seconds(&self, tokens: u32, questions: u32) -> f64 {
        if self.curves.is_empty() {
            let rows = f64::from(tokens) * f64::from(questions.max(1));
            return BASE_SECONDS + TOKEN_SECONDS * rows;
        }
        let by_questions: Vec<(u32, f64)> = self
            .curves
            .iter()
            .map(|(questions, curve)| (*questions, line(curve, tokens)))
            .collect();
        line(&by_questions, questions).max(1e-6)
    }
}

/// The value at `x` of the line through points in order; past the last one in proportion, before
/// the first one as there.
fn line(points: &[(u32, f64)], x: u32) -> f64 {
    let after = points.partition_point(|&(at, _)| at < x);
    match (
        after.checked_sub(1).map(|before| points[before]),
        points.get(after),
    ) {
        (_, Some(&(at, value))) if at == x => value,
        (Some((x0, y0)), Some(&(x1, y1))) => {
            y0 + (y1 - y0) * f64::from(x - x0) / f64::from((x1 - x0).max(1))
        }
        (None, Some(&(_, first))) => first,
        (Some((at, last)), None) => last * f64::from(x) / f64::from(at.max(1)),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(tokens: u32, questions: u32, seconds: f64) -> Point {
        Point {
            tokens,
            questions,
            seconds,
        }
    }

    #[test]
    fn between_two_measurements_it_is_on_the_line_and_past_the_last_in_proportion() {
        let prior = Prior::measured([
            point(64, 1, 0.01),
            point(128, 1, 0.02),
            point(64, 4, 0.03),
            point(128, 4, 0.05),
        ]);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(prior.seconds(96, 1), 0.015));
        assert!(close(prior.seconds(32, 1), 0.01));
        assert!(close(prior.seconds(256, 1), 0.04));
        assert!(close(prior.seconds(64, 2), 0.01 + 0.02 / 3.0));
        assert!(close(prior.seconds(128, 8), 0.1));
    }

    proptest! {
        #[test]
        fn whatever_was_measured_a_request_takes_some_time(
            points in proptest::collection::vec((1u32..600, 1u32..7, -1.0f64..1.0), 0..12),
            tokens in any::<u32>(), questions in any::<u32>(),
        ) {
            let prior = Prior::measured(points.into_iter().map(|(t, q, s)| point(t, q, s)));
            let seconds = prior.seconds(tokens, questions);
            prop_assert!(seconds > 0.0 && seconds.is_finite());
        }
    }
}
