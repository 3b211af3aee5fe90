//! Progress line and summary of a run.

use std::collections::BTreeMap;

use super::ledger::ChaosLedger;

/// Greatest number of losses that are printed.
const MAX_SHOWN: usize = 50;

/// Returns the progress line.
pub(super) fn line(ledger: &ChaosLedger) -> String {
    let content = ledger.content();
    let sum = |counts: &BTreeMap<&str, u64>| counts.values().sum::<u64>();
    let (completed, jobs) =
        (content.completed(), content.acknowledged.get("jobs").copied().unwrap_or_default());
    let (faults, lost) = (sum(&content.faults), content.lost.len());
    format!("{completed} of {jobs} jobs completed, {faults} faults, {lost} lost")
}

/// Prints the summary, and returns the number of losses.
pub(super) fn print(ledger: &ChaosLedger, minutes: f64, seed: u64) -> usize {
    let content = ledger.content();
    println!("\nchaos, {minutes} minutes, seed {seed}");
    table("acknowledged", &content.acknowledged);
    table("faults", &content.faults);
    table("besides", &content.notes);
    let completed = content.completed();
    println!("\n{completed:>9}  jobs seen completed");
    println!("{:>9}  lost", content.lost.len());
    content.lost.iter().take(MAX_SHOWN).for_each(|loss| println!("           {loss}"));
    if content.lost.len() > MAX_SHOWN {
        println!("           … and {} more", content.lost.len() - MAX_SHOWN);
    }
    content.lost.len()
}

fn table(name: &str, counts: &BTreeMap<&'static str, u64>) {
    println!("\n{name}");
    counts.iter().for_each(|(kind, count)| println!("{count:>9}  {kind}"));
}
