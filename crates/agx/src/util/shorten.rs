//! Shortens text of users, because a message should quote only the beginning of a long text.

/// Maximum number of bytes that a message quotes of one input, path or name.
const MAX_BYTES: usize = 200;

/// Returns `text`, or its beginning and an ellipsis if `text` is long.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn shortened_cuts_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(200)), "x".repeat(200));
        assert_eq!(shortened(&"x".repeat(201)), "x".repeat(200) + "…");
        let wide = shortened(&("x".to_owned() + &"é".repeat(200)));
        assert_eq!(wide, "x".to_owned() + &"é".repeat(99) + "…");
    }
}
