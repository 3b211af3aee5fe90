//! Table of the commands on keys of users, with a row for each.

use bytes::Bytes;

use super::{
    KeyCommand, ListEnd,
    parse::{
        add, blmove, blocking_pop, expire, key, lmove, lrange, lrem, mset, pop, scan, set, zadd, zpopmin,
        zrange,
    },
};
use crate::request::{
    AgentAccess, Command,
    CommandAccess::{self, Client, Everyone},
    CommandKind::{self, Blocking, Read, Write},
    Request, RequestError,
};

/// Returns a row. `keys`: positions of the first and last key, and the step.
const fn row(
    name: &'static str,
    arity: i8,
    (kind, access): (CommandKind, CommandAccess),
    keys: (i8, i8, i8),
    syntax: &'static str,
    summary: &'static str,
    parse: fn(&[Bytes]) -> Result<Request, RequestError>,
) -> Command {
    Command { name, arity, kind, access, agent: AgentAccess::Refused, keys, syntax, summary, parse }
}

const NO_KEY: (i8, i8, i8) = (0, 0, 0);
const ONE_KEY: (i8, i8, i8) = (1, 1, 1);
const TWO_KEYS: (i8, i8, i8) = (1, 2, 1);
const ALL_KEYS: (i8, i8, i8) = (1, -1, 1);

const BAD_EXPIRE: &str = "invalid expire time in 'expire' command";
const BAD_PEXPIRE: &str = "invalid expire time in 'pexpire' command";

