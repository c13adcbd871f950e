//! The result as a page of Markdown: the bars first, then the numbers behind them, then where they come from.

// The report is for the person at the terminal, or for the file that they send it to.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;

use anyhow::Context as _;

use super::memory::Memory;
use super::results::Results;
use super::rounds::Sample;
use super::servers::{SETTINGS, Target};
use super::wrk::CONNECTIONS;
use crate::bench::statistics::Quartiles;

/// Which side of the bar is good.
#[derive(Clone, Copy)]
enum Good {
    AtLeast,
    AtMost,
}

/// One line of the first table.
struct Line {
    name: &'static str,
    measured: Quartiles,
    good: Good,
    bar: f64,
    aim: f64,
    decimals: usize,
}

impl Line {
    fn render(&self) -> String {
        let Quartiles {
            lower,
            median,
            upper,
        } = self.measured;
        let (decimals, sign) = (
            self.decimals,
            match self.good {
                Good::AtLeast => "≥",
                Good::AtMost => "≤",
            },
        );
        format!(
            "| {} | {median:.decimals$} | {lower:.decimals$} to {upper:.decimals$} | {sign} {} | {sign} {} | {} |",
            self.name,
            self.bar,
            self.aim,
            verdict(median, self.good, self.bar, self.aim)
        )
    }
}

fn verdict(value: f64, good: Good, bar: f64, aim: f64) -> &'static str {
    let reaches = |limit| match good {
        Good::AtLeast => value >= limit,
        Good::AtMost => value <= limit,
    };
    match (reaches(bar), reaches(aim)) {
        (true, true) => "PASS, aim met",
        (true, false) => "PASS",
        (false, _) => "short",
    }
}

/// Prints the page on standard output.
pub(super) fn print(results: &Results) -> anyhow::Result<()> {
    println!("{}", render(results)?);
    Ok(())
}

fn render(results: &Results) -> anyhow::Result<String> {
    let missing = "a target has no sample";
    let lines = bars(results).context(missing)?;
    let mut page = String::from(
        "# The frontend against nginx\n\n\
         | omni-jev | median | quartiles | bar | aim | |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for line in lines {
        writeln!(page, "{}", line.render())?;
    }
    let errors: u32 = Target::ALL
        .map(|target| results.errors(target))
        .iter()
        .sum();
    let passed = verdict(f64::from(errors), Good::AtMost, 0.0, 0.0);
    writeln!(
        page,
        "| errors in the whole run | {errors} | | 0 | 0 | {passed} |\n"
    )?;
    page += &details(results).context(missing)?;
    page += &origin(results)?;
    Ok(page)
}

/// The bars and aims that the frontend has to meet.
fn bars(results: &Results) -> Option<Vec<Line>> {
    use Good::{AtLeast, AtMost};
    use Target::{Direct, Nginx, OmniJev};
    let ratio = |value: fn(&Sample) -> Option<f64>| {
        results.paired(OmniJev, Nginx, value, |ours, theirs| ours / theirs)
    };
    let line = |name, measured, good, bar, aim, decimals| {
        Some(Line {
            name,
            measured: measured?,
            good,
            bar,
            aim,
            decimals,
        })
    };
    let memory = |value: fn(&Memory) -> u32| results.megabytes(OmniJev, value);
    let added = results.paired(OmniJev, Direct, p50, |proxied, direct| proxied - direct);
    [
        line(
            "requests/s, of nginx's",
            ratio(rate),
            AtLeast,
            0.95,
            1.10,
            3,
        ),
        line(
            "CPU a request, of nginx's",
            ratio(Sample::cpu_us),
            AtMost,
            1.15,
            0.95,
            3,
        ),
        line(
            "added p50 at one connection, µs",
            added,
            AtMost,
            30.0,
            20.0,
            1,
        ),
        line(
            "resident MB, idle",
            memory(|at| at.idle_kb),
            AtMost,
            10.0,
            5.0,
            1,
        ),
        line(
            "resident MB, 1,000 idle connections",
            memory(|at| at.connections_kb),
            AtMost,
            20.0,
            15.0,
            1,
        ),
        line(
            "resident MB, 1,000 requests in flight",
            memory(|at| at.in_flight_kb),
            AtMost,
            45.0,
            25.0,
            1,
        ),
    ]
    .into_iter()
    .collect()
}

// The same shape for all of them, `Sample::cpu_us` included, which has no value without a proxy.
#[allow(clippy::unnecessary_wraps)]
fn rate(sample: &Sample) -> Option<f64> {
    Some(sample.load.requests_per_second())
}

#[allow(clippy::unnecessary_wraps)]
fn p50(sample: &Sample) -> Option<f64> {
    Some(sample.latency.p50_us)
}

#[allow(clippy::unnecessary_wraps)]
fn p99(sample: &Sample) -> Option<f64> {
    Some(sample.latency.p99_us)
}

