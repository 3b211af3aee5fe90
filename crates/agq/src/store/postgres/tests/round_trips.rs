//! Round trips carry values unchanged and stop at the first error, and a batch needs few of them.

use std::{pin::pin, sync::Mutex};

use agenix_rules::capability::Needs;
use futures_util::{
    future::{join, join_all, join4},
    poll,
};
use sqlx::Row;
use tokio::sync::mpsc::unbounded_channel;

use crate::store::{
    AckLevel, AddOutcome, Claim, JobStore,
    postgres::{
        PostgresStore,
        connection::{Param, PreparedStatement, RoundTrip, RoundTripFailure},
        tests::making::{NOW, ack, claimants, fresh_node, number, own, plain, submit},
    },
};

/// Claims a job for the holder in whose name `ack` reports.
async fn claim_one(store: &PostgresStore) -> Claim {
    let mut claimants = claimants(1);
    claimants[0].holder = "ojs:nobody".into();
    store.claim(claimants, NOW, 0).await.unwrap().remove(0).unwrap()
}

async fn round_trips(store: &PostgresStore) -> u64 {
    store.write(AckLevel::Applied, |batch| Ok(batch.session.round_trips())).await.unwrap()
}

/// Holds the writer until the writes of `others` are submitted, so that they are one batch.
pub(super) async fn in_one_batch<T>(store: &PostgresStore, others: impl Future<Output = T>) -> T {
    let (begun, mut has_begun) = unbounded_channel();
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    let held = store.write(AckLevel::Applied, move |_| {
        begun.send(()).expect("the test waits for it");
        // The gate is dropped, so a second attempt does not wait.
        assert!(opened.lock().unwrap().recv().is_err());
        Ok(())
    });
    has_begun.recv().await.unwrap();
    let mut others = pin!(others);
    assert!(poll!(&mut others).is_pending());
    drop(gate);
    held.await.unwrap();
    others.await
}

