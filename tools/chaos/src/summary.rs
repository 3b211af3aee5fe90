//! Progress line and summary of a run.

use std::collections::BTreeMap;

use super::ledger::ChaosLedger;

/// Greatest number of losses that are printed.
const MAX_SHOWN: usize = 50;

/// Returns the progress line.
pub(super) fn line(ledger: &ChaosLedger) -> String {
    let book = ledger.book();
    let sum = |counts: &BTreeMap<&str, u64>| counts.values().sum::<u64>();
    let (completed, jobs) = (book.completed(), book.acknowledged.get("jobs").copied().unwrap_or_default());
    let (faults, lost) = (sum(&book.faults), book.lost.len());
    format!("{completed} of {jobs} jobs completed, {faults} faults, {lost} lost")
}

/// Prints the summary, and returns the number of losses.
pub(super) fn print(ledger: &ChaosLedger, minutes: f64, seed: u64) -> usize {
    let book = ledger.book();
    println!("\nchaos, {minutes} minutes, seed {seed}");
    table("acknowledged", &book.acknowledged);
    table("faults", &book.faults);
    table("besides", &book.notes);
    let completed = book.completed();
    println!("\n{completed:>9}  jobs seen completed");
    println!("{:>9}  lost", book.lost.len());
    book.lost.iter().take(MAX_SHOWN).for_each(|loss| println!("           {loss}"));
    if book.lost.len() > MAX_SHOWN {
        println!("           … and {} more", book.lost.len() - MAX_SHOWN);
    }
    book.lost.len()
}

fn table(name: &str, counts: &BTreeMap<&'static str, u64>) {
    println!("\n{name}");
    counts.iter().for_each(|(kind, count)| println!("{count:>9}  {kind}"));
}
