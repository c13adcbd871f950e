//! What a lane takes: `takes`, `max_tokens` and `max_questions` of a `[[worker]]` or `[[lane]]` table.

use omni_jev_frontend::{Endpoint, Limits, Prior};
use omni_jev_lanes::Identity;
use serde::Deserialize;

use super::workers::{Names, Worker, WorkerTable};
use super::{SettingError, Settings};

/// The tokens and questions of what `short-single` takes.
const SHORT: u32 = 128;
const SINGLE: u32 = 1;
/// More lanes than anybody has engines for.
const MOST_LANES: usize = 16;

/// The kind of request that a lane takes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Takes {
    /// Whatever is within its limits, of which there are none unless they are set.
    Everything,
    /// One question of 128 tokens at most, unless other limits are set.
    ShortSingle,
    /// No requests: it is only kept alive.
    Nothing,
}

/// The three settings, as they are in a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(super) takes: Option<Takes>,
    pub(super) max_tokens: Option<usize>,
    pub(super) max_questions: Option<usize>,
    pub(super) helps: Option<bool>,
}

/// A table of the file that may be a lane: its own keys, and those of what a lane takes.
///
/// A struct of its own for the latter, flattened into each table, would take the names of keys from the errors: serde
/// neither refuses unknown keys beside a flattened struct nor says in which of its fields a value is wrong.
macro_rules! lane_table {
    ($(#[$about:meta])* $name:ident { $($(#[$how:meta])* $key:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$how])* $key: $kind,)*
            takes: Option<$crate::settings::takes::Takes>,
            #[serde(deserialize_with = "super::values::maybe_at_least_one")]
            max_tokens: Option<usize>,
            #[serde(deserialize_with = "super::values::maybe_at_least_one")]
            max_questions: Option<usize>,
            #[serde(deserialize_with = "super::values::maybe_truth")]
            helps: Option<bool>,
        }

        impl $name {
            /// What its lane takes.
            pub(super) fn share(&self) -> $crate::settings::takes::Share {
                $crate::settings::takes::Share {
                    takes: self.takes,
                    max_tokens: self.max_tokens,
                    max_questions: self.max_questions,
                    helps: self.helps,
                }
            }
        }
    };
}
pub(super) use lane_table;

lane_table! {
    /// One `[[lane]]` table: a server that is not supervised here.
    LaneTable {
        name: Option<String>,
        #[serde(deserialize_with = "super::values::endpoint")]
        url: Option<Endpoint>,
    }
}

/// A lane, with every setting decided.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    /// Whether it also takes what is beyond them, when it has nothing to do or nobody else can.
    pub(crate) helps: bool,
    /// What was measured of it.
    pub(crate) prior: Prior,
    /// What that was of.
    pub(crate) measured: Option<Identity>,
    /// Where it is, if it is not a worker of this process.
    pub(crate) url: Option<Endpoint>,
}

impl Share {
    /// The limits, or `None` if it takes nothing. The first of several takes everything if nothing else is set, and
    /// the others nothing.
    pub(super) fn limits(self, is_first: bool) -> Option<Limits> {
        let number = |given: Option<usize>| given.and_then(|number| u32::try_from(number).ok());
        let (tokens, questions) = (number(self.max_tokens), number(self.max_questions));
        let is_set = tokens.is_some() || questions.is_some();
        match self.takes {
            Some(Takes::Nothing) => None,
            None if !is_first && !is_set => None,
            None | Some(Takes::Everything) => Some(Limits {
                max_tokens: tokens,
                max_questions: questions,
            }),
            Some(Takes::ShortSingle) => Some(Limits {
                max_tokens: tokens.or(Some(SHORT)),
                max_questions: questions.or(Some(SINGLE)),
            }),
        }
    }

    /// Whether its table says anything of what it takes.
    fn is_set(self) -> bool {
        !self.keys().is_empty()
    }

    /// The keys by which it does.
    fn keys(self) -> Vec<&'static str> {
        let keys = [
            ("takes", self.takes.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
            ("max_questions", self.max_questions.is_some()),
        ];
        let set = keys.into_iter().filter(|(_, is_set)| *is_set);
        set.map(|(key, _)| key).collect()
    }

    fn short_single() -> Self {
        Self {
            takes: Some(Takes::ShortSingle),
            ..Self::default()
        }
    }

    /// What is wrong with it, if anything.
    fn fault(self, is_first: bool) -> Option<&'static str> {
        if self.limits(is_first).is_none_or(|limits| !limits.any()) && self.helps == Some(true) {
            return Some("only what has limits can help beyond them");
        }
        if self.takes != Some(Takes::Nothing) {
            return None;
        }
        if is_first {
            Some("the first one answers requests: put it after one that does")
        } else if self.max_tokens.is_some() || self.max_questions.is_some() {
            Some("what takes nothing has no use for max_tokens or max_questions")
        } else {
            None
        }
    }
}

impl Settings {
    /// The lanes in their order: the workers that take something, or the servers of the `[[lane]]` tables. Those of
    /// workers are in the order of the [workers](Settings::workers) with their places there.
    pub(crate) fn lanes(&self) -> Vec<(usize, Lane)> {
        let of_servers = self.lane.iter().enumerate().filter_map(|(place, table)| {
            // A server is named to be asked: unlike a worker it takes everything where nothing else is set.
            let name = table.name.clone()?;
            let mut lane = self.decided(place, name, table.share(), !self.is_auto())?;
            lane.url.clone_from(&table.url);
            Some((place, lane))
        });
        if !self.lane.is_empty() {
            return of_servers.collect();
        }
        let workers = self.workers().into_iter().enumerate();
        let lane = |(place, worker): (usize, Worker)| {
            let share = self.worker.get(place).map(WorkerTable::share);
            let lane = self.decided(place, worker.name, share.unwrap_or_default(), false)?;
            Some((place, lane))
        };
        workers.filter_map(lane).collect()
    }

