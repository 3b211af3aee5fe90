//! The upper bound: two threads that spawn the processes and wait for them, without shell and
//! queue.

use std::{
    fs::File,
    io,
    process::{Command, Stdio},
    thread,
};

use anyhow::{anyhow, ensure};

use super::workspace::{TaskKind, Workspace};

const THREADS: usize = 2;

pub(super) fn run(workspace: &Workspace, work: TaskKind, count: usize) -> anyhow::Result<f64> {
    let results = workspace.results_file()?;
    workspace.rate(work, count, || {
        thread::scope(|scope| {
            let results = &results;
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut numbers = (0..count).filter(|number| number % THREADS == thread);
                        numbers.try_for_each(|number| one(&workspace.argument(work, number), work, results))
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    })
}

fn one(argument: &str, work: TaskKind, results: &File) -> anyhow::Result<()> {
    match work {
        TaskKind::True => {
            let status = Command::new("true")
                .arg(argument)
                .stdin(Stdio::null())
                .stdout(results.try_clone()?)
                .status()?;
            ensure!(status.success(), "true ended with {status}");
        }
        TaskKind::Count => {
            let (from_sort, to_uniq) = io::pipe()?;
            let mut sort = Command::new("sort").arg(argument).stdin(Stdio::null()).stdout(to_uniq).spawn()?;
            let uniq = Command::new("uniq").arg("-c").stdin(from_sort).stdout(results.try_clone()?).status();
            let (sort, uniq) = (sort.wait()?, uniq?);
            ensure!(sort.success() && uniq.success(), "sort ended with {sort}, uniq with {uniq}");
        }
    }
    Ok(())
}
