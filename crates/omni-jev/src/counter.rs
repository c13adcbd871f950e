//! Who counts the tokens of requests, where there are lanes.

use std::sync::Arc;

use omni_jev_frontend::CountTokens;

use crate::settings::Settings;

/// The counter that the settings name, if any.
#[cfg(feature = "tokenizer")]
pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<dyn CountTokens>>, String> {
    let Some(checkpoint) = &settings.tokenizer else {
        return Ok(None);
    };
    match omni_jev_tokens::Counter::of(checkpoint) {
        Ok(counter) => Ok(Some(Arc::new(counter))),
        Err(error) => Err(error.to_string()),
    }
}

/// Nobody: this build cannot.
#[cfg(not(feature = "tokenizer"))]
pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<dyn CountTokens>>, String> {
    match settings.tokenizer {
        Some(_) => Err(
            "this omni-jev was built without a tokenizer: build it with `--features tokenizer`, or \
             leave the setting out, and lengths are judged by the texts"
                .to_owned(),
        ),
        None => Ok(None),
    }
}
