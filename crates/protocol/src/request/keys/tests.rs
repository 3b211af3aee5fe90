//! Tests of parsing commands on keys.

use std::ops::Bound;

use bytes::Bytes;

use super::{BlockingPop, Conditions, Expiry, KeyCommand, ListEnd, Span};
use crate::{
    request::{BlockingWait, Request, tests::parse},
    time::Timestamp,
};

fn refused(line: &str) -> String {
    parse(line).unwrap_err()
}

#[test]
fn key_commands_round_trip_through_their_arguments() {
    let lines = "GET k|SET k v|SET k v NX GET PX 5|SET k v XX EXAT 9|SET k v KEEPTTL|INCR k|DECRBY k 7|MGET a b\
        |MSET a 1 b 2|DEL a b|EXISTS a a|EXPIRE k -1|PEXPIRE k 5 XX GT|TTL k|PTTL k|PERSIST k|TYPE k|KEYS *\
        |SCAN 0|SCAN 18446744073709551615 MATCH a* COUNT 3 TYPE list|DBSIZE|LPUSH l a b|RPUSH l a|LPOP l|RPOP l 2\
        |LLEN l|LRANGE l 0 -1|LREM l -2 a|LMOVE a b left RIGHT|BLMOVE a b RIGHT LEFT 0|BRPOP a b 1.5|BLPOP a 0\
        |ZADD z 1.5 a -inf b|ZADD z NX CH 1 a|ZADD z GT INCR 1e100 a|ZRANGE z 0 -1 REV WITHSCORES\
        |ZRANGE z (5 -inf BYSCORE REV LIMIT 1 2|ZRANGEBYSCORE z -inf (1.5 WITHSCORES LIMIT 3 -1|ZREM z a b|ZCARD z\
        |ZSCORE z a|ZPOPMIN z|ZPOPMIN z 3|SMEMBERS s|SISMEMBER s a|HGETALL h|HGET h f";
    for line in lines.split('|') {
        let request = parse(line).unwrap();
        let encoded = request.encode();
        assert_eq!(Request::parse(&encoded).map(|(_, again)| again), Ok(request), "{line}: {encoded:?}");
    }
}

#[test]
fn options_are_parsed_in_any_case_and_order() {
    let Ok(Request::Key(KeyCommand::Set { options, .. })) = parse("set k v px 1500 get nx") else {
        panic!("no SET");
    };
    assert_eq!((options.only, options.returns_old), (Conditions { nx: true, ..Conditions::default() }, true));
    assert_eq!(options.expiry, Expiry::AfterMs(1500));
    let Ok(Request::Key(KeyCommand::Set { options, .. })) = parse("SET k v EXAT 2") else { panic!("no SET") };
    assert_eq!(options.expiry, Expiry::At(Timestamp(2000)));
    let Ok(Request::Key(KeyCommand::ZRange { span, .. })) = parse("ZRANGEBYSCORE z (1 +inf LIMIT -1 5")
    else {
        panic!("no ZRANGE");
    };
    let (min, max) = (Bound::Excluded(1.0), Bound::Included(f64::INFINITY));
    assert_eq!(span, Span::Scores { min, max, skip: 0, take: 0 });
    let key = |name: &'static str| Bytes::from(name);
    let pop = BlockingPop {
        keys: vec![key("a"), key("b")],
        from: ListEnd::Tail,
        to: None,
        timeout: BlockingWait::Ms(1),
    };
    assert_eq!(parse("brpop a b 0.0001"), Ok(Request::BlockingPop(pop)));
}

#[test]
fn wrong_form_is_answered_with_the_usage() {
    let set = "ERR Invalid arguments: use SET <key> <value> [NX|XX] [GET] [EX <s>|PX <ms>|EXAT <s>|PXAT <ms>|KEEPTTL]";
    for line in
        ["SET k", "SET k v NX XX", "SET k v EX", "SET k v EX 1 PX 1", "SET k v KEEPTTL EX 1", "SET k v x"]
    {
        assert_eq!(refused(line), set, "{line}");
    }
    for line in
        ["GET a b", "MSET a", "MSET a 1 b", "SCAN 0 COUNT 0", "LMOVE a b UP LEFT", "ZADD z 1", "RPOP l 1 2"]
    {
        assert!(refused(line).starts_with("ERR Invalid arguments: use "), "{line}");
    }
}

#[test]
fn refusals_have_the_texts_of_redis() {
    let lines = [
        ("INCRBY k 1.5", "ERR value is not an integer or out of range"),
        ("INCRBY k +1", "ERR value is not an integer or out of range"),
        ("DECRBY k -9223372036854775808", "ERR decrement would overflow"),
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v PX 9223372036854775807", "ERR invalid expire time in 'set' command"),
        ("EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
        ("PEXPIRE k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
        ("EXPIRE k 1 NX GT", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("EXPIRE k 1 LT GT", "ERR GT and LT options at the same time are not compatible"),
        ("RPOP l -1", "ERR value is out of range, must be positive"),
        ("SCAN x", "ERR invalid cursor"),
        ("ZADD z nan a", "ERR value is not a valid float"),
        ("ZADD z NX XX 1 a", "ERR XX and NX options at the same time are not compatible"),
        ("ZADD z GT LT 1 a", "ERR GT, LT, and/or NX options at the same time are not compatible"),
        ("ZADD z INCR 1 a 2 b", "ERR INCR option supports a single increment-element pair"),
        ("ZRANGEBYSCORE z a 1", "ERR min or max is not a float"),
        ("ZRANGE z 0 1 BYLEX", "ERR BYLEX is not supported: use BYSCORE or indexes"),
        (
            "ZRANGE z 0 1 LIMIT 0 1",
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
    ];
    for (line, expected) in lines {
        assert_eq!(refused(line), expected, "{line}");
    }
}

#[test]
fn byte_len_counts_keys_values_and_members() {
    let lines = ["SET key value", "MSET a 12 b 345", "RPUSH list 1 22", "ZADD set 1 member", "DEL a bc"];
    let lengths = lines.map(|line| match parse(line) {
        Ok(Request::Key(command)) => command.byte_len(),
        other => panic!("{line}: {other:?}"),
    });
    assert_eq!(lengths, [8, 7, 7, 9, 3]);
}
