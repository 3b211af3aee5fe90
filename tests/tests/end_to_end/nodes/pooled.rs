//! Nodes with a pgbouncer between agq and PostgreSQL.

use e2e::{Agq, Lab, Pooler, Postgres, Ran, eventually};

use crate::support::{RawConnection, ended, plan};

#[test]
fn pooler_by_transaction_is_refused_with_what_to_set() {
    let (lab, cluster) = (Lab::on_files(), Postgres::start_on_loopback(&[], None));
    let pooler = Pooler::start(&cluster, "transaction");
    let url = pooler.url("postgres");
    let start: &[&str] = &["--port", "0", "--store", &url];
    for args in [start, &["--port", "0", "--store-no-listen", "--store", &url], &["migrate", "--store", &url]]
    {
        let refused = Ran::from(lab.command("agq").args(args).output().unwrap()).expect(1);
        assert!(refused.err.contains("a pooler assigns its connections per transaction"), "{refused:?}");
        assert!(refused.err.contains("pool_mode = session"), "{refused:?}");
    }
}

#[test]
fn nodes_work_behind_a_pooler_by_session() {
    let (lab, cluster) = (Lab::on_files(), Postgres::start_on_loopback(&[], None));
    let pooler = Pooler::start(&cluster, "session");
    let url = pooler.url("postgres");
    let node = |lab: &Lab| -> Agq { lab.agq(&["--store", &url, "--store-poll-interval", "3600"]) };
    let (here, there) = (node(&lab), node(&lab));
    lab.submit_plan(&here, &plan("p", "true", &[]));
    lab.submit_action(&here, "p", "a", "[{}]");
    let _agw = lab.agw(&there, "w", &[]);
    assert_eq!(ended(&lab, &here, "a")["status"], "completed");
    // A message that one node publishes reaches subscribers of the other.
    let mut listens = RawConnection::open(&lab, &there);
    assert_eq!(listens.ask("SUBSCRIBE channel"), "*3");
    let received = std::thread::spawn(move || {
        (0..5).for_each(|_| drop(listens.line()));
        (0..7).map(|_| listens.line()).last()
    });
    let mut sends = RawConnection::open(&lab, &here);
    eventually("a message at the other node", || {
        sends.ask("PUBLISH channel message");
        received.is_finished().then_some(())
    });
    assert_eq!(received.join().unwrap().as_deref(), Some("message"));
}
