//! What was measured of each lane, on which machine and of what.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Limits, Point};

/// The form of the file; another number is another form.
const FORMAT: u32 = 1;

/// A measured profile, as it is kept in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// The lanes, in the order of the settings.
    pub lanes: Vec<Measured>,
}

/// What makes one machine's times no other's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `linux`, `macos`.
    pub system: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// The processor's name, as far as the system tells it.
    pub processor: String,
    /// Processors that may be used.
    pub cores: usize,
}

/// One lane's measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The lane's name.
    pub name: String,
    /// What served there.
    pub identity: Identity,
    /// What it is worth asking for beside the first lane; `None` for nothing, and for the first.
    pub takes: Option<Range>,
    /// The medians.
    pub points: Vec<Point>,
}

/// The requests that a lane answers sooner than the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The most tokens of a request's longest row.
    pub max_tokens: u32,
    /// The most questions.
    pub max_questions: u32,
}

/// What a lane serves with, as its `/health` says it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The checkpoint's name.
    pub checkpoint: Option<String>,
    /// Its revision.
    pub revision: Option<String>,
    /// The hash of its files, where it has no revision.
    pub checkpoint_hash: Option<String>,
    /// The device.
    pub device: Option<String>,
    /// The engine, its artifact and its precision, where the lane tells them.
    pub engine: BTreeMap<String, String>,
}

/// Fields of `/health` that say what runs the checkpoint, and not how it does. `artifact` is a hash.
const ENGINE_FIELDS: [&str; 3] = ["engine", "artifact", "weights_dtype"];

