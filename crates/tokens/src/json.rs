//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes what its `json.loads` read.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// A value, its keys in their order; of equal keys the last value stands where the first one did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// As Python writes it; `None` where that is not known.
    Number(Option<String>),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    /// A text as it is, all else as JSON: how the model reads a state, instructions and criteria.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            other => {
                let mut out = String::new();
                other.dump(&mut out)?;
                Some(out)
            }
        }
    }

    /// Whether it says nothing, as a criterion.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self, Self::Null) || matches!(self, Self::Text(text) if text.is_empty())
    }

    fn dump(&self, out: &mut String) -> Option<()> {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Number(text) => out.push_str(text.as_ref()?),
            Self::Text(text) => quote(text, out),
            Self::List(values) => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    value.dump(out)?;
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (place, (key, value)) in entries.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    quote(key, out);
                    out.push_str(": ");
                    value.dump(out)?;
                }
                out.push('}');
            }
        }
        Some(())
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                // Writing to a text cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A float as Python writes it. Integers that are too large to be read as such are read as floats
/// here and not there: nothing is known of them.
fn float(number: f64) -> Option<String> {
    let size = number.abs();
    if size >= 1e16 || number == 0.0 && number.is_sign_negative() {
        return None;
    }
    if size != 0.0 && size < 1e-4 {
        // `1e-05`: the exponent has two digits there.
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once("e-")?;
        return Some(format!("{digits}e-{exponent:0>2}"));
    }
    let text = number.to_string();
    Some(if text.contains('.') {
        text
    } else {
        text + ".0"
    })
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Json, E> {
        Ok(Json::Bool(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(Some(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(Some(number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(float(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => entries.push((key, value)),
            }
        }
        Ok(Json::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Option<String> {
        serde_json::from_str::<Json>(json).unwrap().text()
    }

    #[test]
    fn it_is_written_as_python_writes_it() {
        for (given, written) in [
            (r#""a\u0041""#, "aA"),
            (
                r#"{"b":1,"a":[1.50,-2,true,null,1e3],"b":"é\u0001\n/"}"#,
                "{\"b\": \"é\\u0001\\n/\", \"a\": [1.5, -2, true, null, 1000.0]}",
            ),
            ("[]", "[]"),
            ("{}", "{}"),
            (
                "[0.00001, 0.0001, 12345678.9, 1.25e-7]",
                "[1e-05, 0.0001, 12345678.9, 1.25e-07]",
            ),
        ] {
            assert_eq!(text(given).as_deref(), Some(written), "{given}");
        }
    }

    #[test]
    fn a_number_that_python_may_write_otherwise_is_not_guessed() {
        for given in [
            "[1e16]",
            "[123456789012345678901234567890]",
            "[-0]",
            "[1e300]",
        ] {
            assert_eq!(text(given), None, "{given}");
        }
    }
}
