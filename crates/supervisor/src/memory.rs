//! How much of the machine's memory a process holds.

/// The resident memory of a process in bytes; none where that cannot be told.
#[cfg(target_os = "linux")]
pub(crate) fn resident(pid: u32) -> std::future::Ready<Option<u64>> {
    let read = || {
        // A read from /proc never waits.
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        kibibytes(line.trim().strip_suffix("kB")?)
    };
    std::future::ready(read())
}

/// The resident memory of a process in bytes; none where that cannot be told.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn resident(pid: u32) -> Option<u64> {
    let output = tokio::process::Command::new("ps")
        .args(["-o", "rss=", "-p", &pid.to_string()])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    kibibytes(std::str::from_utf8(&output.stdout).ok()?)
}

fn kibibytes(text: &str) -> Option<u64> {
    text.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_process_holds_some_memory_and_nobody_holds_none() {
        let own = resident(std::process::id()).await.unwrap();
        assert!(own > 1024 * 1024, "{own}");
        assert!(own < 1 << 40, "{own}");
        assert_eq!(resident(0x7fff_fff0).await, None);
    }
}
