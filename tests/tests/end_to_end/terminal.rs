//! Output of agx on a terminal: control characters of tasks, documents and arguments are escaped,
//! unless the user asks for raw output. Pipes and files get the bytes.

use std::{
    io::Write,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use e2e::{Agq, Lab, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{action, ended, numbered, only_job, plan};

/// Output of a task: escape sequences of seven and eight bits, one that sets the clipboard, a
/// carriage return that overwrites the line, a change of direction, and bytes that are not UTF-8.
const BYTES: &[u8] = b"tab\t\xe6\x97\xa5\r\n\x1b[31mred\x1b]52;c;eA==\x07 \xc2\x9b1m \x9b2J\x80 shown\rover \xe2\x80\xae \xf0\x9f\x99\x82\x7f\n\xf0\x9f\x99";
const SHOWN: &str = "tab\t日\r\n\\x1b[31mred\\x1b]52;c;eA==\\x07 \\u009b1m \\x9b2J\\x80 shown\\rover \\u202e 🙂\\u007f\n\\xf0\\x9f\\x99";
/// Number of bytes of the first write, which ends within a character.
const FIRST_WRITE: usize = 5;

/// Returns a shell command that runs agx.
fn agx(lab: &Lab, args: &str) -> String {
    format!("{} {args} < /dev/null", lab.bin().join("agx").display())
}

fn command(lab: &Lab, agq: &Agq, program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, value) in lab.command("agx").get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(lab.path()).env("AGQ_ADDR", agq.address()).stdin(Stdio::null());
    command
}

/// Runs a shell command on a terminal, which does not translate line feeds.
fn on_terminal(lab: &Lab, agq: &Agq, shell: &str) -> Output {
    let shell = format!("stty -opost; {shell}");
    let mut terminal = command(lab, agq, "script");
    terminal.args(["--quiet", "--return", "--command", &shell, "typescript"]).output().unwrap()
}

fn read(lab: &Lab, name: &str) -> Vec<u8> {
    std::fs::read(lab.path().join(name)).unwrap()
}

/// Returns the arguments of a shell that writes `BYTES` to stdout and to stderr, in two parts.
fn writer(dir: &Path) -> [String; 3] {
    let (file, rest) = (dir.join("bytes"), FIRST_WRITE + 1);
    std::fs::write(&file, BYTES).unwrap();
    let both = format!("head -c {FIRST_WRITE} $0; tail -c +{rest} $0");
    ["-c".into(), format!("{both}; ({both}) >&2"), file.display().to_string()]
}

/// Checks stdout of `agx args` on a terminal, with `--raw`, and in a pipe. `added` is what agx adds
/// to the bytes of the task.
fn check(lab: &Lab, agq: &Agq, args: &str, added: impl Fn(&[u8]) -> Vec<u8>) {
    let (verb, rest) = args.split_at(args.find(" -- ").unwrap_or(args.len()));
    let shown = on_terminal(lab, agq, &format!("{} 2> err", agx(lab, args)));
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&added(SHOWN.as_bytes())),
        "{args}"
    );
    assert!(shown.status.success(), "{args}");
    // stderr is a file, and `action results` prints stdout alone.
    let in_file = read(lab, "err");
    assert_eq!(in_file.contains(&0x1b), !args.starts_with("action"), "{args}");
    assert!(!in_file.windows(4).any(|bytes| bytes == br"\x1b"), "{args}");
    let raw = on_terminal(lab, agq, &format!("{} 2> err", agx(lab, &format!("{verb} --raw{rest}"))));
    assert_eq!(raw.stdout, added(BYTES), "{args} --raw");
    let piped = command(lab, agq, "sh").args(["-c", &agx(lab, args)]).output().unwrap();
    assert_eq!(piped.stdout, added(BYTES), "{args} in a pipe");
}

#[test]
fn task_output_is_escaped_on_a_terminal_alone() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let script = writer(lab.path());
    let same = |bytes: &[u8]| bytes.to_vec();
    let words = format!("sh -c '{}' {}", script[1], script[2]);
    check(&lab, &agq, &format!("run -- {words}"), same);
    check(&lab, &agq, &format!("map -- {words} {{}} ::: x"), same);
    check(&lab, &agq, &format!("map -u -- {words} {{}} ::: x"), same);
    check(&lab, &agq, &format!("map -k -- {words} {{}} ::: x y"), |bytes| bytes.repeat(2));
    check(&lab, &agq, &format!("map --line-buffer -- {words} {{}} ::: x"), same);
    let with = |prefix: &'static str| {
        move |bytes: &[u8]| {
            let lines = bytes.split_inclusive(|&byte| byte == b'\n');
            lines.flat_map(|line| [prefix.as_bytes(), line].concat()).collect::<Vec<u8>>()
        }
    };
    check(&lab, &agq, &format!("map --tag -- {words} {{}} ::: x"), with("x\t"));
    lab.submit_plan(&agq, &plan("p", "sh", &script.each_ref().map(String::as_str)));
    lab.submit_action(&agq, "p", "a", "[{}]");
    ended(&lab, &agq, "a");
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    check(&lab, &agq, &format!("logs {job}"), same);
    check(&lab, &agq, "logs a", |bytes| [with("[0] ")(bytes), b"\n".to_vec()].concat());
    check(&lab, &agq, "action results a", same);
}

