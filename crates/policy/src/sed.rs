//! Scripts of sed that a policy allows: the commands `p`, `d` and `s`, which touch no file and run
//! no program.

/// Characters that separate the parts of `s`.
const DELIMITERS: &str = "/|,#@:%!~_+=";

/// Checks a whole script.
///
/// # Errors
///
/// Returns the reason for the first command that is not allowed.
pub(crate) fn check(script: &str) -> Result<(), String> {
    // A backslash at the end would continue the command in the next script of the command line.
    if script.is_empty() || script.ends_with('\\') || script.contains(['\0', '\r']) {
        return Err("a script of sed is not empty, and does not end with a backslash".into());
    }
    // In some locales, a delimiter can be the second byte of a character, where sed skips it.
    if !script.is_ascii() {
        return Err("a script of sed has ASCII characters only, because others depend on the locale".into());
    }
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';', '\n']);
        if rest.is_empty() {
            return Ok(());
        }
        rest = command(address(rest)?)?.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with([';', '\n']) {
            return Err(format!("'{rest}' follows a command of sed: write ; between commands"));
        }
    }
}

/// Removes the addresses before a command.
fn address(text: &str) -> Result<&str, String> {
    let mut rest = one_address(text)?;
    if let Some(second) = rest.strip_prefix(',') {
        let second = second.trim_start_matches(' ');
        rest = one_address(second.strip_prefix(['+', '~']).unwrap_or(second))?;
        if rest.len() == second.len() {
            return Err("an address of sed is missing after ','".into());
        }
    }
    Ok(rest.trim_start_matches([' ', '!']))
}

/// Removes one address: a line number, `first~step`, `$`, or `/regex/`.
fn one_address(text: &str) -> Result<&str, String> {
    let digits = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if let Some(rest) = text.strip_prefix('$') {
        return Ok(rest);
    }
    if let Some(rest) = text.strip_prefix('/') {
        let after = delimited(rest, '/', true)?;
        return Ok(after.trim_start_matches(['I', 'M']));
    }
    let after = &text[text.len() - digits(text)..];
    match after.strip_prefix('~') {
        Some(step) if after.len() < text.len() => Ok(&step[step.len() - digits(step)..]),
        _ => Ok(after),
    }
}

/// Removes one command.
fn command(text: &str) -> Result<&str, String> {
    let mut chars = text.chars();
    match chars.next() {
        Some('p' | 'd') => Ok(chars.as_str()),
        Some('s') => substitution(chars.as_str()),
        Some(c) => Err(format!("the command '{c}' of sed is not one of p, d, s")),
        None => Err("a command of sed is missing after its address".into()),
    }
}

/// Removes the rest of `s`: two parts, and flags without `e` and `w`.
fn substitution(text: &str) -> Result<&str, String> {
    let mut chars = text.chars();
    let delimiter = chars.next().filter(|c| DELIMITERS.contains(*c));
    let delimiter =
        delimiter.ok_or_else(|| format!("s of sed takes one of {DELIMITERS} between its parts"))?;
    let replacement = delimited(chars.as_str(), delimiter, true)?;
    let flags = delimited(replacement, delimiter, false)?;
    let rest = flags.trim_start_matches(|c: char| c.is_ascii_digit() || "gpiIM".contains(c));
    match rest.chars().next() {
        Some(c) if !matches!(c, ' ' | '\t' | ';' | '\n') => {
            Err(format!("the flag '{c}' of s is not one of g, p, i, I, M and a number"))
        }
        _ => Ok(rest),
    }
}

/// Returns the text after the next `delimiter`. A delimiter inside brackets of a regular expression
/// is refused, because it ends the expression in some versions of sed, and not in others.
fn delimited(text: &str, delimiter: char, is_regex: bool) -> Result<&str, String> {
    let mut in_brackets = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\n' {
            break;
        }
        if c == delimiter {
            if in_brackets {
                return Err(format!("'{delimiter}' is inside brackets: write s with another delimiter"));
            }
            return Ok(chars.as_str());
        }
        match c {
            // The meaning of a backslash inside brackets differs, so both readings have to agree.
            '\\' if in_brackets => return Err("a backslash is inside brackets".into()),
            '\\' => match chars.next() {
                None | Some('\n') => break,
                Some(_) => {}
            },
            '[' if is_regex && !in_brackets => {
                in_brackets = true;
                let rest = chars.as_str();
                let rest = rest.strip_prefix('^').unwrap_or(rest);
                chars = rest.strip_prefix(']').unwrap_or(rest).chars();
            }
            '[' if is_regex && chars.as_str().starts_with([':', '.', '=']) => {
                let class = chars.as_str();
                let end = class.find(":]").filter(|_| class.starts_with(':'));
                let end = end.ok_or("only classes like [:alpha:] are allowed inside brackets")?;
                if class[..end].contains(delimiter) {
                    return Err(format!("'{delimiter}' is inside brackets"));
                }
                chars = class[end + 2..].chars();
            }
            ']' if is_regex => in_brackets = false,
            _ => {}
        }
    }
    Err(format!("a part of a command of sed does not end with '{delimiter}'"))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn scripts_that_print_delete_and_substitute_are_allowed() {
        for script in [
            "p",
            "1,5p",
            "$d",
            "/^#/d",
            "/a/,/b/!d",
            "s/a/b/",
            "s/a/b/g;s|/x|/y|2p",
            "1~2d",
            "2,+3p",
            "s/[[:space:]]*$//",
            r"s/\(a\)/\1\1/gI",
            "s/a\\/b/c/",
            "1d; $d",
            "/x/I p",
            "s/[]x]/y/",
            "5!d\ns/e/w/",
        ] {
            assert_eq!(check(script), Ok(()), "{script}");
        }
    }

    #[test]
    fn scripts_that_touch_files_or_programs_are_refused() {
        for script in [
            "",
            "e",
            "1e id",
            "w out",
            "r /etc/passwd",
            "R x",
            "W x",
            "s/a/id/e",
            "s/a/b/w out",
            "s/a/b/ge",
            "s/a/b/gw out",
            "s/a/b/;w out",
            "s/a/b/\nw out",
            "p;e",
            "a\\\nx",
            "i text",
            "y/a/b/",
            "{p;w x\n}",
            "1,w x",
            "s/[/]/x/",
            "s/[/]/w x/",
            "s/a/b",
            "s/a/b/ w x",
            "s\nabw x\n",
            "\\xaxw out",
            "#n",
            "s/a/b/\\",
            "p\\",
            ":a",
            "b",
            "F",
            "Q1",
            "l;w x",
            "saabaw x",
        ] {
            assert!(check(script).is_err(), "{script}");
        }
    }
}
