//! What a run tells people.

use std::collections::BTreeMap;

use super::ledger::Ledger;

/// So many losses tell what is wrong, if any do.
const MOST_SHOWN: usize = 50;

/// One line while it runs.
pub(super) fn line(ledger: &Ledger) -> String {
    let book = ledger.book();
    let sum = |counts: &BTreeMap<&str, u64>| counts.values().sum::<u64>();
    let (completed, jobs) = (book.completed(), book.acknowledged.get("jobs").copied().unwrap_or_default());
    let (faults, lost) = (sum(&book.faults), book.lost.len());
    format!("{completed} of {jobs} jobs completed, {faults} faults, {lost} lost")
}

/// The last lines; how much is lost.
pub(super) fn print(ledger: &Ledger, minutes: f64, seed: u64) -> usize {
    let book = ledger.book();
    println!("\nchaos, {minutes} minutes, seed {seed}");
    table("acknowledged", &book.acknowledged);
    table("faults", &book.faults);
    table("besides", &book.notes);
    let completed = book.completed();
    println!("\n{completed:>9}  jobs seen completed");
    println!("{:>9}  lost", book.lost.len());
    book.lost.iter().take(MOST_SHOWN).for_each(|what| println!("           {what}"));
    if book.lost.len() > MOST_SHOWN {
        println!("           … and {} more", book.lost.len() - MOST_SHOWN);
    }
    book.lost.len()
}

fn table(name: &str, counts: &BTreeMap<&'static str, u64>) {
    println!("\n{name}");
    counts.iter().for_each(|(what, count)| println!("{count:>9}  {what}"));
}