#[test]
fn stdout_and_stderr_are_terminals_independently_of_each_other() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let script = writer(lab.path());
    let words = format!("sh -c '{}' {}", script[1], script[2]);
    for args in [format!("run -- {words}"), format!("map -- {words} {{}} ::: x")] {
        let shown = on_terminal(&lab, &agq, &format!("{} > out", agx(&lab, &args)));
        assert_eq!(read(&lab, "out"), BYTES, "{args}");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(SHOWN), "{args}: {shown:?}");
        let raw = args.replacen(" --", " --raw --", 1);
        let shown = on_terminal(&lab, &agq, &format!("{} > out", agx(&lab, &raw)));
        assert!(shown.stdout.windows(BYTES.len()).any(|bytes| bytes == BYTES), "{raw}");
    }
}

#[test]
fn large_output_is_escaped_on_a_terminal_too() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    // Chunks of a large output have a power of two of bytes, so they end within the characters.
    let words = "sh -c 'yes 日x日 | head -n 300000 | tr x \"\\033\"'";
    for args in [format!("map -- {words} {{}} ::: 1"), format!("map -k -- {words} {{}} ::: 1 2")] {
        let shown = on_terminal(&lab, &agq, &format!("{} 2> err", agx(&lab, &args)));
        let times = if args.contains("-k") { 2 } else { 1 };
        assert!(String::from_utf8(shown.stdout).unwrap() == "日\\x1b日\n".repeat(300_000 * times), "{args}");
        assert_eq!(read(&lab, "err"), b"");
    }
}

#[test]
fn documents_on_a_terminal_have_escapes_of_json() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    let hostile = "\u{9b}2J\u{7f}\u{202e}\u{2028}é\u{1b}";
    lab.submit_plan(&agq, &plan("p", "echo", &["{{input.line}}"]));
    lab.submit_action(&agq, "p", "a", &serde_json::json!([{ "line": hostile }]).to_string());
    ended(&lab, &agq, "a");
    let is_safe = |text: &str| !text.contains(['\u{9b}', '\u{7f}', '\u{202e}', '\u{2028}', '\u{1b}']);
    let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for args in ["--json action results a", "--json action results a --raw", "--json logs a"] {
        let piped = lab.agx(&agq, &args.split(' ').collect::<Vec<_>>()).expect(0).out;
        let shown = on_terminal(&lab, &agq, &format!("{} 2> err", agx(&lab, args))).stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert_eq!(parsed(&shown), parsed(&piped), "{args}");
        assert!(is_safe(&shown), "{args}: {shown:?}");
        assert!(shown.contains("é"), "{args}: {shown:?}");
    }
    let words = "--json map -- printf '\\302\\2332J\\177%s' {} ::: é";
    let mapped = on_terminal(&lab, &agq, &format!("{} 2> err", agx(&lab, words))).stdout;
    let mapped = String::from_utf8(mapped).unwrap();
    assert_eq!(parsed(&mapped)["data"]["stdout"], "\u{9b}2J\u{7f}é");
    assert!(is_safe(&mapped), "{mapped:?}");
    let missing = format!("--json plan check 'no{hostile}'");
    let failed = on_terminal(&lab, &agq, &format!("{} > out", agx(&lab, &missing)));
    let failed = String::from_utf8(failed.stdout).unwrap();
    assert!(is_safe(&failed) && parsed(&failed)["error"].to_string().contains("no\u{9b}2J"), "{failed:?}");
}

#[test]
fn wrong_arguments_do_not_act_on_the_terminal() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let wrong = on_terminal(&lab, &agq, &agx(&lab, "plan list 'x\u{1b}]52;c;eA==\u{7}\u{9b}2J\ry'"));
    let wrong = String::from_utf8(wrong.stdout).unwrap();
    assert!(wrong.contains("unexpected argument 'x") && wrong.contains("Usage: "), "{wrong:?}");
    assert!(!wrong.contains(['\u{1b}', '\u{7}', '\u{9b}', '\r']), "{wrong:?}");
}

