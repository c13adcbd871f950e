//! Where settings come from.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::{Figment, Metadata, Profile, Provider, value};

use super::{SettingError, Settings, WorkerArgs};
use crate::flags::{Flags, SettingFlags};

/// What the name of every setting's environment variable begins with.
pub(super) const ENV_PREFIX: &str = "OMNI_JEV_";

/// Variables of that prefix which other parts of the project read; here they are no settings.
const NOT_SETTINGS: [&str; 8] = [
    "BINARY",
    "CONTROL_TOKEN",
    "DEMO_DIR",
    "INSTANCE",
    "LIFELINE",
    "SETUP_PYTHON",
    "SUPERVISOR_PID",
    "TEST_TOKEN",
];

/// Read when it is there and no other file is named.
const DEFAULT_FILE: &str = "omni-jev.toml";

impl Settings {
    /// Reads every source and checks the result.
    ///
    /// # Errors
    ///
    /// The first setting that is unknown, unreadable or at odds with another.
    pub(crate) fn load(flags: &Flags) -> Result<Self, SettingError> {
        let mut settings = Self::load_unmeasured(flags)?;
        settings.read_profile()?;
        settings.check_lanes()?;
        Ok(settings)
    }

    /// The same without a profile: for whoever makes one.
    pub(crate) fn load_unmeasured(flags: &Flags) -> Result<Self, SettingError> {
        let figment = file(flags)?
            .merge(Env::prefixed(ENV_PREFIX).ignore(&NOT_SETTINGS))
            .merge(Named(&flags.settings));
        let mut settings: Self = figment
            .extract()
            .map_err(|error| SettingError::from_figment(&figment, error))?;
        if !flags.for_worker.is_empty() {
            settings.worker_args = Some(WorkerArgs(flags.for_worker.clone()));
        }
        settings.check(flags)?;
        Ok(settings)
    }

    fn check(&self, flags: &Flags) -> Result<(), SettingError> {
        if self.backend_url.is_some() && !flags.for_worker.is_empty() {
            return Err(SettingError::Contradiction {
                setting: "OMNI_JEV_BACKEND_URL",
                reason: "with a backend of its own no worker is started, so there is none to give the flags after `--` to",
            });
        }
        if !self.lane.is_empty() && !flags.for_worker.is_empty() {
            return Err(SettingError::Contradiction {
                setting: "[[lane]]",
                reason: "with servers of its own no worker is started, so there is none to give the flags after `--` to",
            });
        }
        self.check_workers()?;
        let has_key = std::env::var_os("LAYA_API_KEY").is_some_and(|key| !key.is_empty());
        let offered = !self.bind.is_loopback() && self.supervises();
        if offered && !has_key && !self.allow_without_key {
            return Err(SettingError::Contradiction {
                setting: "OMNI_JEV_BIND",
                reason: "other machines can reach this address and the worker would have no key: \
                         set LAYA_API_KEY, or OMNI_JEV_ALLOW_WITHOUT_KEY=true to mean it",
            });
        }
        Ok(())
    }
}

/// The settings of the file that is named, or of the usual one where it exists.
fn file(flags: &Flags) -> Result<Figment, SettingError> {
    match &flags.config {
        Some(path) => match readable(path) {
            Ok(()) => Ok(Figment::from(Toml::file_exact(path))),
            Err(reason) => Err(SettingError::NoFile {
                file: format!("--config {}", path.display()),
                reason,
            }),
        },
        None if Path::new(DEFAULT_FILE).exists() => match readable(Path::new(DEFAULT_FILE)) {
            Ok(()) => Ok(Figment::from(Toml::file_exact(DEFAULT_FILE))),
            Err(reason) => Err(SettingError::NoFile {
                file: DEFAULT_FILE.to_owned(),
                reason,
            }),
        },
        None => Ok(Figment::new()),
    }
}

/// Why a file of settings cannot be read, if so.
fn readable(path: &Path) -> Result<(), String> {
    // Opened, not read: a pipe is read only once.
    match File::open(path).and_then(|file| file.metadata()) {
        Ok(about) if about.is_dir() => Err("it is a folder, not a file".to_owned()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("there is no such file".to_owned())
        }
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

/// The flags as a figment provider with a name of its own, so that an error can say `--bind`.
struct Named<'a>(&'a SettingFlags);

impl Provider for Named<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named("flags")
    }

    fn data(&self) -> Result<value::Map<Profile, value::Dict>, figment::Error> {
        Serialized::defaults(self.0).data()
    }
}
