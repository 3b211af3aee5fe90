//! The command line of `agx map`.

use std::path::PathBuf;

use agenix_protocol::{documents::Halt, ids::QueueName};
use clap::Args;

use crate::map::{Placeholder, parse_halt};

/// How inputs are given and results taken.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct MapArgs {
    /// The pipeline, in quotes: 'grep -c ERROR {}'; or a program and its arguments. Then inputs, if they do not come from stdin:
    /// ::: VALUE… (several ::: are combined, :::+ goes along with the one before), :::: FILE…
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
    /// Read inputs from this file, one a line; - is stdin; may be given several times
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Inputs end with NUL instead of a line feed, as `find -print0` writes them
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Cut stdin into blocks that end with a line, and give each to a job as its stdin
    #[arg(long, conflicts_with_all = ["arg_file", "null"])]
    pub(crate) pipe: bool,
    /// How large such a block is at least, in bytes; k and M are known
    #[arg(long, value_name = "SIZE", default_value = "1M", requires = "pipe", value_parser = parse_size)]
    pub(crate) block: usize,
    /// TEXT stands for the input in the command, and braces are text
    #[arg(short = 'I', long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) replace: Option<String>,
    /// Run jobs whose input begins with - where the program may read it as an option
    #[arg(long)]
    pub(crate) inputs_may_be_options: bool,
    /// Allow inputs within program texts, such as the script of `sh -c`: they run as code
    #[arg(long)]
    pub(crate) inputs_may_be_code: bool,
    /// How many jobs run at once on this machine: a number, or by the number of processors as +1, -1 or 200% [default: 100%]; on a
    /// cluster its workers say
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_jobs, allow_negative_numbers = true)]
    pub(crate) jobs: Option<u32>,
    /// Results in the order of the inputs
    #[arg(short = 'k', long)]
    pub(crate) keep_order: bool,
    /// Each line of output behind its input and a tab
    #[arg(long)]
    pub(crate) tag: bool,
    /// Also write each job's output to DIR/1/INPUT/stdout, stderr and seq
    #[arg(long, value_name = "DIR", value_parser = parse_results)]
    pub(crate) results: Option<PathBuf>,
    /// Write a line about each job that has ended, in the format of GNU Parallel; +FILE adds to a file that is there
    #[arg(long, value_name = "FILE")]
    pub(crate) joblog: Option<PathBuf>,
    /// Leave out the jobs that the joblog has, and add to it
    #[arg(long, requires = "joblog")]
    pub(crate) resume: bool,
    /// The same, but try those again that failed
    #[arg(long, requires = "joblog", conflicts_with = "resume")]
    pub(crate) resume_failed: bool,
    /// Print the commands, and run none
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// End early: WHEN,WHAT=N, as now,fail=1 or soon,fail=20%; `soon` lets running jobs end
    #[arg(long, value_name = "WHEN,WHAT=N", value_parser = parse_halt)]
    pub(crate) halt: Option<Halt>,
    /// How long a task may take: seconds, or with s, m, h or d behind [default: as long as it likes]
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    pub(crate) timeout: Option<u64>,
    /// How often a failed job is tried again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) retries: u32,
    /// A pipeline fails when any of its commands fails; without it, when the last one does, as in a shell
    #[arg(long)]
    pub(crate) pipefail: bool,
    /// The directory that tasks run in, on whatever machine [default: this one where agq is reached by a Unix socket, as with `agx
    /// up`, or is agx's own; elsewhere that of the worker]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// Start an agq and a worker for this command, even where a profile is in use
    #[arg(long)]
    pub(crate) local: bool,
    /// The queue its jobs wait in, on a cluster [default: ready]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// -100 to 100: jobs of a higher one run first, on a cluster
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
}

const AFTER_HELP: &str = "Placeholders:\n  {}    the input             {.}   without its extension\n  {/}   without directories   \
{//}  its directory\n  {/.}  its bare name         {#}   the number of the job\n  {2}, {2/.} …  of the second source\n  \
\\{}   a backslash makes a placeholder text; with -I @@ the input is @@, and all braces are text\n\n\
Examples:\n  find . -name '*.log' | agx map -- 'grep -c ERROR {}'\n  \
agx map -j 8 -- 'cut -d, -f2 {} | sort | uniq -c | sort -rn' ::: *.csv\n  \
seq 10000 | agx map -- sha1sum\n  agx map --pipe -- wc -l < big.txt\n\n\
Without --agq, AGQ_ADDR, AGQ_URL or a profile, agx starts an agq and a worker for this command, and they go with it.\n\
The pipeline is no shell: variables, globs, $(…) and && are refused, with a word on what to write instead.\n\n\
Exit codes: 0 all jobs completed, 1 some did not, 2 wrong usage, 3 no agq, 4 refused by agq, 130 Ctrl-C";