#[test]
fn map_whose_terminal_goes_logs_the_running_job_and_resumes_the_others() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    let inputs: String = (1..=9).map(|number| format!("{number}\n")).collect();
    lab.file("inputs", &inputs);
    lab.file("job", "echo $1 >> ran; test $1 != 1 || until test -e go; do sleep 0.02; done; echo done");
    let map = |resume: &str| agx(&lab, &format!("map {resume} -a inputs --joblog log -- sh job"));
    let logged = || String::from_utf8(read(&lab, "log")).unwrap().lines().count();
    let mut terminal = command(&lab, &agq, "script");
    terminal.args(["--quiet", "--command", &map(""), "typescript"]);
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    eventually("the first job runs", || lab.path().join("ran").exists().then_some(()));
    // The end of `script` closes the terminal.
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let history = || lab.agx(&agq, &["--json", "history"]).expect(0).data()[0].clone();
    eventually("no other job waits", || (history()["cancelled"] == 8).then_some(()));
    lab.file("go", "");
    eventually("the first job is logged", || (logged() == 2).then_some(()));
    let resumed = command(&lab, &agq, "sh").args(["-c", &map("--resume")]).output().unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert_eq!(logged(), 10, "a heading and a line for each job");
    assert_eq!(String::from_utf8(read(&lab, "ran")).unwrap(), inputs, "each ran once");
}

#[test]
fn wait_is_explained_on_a_terminal_that_cannot_move_its_cursor() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut terminal = command(&lab, &agq, "script");
    terminal.args(["--quiet", "--flush", "--command", &agx(&lab, "action watch a"), "typescript"]);
    terminal.env("TERM", "dumb").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut terminal = terminal.spawn().unwrap();
    eventually("agx says why nothing runs", || {
        let shown = std::fs::read(lab.path().join("typescript")).unwrap_or_default();
        String::from_utf8_lossy(&shown).contains("there is no worker").then_some(())
    });
    terminal.kill().unwrap();
    terminal.wait().unwrap();
}

/// `agx top` on a terminal of 24 lines, which `script` copies into the file `typescript`.
struct TopProcess<'l> {
    lab: &'l Lab,
    script: Child,
}

impl<'l> TopProcess<'l> {
    /// Starts `agx top` and waits until it shows the actions.
    fn start(lab: &'l Lab, agq: &Agq) -> Self {
        let agx = format!("sh -c 'echo $$ > pid; exec {} top'", lab.bin().join("agx").display());
        let shell =
            format!("stty rows 24 cols 100; stty -g > before; {agx}; echo $? > code; stty -g > after");
        let mut script = command(lab, agq, "script");
        script.args(["--quiet", "--flush", "--command", &shell, "typescript"]);
        let script = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let top = Self { lab, script };
        top.shows("actions]");
        top
    }

    /// Waits until the terminal has shown `text`, which has no blanks, because `agx top` moves the
    /// cursor over blanks.
    fn shows(&self, text: &str) {
        let typescript = self.lab.path().join("typescript");
        eventually(&format!("agx top shows {text}"), || {
            let shown = std::fs::read(&typescript).unwrap_or_default();
            String::from_utf8_lossy(&shown).contains(text).then_some(())
        });
    }

    fn press(&mut self, key: &[u8]) {
        self.script.stdin.as_mut().unwrap().write_all(key).unwrap();
    }
}

impl Drop for TopProcess<'_> {
    fn drop(&mut self) {
        // The terminal closes, and agx ends, unless it has ended already.
        let _ended = self.script.kill();
        let _ended = self.script.wait();
    }
}

#[test]
fn top_shows_the_failed_job_of_a_late_input() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", "test $0 != 200", "{{input.n}}"]));
    lab.submit_action(&agq, "p", "a", &numbered(201));
    eventually("all jobs end", || {
        let status = action(&lab, &agq, "a");
        (status["completed"] == 200 && status["failed"] == 1).then_some(())
    });
    let mut top = TopProcess::start(&lab, &agq);
    top.press(b"\r");
    top.shows(r#"{"n":200}"#);
}

#[test]
fn top_restores_the_terminal_after_sigterm_while_agq_does_not_answer() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut top = TopProcess::start(&lab, &agq);
    agq.suspend();
    let text = |name: &str| String::from_utf8(read(&lab, name)).unwrap();
    let pid = Pid::from_raw(text("pid").trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    eventually("agx and its shell end", || top.script.try_wait().unwrap());
    assert_eq!(text("code"), "0\n");
    assert_eq!(text("after"), text("before"));
    // The sequence leaves the alternate screen.
    top.shows("\u{1b}[?1049l");
}
