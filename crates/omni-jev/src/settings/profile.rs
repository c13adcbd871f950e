//! The measured profile of the lanes: where it is, and whether it is of this machine.

use std::path::{Path, PathBuf};

use omni_jev_lanes::{Machine, Profile};
use serde::Deserialize;

use super::{SettingError, Settings};

/// Where `omni-jev calibrate` writes and `--lanes auto` reads, unless something else is said.
const DEFAULT_FILE: &str = "omni-jev-profile.json";

/// Where the lanes' limits come from, other than from their tables.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LanesMode {
    /// From the profile.
    Auto,
}

/// What is done with a profile that is of something else.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProfileMismatch {
    /// It stops the process.
    Refuse,
    /// It is not used, and the log says so.
    Ignore,
}

impl Settings {
    pub(crate) fn is_auto(&self) -> bool {
        self.lanes == Some(LanesMode::Auto)
    }

    /// The profile's file.
    pub(crate) fn profile_path(&self) -> PathBuf {
        self.profile.clone().unwrap_or_else(|| DEFAULT_FILE.into())
    }

    /// The profile that is used, if there is any.
    pub(crate) fn measured(&self) -> Option<&Profile> {
        self.measured.as_ref()
    }

    /// Reads the profile, if one is asked for.
    pub(super) fn read_profile(&mut self) -> Result<(), SettingError> {
        if self.profile.is_none() && !self.is_auto() {
            return Ok(());
        }
        match read(&self.profile_path()) {
            Ok(profile) => self.measured = Some(profile),
            Err(reason) if self.profile_mismatch == ProfileMismatch::Ignore => {
                self.profile_note = Some(reason);
            }
            Err(reason) => {
                return Err(SettingError::Invalid {
                    setting: "OMNI_JEV_PROFILE".to_owned(),
                    reason,
                });
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Profile, String> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("{file} cannot be read ({error}): `omni-jev calibrate` makes one")
    })?;
    let profile = Profile::read(&text)
        .map_err(|error| format!("{file}: {error}; `omni-jev calibrate` makes another"))?;
    let here = machine();
    if profile.machine != here {
        return Err(format!(
            "{file} was measured on another machine ({}, {} cores; this one is {}, {} cores): `omni-jev calibrate` \
             measures this one",
            profile.machine.processor, profile.machine.cores, here.processor, here.cores
        ));
    }
    Ok(profile)
}

/// The machine that this runs on.
pub(crate) fn machine() -> Machine {
    Machine {
        system: std::env::consts::OS.to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        processor: processor().unwrap_or_else(|| "unknown".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// As the system calls it.
fn processor() -> Option<String> {
    if let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") {
        let line = text
            .lines()
            .find(|line| line.starts_with("model name") || line.starts_with("CPU part"))?;
        return Some(line.split_once(':')?.1.trim().to_owned());
    }
    let told = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", "machdep.cpu.brand_string"])
        .output()
        .ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
