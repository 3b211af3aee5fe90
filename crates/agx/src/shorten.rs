//! Shortens text of users for messages: a message quotes the beginning of what is long.

/// Most bytes that a message quotes of one input, path or name.
const MOST_BYTES: usize = 200;

/// The text, or its beginning and an ellipsis where it is long.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MOST_BYTES {
        return text.to_owned();
    }
    let end = (0..=MOST_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_text_is_cut_between_two_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(200)), "x".repeat(200));
        assert_eq!(shortened(&"x".repeat(201)), "x".repeat(200) + "…");
        let wide = shortened(&("x".to_owned() + &"é".repeat(200)));
        assert_eq!(wide, "x".to_owned() + &"é".repeat(99) + "…");
    }
}
