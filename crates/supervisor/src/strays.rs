//! Processes of a dead worker that left its process group, as a daemon does.

/// Kills every process that carries this instance's name in the environment it was started with.
/// The name is random, so no other process can have it by chance.
#[cfg(target_os = "linux")]
pub(crate) fn kill(instance: &str) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let mark = format!("OMNI_JEV_INSTANCE={instance}");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return;
    };
    for entry in entries.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid.map(Pid::from_raw) else {
            continue;
        };
        // Those of other users cannot be read, and are not ours.
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else {
            continue;
        };
        if environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark.as_bytes())
        {
            // It may have ended by itself meanwhile.
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// Elsewhere another process's environment cannot be read without a special right: what left the
/// group is left alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn kill(_instance: &str) {}
