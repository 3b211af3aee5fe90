//! `cargo xtask mutations`: changes one place of the sources at a time, and checks that the
//! simulation or chaos fails then. A mutation that nothing notices shows a gap in these tests.

mod both_stores;
mod chaos;
mod crash_images;
mod simulation;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use agenix_harness::{
    binaries,
    report::{RunReport, cargo, must, root, tool},
    tools,
};
use anyhow::{Context, bail, ensure};

use crate::simulate;

/// Number of seeds that are run for a mutation.
const SEEDS: u64 = 5000;
/// Numbers of seeds on both stores and on two nodes that are run for a mutation.
const SEEDS_ON_STORES: u64 = 200;
const SEEDS_ON_NODES: u64 = 8;
/// Number of scenarios of crash images that are run for a mutation.
const SCENARIOS: u64 = 4;
/// Arguments of the chaos that is run for a mutation.
const CHAOS_ARGS: [&str; 2] = ["--minutes=1", "--seed=1"];

/// A text in the sources, and its replacement.
struct Mutation {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Test that has to notice a mutation.
#[derive(Clone, Copy)]
enum Detector {
    /// Seeds of the simulation.
    Simulation,
    /// Crash images, without damage.
    CrashImages,
    /// Seeds on both stores, and on two nodes.
    BothStores,
    /// Chaos, on debug builds.
    Chaos,
}

/// Tries each mutation whose name contains `filter`.
pub(crate) fn run(filter: Option<&str>) -> anyhow::Result<()> {
    let home = binaries::target()?.join("mutations");
    let tree = home.join("tree");
    let wanted =
        |(mutation, _): &(&Mutation, Detector)| filter.is_none_or(|filter| mutation.name.contains(filter));
    let mut survivors = Vec::new();
    for (mutation, detector) in all().filter(wanted) {
        copy(&tree)?;
        let file = tree.join(mutation.file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", mutation.file))?;
        let shown = mutation.from;
        ensure!(text.matches(shown).count() == 1, "{}: '{shown}' is not there exactly once", mutation.file);
        fs::write(&file, text.replace(shown, mutation.to))?;
        let noticed = match detector {
            Detector::Simulation => run_simulation(&tree, &home)?,
            Detector::CrashImages => run_crash_images(&tree, &home)?,
            Detector::BothStores => run_both_stores(&tree, &home)?,
            Detector::Chaos => run_chaos(&tree, &home)?,
        };
        match noticed {
            Some(found) => println!("caught    {}: {found}", mutation.name),
            None => survivors.push(mutation.name),
        }
    }
    if !survivors.is_empty() {
        bail!("no test notices that {}", survivors.join("; nor that "));
    }
    Ok(())
}

/// Returns all mutations, each with the test that has to notice it.
fn all() -> impl Iterator<Item = (&'static Mutation, Detector)> {
    let seeds = simulation::SIMULATION.iter().map(|mutation| (mutation, Detector::Simulation));
    let images = crash_images::CRASH_IMAGES.iter().map(|mutation| (mutation, Detector::CrashImages));
    let stores = both_stores::BOTH_STORES.iter().map(|mutation| (mutation, Detector::BothStores));
    let chaos = chaos::CHAOS.iter().map(|mutation| (mutation, Detector::Chaos));
    seeds.chain(images).chain(stores).chain(chaos)
}

/// Copies the files of the repository with their uncommitted changes.
fn copy(tree: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let listed = git.output().context("git is needed to know which files there are")?;
    for path in String::from_utf8(listed.stdout)?.lines() {
        let (from, to) = (root().join(path), tree.join(path));
        let (Ok(text), Some(dir)) = (fs::read(&from), to.parent()) else { continue };
        fs::create_dir_all(dir)?;
        // An unchanged file keeps its time, so that cargo does not build it again.
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::write(&to, text)?;
        }
    }
    Ok(())
}

/// Builds programs of the tree with the arguments `args`, and returns the target directory.
fn build(tree: &Path, home: &Path, args: &[&str]) -> anyhow::Result<PathBuf> {
    let target = home.join("target");
    let mut build = cargo(&["build", "--quiet", "--locked"]);
    build.args(args).current_dir(tree).env("CARGO_TARGET_DIR", &target);
    // Faster builds: each program runs only for a short time.
    build.env("CARGO_PROFILE_CHECKED_INCREMENTAL", "true").env("CARGO_PROFILE_CHECKED_CODEGEN_UNITS", "64");
    build.env("RUSTFLAGS", "--allow warnings");
    must(&mut build)?;
    Ok(target)
}

fn build_simulation(tree: &Path, home: &Path) -> anyhow::Result<PathBuf> {
    let args =
        ["--profile", "checked", "--package", "agq", "--features", "simulation", "--bin", "agq-simulate"];
    Ok(build(tree, home, &args)?.join("checked/agq-simulate"))
}

/// Runs a simulation. Returns the message of the first seed or scenario that fails.
fn first_failure(simulation: &Path, args: &[&str]) -> anyhow::Result<Option<String>> {
    let output = simulate::command(simulation)?.args(args).output()?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.find(|line| ["seed ", "scenario "].iter().any(|begin| line.starts_with(begin)));
    let line = line.unwrap_or("it fails without a seed");
    Ok(Some(line.chars().take(200).collect()))
}

/// Runs seeds on redb. Returns the message of the first seed that fails.
fn run_simulation(tree: &Path, home: &Path) -> anyhow::Result<Option<String>> {
    first_failure(&build_simulation(tree, home)?, &["seeds", "--seeds", &SEEDS.to_string()])
}

/// Runs crash images without damage. Returns the message of the first scenario that fails.
fn run_crash_images(tree: &Path, home: &Path) -> anyhow::Result<Option<String>> {
    let args = ["images", "--without-damage", "--seeds", &SCENARIOS.to_string()];
    first_failure(&build_simulation(tree, home)?, &args)
}

/// Runs seeds on both stores, and those on two nodes if all pass. Returns the message of a failure.
fn run_both_stores(tree: &Path, home: &Path) -> anyhow::Result<Option<String>> {
    let simulation = build_simulation(tree, home)?;
    let cluster =
        tools::postgres(&mut RunReport::default()).context("there is no PostgreSQL to mutate on")?;
    let store = format!("--store={}", cluster.url());
    let on_both =
        first_failure(&simulation, &["differential", &store, "--seeds", &SEEDS_ON_STORES.to_string()])?;
    let on_nodes = || first_failure(&simulation, &["nodes", &store, "--seeds", &SEEDS_ON_NODES.to_string()]);
    on_both.map_or_else(on_nodes, |found| Ok(Some(found)))
}

/// Runs chaos on debug builds. Returns the error if chaos fails.
fn run_chaos(tree: &Path, home: &Path) -> anyhow::Result<Option<String>> {
    let args = binaries::PROGRAMS.map(|program| ["--package", program]);
    let bin = build(tree, home, &args.concat())?.join("debug");
    // A failed build of the test does not count as a failure that the mutation caused.
    must(&mut cargo(&["build", "--quiet", "--locked", "--bin", "agenix-chaos"]))?;
    let mut chaos = tool("agenix-chaos", &CHAOS_ARGS);
    Ok(must(chaos.arg("--bin").arg(bin)).err().map(|error| format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::{all, root};

    #[test]
    fn every_mutation_finds_its_text_once() {
        for (mutation, _) in all() {
            let text = fs::read_to_string(root().join(mutation.file)).unwrap();
            assert_eq!(text.matches(mutation.from).count(), 1, "{}: {}", mutation.file, mutation.name);
        }
    }

    #[test]
    fn table_of_mutations_has_every_name() {
        let page = fs::read_to_string(root().join("docs/testing.md")).unwrap();
        let rows = page.lines().skip_while(|line| !line.starts_with("| Mutation |")).skip(2);
        let documented: BTreeSet<&str> =
            rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next()).collect();
        let names: BTreeSet<&str> = all().map(|(mutation, _)| mutation.name).collect();
        assert_eq!(documented, names);
    }
}
