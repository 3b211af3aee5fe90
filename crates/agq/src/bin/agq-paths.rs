//! `agq-paths PATH TIMES`: executes a hot path of agq TIMES times, so that its instructions can be
//! counted.

#![forbid(unsafe_code)]

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, times] = args.as_slice() else { bail!("usage: agq-paths PATH TIMES") };
    agq_server::simulation::run_path(path, times.parse()?)
}
