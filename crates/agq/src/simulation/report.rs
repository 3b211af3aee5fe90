//! Output of the simulation programs.

#[expect(clippy::print_stdout, reason = "the lines are the output of the program")]
pub(super) fn say(line: &str) {
    println!("{line}");
}
