//! Arguments of `agx map`.

use std::{path::PathBuf, time::Duration};

use agenix_protocol::{
    byte_escape::decode_os,
    documents::{Halt, StartRate},
    ids::{QueueName, ShareName},
};
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};

use super::{
    concurrency_args::ConcurrencyArgs,
    labels::{Label, parse_label},
    quantity_args::QuantityArgs,
    raw_arg::RawArg,
};
use crate::{
    map::{Grouping, Placeholder, Separator, parse_halt},
    sandbox::SandboxArgs,
    util::{
        duration::{parse_duration, parse_secs},
        printable::one_line,
        text::any_bytes,
    },
};

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct MapArgs {
    /// Pipeline in quotes, as 'grep -c ERROR {}', or a program and its arguments; then the inputs,
    /// unless they come from stdin: ::: VALUE… (several ::: are combined, :::+ is paired with the
    /// source before it), :::: FILE…
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_parser = any_bytes())]
    pub(crate) words: Vec<String>,
    /// Read inputs from this file, one per line; - is stdin; can be repeated
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) arg_file: Vec<PathBuf>,
    /// Inputs end with NUL instead of a line feed, as from `find -print0`
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Give each job N inputs: {1}, {2} … stand for them, and {} for all, one argument each; the
    /// last job may have fewer
    #[arg(short = 'N', visible_short_alias = 'n', long = "max-args", visible_alias = "max-replace-args", value_name = "N",
          value_parser = parse_per_job, conflicts_with_all = ["colsep", "header", "pipe"])]
    pub(crate) per_job: Option<usize>,
    /// Split each input into columns, which {1}, {2} … name; {} is the whole line. One character
    /// stands for itself, and a longer text is a regular expression, as '[ \t]+'
    #[arg(short = 'C', long, value_name = "REGEX", value_parser = any_bytes().try_map(|text| Separator::parse(&text)))]
    pub(crate) colsep: Option<Separator>,
    /// Take the first line of each source as the names of its columns, as in {name}; columns end
    /// with a tab unless --colsep is given
    #[arg(long, value_name = ":", value_parser = parse_header)]
    pub(crate) header: Option<Header>,
    /// Split stdin into blocks of whole lines, and pass each block to a job as its stdin
    #[arg(long, conflicts_with_all = ["arg_file", "null", "colsep", "header"])]
    pub(crate) pipe: bool,
    /// Minimum size of a block in bytes; k and M are allowed
    #[arg(long, value_name = "SIZE", default_value = "1M", requires = "pipe", value_parser = parse_size)]
    pub(crate) block: usize,
    /// Use TEXT as the placeholder for the input; braces are then ordinary text
    #[arg(short = 'I', long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) replace: Option<String>,
    /// Allow inputs that begin with - where the program may read them as options
    #[arg(long)]
    pub(crate) inputs_may_be_options: bool,
    /// Allow inputs within program texts, such as the script of `sh -c`: they run as code
    #[arg(long)]
    pub(crate) inputs_may_be_code: bool,
    /// Number of concurrent jobs on this machine: a number, or relative to the number of processors
    /// as +1, -1 or 200% [default: 100%]; on a cluster, each worker sets its own number
    #[arg(short = 'j', long, value_name = "N", value_parser = parse_jobs, allow_negative_numbers = true)]
    pub(crate) jobs: Option<u32>,
    /// Run the jobs in random order: agx reads all inputs first, at most a million
    #[arg(long, conflicts_with_all = ["pipe", "resume", "resume_failed"])]
    pub(crate) shuf: bool,
    /// Submit an input at most every TIME: seconds with fractions, or a number with s, m, h or d;
    /// jobs that wait for a worker may start closer together
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_duration)]
    pub(crate) delay: Duration,
    /// Print results in the order of the inputs
    #[arg(short = 'k', long)]
    pub(crate) keep_order: bool,
    /// Print output in whole lines while the jobs run, instead of when each job ends
    #[arg(long, visible_alias = "lb", conflicts_with = "keep_order")]
    pub(crate) line_buffer: bool,
    /// Print output as it comes while the jobs run, also parts of lines
    #[arg(short = 'u', long, conflicts_with_all = ["keep_order", "line_buffer"])]
    pub(crate) ungroup: bool,
    /// Print the input and a tab before each line of output
    #[arg(long)]
    pub(crate) tag: bool,
    #[command(flatten)]
    pub(crate) raw: RawArg,
    /// Also write each job's output to DIR/1/INPUT/stdout, stderr and seq
    #[arg(long, value_name = "DIR", value_parser = any_bytes().try_map(|text| parse_results(&text)))]
    pub(crate) results: Option<PathBuf>,
    /// Log each finished job in the format of GNU Parallel; +FILE appends to an existing file
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(parse_joblog))]
    pub(crate) joblog: Option<PathBuf>,
    /// Skip the jobs that are in the joblog, and append to it
    #[arg(long, requires = "joblog")]
    pub(crate) resume: bool,
    /// Skip only the jobs that succeeded according to the joblog, and append to it
    #[arg(long, requires = "joblog", conflicts_with = "resume")]
    pub(crate) resume_failed: bool,
    /// Print the commands without running them; with a server, a line on stderr says which workers
    /// could run the jobs
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Stop early: WHEN,WHAT=N, as now,fail=1 or soon,fail=20%; `soon` lets running jobs finish
    #[arg(long, value_name = "WHEN,WHAT=N", value_parser = parse_halt)]
    pub(crate) halt: Option<Halt>,
    /// Time limit of a task: seconds, or a number with s, m, h or d [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    pub(crate) timeout: Option<u64>,
    /// Time limit without output: a task is ended if neither it nor another command of its
    /// pipeline writes anything for TIME; a time as for --timeout
    #[arg(long, value_name = "TIME", value_parser = parse_secs)]
    pub(crate) idle_timeout: Option<u64>,
    /// Number of retries of a failed job
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) retries: u32,
    /// Fail a pipeline if any of its commands fails; otherwise only the last command counts, as in
    /// a shell
    #[arg(long)]
    pub(crate) pipefail: bool,
    /// Working directory of the tasks on any machine [default: the current directory if agq is
    /// private to this command or reached by a Unix socket, as with `agx up`; otherwise the
    /// worker's directory]
    #[arg(long, value_name = "DIR", value_parser = any_bytes())]
    pub(crate) cwd: Option<String>,
    /// Start agq and a worker for this command, even if a profile is in use
    #[arg(long)]
    pub(crate) local: bool,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Label of the action on a cluster, which `agx action list --label` finds; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<Label>,
    /// Queue of the jobs on a cluster [default: ready]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<QueueName>,
    /// Maximum number of jobs that run at once, on all workers together [default: no maximum]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_running: Option<u64>,
    /// Maximum rate at which the jobs start, as 10/s, 100/m or 3/10s [default: no maximum]
    #[arg(long, value_name = "JOBS/TIME")]
    pub(crate) rate: Option<StartRate>,
    /// Share of the queue that the jobs belong to [default: that of your key]
    #[arg(long, value_name = "NAME")]
    pub(crate) share: Option<ShareName>,
    #[command(flatten)]
    pub(crate) concurrency: ConcurrencyArgs,
    #[command(flatten)]
    pub(crate) quantities: QuantityArgs,
    /// -100 to 100: jobs with a higher priority run first, on a cluster
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
}