    /// A lane, if it takes anything: by its table, else by the profile where that is asked for.
    fn decided(&self, place: usize, name: String, share: Share, takes_all: bool) -> Option<Lane> {
        let measured = self.measured().and_then(|profile| profile.lane(&name));
        let is_first = place == 0 || takes_all;
        let (limits, helps) = if self.is_auto() && place > 0 && !share.is_set() {
            let range = match self.measured() {
                Some(_) => Limits::from(measured?.takes?),
                // Asked to go on without a profile.
                None => Share::short_single().limits(false)?,
            };
            (range, true)
        } else {
            (share.limits(is_first)?, share.helps.unwrap_or(false))
        };
        Some(Lane {
            name,
            limits,
            helps,
            prior: measured.map_or_else(Prior::built_in, |lane| {
                Prior::measured(lane.points.iter().copied())
            }),
            measured: measured.map(|lane| lane.identity.clone()),
            url: None,
        })
    }

    /// A sentence for each lane whose table says what it takes, so that the measured limits are not used for it. The
    /// first one has no such limits.
    pub(crate) fn unmeasured_limits(&self) -> Vec<String> {
        let workers = self.workers().into_iter().map(|worker| worker.name);
        let workers = workers.zip(self.worker.iter().map(WorkerTable::share));
        let servers = self.lane.iter();
        let servers = servers.filter_map(|table| Some((table.name.clone()?, table.share())));
        let of_workers = workers.skip(1).map(|lane| ("worker", lane));
        let of_servers = servers.skip(1).map(|lane| ("lane", lane));
        let tables = of_workers.chain(of_servers);
        let set = tables.filter(|(_, (_, share))| share.is_set());
        set.map(|(kind, (name, share))| {
            let keys = share.keys().join(" and ");
            format!(
                "{name} keeps what its [[{kind}]] table says ({keys}), and not the measured limits: \
                 take that out to let the measurement decide"
            )
        })
        .collect()
    }

    /// The places of the workers that are at work at the same time. Where the profile says what each takes, it was
    /// measured with all of them.
    pub(crate) fn busy_workers(&self) -> Vec<usize> {
        if self.is_auto() {
            return (0..self.workers().len()).collect();
        }
        self.lanes().into_iter().map(|(place, _)| place).collect()
    }

    /// The servers of the `[[lane]]` tables, whatever they take.
    pub(crate) fn servers(&self) -> Vec<(String, Endpoint)> {
        let named = |table: &LaneTable| Some((table.name.clone()?, table.url.clone()?));
        self.lane.iter().filter_map(named).collect()
    }

    /// Whether this process starts the workers that answer.
    pub(crate) fn supervises(&self) -> bool {
        self.backend_url.is_none() && self.lane.is_empty()
    }

    /// Whether requests are looked at, to choose between lanes or to be traced; else they are only passed on.
    pub(crate) fn has_lanes(&self) -> bool {
        self.backend_url.is_none()
            && (self.trace.is_some() || !self.lane.is_empty() || self.lanes().len() > 1)
    }

    /// Checks what a table alone cannot know.
    pub(super) fn check_lanes(&self) -> Result<(), SettingError> {
        self.check_contradictions()?;
        let shares = self.worker.iter().map(WorkerTable::share);
        let kind = if self.lane.is_empty() {
            "worker"
        } else {
            "lane"
        };
        let shares: Vec<Share> = shares
            .chain(self.lane.iter().map(LaneTable::share))
            .collect();
        for (number, share) in shares.into_iter().enumerate() {
            if let Some(reason) = share.fault(number == 0) {
                let key = if share.helps == Some(true) {
                    "helps"
                } else {
                    "takes"
                };
                return Err(invalid(kind, number, key, reason));
            }
        }
        let mut names = Names::default();
        for (number, table) in self.lane.iter().enumerate() {
            if let Err(reason) = names.take(table.name.as_deref()) {
                return Err(invalid("lane", number, "name", reason));
            }
            if table.url.is_none() {
                return Err(invalid("lane", number, "url", "each [[lane]] needs a url"));
            }
        }
        if self.lanes().len() > MOST_LANES {
            return Err(invalid(
                kind,
                MOST_LANES,
                "takes",
                "16 lanes are the most there may be",
            ));
        }
        Ok(())
    }

    fn check_contradictions(&self) -> Result<(), SettingError> {
        let contradiction = |setting, reason| Err(SettingError::Contradiction { setting, reason });
        if !self.lane.is_empty() && self.backend_url.is_some() {
            return contradiction(
                "OMNI_JEV_BACKEND_URL",
                "the [[lane]] tables name backends already: give this one a table too, or none",
            );
        }
        if !self.lane.is_empty() && !self.worker.is_empty() {
            return contradiction(
                "[[lane]]",
                "with servers of its own no worker is started, so there is none for the [[worker]] tables",
            );
        }
        if self.backend_url.is_some() && self.trace.is_some() {
            return contradiction(
                "OMNI_JEV_TRACE",
                "with OMNI_JEV_BACKEND_URL requests are not looked at: name the backend in a [[lane]] table",
            );
        }
        Ok(())
    }
}

fn invalid(table: &str, number: usize, key: &str, reason: &str) -> SettingError {
    SettingError::Invalid {
        setting: format!("{table}[{number}].{key}"),
        reason: reason.to_owned(),
    }
}
