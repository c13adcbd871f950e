//! What is wrong with a command line, in words of our own: clap's repeat what was typed, which may be a secret in the
//! wrong place.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Longer words are no flags that somebody mistyped.
const LONGEST_FLAG: usize = 40;

const WORKERS_OWN: &str = "the worker's own flags come after `--`";

/// Flags that take numbers from one on.
const AT_LEAST_ONE: [&str; 3] = ["--iterations", "--lengths", "--questions"];

/// One sentence that names the flag, if it was one, and never a value.
pub(crate) fn complaint(error: &Error) -> String {
    format!("{} (omni-jev --help lists the flags)", sentence(error))
}

fn sentence(error: &Error) -> String {
    // Of these kinds it is the flag as it is defined here, but for an unknown one.
    let flag = first_word(error, ContextKind::InvalidArg);
    match (error.kind(), flag) {
        (ErrorKind::UnknownArgument, Some(flag)) => {
            match first_word(error, ContextKind::SuggestedArg) {
                Some(meant) => {
                    format!("{flag}: there is no such flag, but there is {meant}; {WORKERS_OWN}")
                }
                None => format!("{flag}: there is no such flag; {WORKERS_OWN}"),
            }
        }
        (ErrorKind::UnknownArgument, None) => {
            "there is a word that no flag takes; the worker's own come after `--`".to_owned()
        }
        (ErrorKind::InvalidSubcommand, _) => {
            "there is a word that is neither a flag nor a command; the worker's own come after `--`"
                .to_owned()
        }
        (ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, _) => {
            "the command is not whole: status, restart, stop or logs has to follow".to_owned()
        }
        (ErrorKind::ArgumentConflict, Some(flag)) => {
            match first_word(error, ContextKind::PriorArg).filter(|other| *other != flag) {
                Some(other) => format!("{flag}: it does not go together with {other}"),
                None => format!("{flag}: it is given twice, or does not go together with another"),
            }
        }
        (ErrorKind::NoEquals, Some(flag)) => {
            format!("{flag}: its value has to follow an equals sign")
        }
        (ErrorKind::ValueValidation, Some(flag)) if AT_LEAST_ONE.contains(&flag) => {
            format!("{flag}: it must be a whole number, and one at least")
        }
        (ErrorKind::ValueValidation, Some(flag)) => format!("{flag}: it must be a whole number"),
        (ErrorKind::InvalidValue, Some(flag)) if has_no_value(error) => {
            format!("{flag}: it needs a value")
        }
        (ErrorKind::InvalidUtf8, _) => "there is a word that is no text in UTF-8".to_owned(),
        (_, Some(flag)) => format!("{flag}: it cannot be understood as it is written"),
        (_, None) => "the flags cannot be understood as they are written".to_owned(),
    }
}

/// The name in a flag as clap shows it (`--bind <ADDRESS>`), if it is one.
fn first_word(error: &Error, kind: ContextKind) -> Option<&str> {
    let shown = match error.get(kind)? {
        ContextValue::String(text) => text,
        ContextValue::Strings(texts) => texts.first()?,
        _ => return None,
    };
    let end = shown.find([' ', '=', '[']).unwrap_or(shown.len());
    let name = &shown[..end];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_flag = name.starts_with('-') && name.len() <= LONGEST_FLAG && name.bytes().all(is_plain);
    is_flag.then_some(name)
}

fn has_no_value(error: &Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::Flags;

    const SECRET: &str = "http://user:hunter2@host";

    fn said_of(words: &[&str]) -> String {
        let line = std::iter::once("omni-jev").chain(words.iter().copied());
        complaint(&Flags::try_parse_from(line).unwrap_err())
    }

    #[test]
    fn no_complaint_repeats_a_value() {
        let attached = format!("--backendurl={SECRET}");
        let recover = format!("--recover-device-{SECRET}");
        for words in [
            &[SECRET][..],
            &["--max-in-flight", "1", SECRET],
            &["--bind", "a", "--bind", SECRET],
            &[&attached],
            &[&recover],
            &["-p", SECRET],
            &["--log", "info", SECRET],
            &["worker", SECRET],
            &["worker", "status", "--pid", SECRET],
            &["worker", "logs", "-n", SECRET],
            &["worker", "status", "a", SECRET],
            &["--bind", SECRET, "worker", "status"],
        ] {
            let said = said_of(words);
            assert!(!said.contains("hunter2"), "{words:?}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn the_flag_is_named() {
        assert!(
            said_of(&["--backendurl=x"])
                .starts_with("--backendurl: there is no such flag, but there is --backend-url")
        );
        assert_eq!(
            said_of(&["--model", "english"]),
            "--model: there is no such flag; the worker's own flags come after `--` (omni-jev --help lists the flags)"
        );
        assert!(said_of(&["--bind"]).starts_with("--bind: it needs a value"));
        assert!(said_of(&["--bind", "a", "--bind", "b"]).starts_with("--bind: it is given twice"));
        assert!(said_of(&["worker", "status", "--pid", "x"]).starts_with("--pid: "));
        for flag in AT_LEAST_ONE {
            let said = said_of(&["calibrate", flag, "0"]);
            assert!(said.starts_with(&format!("{flag}: ")), "{said}");
            assert!(said.contains("one at least"), "{said}");
        }
        assert!(said_of(&["worker"]).starts_with("the command is not whole"));
    }
}
