//! The dashboard in a real browser: headless Chromium, controlled by WebDriver (W3C), which is JSON
//! over HTTP.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use agenix_protocol::{
    byte_escape::byte_of,
    printable::{is_hidden, printable},
};
use e2e::{Agq, Lab, eventually};
use serde_json::{Value, json};

use super::client::HttpResponse;
use crate::support::{RawConnection, plan};

/// Environment variable with the directory for screenshots.
const PICTURES: &str = "AGENIX_PICTURES";
/// Key of an element's reference in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser session.
struct Browser {
    driver: Child,
    address: String,
    session: String,
}

impl Browser {
    fn start(lab: &Lab) -> Self {
        let mut driver = Command::new("chromedriver");
        let mut driver = driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map(|line| line.unwrap()).find_map(|line| {
            let (_, port) = line.trim_end_matches('.').rsplit_once("started successfully on port ")?;
            port.parse::<u16>().ok()
        });
        let address = format!("127.0.0.1:{}", port.expect("chromedriver says where it listens"));
        let mut browser = Self { driver, address, session: String::new() };
        let profile = format!("--user-data-dir={}", lab.path().join("profile").display());
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": args}, "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let begun = browser.send("POST", "/session", &wanted);
        browser.session = begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        browser
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        HttpResponse::read(&mut BufReader::new(stream)).body["value"].take()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.send(method, &format!("/session/{}/{path}", self.session), body)
    }

    /// Opens another window of the same browser and switches to that window.
    fn open(&self) {
        let window = self.ask("POST", "window/new", &json!({"type": "window"}));
        self.turn_to(window["handle"].as_str().unwrap());
    }

    fn turn_to(&self, window: &str) {
        self.ask("POST", "window", &json!({"handle": window}));
    }

    fn windows(&self) -> Vec<String> {
        serde_json::from_value(self.ask("GET", "window/handles", &json!({}))).unwrap()
    }

    fn log_in(&self, agq: &Agq, key: &str) {
        self.go(&format!("http://{}/", agq.http_address()));
        self.write("#key", key);
        self.click("#login button");
        self.find("#connection[data-state=live]");
    }

    fn go(&self, url: &str) {
        self.ask("POST", "url", &json!({"url": url}));
    }

    /// Waits until the selector matches an element, and returns the element.
    fn find(&self, css: &str) -> String {
        eventually(css, || {
            let found = self.ask("POST", "element", &json!({"using": "css selector", "value": css}));
            found[ELEMENT].as_str().map(str::to_owned)
        })
    }

    fn click(&self, css: &str) {
        eventually(&format!("a click on {css}"), || {
            let element = self.find(css);
            self.ask("POST", &format!("element/{element}/click"), &json!({})).is_null().then_some(())
        });
    }

    fn write(&self, css: &str, text: &str) {
        let element = self.find(css);
        self.ask("POST", &format!("element/{element}/value"), &json!({"text": text}));
    }

    /// Returns the text of the first element that the selector matches, or an empty text.
    fn text(&self, css: &str) -> String {
        let script = "const e = document.querySelector(arguments[0]); return e ? e.textContent : '';";
        self.run(script, &json!([css])).as_str().unwrap_or_default().to_owned()
    }

    fn sees(&self, css: &str, text: &str) {
        eventually(&format!("{text} in {css}"), || self.text(css).contains(text).then_some(()));
    }

    fn run(&self, script: &str, args: &Value) -> Value {
        self.ask("POST", "execute/sync", &json!({"script": script, "args": args}))
    }

