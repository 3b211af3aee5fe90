//! Measures the start of a supervisor, and a task in a sandbox against a plain process. The ratio
//! is of alternating rounds; the times depend on the machine.
//!
//! Run as a user other than root, after a build with `--release --features test-supervisor`:
//! `spawn_cost SUPERVISOR [ROUNDS] [PROGRAM [ARGUMENT]…]`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the result")]

use std::{
    error::Error,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use agenix_sandbox::{
    client::{Settings, Supervisor},
    profile::Profile,
    protocol::{Sink, Source, TaskStart},
    setup::Regime,
};

/// Tasks of a round.
const TASKS: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let supervisor = PathBuf::from(arguments.next().ok_or("the path of the supervisor is missing")?);
    let rounds: u32 = arguments.next().map_or(Ok(10), |rounds| rounds.parse())?;
    let mut argv: Vec<String> = arguments.collect();
    if argv.is_empty() {
        argv.push("/bin/true".into());
    }
    let scratch = tempfile::tempdir()?;
    let settings = Settings {
        executable: supervisor,
        profile: Profile::reader(),
        scratch: scratch.path().to_owned(),
        regime: Regime::Namespaces,
        user: None,
        control_group: None,
        without: [].into(),
    };
    let mut starts = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let mut supervisor = Supervisor::start(&settings)?;
        supervisor.begin(&[&argv[0]])?;
        task(&mut supervisor, 0, &argv)?;
        starts.push(start.elapsed());
        supervisor.end()?;
    }
    println!("start of a supervisor and its first task: {}", spread(&mut starts));
    let mut supervisor = Supervisor::start(&settings)?;
    let (mut plain, mut confined, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(timed(|_| direct(&argv))?);
        supervisor.begin(&[&argv[0]])?;
        confined.push(timed(|number| task(&mut supervisor, number, &argv))?);
        supervisor.clean()?;
        jobs.push(timed(|_| {
            supervisor.begin(&[&argv[0]])?;
            task(&mut supervisor, 0, &argv)?;
            supervisor.clean()?;
            Ok(())
        })?);
    }
    println!("plain process:           {}", spread(&mut plain));
    println!("task of one job:         {}", spread(&mut confined));
    println!("job of one task, clean:  {}", spread(&mut jobs));
    let ratio = |one: &[Duration], other: &[Duration]| one[0].as_secs_f64() / other[0].as_secs_f64();
    println!("ratio of the minima: task {:.3}, job {:.3}", ratio(&confined, &plain), ratio(&jobs, &plain));
    Ok(())
}

/// Returns the time of one of [`TASKS`] calls.
fn timed(mut call: impl FnMut(u32) -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    (1..=TASKS).try_for_each(&mut call)?;
    Ok(start.elapsed() / TASKS)
}

fn direct(argv: &[String]) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(&argv[0]);
    // The locale of a task decides how long sort(1) takes.
    let variables =
        Profile::reader().env.into_iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
    command
        .args(&argv[1..])
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.process_group(0).spawn()?.wait()?;
    if status.success() { Ok(()) } else { Err("the program failed".into()) }
}

fn task(supervisor: &mut Supervisor, task: u32, argv: &[String]) -> Result<(), Box<dyn Error>> {
    let start = TaskStart {
        task,
        program: argv[0].clone(),
        argv: argv.to_vec(),
        env: Vec::new(),
        cwd: None,
        stdin: Source::Empty,
        stdout: Sink::Null,
        stderr: Sink::Stdout,
        is_last: false,
        worker_env: vec![],
        memory: None,
    };
    supervisor.start_task(start, &[])?;
    let end = supervisor.wait(task)?;
    if end.wait_status == 0 { Ok(()) } else { Err("the task failed".into()) }
}

/// Sorts `times`, and returns the least, the median and the most.
fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let [least, median, most] = [0, times.len() / 2, times.len() - 1].map(|at| times[at].as_secs_f64() * 1e6);
    format!("{least:.0} µs least, {median:.0} µs median, {most:.0} µs most")
}