impl Profile {
    /// A profile of these measurements, of which each lane but the first is compared with it.
    pub fn new(machine: Machine, lanes: Vec<(String, Identity, Vec<Point>)>) -> Self {
        let first = lanes.first().map(|(_, _, points)| points.clone());
        let first = first.unwrap_or_default();
        let lanes = lanes.into_iter().enumerate();
        let lanes = lanes.map(|(place, (name, identity, points))| Measured {
            name,
            identity,
            takes: if place == 0 {
                None
            } else {
                range(&first, &points)
            },
            points,
        });
        Self {
            format: FORMAT,
            machine,
            lanes: lanes.collect(),
        }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in a few words that fit behind the file's name.
    pub fn read(text: &str) -> Result<Self, String> {
        let found: Self =
            serde_json::from_str(text).map_err(|error| format!("it is no profile: {error}"))?;
        if found.format != FORMAT {
            return Err(format!("its format is {}, not {FORMAT}", found.format));
        }
        Ok(found)
    }

    /// The text for a file.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// What was measured of the lane of this name.
    pub fn lane(&self, name: &str) -> Option<&Measured> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

impl From<Range> for Limits {
    fn from(range: Range) -> Self {
        Self {
            max_tokens: Some(range.max_tokens),
            max_questions: Some(range.max_questions),
        }
    }
}

impl Identity {
    /// Reads the body of a `/health`.
    pub fn of(health: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let fields = ENGINE_FIELDS
            .iter()
            .filter_map(|&field| Some((field.to_owned(), text(&health[field])?)))
            .collect();
        Self {
            checkpoint: text(&health["checkpoint"]),
            revision: text(&health["revision"]),
            checkpoint_hash: text(&health["checkpoint_hash"]),
            device: text(&health["device"]),
            engine: fields,
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        write!(
            f,
            "checkpoint {}, revision {}",
            or_none(&self.checkpoint),
            or_none(&self.revision)
        )?;
        if let Some(hash) = &self.checkpoint_hash {
            write!(f, ", files {hash}")?;
        }
        write!(f, ", device {}", or_none(&self.device))?;
        for (field, value) in &self.engine {
            write!(f, ", {field} {value}")?;
        }
        Ok(())
    }
}

/// The lengths, from the shortest on, that a lane answers sooner than the first lane, and the
/// question counts, from one on, of which it does so at all those lengths. The first of either that
/// it does not ends the list.
fn range(first: &[Point], lane: &[Point]) -> Option<Range> {
    let seconds = |points: &[Point], tokens: u32, questions: u32| {
        let mut points = points.iter();
        let found = points.find(|at| at.tokens == tokens && at.questions == questions);
        found.map(|point| point.seconds)
    };
    let wins = |tokens: u32, questions: u32| {
        let of_lane = seconds(lane, tokens, questions);
        let of_first = seconds(first, tokens, questions);
        matches!((of_lane, of_first), (Some(mine), Some(other)) if mine < other)
    };
    let sorted = |value: fn(&Point) -> u32| {
        let mut values: Vec<u32> = first.iter().map(value).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let lengths: Vec<u32> = sorted(|point| point.tokens)
        .into_iter()
        .take_while(|&tokens| wins(tokens, 1))
        .collect();
    let max_questions = sorted(|point| point.questions)
        .into_iter()
        .take_while(|&questions| lengths.iter().all(|&tokens| wins(tokens, questions)))
        .last()?;
    Some(Range {
        max_tokens: *lengths.last()?,
        max_questions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine() -> Machine {
        Machine {
            system: "linux".to_owned(),
            architecture: "x86_64".to_owned(),
            processor: "a".to_owned(),
            cores: 2,
        }
    }

    /// Milliseconds by length, for one question and for two.
    fn points(one: &[(u32, f64)], two: &[(u32, f64)]) -> Vec<Point> {
        let with = |questions| {
            move |&(tokens, millis): &(u32, f64)| Point {
                tokens,
                questions,
                seconds: millis / 1000.0,
            }
        };
        one.iter()
            .map(with(1))
            .chain(two.iter().map(with(2)))
            .collect()
    }

    fn takes(first: Vec<Point>, second: Vec<Point>) -> Option<Range> {
        let lanes = [("a", first), ("b", second)];
        let lanes = lanes.map(|(name, points)| (name.to_owned(), Identity::default(), points));
        Profile::new(machine(), lanes.to_vec()).lanes[1].takes
    }

    #[test]
    fn lengths_join_until_the_first_that_is_no_quicker() {
        let first = points(&[(32, 5.0), (64, 8.0), (128, 12.0), (256, 30.0)], &[]);
        let second = points(&[(32, 3.0), (64, 7.0), (128, 12.0), (256, 20.0)], &[]);
        let expected = Range {
            max_tokens: 64,
            max_questions: 1,
        };
        assert_eq!(takes(first.clone(), second.clone()), Some(expected));
        assert_eq!(takes(second, first), None);
    }

    #[test]
    fn questions_join_where_every_length_that_joined_is_quicker() {
        let first = points(&[(32, 5.0), (64, 8.0)], &[(32, 9.0), (64, 15.0)]);
        let second = points(&[(32, 3.0), (64, 7.0)], &[(32, 6.0), (64, 14.0)]);
        let questions = |second| takes(first.clone(), second).map(|range| range.max_questions);
        assert_eq!(questions(second), Some(2));
        let slower = points(&[(32, 3.0), (64, 7.0)], &[(32, 6.0), (64, 15.0)]);
        assert_eq!(questions(slower), Some(1));
        // What it does not take at all is no time.
        assert_eq!(questions(points(&[(32, 3.0), (64, 7.0)], &[])), Some(1));
    }

    #[test]
    fn a_profile_is_read_as_it_was_written_and_others_are_refused() {
        let points = points(&[(32, 5.0)], &[]);
        let profile = Profile::new(
            machine(),
            vec![("a".to_owned(), Identity::default(), points)],
        );
        assert_eq!(Profile::read(&profile.text()), Ok(profile.clone()));
        let other = profile.text().replace("\"format\": 1", "\"format\": 2");
        assert_eq!(
            Profile::read(&other),
            Err("its format is 2, not 1".to_owned())
        );
        assert!(
            Profile::read("{}")
                .unwrap_err()
                .starts_with("it is no profile")
        );
    }

    #[test]
    fn an_identity_holds_what_the_lane_is_and_not_how_it_does() {
        let health = json!({
            "checkpoint": "demo", "revision": null, "checkpoint_hash": "f0", "device": "cpu", "uptime_s": 3,
            "engine": "onnx", "artifact": "abc", "weights_dtype": "int8", "parity": {"passed": true},
        });
        let identity = Identity::of(&health);
        assert_eq!(
            identity.to_string(),
            "checkpoint demo, revision none, files f0, device cpu, artifact abc, engine onnx, weights_dtype int8"
        );
    }
}
