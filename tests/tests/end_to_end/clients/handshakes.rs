//! Handshakes of client libraries and the replies of agq: tests/sessions/handshakes.txt.

use e2e::Lab;

use crate::like_redis::wire::{Wire, elements, payload};

#[test]
fn handshakes_of_clients_are_answered() {
    let file = "tests/sessions/handshakes.txt";
    let text = std::fs::read_to_string(Lab::repository(file)).unwrap();
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut wire = Wire::to(&agq);
    let mut differences = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.replace("{key}", lab.key());
        if line.starts_with("## ") {
            wire = Wire::to(&agq);
        } else if let Some(sent) = line.strip_prefix("> ") {
            wire.send_bytes(sent.replace("\\r\\n", "\r\n").as_bytes());
        } else if let Some(expected) = line.strip_prefix("< ") {
            let got = wire.reply();
            if !fits(expected, &got) {
                differences.push(format!("{file}:{number}: expected {expected}, got {}", got.escape_ascii()));
            }
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{file}:{number}: what is '{line}'?");
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns true if the reply `got` matches the line `expected` of the file.
fn fits(expected: &str, got: &[u8]) -> bool {
    match expected {
        "{hello 2}" => is_hello(got, b'*', "2"),
        "{hello 3}" => is_hello(got, b'%', "3"),
        "{text}" => matches!(got.first(), Some(b'$' | b'=')),
        "{any}" => !got.starts_with(b"<"),
        _ => {
            let shown = got.strip_suffix(b"\r\n").unwrap_or(got).escape_ascii().to_string();
            expected.strip_suffix('…').map_or(shown == expected, |start| shown.starts_with(start))
        }
    }
}

/// Returns true if `got` is the reply to HELLO, as a map or as alternating names and values.
fn is_hello(got: &[u8], kind: u8, protocol: &str) -> bool {
    let words = elements(got);
    let field = |name: &str| {
        let pair = words.chunks_exact(2).find(|pair| payload(&pair[0]) == name.as_bytes())?;
        std::str::from_utf8(payload(&pair[1])).ok()
    };
    let expected = [
        ("server", "agq"),
        ("proto", protocol),
        ("mode", "standalone"),
        ("role", "master"),
        ("modules", "0"),
    ];
    got.first() == Some(&kind) && expected.into_iter().all(|(name, value)| field(name) == Some(value))
}
