//! Fair shares of the keys that submit jobs, and named shares.

use e2e::{Agq, Lab, eventually};

use crate::support::{RawConnection, plan};

fn key(letter: &str) -> String {
    letter.repeat(64)
}

/// Writes a keys file with two clients, of which one has a weight and may name a share.
fn keys(lab: &Lab, of_bob: &str) -> String {
    let [alice, bob] = ["a", "b"].map(key);
    let text = format!(
        "[clients]\nalice = {{ key = '{alice}', weight = 3, shares = ['night'] }}\n\
         bob = {{ key = '{bob}'{of_bob} }}\n"
    );
    lab.file("agq.toml", &text).display().to_string()
}

/// Opens a connection and logs in with the key `letter`.
fn with_key(agq: &Agq, letter: &str) -> RawConnection {
    let mut raw = RawConnection::bare(agq);
    assert_eq!(raw.ask(&format!("AUTH {}", key(letter))), "+OK");
    raw
}

fn action(id: &str, jobs: usize, rest: &str) -> String {
    let inputs = vec!["{}"; jobs].join(",");
    format!(r#"ACTION.SUBMIT '{{"action_id":"{id}","plan_id":"p","inputs":[{inputs}]{rest}}}'"#)
}

#[test]
fn shares_of_keys_get_claims_by_their_weights() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "")]);
    let (mut alice, mut bob) = (with_key(&agq, "a"), with_key(&agq, "b"));
    assert_eq!(alice.ask(&format!("PLAN.SUBMIT '{}'", plan("p", "sort", &[]))), "+OK plan_id=p");
    assert_eq!(bob.ask(&action("of-bob", 60, "")), "+OK action_id=of-bob jobs_created=60");
    assert_eq!(alice.ask(&action("of-alice", 60, "")), "+OK action_id=of-alice jobs_created=60");
    let mut worker = RawConnection::open(&lab, &agq);
    let mut of_alice = 0;
    for _claim in 0..40 {
        worker.send("RPOP queue:ready\n");
        of_alice += usize::from(worker.bulk().contains(r#""action_id":"of-alice""#));
    }
    assert!((29..=31).contains(&of_alice), "{of_alice} of 40");
}

#[test]
fn share_is_named_by_a_key_that_an_admin_lets() {
    let lab = Lab::new();
    let agq = lab.agq(&["--config", &keys(&lab, "")]);
    let (mut alice, mut bob) = (with_key(&agq, "a"), with_key(&agq, "b"));
    assert_eq!(alice.ask(&format!("PLAN.SUBMIT '{}'", plan("p", "sort", &[]))), "+OK plan_id=p");
    let night = r#","share":"night""#;
    assert_eq!(alice.ask(&action("one", 1, night)), "+OK action_id=one jobs_created=1");
    assert_eq!(
        bob.ask(&action("two", 1, night)),
        "-NOPERM This key may not use the share 'night', only its own: leave out share, or ask an admin to add the name \
         to shares of the key in the config file of agq"
    );
    assert!(alice.ask(&action("three", 1, r#","share":"day""#)).contains("'day', only night and its own"));
    keys(&lab, ", shares = ['night']");
    agq.reload();
    eventually("bob may name the share", || {
        bob.ask(&action("two", 1, night)).starts_with("+OK").then_some(())
    });

    let inputs = lab.file("inputs.jsonl", "{}\n").display().to_string();
    lab.agx(&agq, &["action", "submit", "p", "--inputs", &inputs, "--id", "four", "--share", "any"])
        .expect(0);
    let text = lab.agx(&agq, &["action", "status", "four"]).expect(0).out;
    assert!(text.contains("\n  share      any\n"), "{text}");
    let text = lab.agx(&agq, &["action", "status", "two"]).expect(0).out;
    assert!(text.contains("\n  share      night\n"), "{text}");
}
