//! Text of `cargo xtask` without a command.

/// Commands by purpose, with their cost on two cores.
pub(crate) const TEXT: &str = "\
cargo xtask COMMAND    the commands of this repository, with their cost on two cores

Start with these three
  demo            see it work: agq, two workers, agq killed half-way     3.5 min in a fresh clone, then 20 s
  tidy            check structure and documents                          1 s
  test            run everything that CI runs, install what it needs     half an hour, 40 min in a fresh clone

Test one thing
  e2e NAME        end-to-end tests on the real binaries                  6 min once for the release build
  attacks         attacks on sandboxes of this machine, and what stops   1 min after the debug build
                  each of them
  vm              end-to-end tests that need control groups, in a        1 min after the debug build
                  virtual machine
  simulate        seeds of the deterministic simulation                  5 min for the build, then seconds
  crash-images    files as crashes and damage leave them                 2 min
  (cargo nextest run --workspace --all-features --lib NAME runs a unit test, under 1 min after a change)

Generate
  command-table   the table of commands in docs/protocol/README.md       1 s

Test for long
  chaos           the real binaries under random faults                  --minutes N, after the release build
  mutations       mutated programs that a test has to notice             a build for each mutation
  load            a million inputs, thousands of connections             minutes, after the release build

Measure and ship
  bench           speed beside other tools                               5 min with --quick, far longer without
                  --check: count instructions of the hot paths           30 s after the build of the simulation
  dist            static programs, packages, source                      two builds with PGO, 20 min or more

`cargo xtask COMMAND --help` explains the options. CONTRIBUTING.md says where to make a change.
";
