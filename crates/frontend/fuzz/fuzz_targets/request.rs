//! A client's bytes: whatever they are, the backend gets well-formed requests only.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Err(why) = omni_jev_frontend::fuzzing::check(input) {
        panic!("{why}");
    }
});