impl MapArgs {
    /// Returns the time at which output is printed.
    pub(crate) fn grouping(&self) -> Grouping {
        match self {
            Self { keep_order: true, .. } => Grouping::InOrder,
            Self { line_buffer: true, .. } => Grouping::Lines,
            Self { ungroup: true, .. } => Grouping::Ungrouped,
            _ => Grouping::AsJobsEnd,
        }
    }

    /// Returns true if a job may have several inputs.
    pub(crate) fn is_grouped(&self) -> bool {
        self.per_job.is_some_and(|per_job| per_job > 1)
    }
}

/// Option `--header :`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header;

const AFTER_HELP: &str = "Placeholders:\n  {}    the input             {.}   without its extension\n  {/}   without directories   \
{//}  its directory\n  {/.}  its bare name         {#}   the number of the job\n  {%}   the slot of the job on its worker, from 1\n  {2}, {2/.} …  of the second source, or of the second column (--colsep)\n  \
{name}  of the column with this name (--header)\n  \
\\{}   a backslash makes a placeholder text; with -I @@ the input is @@, and all braces are text\n\n\
Examples:\n  find . -name '*.log' | agx map -- 'grep -c ERROR {}'\n  \
agx map -j 8 -- 'cut -d, -f2 {} | sort | uniq -c | sort -rn' ::: *.csv\n  \
seq 10000 | agx map -- sha1sum\n  agx map --pipe -- wc -l < big.txt\n  agx map --sandbox -- wc -l ::: *.csv\n\n\
Without --agq, AGQ_ADDR, AGQ_URL or a profile, agx starts an agq and a worker for this command, and stops them at its end.\n\
No shell runs the pipeline: variables, globs, $(…) and && are refused, with an alternative.\n\n\
Exit codes: 0 all jobs completed, 1 some did not, 2 wrong usage, 3 no agq, 4 refused by agq, 130 Ctrl-C";

