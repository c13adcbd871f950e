//! A request's texts, as the model reads them.

use serde::Deserialize;

use crate::json::Json;

/// What of a body makes rows.
#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    #[serde(default)]
    state: Option<Json>,
    #[serde(default)]
    states: Option<Vec<Json>>,
    questions: Json,
}

/// One question.
pub(crate) struct Question<'a>(&'a [(String, Json)]);

/// One question's texts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) kind: String,
    pub(crate) instructions: String,
    pub(crate) options: Vec<String>,
}

impl Request {
    /// The states: one, or those of a batch. `None` where there is none.
    pub(crate) fn states(&self) -> Option<&[Json]> {
        match (&self.states, &self.state) {
            (Some(states), None) => Some(states),
            (None, Some(state)) => Some(std::slice::from_ref(state)),
            _ => None,
        }
    }

    pub(crate) fn questions(&self) -> impl Iterator<Item = Question<'_>> {
        let named = match &self.questions {
            Json::Map(named) => named.as_slice(),
            _ => &[],
        };
        named.iter().map(|(_, question)| match question {
            Json::Map(fields) => Question(fields),
            _ => Question(&[]),
        })
    }
}

impl Question<'_> {
    /// Reads it; `None` if the worker would refuse it, or reads it in a way that is not done here.
    pub(crate) fn read(&self) -> Option<Read> {
        let kind = match self.field("type")? {
            Json::Text(kind) => kind.clone(),
            _ => return None,
        };
        let instructions = match self.field("instructions") {
            Some(given) => given.text()?,
            None => String::new(),
        };
        let criteria = self.field("criteria");
        let options = match (kind.as_str(), criteria) {
            // A noul's own labels are upstream's addition, and rare.
            ("noul", _) if self.field("labels").is_some() => return None,
            ("noul", None | Some(Json::Null)) => noul(&[])?,
            ("noul", Some(Json::Map(criteria))) => noul(criteria)?,
            ("choice", Some(Json::Map(criteria))) => choice(criteria)?,
            ("choice", Some(Json::List(labels))) => labels
                .iter()
                .map(|label| match label {
                    Json::Text(label) => Some(label.clone()),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            ("score", Some(Json::List(levels))) => score(levels)?,
            _ => return None,
        };
        Some(Read {
            kind,
            instructions,
            options,
        })
    }

    fn field(&self, name: &str) -> Option<&Json> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }
}

fn noul(criteria: &[(String, Json)]) -> Option<Vec<String>> {
    let side = |name: &str, otherwise: &str| {
        // Of two spellings of a key the last one counts.
        let given = criteria
            .iter()
            .rev()
            .find(|(key, _)| key.to_lowercase() == name);
        match given.filter(|(_, value)| !value.is_blank()) {
            Some((_, value)) => Some(format!("{name}: {}", value.text()?)),
            None => Some(format!("{name}: {otherwise}")),
        }
    };
    Some(vec![
        side("false", "no, the statement does not hold")?,
        side("true", "yes, the statement holds")?,
    ])
}

fn choice(criteria: &[(String, Json)]) -> Option<Vec<String>> {
    let option = |(label, value): &(String, Json)| {
        if value.is_blank() {
            Some(label.clone())
        } else {
            Some(format!("{label}: {}", value.text()?))
        }
    };
    criteria.iter().map(option).collect()
}

fn score(levels: &[Json]) -> Option<Vec<String>> {
    let levels = levels.iter().enumerate();
    levels
        .map(|(place, level)| Some(format!("level {place}: {}", level.text()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(question: &str) -> Option<Vec<String>> {
        let body = format!("{{\"state\": \"\", \"questions\": {{\"q\": {question}}}}}");
        let request: Request = serde_json::from_str(&body).unwrap();
        let read = request.questions().next()?.read()?;
        Some(read.options)
    }

    #[test]
    fn options_are_rendered_as_laya_renders_them() {
        for (question, expected) in [
            (
                r#"{"type":"noul"}"#,
                vec![
                    "false: no, the statement does not hold",
                    "true: yes, the statement holds",
                ],
            ),
            (
                r#"{"type":"noul","criteria":{"True":"y","false":""}}"#,
                vec!["false: no, the statement does not hold", "true: y"],
            ),
            (
                r#"{"type":"choice","criteria":{"b":null,"a":{"n":1}}}"#,
                vec!["b", "a: {\"n\": 1}"],
            ),
            (r#"{"type":"choice","criteria":["b","a"]}"#, vec!["b", "a"]),
            (
                r#"{"type":"score","criteria":["x",["y"]]}"#,
                vec!["level 0: x", "level 1: [\"y\"]"],
            ),
        ] {
            assert_eq!(options(question).unwrap(), expected, "{question}");
        }
    }

    #[test]
    fn what_is_read_otherwise_is_not_read() {
        for question in [
            "{}",
            r#"{"type":"other"}"#,
            r#"{"type":"choice"}"#,
            r#"{"type":"noul","labels":{"true":"a","false":"b"}}"#,
        ] {
            assert_eq!(options(question), None, "{question}");
        }
    }
}
