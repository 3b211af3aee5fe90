//! What the system itself can do: two threads that start the processes and wait for them. No shell, no queue.

use std::{
    fs::File,
    io,
    process::{Command, Stdio},
    thread,
};

use anyhow::{anyhow, ensure};

use super::desk::{Desk, Work};

const THREADS: usize = 2;

pub(super) fn run(desk: &Desk, work: Work, count: usize) -> anyhow::Result<f64> {
    let sheet = desk.sheet()?;
    desk.rate(work, count, || {
        thread::scope(|scope| {
            let sheet = &sheet;
            let hands: Vec<_> = (0..THREADS)
                .map(|hand| {
                    scope.spawn(move || {
                        let mut numbers = (0..count).filter(|number| number % THREADS == hand);
                        numbers.try_for_each(|number| one(&desk.argument(work, number), work, sheet))
                    })
                })
                .collect();
            hands.into_iter().try_for_each(|hand| hand.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    })
}

fn one(argument: &str, work: Work, sheet: &File) -> anyhow::Result<()> {
    match work {
        Work::True => {
            let status = Command::new("true")
                .arg(argument)
                .stdin(Stdio::null())
                .stdout(sheet.try_clone()?)
                .status()?;
            ensure!(status.success(), "true ended with {status}");
        }
        Work::Count => {
            let (from_sort, to_uniq) = io::pipe()?;
            let mut sort = Command::new("sort").arg(argument).stdin(Stdio::null()).stdout(to_uniq).spawn()?;
            let uniq = Command::new("uniq").arg("-c").stdin(from_sort).stdout(sheet.try_clone()?).status();
            let (sort, uniq) = (sort.wait()?, uniq?);
            ensure!(sort.success() && uniq.success(), "sort ended with {sort}, uniq with {uniq}");
        }
    }
    Ok(())
}
