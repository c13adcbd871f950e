//! What every source may say, and what a wrong one is answered.

use clap::Parser as _;
use figment::Jail;

use super::{AdminBind, Settings};
use crate::flags::Flags;

pub(super) fn load(arguments: &[&str]) -> Result<Settings, String> {
    let line = std::iter::once("omni-jev").chain(arguments.iter().copied());
    Settings::load(&Flags::parse_from(line)).map_err(|error| error.to_string())
}

/// Runs `body` in a folder and an environment of its own (figment's errors are large by design).
#[allow(clippy::result_large_err)]
pub(super) fn alone(body: impl FnOnce(&mut Jail)) {
    Jail::expect_with(|jail| {
        jail.clear_env();
        body(jail);
        Ok(())
    });
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    alone(|jail| {
        jail.create_file(
            "omni-jev.toml",
            "bind = \"127.0.0.1:1\"\nmax_in_flight = 7\nmax_connections = 9",
        )
        .unwrap();
        jail.set_env("OMNI_JEV_BIND", "127.0.0.1:2");
        jail.set_env("OMNI_JEV_MAX_IN_FLIGHT", "8");
        let settings = load(&["--bind", "127.0.0.1:3"]).unwrap();
        assert_eq!(settings.bind.0.port(), 3);
        assert_eq!(settings.max_in_flight, 8);
        assert_eq!(settings.max_connections, 9);
    });
}

#[test]
fn the_file_of_a_folder_above_is_not_read() {
    alone(|jail| {
        jail.create_file("omni-jev.toml", "max_in_flight = 7")
            .unwrap();
        jail.create_dir("below").unwrap();
        jail.change_dir("below").unwrap();
        assert_eq!(load(&[]).unwrap().max_in_flight, 512);
    });
}

#[test]
fn an_ipv6_address_and_off_are_read_from_the_environment() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_BIND", "[::1]:9000");
        jail.set_env("OMNI_JEV_ADMIN_BIND", "off");
        let settings = load(&[]).unwrap();
        assert_eq!(settings.bind.0.to_string(), "[::1]:9000");
        assert_eq!(settings.admin_bind, AdminBind::Off);
    });
}

#[test]
fn worker_flags_come_as_a_list_or_as_words_and_the_command_line_replaces_them() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_WORKER_ARGS", "--model '/a folder' --threads 1");
        let words = ["--model", "/a folder", "--threads", "1"];
        assert_eq!(load(&[]).unwrap().first_args().0, words);
        jail.set_env("OMNI_JEV_WORKER_ARGS", r#"["--model", "demo"]"#);
        assert_eq!(load(&[]).unwrap().first_args().0, ["--model", "demo"]);
        assert_eq!(
            load(&["--", "--device", "cpu"]).unwrap().first_args().0,
            ["--device", "cpu"]
        );
    });
}

#[test]
fn a_time_without_a_unit_is_refused_rather_than_guessed() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_BACKEND_TIMEOUT", "60");
        let error = load(&[]).unwrap_err();
        assert!(
            error.starts_with(
                "OMNI_JEV_BACKEND_TIMEOUT: it must be a time above zero with its unit"
            ),
            "{error}"
        );
    });
}

#[test]
fn a_size_is_bytes_or_has_a_binary_or_decimal_unit() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_MAX_REQUEST_BYTES", "500000");
        jail.set_env("OMNI_JEV_MAX_RESPONSE_BYTES", "2 MiB");
        let settings = load(&[]).unwrap();
        assert_eq!(settings.max_request_bytes.0, 500_000);
        assert_eq!(settings.max_response_bytes.0, 2 * 1024 * 1024);
    });
}

#[test]
fn every_source_is_named_by_an_error_in_its_own_words() {
    alone(|jail| {
        let error = load(&["--drain-timeout", "soon"]).unwrap_err();
        assert!(error.starts_with("--drain-timeout: "), "{error}");
        jail.set_env("OMNI_JEV_DRAIN_TIMOUT", "1s");
        assert_eq!(
            load(&[]).unwrap_err(),
            "OMNI_JEV_DRAIN_TIMOUT: there is no such setting"
        );
    });
    alone(|jail| {
        jail.create_file("omni-jev.toml", "bnd = 1").unwrap();
        let error = load(&[]).unwrap_err();
        assert!(
            error.starts_with("bnd in ")
                && error.ends_with("omni-jev.toml: there is no such setting"),
            "{error}"
        );
        jail.create_file("omni-jev.toml", "bind = ").unwrap();
        let error = load(&[]).unwrap_err();
        assert!(
            error.contains("omni-jev.toml: ") && error.lines().count() == 1,
            "{error}"
        );
        let error = load(&["--config", "other.toml"]).unwrap_err();
        assert_eq!(error, "--config other.toml: there is no such file");
    });
}