/// The second table: each target by itself.
fn details(results: &Results) -> Option<String> {
    let median = |quartiles: Option<Quartiles>, decimals: usize| {
        quartiles.map_or_else(String::new, |found| format!("{:.decimals$}", found.median))
    };
    let added = |target, value: fn(&Sample) -> Option<f64>| {
        results.paired(target, Target::Direct, value, |proxied, direct| {
            proxied - direct
        })
    };
    let mut table =
        String::from("| medians | nginx | omni-jev | direct |\n| --- | --- | --- | --- |\n");
    let mut row = |name: &str, cell: &dyn Fn(Target) -> String| {
        let cells = Target::ALL.map(cell).join(" | ");
        writeln!(table, "| {name} | {cells} |").ok()
    };
    let two = |first: String, second: String| {
        if first.is_empty() {
            first
        } else {
            format!("{first} / {second}")
        }
    };
    row("requests/s", &|target| {
        median(results.each(target, rate), 0)
    })?;
    row("CPU a request, µs", &|target| {
        median(results.each(target, Sample::cpu_us), 1)
    })?;
    row(
        &format!("p50 / p99 at {CONNECTIONS} connections, µs"),
        &|target| {
            let p50 = results.each(target, |sample| Some(sample.load.p50_us.into()));
            let p99 = results.each(target, |sample| Some(sample.load.p99_us.into()));
            two(median(p50, 0), median(p99, 0))
        },
    )?;
    row("p50 / p99 at one connection, µs", &|target| {
        two(
            median(results.each(target, p50), 1),
            median(results.each(target, p99), 1),
        )
    })?;
    row(
        "added p50 / p99 at one connection, µs",
        &|target| match target {
            Target::Direct => String::new(),
            _ => two(median(added(target, p50), 1), median(added(target, p99), 1)),
        },
    )?;
    row("resident MB, idle", &|target| {
        median(results.megabytes(target, |at| at.idle_kb), 1)
    })?;
    row("resident MB, 1,000 idle connections", &|target| {
        median(results.megabytes(target, |at| at.connections_kb), 1)
    })?;
    row("resident MB, 1,000 requests in flight", &|target| {
        median(results.megabytes(target, |at| at.in_flight_kb), 1)
    })?;
    row("errors", &|target| results.errors(target).to_string())?;
    Some(table)
}

/// How and where it was measured.
fn origin(results: &Results) -> anyhow::Result<String> {
    let (plan, place) = (&results.plan, &results.environment);
    let settings = SETTINGS.map(|(name, value)| format!("`{name}={value}`"));
    let mut text = format!(
        "\n{} rounds, in each every target started afresh in a shuffled order (seed {}): 1 s of warm-up, {} s of \
         wrk with {CONNECTIONS} connections, {} ms of one connection. Ratios and differences are taken within a \
         round; CPU is all processes' user and system time. Memory is the median of {} starts, the sum of all \
         processes' resident pages (nginx: a master and a worker, which share some), read after one request, with \
         1,000 connections that were answered once each, and with a request in flight on each of them.\n\n\
         A POST of 400 bytes is answered by 196. wrk, proxy and backend run on one core. nginx: \
         benchmarks/frontend/nginx.conf (one worker, kept backend connections, access log buffered to a file). \
         omni-jev: access log to a file, metrics and admin listener on, {}.\n\n",
        plan.rounds,
        plan.seed,
        plan.load_seconds,
        plan.latency_milliseconds,
        plan.memory_starts,
        settings.join(", ")
    );
    for (name, value) in [
        ("date", place.date.clone()),
        ("commit", place.commit.clone()),
        (
            "CPU",
            format!("{}, core {} of {}", place.cpu, place.core, place.cores),
        ),
        ("kernel", place.kernel.clone()),
        ("load before", format!("{}", place.load_before)),
        ("programs", place.programs.join("; ")),
    ] {
        writeln!(text, "- {name}: {value}")?;
    }
    if place.load_before > 0.5 {
        text += "\n**The machine was not idle when this began: measure again before you believe it.**\n";
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::results::fixture::results;
    use super::*;

    #[test]
    fn the_page_says_of_every_bar_whether_it_is_met() {
        let page = render(&results()).unwrap();
        for line in [
            "| requests/s, of nginx's | 1.100 | 1.100 to 1.100 | ≥ 0.95 | ≥ 1.1 | PASS, aim met |",
            "| CPU a request, of nginx's | 0.900 | 0.900 to 0.900 | ≤ 1.15 | ≤ 0.95 | PASS, aim met |",
            "| added p50 at one connection, µs | 25.0 | 25.0 to 25.0 | ≤ 30 | ≤ 20 | PASS |",
            "| resident MB, idle | 5.1 | 5.1 to 5.1 | ≤ 10 | ≤ 5 | PASS |",
            "| resident MB, 1,000 requests in flight | 51.2 | 51.2 to 51.2 | ≤ 45 | ≤ 25 | short |",
            "| errors in the whole run | 0 | | 0 | 0 | PASS, aim met |",
            "| CPU a request, µs | 10.0 | 9.0 |  |",
            "| added p50 / p99 at one connection, µs | 26.0 / 52.0 | 25.0 / 50.0 |  |",
        ] {
            assert!(page.contains(line), "no `{line}` in\n{page}");
        }
    }

    #[test]
    fn an_error_anywhere_misses_the_bar() {
        let mut results = results();
        results.samples[0].warm_up_errors = 1;
        results.memory[0].errors = 2;
        let page = render(&results).unwrap();
        assert!(
            page.contains("| errors in the whole run | 3 | | 0 | 0 | short |"),
            "{page}"
        );
        assert!(page.contains("| errors | 2 | 1 | 0 |"), "{page}");
    }

    #[test]
    fn a_busy_machine_is_said_so() {
        let mut results = results();
        assert!(!render(&results).unwrap().contains("not idle"));
        results.environment.load_before = 1.5;
        assert!(render(&results).unwrap().contains("not idle"));
    }
}