    /// Returns the messages of the browser's console.
    fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "se/log", &json!({"type": "browser"}));
        let entries = log.as_array().cloned().unwrap_or_default();
        let texts = entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned());
        // Requests before the login or with a wrong key get status 401, which the browser logs by
        // itself.
        texts.filter(|text| !text.contains("status of 401")).collect()
    }

    /// Stores a screenshot if the directory for screenshots is set.
    fn picture(&self, name: &str, (width, height): (u32, u32), scheme: &str) {
        let Some(dir) = std::env::var_os(PICTURES).map(PathBuf::from) else { return };
        let cdp = |cmd: &str, params: Value| {
            self.ask("POST", "goog/cdp/execute", &json!({"cmd": cmd, "params": params}))
        };
        cdp(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        cdp(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
        let shot = cdp("Page.captureScreenshot", json!({"format": "png"}));
        let file = dir.join(format!("{name}.png.base64"));
        std::fs::write(file, shot["data"].as_str().unwrap_or_default()).unwrap();
        cdp("Emulation.clearDeviceMetricsOverride", json!({}));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of the session ends the browser, which would survive the driver otherwise.
        self.send("DELETE", &format!("/session/{}", self.session), &json!({}));
        // The driver may have ended already.
        let _ended = self.driver.kill();
        let _ended = self.driver.wait();
    }
}

#[test]
fn somebody_logs_in_sees_an_action_end_and_tries_a_dead_job_again() {
    let lab = Lab::new();
    let agq = lab.agq(&["--http", "127.0.0.1:0"]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "2"]);
    let browser = Browser::start(&lab);
    browser.go(&format!("http://{}/", agq.http_address()));
    browser.write("#key", "a wrong key");
    browser.click("#login button");
    browser.sees("#login-error", "agq does not know this key");
    browser.run("document.querySelector('#key').value = ''", &json!([]));
    browser.write("#key", lab.key());
    browser.click("#login button");
    browser.find("main[data-view=overview]");
    browser.find("#connection[data-state=live]");

    // An action ends while the page shows it.
    let script = "until test -e go; do sleep 0.02; done; echo {{input.n}} '<b>not bold</b>'";
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", script]));
    lab.submit_action(&agq, "wait", "live", r#"[{"n":1},{"n":2},{"n":3}]"#);
    browser.sees("tr[data-action=live] .progress-text", "0/3");
    lab.file("go", "");
    browser.sees("tr[data-action=live] .progress-text", "3/3");
    browser.sees("tr[data-action=live] .state", "completed");

    // A job that has used all attempts is retried by hand, and succeeds.
    let fails =
        r#"{"plan_id":"fails","tasks":[{"task_number":1,"command":"sh","args":["-c","test -e repaired"]}]}"#;
    lab.submit_plan(&agq, fails);
    lab.submit_action(&agq, "fails", "sick", "[{}]");
    browser.click("[data-nav=dead]");
    let job = eventually("the dead job is shown", || {
        let found =
            browser.run("return document.querySelector('button[data-retry]')?.dataset.retry", &json!([]));
        found.as_str().map(str::to_owned)
    });
    browser.picture("dashboard-dead", (1280, 700), "dark");
    lab.file("repaired", "");
    browser.click(&format!("button[data-retry='{job}']"));
    browser.sees("#notice", "retried");
    browser.go(&format!("http://{}/#/action/sick", agq.http_address()));
    browser.sees("main .title .badge", "completed");

    // The page shows the output of a job as text, even if it contains HTML.
    let jobs = lab.agx(&agq, &["job", "list", "live"]).expect(0).out;
    browser.go(&format!("http://{}/#/job/{}", agq.http_address(), jobs.lines().next().unwrap()));
    browser.sees("main", "<b>not bold</b>\n");
    assert!(browser.run("return document.querySelector('main b')", &json!([])).is_null());
    browser.picture("dashboard-job", (1280, 800), "light");

    // Of a large output, the page shows the beginning and the end, and offers the whole.
    lab.submit_plan(&agq, &plan("long", "seq", &["150000"]));
    lab.submit_action(&agq, "long", "long", "[{}]");
    let jobs = lab.agx(&agq, &["job", "list", "long"]).expect(0).out;
    browser.go(&format!("http://{}/#/job/{}", agq.http_address(), jobs.trim()));
    browser.sees("main", "149999\n150000\n");
    assert!(browser.text("main").contains("1\n2\n3\n") && !browser.text("main").contains("\n100000\n"));
    browser.sees("a[download]", "Download");
    browser.click("[data-nav=workers]");
    browser.sees("main[data-view=workers]", "w1");
    browser.click("[data-nav=overview]");
    browser.find("tr[data-action=sick]");
    browser.picture("dashboard", (1280, 900), "light");
    browser.picture("dashboard-phone", (390, 844), "dark");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn nine_pages_of_one_browser_all_work() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let browser = Browser::start(&lab);
    browser.log_in(&agq, lab.key());
    for n in 2..=9 {
        browser.open();
        browser.go(&format!("http://{}/", agq.http_address()));
        browser.find("#connection[data-state=live]");
        browser.sees("main[data-view=overview] h1", "Overview");
        eventually(&format!("page {n} shows what there is"), || {
            (!browser.text("main").contains("Loading")).then_some(())
        });
    }
    // All pages get each event by one shared stream, and the buttons of the first page still work.
    lab.submit_action(&agq, "p", "late", "[{}]");
    for window in browser.windows() {
        browser.turn_to(&window);
        browser.find("tr[data-action=late]");
    }
    browser.turn_to(&browser.windows()[0]);
    browser.click("tr[data-action=late] a");
    browser.click("main button.danger");
    browser.click("#confirm-yes");
    browser.sees("main .title .badge", "cancelled");
    // A logout in one page ends the session of all pages.
    browser.click("#logout");
    for window in browser.windows() {
        browser.turn_to(&window);
        browser.find("#login");
    }
}

#[test]
fn number_that_javascript_cannot_hold_is_shown_as_it_is() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", r#"[{"id":18446744073709551616,"small":-9007199254740993,"n":1.5}]"#);
    let job = lab.agx(&agq, &["job", "list", "a"]).expect(0).out;
    let browser = Browser::start(&lab);
    browser.log_in(&agq, lab.key());
    browser.go(&format!("http://{}/#/job/{}", agq.http_address(), job.trim()));
    for text in ["\"id\": 18446744073709551616", "\"small\": -9007199254740993", "\"n\": 1.5"] {
        browser.sees("main", text);
    }
}

