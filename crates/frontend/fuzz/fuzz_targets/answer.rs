//! A backend's bytes: whatever they are, the client gets one whole answer.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Err(why) = omni_jev_frontend::fuzzing::check_answer(input) {
        panic!("{why}");
    }
});