#[test]
fn variables_that_other_parts_read_are_no_settings() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_TEST_TOKEN", "secret");
        assert!(load(&[]).is_ok());
    });
}

#[test]
fn a_worker_without_a_key_is_offered_beyond_this_machine_only_when_that_is_said() {
    alone(|jail| {
        jail.set_env("OMNI_JEV_BIND", "0.0.0.0:8080");
        let error = load(&[]).unwrap_err();
        assert!(
            error.starts_with("OMNI_JEV_BIND: ") && error.contains("LAYA_API_KEY"),
            "{error}"
        );
        jail.set_env("OMNI_JEV_ALLOW_WITHOUT_KEY", "true");
        assert!(load(&[]).is_ok());
        jail.set_env("OMNI_JEV_ALLOW_WITHOUT_KEY", "false");
        jail.set_env("LAYA_API_KEY", "key");
        assert!(load(&[]).is_ok());
    });
}

#[test]
fn each_table_is_a_worker_and_the_single_settings_are_the_first_ones() {
    alone(|jail| {
        jail.create_file(
            "omni-jev.toml",
            r#"
            worker_stop_grace = "3s"
            [[worker]]
            name = "main"
            args = "--model demo"
            stop_grace = "1s"
            hang_timeout = "7s"
            [[worker]]
            name = "spare"
            python = "/usr/bin/python3"
            max_rss = "2GiB"
            recover_device = false
            max_failures = 9
            "#,
        )
        .unwrap();
        jail.set_env("OMNI_JEV_WORKER_MAX_RSS", "1GiB");
        let flags = ["--recover-device=false", "--", "--model", "english"];
        let workers = load(&flags).unwrap().workers();
        assert_eq!(workers.len(), 2);
        let (main, spare) = (&workers[0], &workers[1]);
        assert_eq!((main.name.as_str(), spare.name.as_str()), ("main", "spare"));
        assert_eq!(main.args.0, ["--model", "english"]);
        assert_eq!(main.stop_grace.as_secs(), 3);
        assert_eq!(main.hang_timeout.as_secs(), 7);
        assert_eq!(main.max_rss, Some(1 << 30));
        assert!(!main.recover_device);
        assert_eq!(spare.args.0, [""; 0]);
        assert_eq!(spare.stop_grace.as_secs(), 10);
        assert_eq!(spare.hang_timeout.as_secs(), 15);
        assert_eq!((spare.max_rss, spare.max_failures), (Some(2 << 30), 9));
    });
}

#[test]
fn without_tables_there_is_one_worker() {
    alone(|_| {
        let workers = load(&[]).unwrap().workers();
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].name, "worker");
        assert!(workers[0].recover_device);
        assert_eq!((workers[0].max_rss, workers[0].max_failures), (None, 5));
    });
}

#[test]
fn a_wrong_table_is_named_by_its_place() {
    let wrong = |toml: &str, start: &str, end: &str| {
        alone(|jail| {
            let good = "[[worker]]\nname = \"main\"\n[[worker]]\n";
            jail.create_file("omni-jev.toml", &format!("{good}{toml}"))
                .unwrap();
            let error = load(&[]).unwrap_err();
            assert!(error.starts_with(start) && error.ends_with(end), "{error}");
            assert_eq!(error.lines().count(), 1);
        });
    };
    let file = "omni-jev.toml: ";
    wrong("", "worker[1].name: ", "needs a name");
    wrong("name = \"main\"", "worker[1].name: ", "have this name");
    wrong("name = \"A b\"", "worker[1].name: ", "at most 40 of them");
    let unknown = format!("{file}there is no such setting");
    wrong("name = \"b\"\npyhton = 1", "worker[1].pyhton in ", &unknown);
    wrong(
        "name = \"b\"\nstop_grace = \"soon\"",
        "worker[1].stop_grace in ",
        "10m",
    );
    wrong(
        "name = \"b\"\nmax_failures = 0",
        "worker[1].max_failures in ",
        "from 1 to 1000000",
    );
}

#[test]
fn tables_contradict_a_backend_of_its_own() {
    alone(|jail| {
        jail.create_file("omni-jev.toml", "[[worker]]\nname = \"main\"")
            .unwrap();
        jail.set_env("OMNI_JEV_BACKEND_URL", "http://127.0.0.1:1");
        let error = load(&[]).unwrap_err();
        assert!(error.contains("[[worker]]"), "{error}");
    });
}