/// Number of round trips that two calls of `round_trips` count for themselves: the end of the first
/// one and the begin of the second one.
const OF_COUNTING: u64 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn submissions_claims_and_reports_take_two_round_trips_each() {
    let (_database, store) = fresh_node().await;
    // The first cycle prepares the statements, and makes the lane.
    submit(&store, "first", Needs::default(), vec![own("first-0", None, None)]).await.unwrap();
    ack(&store, &claim_one(&store).await.job.job_id).await;
    submit(&store, "a", Needs::default(), vec![own("a-0", None, None)]).await.unwrap();
    ack(&store, &claim_one(&store).await.job.job_id).await;
    let mut counts = vec![round_trips(&store).await];
    submit(&store, "b", Needs::default(), vec![own("b-0", None, None)]).await.unwrap();
    counts.push(round_trips(&store).await);
    let claimed = claim_one(&store).await;
    counts.push(round_trips(&store).await);
    ack(&store, &claimed.job.job_id).await;
    counts.push(round_trips(&store).await);
    let taken: Vec<u64> = counts.windows(2).map(|pair| pair[1] - pair[0] - OF_COUNTING).collect();
    assert_eq!(taken, [2, 2, 2]);
    assert_eq!((&*claimed.input, &*claimed.plan), ("{}", r#"{"plan_id":"p"}"#));
}

const ECHO: PreparedStatement = PreparedStatement {
    name: "test_echo",
    sql: "SELECT to_json($1::text[])::text, $2::bytea[], to_json($3::text[])::text, $4::bigint[], $5::smallint[], $6::boolean[], $7::smallint, $8::bigint, $9::boolean, $10::integer[]",
};

#[tokio::test(flavor = "multi_thread")]
async fn round_trips_carry_values_unchanged() {
    let (_database, store) = fresh_node().await;
    let texts: Vec<String> =
        ["", "NULL", "null", "a,b", "{}", "a'b''c", r#"\ \\ " "" \" \'"#, "ä€😀\n\t\r", "$1; --", "' || 1"]
            .map(str::to_owned)
            .into();
    let some: Vec<Option<String>> = vec![None, Some("NULL".into()), Some("'".into())];
    let binaries: Vec<Vec<u8>> = vec![(0..=255).collect(), Vec::new(), b"\\x'\"".to_vec()];
    let json = |value: serde_json::Result<String>| value.unwrap();
    let expected =
        (json(serde_json::to_string(&texts)), binaries.clone(), json(serde_json::to_string(&some)));
    let found = store
        .write(AckLevel::Applied, move |batch| {
            let params = vec![
                Param::Texts(texts.clone()),
                Param::Binaries(binaries.clone()),
                Param::OptionalTexts(some.clone()),
                Param::OptionalWides(vec![None, Some(i64::MIN)]),
                Param::Shorts(vec![-1, 2]),
                Param::Flags(vec![true, false]),
                Param::Short(7),
                Param::Wide(i64::MAX),
                Param::Flag(true),
                Param::Integers(vec![i32::MIN, 3]),
            ];
            let mut round_trip = RoundTrip::default();
            let first = round_trip.call(&ECHO, params.clone());
            let second = round_trip.call(&ECHO, params);
            let answers = batch.session.send(round_trip).map_err(|failure| failure.error)?;
            assert_eq!((first, second, answers.len()), (0, 1, 2));
            let row = &answers[second][0];
            let numbers: (Vec<Option<i64>>, Vec<i16>, Vec<bool>) =
                (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
            assert_eq!(numbers, (vec![None, Some(i64::MIN)], vec![-1, 2], vec![true, false]));
            let single: (i16, i64, bool, Vec<i32>) =
                (row.try_get(6)?, row.try_get(7)?, row.try_get(8)?, row.try_get(9)?);
            assert_eq!(single, (7, i64::MAX, true, vec![i32::MIN, 3]));
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        })
        .await
        .unwrap();
    assert_eq!(expected, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_stops_at_the_first_error() {
    const PAUSE: PreparedStatement = PreparedStatement {
        name: "test_pause",
        sql: "INSERT INTO agq.paused (queue) SELECT unnest($1::text[])",
    };
    let (_database, store) = fresh_node().await;
    let failed = store.write(AckLevel::Applied, |batch| {
        let mut round_trip = RoundTrip::default();
        round_trip.call(&PAUSE, vec![Param::texts(["a"])]);
        round_trip.call(&PAUSE, vec![Param::texts(["a"])]);
        round_trip.plain("COMMIT");
        let Err(RoundTripFailure { error, succeeded, .. }) = batch.session.send(round_trip) else {
            return Ok(());
        };
        assert_eq!(succeeded, 1);
        Err(error)
    });
    assert!(failed.await.is_err());
    assert_eq!(number(&store, "SELECT count(*) FROM agq.paused").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_submissions_of_one_batch_share_new_jobs() {
    let (_database, store) = fresh_node().await;
    submit(&store, "first", Needs::default(), vec![plain("first-0")]).await.unwrap();
    let added = submit(&store, "a", Needs::default(), vec![plain("a-0"), plain("a-1")]);
    let claims = async { store.claim(claimants(4), NOW, 0).await };
    let (added, claims) = in_one_batch(&store, join(added, claims)).await;
    added.unwrap();
    let claims = claims.unwrap();
    let ids: Vec<Option<&str>> =
        claims.iter().map(|claim| claim.as_ref().map(|claim| claim.job.job_id.as_str())).collect();
    assert_eq!(ids, [Some("first-0"), Some("a-0"), Some("a-1"), None]);
    assert!(claims.iter().flatten().all(|claim| claim.input == "{}" && !claim.plan.is_empty()));
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs WHERE status = 1").await, 3);
}

/// Returns the number of round trips of the batch that adds `count` actions with unique jobs under
/// a limit.
async fn round_trips_of_checked(store: &PostgresStore, round: &str, count: usize) -> u64 {
    let before = round_trips(store).await;
    let added = (0..count).map(|n| {
        let (action, kind, limit) = (format!("{round}-{n}"), format!("{round} {n}"), format!("l{}", n % 3));
        let job = own(&format!("{action}-0"), Some(&kind), Some(&limit));
        async move { submit(store, &action, Needs::default(), vec![job]).await }
    });
    let added = in_one_batch(store, join_all(added)).await;
    assert!(added.iter().all(|added| matches!(added, Ok(AddOutcome::New))), "{added:?}");
    round_trips(store).await - before
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_jobs_of_one_batch_share_round_trips() {
    let (_database, store) = fresh_node().await;
    // The first batches prepare the statements, and make the lanes.
    round_trips_of_checked(&store, "first", 3).await;
    round_trips_of_checked(&store, "second", 3).await;
    let few = round_trips_of_checked(&store, "few", 3).await;
    assert_eq!(round_trips_of_checked(&store, "many", 30).await, few);
}

/// Number of round trips of the write that holds the writer in [`in_one_batch`].
const OF_HOLDING: u64 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn unique_jobs_under_limits_take_two_round_trips_and_their_claims_two_more() {
    let (_database, store) = &fresh_node().await;
    // The first rounds prepare the statements, and make the lanes.
    for round in ["first", "second", "third"] {
        let before = round_trips(store).await;
        let added = (0..3).map(|n| {
            let (action, kind, limit) = (format!("{round}-{n}"), format!("{round} {n}"), format!("l{n}"));
            let job = own(&format!("{action}-0"), Some(&kind), Some(&limit));
            async move { submit(store, &action, Needs::default(), vec![job]).await }
        });
        in_one_batch(store, join_all(added)).await;
        let after = round_trips(store).await;
        let claims = store.claim(claimants(3), NOW, 0).await.unwrap();
        let end = round_trips(store).await;
        for claim in claims.iter().flatten() {
            ack(store, &claim.job.job_id).await;
        }
        let taken = (after - before - OF_COUNTING - OF_HOLDING, end - after - OF_COUNTING);
        assert!(round != "third" || taken == (2, 4), "{taken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_jobs_of_one_batch_see_each_other() {
    let (_database, store) = fresh_node().await;
    let added = |action: &'static str, kind: &'static str| {
        let job = own(&format!("{action}-0"), Some(kind), None);
        submit(&store, action, Needs::default(), vec![job])
    };
    let (a, b, c, again) = (added("a", "k"), added("b", "k"), added("c", "other"), added("a", "third"));
    let (a, b, c, again) = in_one_batch(&store, join4(a, b, c, again)).await;
    assert!(matches!(a, Ok(AddOutcome::New)), "{a:?}");
    assert!(matches!(&b, Ok(AddOutcome::Stands(stands)) if stands[0].by.as_str() == "a-0"), "{b:?}");
    assert!(matches!(c, Ok(AddOutcome::New)), "{c:?}");
    assert!(matches!(again, Ok(AddOutcome::Differs | AddOutcome::Same)), "{again:?}");
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 2);
}
