//! Programs that run the command in their arguments, such as `env` and `timeout`.

/// Wrapper whose command can be found by its options.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    values: &'static str,
    /// Long options that take a value in the next word.
    long_values: &'static [&'static str],
    /// Number of operands before the command.
    operands: usize,
    /// True if words such as `NAME=VALUE` may come before the command.
    has_variables: bool,
}

const fn wrapper(
    name: &'static str,
    values: &'static str,
    long_values: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, values, long_values, operands, has_variables: false }
}

static WRAPPERS: [Wrapper; 15] = [
    wrapper("busybox", "", &[], 0),
    wrapper("chroot", "", &[], 1),
    wrapper("doas", "Cu", &[], 0),
    Wrapper { has_variables: true, ..wrapper("env", "uCS", &["--unset", "--chdir"], 0) },
    wrapper("flock", "wE", &["--timeout", "--wait", "--conflict-exit-code"], 1),
    wrapper("ionice", "cn", &["--class", "--classdata"], 0),
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("setsid", "", &[], 0),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    Wrapper { has_variables: true, ..wrapper("sudo", "CDghpRrTtUu", &["--user", "--group"], 0) },
    wrapper("taskset", "", &[], 1),
    wrapper("timeout", "ks", &["--kill-after", "--signal"], 1),
    wrapper("toybox", "", &[], 0),
    wrapper(
        "xargs",
        "adEILnPs",
        &["--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars"],
        0,
    ),
];
/// Wrappers whose command may be anywhere in their arguments, separated by blanks.
const OTHERS: &str = "bwrap chpst chrt docker fakeroot find firejail gosu kubectl nsenter parallel podman \
    runuser script srun strace su systemd-run time unshare";

/// Returns the name of a program without its directory.
pub(crate) fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

fn is_other(program: &str) -> bool {
    OTHERS.split(' ').any(|other| other == program)
}

pub(crate) fn is_one(program: &str) -> bool {
    is_other(program) || WRAPPERS.iter().any(|wrapper| wrapper.name == program)
}

/// Returns the part of `words` that begins with the program that finally runs, or nothing if the
/// program is not there yet. `is_known` recognises a program behind wrappers whose options are not
/// known.
pub(crate) fn inner<'w, 's>(words: &'w [&'s str], is_known: &dyn Fn(&str) -> bool) -> &'w [&'s str] {
    let mut words = words;
    while let Some((&first, rest)) = words.split_first() {
        let first = name(first);
        if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == first) {
            words = wrapper.command(rest);
        } else if is_other(first) {
            let at = rest.iter().position(|word| is_known(name(word)));
            // The wrapper itself counts as the program if none is known.
            let Some(at) = at else { return words };
            words = &rest[at..];
        } else {
            return words;
        }
    }
    words
}

impl Wrapper {
    fn command<'w, 's>(&self, arguments: &'w [&'s str]) -> &'w [&'s str] {
        let (mut is_value, mut operands, mut options_ended) = (false, self.operands, false);
        for (at, &word) in arguments.iter().enumerate() {
            if std::mem::take(&mut is_value) {
                continue;
            }
            if word == "--" && !options_ended {
                options_ended = true;
            } else if word.len() > 1 && word.starts_with('-') && !options_ended {
                is_value = match word.starts_with("--") {
                    true => self.long_values.contains(&word),
                    // A value may be a part of the word: `-n5`.
                    false => word.find(|c: char| self.values.contains(c)) == Some(word.len() - 1),
                };
            } else if operands > 0 {
                operands -= 1;
            } else if !(self.has_variables && word.contains('=')) {
                return &arguments[at..];
            }
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::inner;

    #[test]
    fn commands_are_found_behind_the_options_of_wrappers() {
        for (line, expected) in [
            ("awk x", "awk x"),
            ("env A=b awk", "awk"),
            ("env -i -u X A=b awk", "awk"),
            ("/usr/bin/env --unset X /usr/bin/awk", "/usr/bin/awk"),
            ("nice -n 5 nohup awk", "awk"),
            ("nice -n5 awk", "awk"),
            ("timeout -k 5 10 awk", "awk"),
            ("timeout --signal KILL 10 awk", "awk"),
            ("stdbuf -oL -e 0 awk", "awk"),
            ("xargs -0n 1 -P4 grep awk", "grep awk"),
            ("busybox awk -F ,", "awk -F ,"),
            ("flock file awk", "awk"),
            ("docker run --rm image awk", "awk"),
            ("docker run image", "docker run image"),
            ("find . -exec awk", "awk"),
            ("timeout 5", ""),
            ("env A=b", ""),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let found = inner(&words, &|program| program == "awk").join(" ");
            assert_eq!(found, expected, "{line}");
        }
    }
}
