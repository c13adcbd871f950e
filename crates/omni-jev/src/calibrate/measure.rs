//! The measuring itself: every lane in turn, and what its answers say of the requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use omni_jev_frontend::{Endpoint, Point};
use omni_jev_lanes::Identity;
use tracing::{info, warn};

use super::client::{Answer, Client};
use super::{CalibrateError, CalibrateFlags, requests};

/// What came of it.
pub(super) struct Measurement {
    pub(super) lanes: Vec<(String, Identity, Vec<Point>)>,
    /// What a person should know of it, a line each.
    pub(super) notes: Vec<String>,
}

/// A lane that is measured.
struct Subject {
    name: String,
    client: Client,
    identity: Identity,
    /// The most tokens of a row that it takes whole, where it tells.
    window: Option<u32>,
    points: Vec<Point>,
}

/// All that is measured, and what was seen meanwhile.
struct Round<'a> {
    asked: &'a CalibrateFlags,
    subjects: Vec<Subject>,
    /// How many requests were made: each is another.
    made: u64,
    /// The lengths of rows that answers told, by the length that was asked for.
    told: BTreeMap<u32, Vec<u32>>,
    notes: Vec<String>,
}

/// Measures every kind of request at every lane.
pub(super) async fn measured(
    asked: &CalibrateFlags,
    endpoints: Vec<(String, Endpoint)>,
) -> Result<Measurement, CalibrateError> {
    let mut round = Round {
        asked,
        subjects: subjects(endpoints).await?,
        made: 0,
        told: BTreeMap::new(),
        notes: Vec::new(),
    };
    let lengths = round.lengths()?;
    for &questions in &asked.questions {
        for &tokens in &lengths {
            round.measure(tokens, questions).await?;
        }
    }
    round.finished()
}

async fn subjects(endpoints: Vec<(String, Endpoint)>) -> Result<Vec<Subject>, CalibrateError> {
    let mut subjects = Vec::new();
    for (name, endpoint) in endpoints {
        let failed = |source| CalibrateError::Ask {
            name: name.clone(),
            source,
        };
        let mut client = Client::connect(&endpoint).await.map_err(failed)?;
        let health = client.health().await.map_err(failed)?;
        let window = health["window"].as_u64();
        subjects.push(Subject {
            identity: Identity::of(&health),
            window: window.and_then(|window| u32::try_from(window).ok()),
            name,
            client,
            points: Vec::new(),
        });
    }
    Ok(subjects)
}

// === impl Round ===

impl Round<'_> {
    /// The lengths that fit every lane's window: what is longer would be cut, and measured as what it is not.
    fn lengths(&mut self) -> Result<Vec<u32>, CalibrateError> {
        let known = self.subjects.iter();
        let known = known.filter_map(|subject| Some((subject.window?, subject.name.clone())));
        let Some((window, name)) = known.min() else {
            return Ok(self.asked.lengths.clone());
        };
        let (fitting, longer): (Vec<u32>, Vec<u32>) = self
            .asked
            .lengths
            .iter()
            .partition(|&&tokens| tokens <= window);
        if fitting.is_empty() {
            return Err(CalibrateError::TooLong { name, window });
        }
        for tokens in longer {
            self.note(format!(
                "{tokens} tokens were not measured: the window of {name} is {window}"
            ));
        }
        Ok(fitting)
    }

    /// Measures one kind of request at every lane, in turn. A lane that does not take it whole has no such point.
    async fn measure(&mut self, tokens: u32, questions: u32) -> Result<(), CalibrateError> {
        let mut times = vec![Ok(Vec::new()); self.subjects.len()];
        for round in 0..self.asked.warmup + self.asked.iterations {
            for (subject, times) in self.subjects.iter_mut().zip(&mut times) {
                let Ok(kept) = times else {
                    continue;
                };
                let Some(body) = requests::body(tokens, questions, self.made) else {
                    return Ok(());
                };
                self.made += 1;
                let begun = Instant::now();
                let answer = subject.client.decide(body).await;
                let took = begun.elapsed();
                let answer = answer.map_err(|source| CalibrateError::Ask {
                    name: subject.name.clone(),
                    source,
                })?;
                if let Some(reason) = unfit(&answer) {
                    *times = Err(reason);
                } else if round >= self.asked.warmup {
                    kept.push(took);
                    // All its questions are the same, so that its rows are equally long.
                    let row = answer.tokens.map(|all| all / questions);
                    self.told.entry(tokens).or_default().extend(row);
                }
            }
        }
        self.keep(tokens, questions, times);
        Ok(())
    }

    fn keep(&mut self, tokens: u32, questions: u32, times: Vec<Result<Vec<Duration>, String>>) {
        let mut unmeasured = Vec::new();
        for (subject, times) in self.subjects.iter_mut().zip(times) {
            let lane = &subject.name;
            match times.map(median) {
                Ok(Some(median)) => {
                    let p50_ms = median.as_secs_f64() * 1000.0;
                    info!(lane, tokens, questions, p50_ms, "measured");
                    subject.points.push(Point {
                        tokens,
                        questions,
                        seconds: median.as_secs_f64(),
                    });
                }
                Ok(None) => {}
                Err(reason) => unmeasured.push(format!(
                    "{lane} was not measured with {questions} questions of {tokens} tokens: {reason}"
                )),
            }
        }
        for note in unmeasured {
            self.note(note);
        }
    }

    /// What was measured, with the lengths that the answers told.
    fn finished(mut self) -> Result<Measurement, CalibrateError> {
        if self.subjects.iter().all(|one| one.points.is_empty()) {
            return Err(CalibrateError::Nothing);
        }
        let told = std::mem::take(&mut self.told);
        let told = told.into_iter();
        let told: BTreeMap<u32, u32> = told
            .filter_map(|(asked, counts)| Some((asked, median(counts)?)))
            .collect();
        if told.is_empty() {
            self.note(
                "the lengths are the frontend's own count: no answer has a `usage`".to_owned(),
            );
        } else if told.values().is_sorted_by(|one, next| one < next) {
            for subject in &mut self.subjects {
                for point in &mut subject.points {
                    point.tokens = told.get(&point.tokens).copied().unwrap_or(point.tokens);
                }
            }
        } else {
            self.note(
                "the lengths are the frontend's own count: the answers' `usage` does not grow with them"
                    .to_owned(),
            );
        }
        let lanes = self.subjects.into_iter();
        Ok(Measurement {
            lanes: lanes
                .map(|subject| (subject.name, subject.identity, subject.points))
                .collect(),
            notes: self.notes,
        })
    }

    fn note(&mut self, note: String) {
        warn!("{note}");
        self.notes.push(note);
    }
}

/// Why an answer's time is not that of its request.
fn unfit(answer: &Answer) -> Option<String> {
    if !answer.status.is_success() {
        return Some(format!("it answers {}", answer.status.as_u16()));
    }
    answer
        .is_cut
        .then(|| "it cuts them to its window".to_owned())
}

fn median<T: Copy + Ord>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