/// Starts an agq on which the plans of the agent `robot` wait for approval if they run awk.
fn agq_with_approvals(lab: &Lab, robot: &str) -> Agq {
    let policy = lab.file("policy.toml", "version = 1\n[tools.awk]\nclass = \"interpreter\"");
    let config = lab.file("agq.toml", &format!("[agents]\nrobot = '{robot}'\n"));
    lab.agq(&["--policy", policy.to_str().unwrap(), "--config", config.to_str().unwrap()])
}

/// Submits a plan that runs a program of awk, and an action of it with the same id, as an agent.
fn submit_awk(agq: &Agq, key: &str, id: &str, program: &str) {
    let mut raw = RawConnection::bare(agq);
    assert_eq!(raw.ask(&format!("AUTH {key}")), "+OK");
    let plan = plan(id, "awk", &[program]);
    assert_eq!(raw.ask(&format!("PLAN.SUBMIT '{plan}'")), format!("+OK plan_id={id}"));
    let action = format!(r#"{{"action_id":"{id}","plan_id":"{id}","inputs":[{{}}]}}"#);
    assert!(raw.ask(&format!("ACTION.SUBMIT '{action}'")).starts_with("+OK"));
}

#[test]
fn admin_reads_what_a_plan_runs_and_approves_it() {
    let lab = Lab::new();
    let robot = "c".repeat(64);
    let agq = agq_with_approvals(&lab, &robot);
    let _agw = lab.agw(&agq, "w1", &[]);
    for id in ["good", "bad"] {
        submit_awk(&agq, &robot, id, "BEGIN { print \"<b>1</b>\" }");
    }
    let browser = Browser::start(&lab);
    browser.log_in(&agq, lab.key());
    browser.sees("tr[data-approval=good]", "BEGIN { print");
    browser.sees("tr[data-approval=good]", "submitted by agent:robot");
    browser.sees("tr[data-approval=good]", "tools.awk is an interpreter");
    browser.picture("dashboard-approvals", (1280, 900), "light");
    browser.click("tr[data-approval=good] button[aria-label='Approve plan good']");
    browser.sees("#confirm-text", "Digest ");
    browser.click("#confirm-yes");
    browser.sees("tr[data-action=good] .state", "completed");
    browser.click("tr[data-approval=bad] button[aria-label='Reject plan bad']");
    browser.click("#confirm-yes");
    browser.sees("tr[data-action=bad] .state", "cancelled");
    assert!(browser.run("return document.querySelector('main b')", &json!([])).is_null());
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn dashboard_shows_hidden_characters_and_blanks_of_plans_and_outputs() {
    let lab = Lab::new();
    let robot = "c".repeat(64);
    let agq = agq_with_approvals(&lab, &robot);
    let _agw = lab.agw(&agq, "w1", &[]);
    submit_awk(&agq, &robot, "odd", "BEGIN { print \"a  b\u{202e}c\u{200b}d\" }");
    let program = r#""BEGIN { print \"a  b\u202ec\u200bd\" }""#;
    let browser = Browser::start(&lab);
    browser.log_in(&agq, lab.key());
    browser.sees("tr[data-approval=odd] .argv", program);
    // A browser collapses blanks in this text, unless the style keeps them.
    let rendered = |css: &str| {
        let text = browser.run("return document.querySelector(arguments[0]).innerText", &json!([css]));
        text.as_str().unwrap_or_default().to_owned()
    };
    assert!(rendered("tr[data-approval=odd] .argv").contains(program));
    browser.click("tr[data-approval=odd] button[aria-label='Approve plan odd']");
    browser.sees("#confirm-text", program);
    assert!(rendered("#confirm-text").contains(program));
    browser.click("#confirm-yes");
    browser.sees("tr[data-action=odd] .state", "completed");
    // Words of some languages need the characters without a width, so outputs keep them.
    let job = lab.agx(&agq, &["job", "list", "odd"]).expect(0).out;
    browser.go(&format!("http://{}/#/job/{}", agq.http_address(), job.trim()));
    browser.sees("pre", "{}");
    browser.sees("main article pre", "a  b\\u202ec\u{200b}d\n");
    let is_special = |c: &char| is_hidden(*c) || byte_of(*c).is_some();
    let special: String = ('\u{1}'..=char::MAX).filter(is_special).collect();
    let text = format!("é 日 🙂 {special}");
    assert_eq!(browser.run("return visible(arguments[0])", &json!([text])), json!(printable(&text)));
}