/// Maximum number of inputs per job.
const MAX_PER_JOB: usize = 100_000;

fn parse_per_job(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_PER_JOB).contains(number));
    number.ok_or_else(|| format!("give a number from 1 to {MAX_PER_JOB}"))
}

/// Parses the value of --header: `:` stands for the first line, as in GNU Parallel.
fn parse_header(text: &str) -> Result<Header, String> {
    if text == ":" {
        Ok(Header)
    } else {
        Err("only : is known: the first line of each source has the names".into())
    }
}

/// Parses the number of jobs at once: a number, +N, -N or N% of the processors (GNU Parallel).
fn parse_jobs(text: &str) -> Result<u32, String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    jobs_on(u32::try_from(processors).unwrap_or(u32::MAX), text).ok_or_else(|| {
        "give a number from 1 to 10000, or relative to the number of processors +N, -N or N%, as 8, +1 or 200%"
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
    (1..=MAX_JOBS).contains(&jobs).then_some(jobs)
}

/// Extensions of the tables that GNU Parallel writes.
const TABLES: [&str; 3] = ["csv", "json", "tsv"];

/// Parses DIR. Patterns and tables of GNU Parallel are errors: they would become a directory name.
fn parse_results(text: &str) -> Result<PathBuf, String> {
    let pattern = text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(inner, _)| inner);
    if let Some(inner) = pattern.into_iter().find(|inner| Placeholder::parse(inner).is_some()) {
        return Err(format!(
            "{{{inner}}} is not replaced here: give a directory, in which each job gets its own; or write files with > in the \
             pipeline, as 'wc -l {{}} > out/{{#}}'"
        ));
    }
    let shown = one_line(text);
    match PathBuf::from(text).extension() {
        Some(end) if !text.ends_with('/') && TABLES.iter().any(|table| end.eq_ignore_ascii_case(table)) => {
            Err(format!(
                "tables are not supported: give a directory, or use `agx --json map` for one document a job; {shown}/ is a \
             directory of this name"
            ))
        }
        _ => Ok(decode_os(text).into()),
    }
}

/// Parses FILE or +FILE. `-` is an error: it would become the name of a file.
fn parse_joblog(path: PathBuf) -> Result<PathBuf, String> {
    if path.as_os_str() == "-" || path.as_os_str() == "+-" {
        return Err("the joblog cannot go to stdout, where the jobs' output is: give a file; ./- is a file of this name".into());
    }
    Ok(path)
}

/// Maximum number of jobs at once.
const MAX_JOBS: u32 = 10_000;

/// Maximum size of a block, because a block is one input.
const MAX_BLOCK: usize = 4 * 1024 * 1024;

fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1024),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1024 * 1024)),
    };
    let size = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|&size| size > 0 && size <= MAX_BLOCK)
        .ok_or_else(|| "give a number of bytes from 1 to 4M, as 512k".to_owned())
}

#[cfg(test)]
mod tests {
    use agenix_protocol::byte_escape::encode_os;

    use super::{jobs_on, parse_joblog, parse_results, parse_size};

    #[test]
    fn jobs_are_absolute_or_relative_to_the_processors() {
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
    fn results_must_be_a_directory() {
        for wrong in ["out/{#}", "{}.txt", "o/{1}", "o.csv", "x/o.tsv", "O.CSV", "o.json"] {
            assert!(parse_results(wrong).unwrap_err().contains("give a directory"), "{wrong}");
        }
        for right in ["out", "o.csv/", "a{b}", "{", "csv", "o.csv.d"] {
            assert_eq!(parse_results(right), Ok(right.into()));
        }
        assert_eq!(encode_os(parse_results("caf\u{10fee9}").unwrap().as_os_str()), "caf\u{10fee9}");
    }

    #[test]
    fn joblog_must_be_a_file() {
        for wrong in ["-", "+-"] {
            assert!(parse_joblog(wrong.into()).unwrap_err().contains("give a file"), "{wrong}");
        }
        for right in ["log", "+log", "./-", "-x"] {
            assert_eq!(parse_joblog(right.into()), Ok(right.into()));
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([parse_size("7"), parse_size("2k"), parse_size("4M")], [Ok(7), Ok(2048), Ok(4 << 20)]);
        for wrong in ["0", "5M", "4194305", "M", "1G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
