//! A look at a request's body, without keeping any of it.
//!
//! Only as much is read as routing needs. Whether the body is a valid request is for the lane to
//! say: what cannot be scanned goes to the first lane, which answers it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Characters of plain text that make about one token.
const CHARACTERS_A_TOKEN: u32 = 4;
/// The tokens of a row that no text of the request makes: its three marks, and `choice question:`.
const FRAME: u32 = 6;

/// What a body asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scan {
    /// How many questions.
    pub questions: u32,
    /// About how many states: one, unless it is a batch.
    pub states: u32,
    /// The text of the longest state.
    pub state: Weight,
    /// The text of the longest question: its instructions and criteria.
    pub question: Weight,
}

/// How much text there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    /// Characters of ASCII.
    pub ascii: u32,
    /// All others.
    pub other: u32,
    /// Values of any kind: each makes a mark or some punctuation beside its text.
    pub values: u32,
}

/// Reads a body; `None` if it is no JSON object with questions.
pub fn scan(body: &[u8]) -> Option<Scan> {
    let found: Scan = serde_json::from_slice(body).ok()?;
    (found.questions > 0).then_some(found)
}

impl Scan {
    /// About how many tokens the longest row has, judged by its characters.
    pub fn tokens(&self) -> u32 {
        FRAME
            .saturating_add(self.state.tokens())
            .saturating_add(self.question.tokens())
    }
}

impl Weight {
    /// About how many tokens: letters outside of ASCII are mostly a token each.
    pub fn tokens(&self) -> u32 {
        self.ascii
            .div_ceil(CHARACTERS_A_TOKEN)
            .saturating_add(self.other)
            .saturating_add(self.values)
    }

    fn add_text(&mut self, text: &str) {
        let ascii = text.bytes().filter(u8::is_ascii).count();
        // Of a character that is not ASCII exactly one byte is no continuation.
        let other = text.bytes().filter(|&byte| byte >= 0xc0).count();
        self.ascii = self.ascii.saturating_add(number(ascii));
        self.other = self.other.saturating_add(number(other));
    }

    fn add(&mut self, more: Self) {
        self.ascii = self.ascii.saturating_add(more.ascii);
        self.other = self.other.saturating_add(more.other);
        self.values = self.values.saturating_add(more.values);
    }

    fn longer(self, other: Self) -> Self {
        if other.tokens() > self.tokens() {
            other
        } else {
            self
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

// === impl Deserialize ===

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Weigh)
    }
}

/// Weighs a value of any kind.
struct Weigh;

/// A number is a few tokens whatever it is.
const NUMBER: Weight = Weight {
    ascii: 4,
    other: 0,
    values: 1,
};

const NOTHING: Weight = Weight {
    ascii: 0,
    other: 0,
    values: 1,
};

