//! Wrong records of users' keys.

use redb::WriteTransaction;

use super::{cut, put, tampered};
use crate::store::{
    KeyEntry, StoredValue,
    redb::schema::tables::{BY_SCORE, EXPIRIES, KEY_NUMBERS, KEYS, KeyRecord, LIST_ITEMS, SCORES, ordered},
};

const TEXT: &[u8] = b"text";
const LIST: &[u8] = b"list";
const SET: &[u8] = b"set";
const M: &[u8] = b"m";

fn put_key(transaction: &WriteTransaction, key: &'static [u8], number: u64, content: StoredValue) {
    let record = KeyRecord { number, entry: KeyEntry { content, expires_at: None } };
    put(transaction, KEYS, key, record);
}

#[tokio::test]
async fn check_reports_wrong_key_numbers() {
    let reported = tampered(|t| cut(t, KEY_NUMBERS, 1)).await;
    assert_eq!(reported, ["key_numbers: 1 should be text, but is nothing"]);
    let reported = tampered(|t| put(t, KEY_NUMBERS, 9, TEXT)).await;
    assert_eq!(reported, ["key_numbers: 9 is text, but its number is 1"]);
    let reported = tampered(|t| put(t, KEY_NUMBERS, 9, b"\xff\n".as_slice())).await;
    assert_eq!(reported, [r"key_numbers: 9 is \xff\n, but there is no such key"]);
    let reported = tampered(|t| put(t, KEY_NUMBERS, 2, TEXT)).await;
    let both = ["key_numbers: 2 should be list, but is text", "key_numbers: 2 is text, but its number is 1"];
    assert_eq!(reported, both);
}

#[tokio::test]
async fn check_reports_wrong_expiries() {
    let reported = tampered(|t| cut(t, EXPIRIES, (99, TEXT))).await;
    assert_eq!(reported, ["expiries: text should stand at 99, but does not"]);
    let reported = tampered(|t| put(t, EXPIRIES, (7, TEXT), ())).await;
    assert_eq!(reported, ["expiries: text is listed at 7, but it expires at 99"]);
    let reported = tampered(|t| put(t, EXPIRIES, (7, LIST), ())).await;
    assert_eq!(reported, ["expiries: list is listed at 7, but it never expires"]);
    let reported = tampered(|t| put(t, EXPIRIES, (7, M), ())).await;
    assert_eq!(reported, ["expiries: m is listed at 7, but there is no such key"]);
}

#[tokio::test]
async fn check_reports_wrong_lists() {
    let reported = tampered(|t| cut(t, LIST_ITEMS, (LIST, 0))).await;
    assert_eq!(reported, ["list_items: list has 1 elements, but should have 2"]);
    let reported = tampered(|t| put(t, LIST_ITEMS, (LIST, 1), M)).await;
    assert_eq!(reported, ["list_items: list has an element at 1, but no such place"]);
    let reported = tampered(|t| put(t, LIST_ITEMS, (TEXT, 0), M)).await;
    assert_eq!(reported, ["list_items: text has an element at 0, but no such place"]);
    let reported = tampered(|t| {
        put_key(t, LIST, 2, StoredValue::List { head: 1, tail: 1 });
        cut(t, LIST_ITEMS, (LIST, -1));
        cut(t, LIST_ITEMS, (LIST, 0));
    });
    assert_eq!(reported.await, ["keys: list is a list without elements"]);
}

#[tokio::test]
async fn check_reports_wrong_sorted_sets() {
    let reported = tampered(|t| cut(t, SCORES, (SET, M))).await;
    let both = [
        "scores: set has 1 members, but should have 2",
        "by_score: m of set is listed at 1, but it is no member",
    ];
    assert_eq!(reported, both);
    let reported = tampered(|t| cut(t, BY_SCORE, (SET, ordered(1.0), M))).await;
    assert_eq!(reported, ["by_score: m of set should stand at 1, but does not"]);
    let reported = tampered(|t| put(t, BY_SCORE, (SET, ordered(7.5), M), ())).await;
    assert_eq!(reported, ["by_score: m of set is listed at 7.5, but its score is 1"]);
    let reported = tampered(|t| {
        put(t, SCORES, (TEXT, M), ordered(1.0));
        put(t, BY_SCORE, (TEXT, ordered(1.0), M), ());
    });
    assert_eq!(reported.await, ["scores: text has member m, but is no sorted set"]);
    let reported = tampered(|t| put_key(t, SET, 3, StoredValue::Sorted { members: 3 })).await;
    assert_eq!(reported, ["scores: set has 2 members, but should have 3"]);
    let reported = tampered(|t| put_key(t, SET, 3, StoredValue::Sorted { members: 0 })).await;
    let both = ["keys: set is a sorted set without members", "scores: set has 2 members, but should have 0"];
    assert_eq!(reported, both);
}