#[test]
fn a_time_beyond_a_year_is_refused_wherever_it_is_set() {
    for (name, value) in [
        ("OMNI_JEV_BACKEND_TIMEOUT", "500000000000y"),
        ("OMNI_JEV_DRAIN_TIMEOUT", "99999999999999999999s"),
        ("OMNI_JEV_WORKER_START_DEADLINE", "366d"),
        ("OMNI_JEV_WORKER_STOP_GRACE", "500000000000y"),
        ("OMNI_JEV_WORKER_RESTART_WINDOW", "18446744073709551615s"),
        ("OMNI_JEV_WORKER_HANG_TIMEOUT", "2y"),
    ] {
        alone(|jail| {
            jail.set_env(name, value);
            let error = load(&[]).unwrap_err();
            assert_eq!(error, format!("{name}: it must be 365d at most"));
        });
    }
    alone(|jail| {
        jail.create_file(
            "omni-jev.toml",
            "[[worker]]\nname = \"a\"\nstop_grace = \"2y\"",
        )
        .unwrap();
        let error = load(&["--drain-timeout", "365d"]).unwrap_err();
        assert!(error.starts_with("worker[0].stop_grace in "), "{error}");
        assert!(error.ends_with(": it must be 365d at most"), "{error}");
    });
}

#[test]
fn a_count_beyond_all_measure_is_refused_wherever_it_is_set() {
    for value in [
        "0",
        "-1",
        "1e3",
        "1000001",
        "18446744073709551615",
        "4294967296",
    ] {
        alone(|jail| {
            let wrong = load(&[&format!("--max-in-flight={value}")]).unwrap_err();
            assert_eq!(
                wrong,
                "--max-in-flight: it must be a whole number from 1 to 1000000"
            );
            jail.set_env("OMNI_JEV_MAX_CONNECTIONS", value);
            let wrong = load(&[]).unwrap_err();
            assert_eq!(
                wrong,
                "OMNI_JEV_MAX_CONNECTIONS: it must be a whole number from 1 to 1000000"
            );
        });
    }
}

#[test]
fn a_size_beyond_all_measure_is_refused() {
    for value in ["2TiB", "15EiB", "16EiB", "18446744073709551615"] {
        alone(|jail| {
            jail.set_env("OMNI_JEV_MAX_REQUEST_BYTES", value);
            let error = load(&[]).unwrap_err();
            assert_eq!(error, "OMNI_JEV_MAX_REQUEST_BYTES: it must be 1TiB at most");
        });
    }
}

#[test]
fn a_log_filter_of_a_word_that_is_no_level_is_refused() {
    for value in [
        "nonsense",
        "info,nonsense",
        "omni_jev",
        "info,,debug",
        "hunter2=",
    ] {
        alone(|jail| {
            jail.set_env("OMNI_JEV_LOG", value);
            let error = load(&[]).unwrap_err();
            assert!(
                error.starts_with("OMNI_JEV_LOG: it must be error"),
                "{error}"
            );
        });
    }
    for value in ["OFF", "warn", "info,worker=debug", "info,omni_jev=trace"] {
        alone(|_| {
            assert_eq!(load(&["--log", value]).unwrap().log.0, value);
        });
    }
}

#[test]
fn a_yes_or_no_is_one_of_two_words() {
    for value in ["1", "yes", "\"hunter2\"", "[1]"] {
        alone(|jail| {
            jail.set_env("OMNI_JEV_ALLOW_WITHOUT_KEY", value);
            assert_eq!(
                load(&[]).unwrap_err(),
                "OMNI_JEV_ALLOW_WITHOUT_KEY: it must be true or false"
            );
        });
    }
    alone(|_| {
        let settings = load(&["--recover-device=false"]).unwrap();
        assert!(!settings.workers()[0].recover_device);
        assert!(load(&["--recover-device"]).unwrap().workers()[0].recover_device);
        assert_eq!(
            load(&["--recover-device=hunter2"]).unwrap_err(),
            "--recover-device: it must be true or false"
        );
    });
}

#[test]
fn a_file_of_settings_that_cannot_be_read_is_said_to_be_what_it_is() {
    alone(|jail| {
        jail.create_dir("folder").unwrap();
        assert_eq!(
            load(&["--config", "folder"]).unwrap_err(),
            "--config folder: it is a folder, not a file"
        );
        assert_eq!(
            load(&["--config", "nowhere"]).unwrap_err(),
            "--config nowhere: there is no such file"
        );
        assert!(load(&["--config", "/dev/null"]).is_ok());
        jail.create_dir("omni-jev.toml").unwrap();
        assert_eq!(
            load(&[]).unwrap_err(),
            "omni-jev.toml: it is a folder, not a file"
        );
    });
}