impl<'de> Visitor<'de> for Weigh {
    type Value = Weight;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Weight, E> {
        let mut weight = NOTHING;
        weight.add_text(text);
        Ok(weight)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Weight, E> {
        Ok(NUMBER)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Weight, E> {
        Ok(NUMBER)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Weight, E> {
        Ok(NUMBER)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Weight, E> {
        Ok(NUMBER)
    }

    fn visit_unit<E>(self) -> Result<Weight, E> {
        Ok(NOTHING)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Weight, A::Error> {
        let mut sum = NOTHING;
        while let Some(weight) = list.next_element::<Weight>()? {
            sum.add(weight);
        }
        Ok(sum)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Weight, A::Error> {
        let mut sum = NOTHING;
        while let Some((key, weight)) = map.next_entry::<Weight, Weight>()? {
            sum.add(key);
            sum.add(weight);
        }
        Ok(sum)
    }
}

/// A key of an object, of which only a few are known.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    State,
    States,
    Questions,
    Instructions,
    Criteria,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Scan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Body)
    }
}

struct Body;

impl<'de> Visitor<'de> for Body {
    type Value = Scan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scan, A::Error> {
        let mut scan = Scan {
            states: 1,
            ..Scan::default()
        };
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::State => scan.state = scan.state.longer(map.next_value()?),
                Key::States => {
                    let states: Longest = map.next_value()?;
                    scan.states = states.count.max(1);
                    scan.state = scan.state.longer(states.longest);
                }
                Key::Questions => {
                    let questions: Questions = map.next_value()?;
                    scan.questions = questions.0.count;
                    scan.question = questions.0.longest;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(scan)
    }
}

/// The longest of several.
#[derive(Default)]
struct Longest {
    count: u32,
    longest: Weight,
}

impl Longest {
    fn push(&mut self, weight: Weight) {
        self.count = self.count.saturating_add(1);
        self.longest = self.longest.longer(weight);
    }
}

/// A list of states.
impl<'de> Deserialize<'de> for Longest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct States;

        impl<'de> Visitor<'de> for States {
            type Value = Longest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Longest, A::Error> {
                let mut found = Longest::default();
                while let Some(weight) = list.next_element()? {
                    found.push(weight);
                }
                Ok(found)
            }
        }

        deserializer.deserialize_seq(States)
    }
}

/// Questions by their names.
struct Questions(Longest);

impl<'de> Deserialize<'de> for Questions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> Visitor<'de> for Named {
            type Value = Questions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("questions by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Questions, A::Error> {
                let mut found = Longest::default();
                while let Some((_, question)) = map.next_entry::<IgnoredAny, Question>()? {
                    found.push(question.0);
                }
                Ok(Questions(found))
            }
        }

        deserializer.deserialize_map(Named)
    }
}

/// What of one question is read by the model.
struct Question(Weight);

impl<'de> Deserialize<'de> for Question {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Question;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a question")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Question, A::Error> {
                let mut weight = Weight::default();
                while let Some(key) = map.next_key::<Key>()? {
                    match key {
                        Key::Instructions | Key::Criteria => weight.add(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(Question(weight))
            }
        }

        deserializer.deserialize_map(Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn questions_are_counted_and_the_longest_row_is_weighed() {
        let body = br#"{"model":"m","x":[{"questions":{"a":1}}],"state":{"text":"abcdefgh"},
            "questions":{"a":{"type":"noul","instructions":"abcd"},
            "b":{"type":"choice","instructions":"abcdefghijkl","criteria":{"x":null,"y":"z"}}}}"#;
        let found = scan(body).unwrap();
        assert_eq!((found.questions, found.states), (2, 1));
        assert_eq!(found.state.ascii, 12);
        assert_eq!(found.question.ascii, 12 + 3);
        assert!(found.tokens() > FRAME + 3 + 4);
    }

    #[test]
    fn a_batch_counts_its_states() {
        let body = br#"{"states":["a","bcdefghijk",3],"questions":{"a":{},"b":{}}}"#;
        let found = scan(body).unwrap();
        assert_eq!((found.questions, found.states), (2, 3));
        assert_eq!(found.state.ascii, 10);
    }

    #[test]
    fn letters_that_are_not_ascii_weigh_more() {
        let weight: Weight = serde_json::from_str(r#""h\u00e9 배송""#).unwrap();
        assert_eq!((weight.ascii, weight.other), (2, 3));
    }

    #[test]
    fn what_is_no_request_is_not_scanned() {
        for body in [
            "",
            "[]",
            "{}",
            "{\"questions\":{}}",
            "{\"questions\":[1]}",
            "{\"questions\":{\"a\":{}}} x",
            "{\"questions\":{\"a\":{}}",
        ] {
            assert_eq!(scan(body.as_bytes()), None, "{body}");
        }
        let deep = format!("{{\"state\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(scan(deep.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange_to_be_scanned(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = scan(&bytes);
        }

        #[test]
        fn a_longer_state_never_makes_a_shorter_row(text in "\\PC{0,60}", more in "\\PC{0,30}") {
            let body = |state: &str| serde_json::json!({
                "state": state, "questions": {"q": {"instructions": "Is it?"}},
            }).to_string();
            let short = scan(body(&text).as_bytes()).unwrap().tokens();
            let long = scan(body(&format!("{text}{more}")).as_bytes()).unwrap().tokens();
            prop_assert!(short <= long);
        }
    }
}
