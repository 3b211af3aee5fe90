//! Compares schedules with runs.txt, the output of an independent program with the rules of cron:
//! see cron/generate.py.

use agenix_protocol::time::Timestamp;
use agenix_rules::cron::next;

/// Number of simulated minutes around each change of the clock.
const MINUTES: u64 = 600;
const MINUTE_MS: u64 = 60_000;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("runs.txt has times in RFC 3339")
}

/// Returns the minutes after `start` in which an expression runs.
fn runs(expression: &str, zone: &str, start: Timestamp) -> Vec<u64> {
    let mut now = Timestamp(start.0 - MINUTE_MS);
    let mut found = Vec::new();
    loop {
        now = next(expression, zone, now).expect("runs.txt has legal expressions and zones");
        if now.0 >= start.0 + MINUTES * MINUTE_MS {
            return found;
        }
        found.push((now.0 - start.0) / MINUTE_MS);
    }
}

#[test]
fn schedules_run_when_cron_runs_them() {
    let (mut place, mut wrong, mut count) = (("", Timestamp(0)), Vec::new(), 0);
    for line in include_str!("cron/runs.txt").lines().filter(|line| !line.starts_with('#')) {
        match *line.split('\t').collect::<Vec<_>>() {
            ["calendar", after, expression, expected] => {
                count += 1;
                let found = next(expression, "UTC", at(after)).unwrap();
                if found != at(expected) {
                    wrong.push(format!("{expression} after {after}: {found}, not {expected}"));
                }
            }
            [zone, start] => place = (zone, at(start)),
            ["", expression, expected] => {
                count += 1;
                let (zone, start) = place;
                let found = runs(expression, zone, start);
                let found = found.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
                if found != expected {
                    wrong.push(format!("{expression} in {zone} from {start}: {found}, not {expected}"));
                }
            }
            _ => panic!("{line} is not of this file"),
        }
    }
    assert!(count > 3000, "{count}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}