/// Parses the number of jobs at once: a number, or a value relative to the number of processors, in
/// the syntax of GNU Parallel.
fn parse_jobs(text: &str) -> Result<u32, String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    jobs_on(u32::try_from(processors).unwrap_or(u32::MAX), text).ok_or_else(|| {
        "give a number from 1 to 10000, or by the number of processors +N, -N or N%, as 8, +1 or 200%"
            .to_owned()
    })
}

fn jobs_on(processors: u32, text: &str) -> Option<u32> {
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_number)
    };
    let jobs = if let Some(percent) = text.strip_suffix('%') {
        let percent = number(percent).filter(|&percent| percent > 0)?;
        u32::try_from(u64::from(processors) * u64::from(percent) / 100).ok()?.max(1)
    } else if let Some(more) = text.strip_prefix('+') {
        processors.saturating_add(number(more)?)
    } else if let Some(less) = text.strip_prefix('-') {
        processors.saturating_sub(number(less)?).max(1)
    } else {
        number(text)?
    };
    (1..=MOST_JOBS).contains(&jobs).then_some(jobs)
}

/// Parses the directory for results. A pattern or a table of GNU Parallel is an error, because it
/// would become the name of a directory.
fn parse_results(text: &str) -> Result<PathBuf, String> {
    let pattern = text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(inner, _)| inner);
    if let Some(inner) = pattern.into_iter().find(|inner| Placeholder::parse(inner).is_some()) {
        return Err(format!(
            "{{{inner}}} is not filled in here: give a directory, and each job has its own in it; or write files with > in the \
             pipeline, as 'wc -l {{}} > out/{{#}}'"
        ));
    }
    match PathBuf::from(text).extension() {
        Some(end) if !text.ends_with('/') && (end == "csv" || end == "tsv") => Err(format!(
            "no table is written here: give a directory, or use `agx --json map` for one document a job; {text}/ is a \
             directory of this name"
        )),
        _ => Ok(PathBuf::from(text)),
    }
}

/// Maximum number of jobs at once.
const MOST_JOBS: u32 = 10_000;

/// Seconds, or a number with s, m, h, d behind it.
pub(crate) fn parse_secs(text: &str) -> Result<u64, String> {
    let wrong = || {
        "give whole seconds from 1, or a number with s, m, h or d behind it, as 90 or 5m; no percentage"
            .to_owned()
    };
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let secs = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    secs.filter(|&secs| secs > 0).ok_or_else(wrong)
}

/// Largest block: it travels as one input.
const MOST_BLOCK: usize = 4 * 1024 * 1024;

fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1024),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1024 * 1024)),
    };
    let size = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|&size| size > 0 && size <= MOST_BLOCK)
        .ok_or_else(|| "give a number of bytes from 1 to 4M, as 512k".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{jobs_on, parse_results, parse_secs, parse_size};

    #[test]
    fn jobs_are_a_number_or_go_by_the_processors() {
        let on_four = |text| jobs_on(4, text);
        assert_eq!(
            ["7", "+1", "-1", "-9", "200%", "50%", "1%"].map(on_four),
            [7, 5, 3, 1, 8, 2, 1].map(Some)
        );
        for wrong in ["0", "", "+", "-", "%", "0%", "10001", "1.5", "x", "++1", "+-1", "4294967295%"] {
            assert_eq!(on_four(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn results_are_a_directory_and_what_would_be_none_is_refused() {
        for wrong in ["out/{#}", "{}.txt", "o/{1}", "o.csv", "x/o.tsv"] {
            assert!(parse_results(wrong).unwrap_err().contains("give a directory"), "{wrong}");
        }
        for right in ["out", "o.csv/", "a{b}", "{", "csv"] {
            assert_eq!(parse_results(right), Ok(right.into()));
        }
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!([parse_secs("90"), parse_secs("5m"), parse_secs("1d")], [Ok(90), Ok(300), Ok(86_400)]);
        for wrong in ["", "0", "1.5", "m", "5 m", "-1", "99999999999999999999"] {
            assert!(parse_secs(wrong).is_err(), "{wrong}");
        }
        assert_eq!([parse_size("7"), parse_size("2k"), parse_size("4M")], [Ok(7), Ok(2048), Ok(4 << 20)]);
        for wrong in ["0", "5M", "4194305", "M", "1G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