#[rustfmt::skip]
pub(crate) static KEY_COMMANDS: &[Command] = &[
    row("GET", 2, (Read, Everyone), ONE_KEY, "<key>", "Reads a string.",
        |args| key(KeyCommand::Get { key: args[0].clone() })),
    row("SET", -3, (Write, Client), ONE_KEY,
        "<key> <value> [NX|XX] [GET] [EX <s>|PX <ms>|EXAT <s>|PXAT <ms>|KEEPTTL]", "Sets a string.", set),
    row("INCR", 2, (Write, Client), ONE_KEY, "<key>", "Adds 1 to a number.",
        |args| key(KeyCommand::Add { key: args[0].clone(), by: 1 })),
    row("DECR", 2, (Write, Client), ONE_KEY, "<key>", "Subtracts 1 from a number.",
        |args| key(KeyCommand::Add { key: args[0].clone(), by: -1 })),
    row("INCRBY", 3, (Write, Client), ONE_KEY, "<key> <amount>", "Adds to a number.", |args| add(args, 1)),
    row("DECRBY", 3, (Write, Client), ONE_KEY, "<key> <amount>", "Subtracts from a number.", |args| add(args, -1)),
    row("MGET", -2, (Read, Client), ALL_KEYS, "<key> [key ...]", "Reads strings.",
        |args| key(KeyCommand::MGet { keys: args.to_vec() })),
    row("MSET", -3, (Write, Client), (1, -1, 2), "<key> <value> [<key> <value> ...]", "Sets strings.", mset),
    row("DEL", -2, (Write, Client), ALL_KEYS, "<key> [key ...]", "Removes keys of any type.",
        |args| key(KeyCommand::Del { keys: args.to_vec() })),
    row("EXISTS", -2, (Read, Everyone), ALL_KEYS, "<key> [key ...]", "Counts the keys that are there.",
        |args| key(KeyCommand::Exists { keys: args.to_vec() })),
    row("EXPIRE", -3, (Write, Client), ONE_KEY, "<key> <seconds> [NX|XX|GT|LT]", "Sets the time to live of a key.",
        |args| expire(args, 1000, BAD_EXPIRE)),
    row("PEXPIRE", -3, (Write, Client), ONE_KEY, "<key> <milliseconds> [NX|XX|GT|LT]", "Sets the time to live of a key.",
        |args| expire(args, 1, BAD_PEXPIRE)),
    row("TTL", 2, (Read, Everyone), ONE_KEY, "<key>", "Returns the time to live of a key in seconds.",
        |args| key(KeyCommand::Ttl { key: args[0].clone() })),
    row("PTTL", 2, (Read, Everyone), ONE_KEY, "<key>", "Returns the time to live of a key in milliseconds.",
        |args| key(KeyCommand::PTtl { key: args[0].clone() })),
    row("PERSIST", 2, (Write, Client), ONE_KEY, "<key>", "Removes the time to live of a key.",
        |args| key(KeyCommand::Persist { key: args[0].clone() })),
    row("TYPE", 2, (Read, Everyone), ONE_KEY, "<key>", "Returns the type of a value.",
        |args| key(KeyCommand::Type { key: args[0].clone() })),
    row("KEYS", 2, (Read, Client), NO_KEY, "<pattern>", "Lists the keys that match a pattern.",
        |args| key(KeyCommand::Keys { pattern: args[0].clone() })),
    row("SCAN", -2, (Read, Client), NO_KEY, "<cursor> [MATCH <pattern>] [COUNT <n>] [TYPE <type>]",
        "Lists keys step by step.", scan),
    row("DBSIZE", 1, (Read, Client), NO_KEY, "", "Counts all keys.", |_| key(KeyCommand::DbSize)),

    row("LPUSH", -3, (Write, Client), ONE_KEY, "<key> <value> [value ...]", "Adds values at the head of a list.",
        |args| key(KeyCommand::Push { key: args[0].clone(), values: args[1..].to_vec(), to: ListEnd::Head })),
    row("RPUSH", -3, (Write, Client), ONE_KEY, "<key> <value> [value ...]", "Adds values at the tail of a list.",
        |args| key(KeyCommand::Push { key: args[0].clone(), values: args[1..].to_vec(), to: ListEnd::Tail })),
    row("LPOP", -2, (Write, Everyone), ONE_KEY, "<key> [count]", "Removes and returns values at the head of a list.",
        |args| pop(args, ListEnd::Head)),
    row("RPOP", -2, (Write, Everyone), ONE_KEY, "<key> [count]", "Removes and returns values at the tail of a list.",
        |args| pop(args, ListEnd::Tail)),
    row("LLEN", 2, (Read, Everyone), ONE_KEY, "<key>", "Counts the elements of a list.",
        |args| key(KeyCommand::LLen { key: args[0].clone() })),
    row("LRANGE", 4, (Read, Client), ONE_KEY, "<key> <start> <stop>", "Reads a part of a list.", lrange),
    row("LREM", 4, (Write, Client), ONE_KEY, "<key> <count> <value>", "Removes equal elements of a list.", lrem),
    row("LMOVE", 5, (Write, Client), TWO_KEYS, "<source> <destination> LEFT|RIGHT LEFT|RIGHT",
        "Moves an element from list to list.", lmove),
    row("BLMOVE", 6, (Blocking, Client), TWO_KEYS, "<source> <destination> LEFT|RIGHT LEFT|RIGHT <timeout_seconds>",
        "Moves an element from list to list, and waits for one.", blmove),
    row("BRPOP", -3, (Blocking, Everyone), (1, -2, 1), "<key> [key ...] <timeout_seconds>",
        "Pops the tail of a list or claims a job, and waits for one.", |args| blocking_pop(args, ListEnd::Tail)),
    row("BLPOP", -3, (Blocking, Everyone), (1, -2, 1), "<key> [key ...] <timeout_seconds>",
        "Pops the head of a list or claims a job, and waits for one.", |args| blocking_pop(args, ListEnd::Head)),

    row("ZADD", -4, (Write, Client), ONE_KEY, "<key> [NX|XX] [GT|LT] [CH] [INCR] <score> <member> [<score> <member> ...]",
        "Adds members to a sorted set, or moves them.", zadd),
    row("ZRANGE", -4, (Read, Client), ONE_KEY,
        "<key> <start> <stop> [BYSCORE] [REV] [LIMIT <offset> <count>] [WITHSCORES]",
        "Reads a part of a sorted set.", |args| zrange(args, false)),
    row("ZRANGEBYSCORE", -4, (Read, Client), ONE_KEY,
        "<key> <min_score> <max_score> [WITHSCORES] [LIMIT <offset> <count>]",
        "Reads the members with scores in a range.", |args| zrange(args, true)),
    row("ZREM", -3, (Write, Client), ONE_KEY, "<key> <member> [member ...]", "Removes members of a sorted set.",
        |args| key(KeyCommand::ZRem { key: args[0].clone(), members: args[1..].to_vec() })),
    row("ZCARD", 2, (Read, Client), ONE_KEY, "<key>", "Counts the members of a sorted set.",
        |args| key(KeyCommand::ZCard { key: args[0].clone() })),
    row("ZSCORE", 3, (Read, Client), ONE_KEY, "<key> <member>", "Reads the score of a member.",
        |args| key(KeyCommand::ZScore { key: args[0].clone(), member: args[1].clone() })),
    row("ZPOPMIN", -2, (Write, Client), ONE_KEY, "<key> [count]", "Removes and returns the members with the lowest scores.", zpopmin),

    row("SMEMBERS", 2, (Read, Everyone), ONE_KEY, "<key>", "Reads a set that agq shows.",
        |args| key(KeyCommand::SMembers { key: args[0].clone() })),
    row("SISMEMBER", 3, (Read, Everyone), ONE_KEY, "<key> <member>", "Looks into a set that agq shows.",
        |args| key(KeyCommand::SIsMember { key: args[0].clone(), member: args[1].clone() })),
    row("HGETALL", 2, (Read, Everyone), ONE_KEY, "<key>", "Reads a hash that agq shows.",
        |args| key(KeyCommand::HGetAll { key: args[0].clone() })),
    row("HGET", 3, (Read, Everyone), ONE_KEY, "<key> <field>", "Reads a field of a hash that agq shows.",
        |args| key(KeyCommand::HGet { key: args[0].clone(), field: args[1].clone() })),
];
