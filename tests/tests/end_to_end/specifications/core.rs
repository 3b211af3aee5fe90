//! The RESP spec: the wire, AUTH, and the commands that any Redis has.

use e2e::Lab;

use super::{hold, says};
use crate::support::RawConnection;

#[test]
fn auth_ok_and_its_errors() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::bare(&agq);
    hold(
        &mut raw,
        r#"
        > PING
        < -ERR NOAUTH Authentication required
        > AUTH
        < -ERR AUTH requires exactly one argument
        > AUTH one two
        < -ERR AUTH requires exactly one argument
        > AUTH ""
        < -ERR AUTH key cannot be empty
        > AUTH 0123456789012345678901234567890123456789012345678901234567890123
        < -ERR Invalid session key
        > GET mykey
        < -ERR NOAUTH Authentication required
        "#,
    );
    assert_eq!(raw.ask(&format!("AUTH {}", lab.key())), "+OK");
    assert_eq!(raw.ask("PING"), "+PONG");
    let mut other = RawConnection::bare(&agq);
    assert_eq!(other.ask(&format!("AUTH default {}", lab.key())), "+OK");
}

#[test]
fn message_too_large() {
    let lab = Lab::new();
    let agq = lab.agq(&["--max-message-bytes", "1000"]);
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000\r\n");
    assert!(raw.line().starts_with("-ERR Message too large"));
}

says! {
    ping: "
        > PING
        < +PONG
        > PING hello
        < $5
        < hello"
    unknown_command: "
        > INVALID
        < -ERR Unknown command 'INVALID'"
    invalid_arguments: "
        > GET
        < -ERR Invalid arguments: use GET <key>"
    set_and_get: "
        > SET mykey myvalue
        < +OK
        > GET mykey
        < $7
        < myvalue
        > GET notfound
        < $-1"
    lpush_and_rpop: "
        > LPUSH mylist value
        < :1
        > LPUSH mylist two three
        < :3
        > RPOP mylist
        < $5
        < value
        > RPOP emptylist
        < $-1"
    brpop_of_a_bare_connection: "
        > LPUSH mylist value
        < :1
        > BRPOP mylist 5
        < $5
        < value
        > BRPOP emptylist 0.01
        < $-1"
    zadd_and_zrangebyscore: "
        > ZADD scheduled 1700000000 job-abc123
        < :1
        > ZADD scheduled 1600000000 job-abc123
        < :0
        > ZADD scheduled 1700000000 job-def456
        < :1
        > ZRANGEBYSCORE scheduled 0 1700000000
        < *2
        < $10
        < job-abc123
        < $10
        < job-def456
        > ZRANGEBYSCORE scheduled 1 2
        < *0"
    pipelining: "
        > PING hello
        > PING world
        < $5
        < hello
        < $5
        < world"
    subscribe: "
        > SUBSCRIBE job:updates
        < *3
        < $9
        < subscribe
        < $11
        < job:updates
        < :1"
    multi_and_exec: "
        > MULTI
        < +OK
        > SET key value
        < +QUEUED
        > EXEC
        < *1
        < +OK"
}
