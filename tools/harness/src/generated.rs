//! Parts of documents that a program generates.

use anyhow::Context;

/// Replaces the text between `<!-- mark -->` and `<!-- /mark -->` with `part`. Returns an
/// error if the marks are missing.
pub fn spliced(page: &str, mark: &str, part: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- {mark} -->"), format!("<!-- /{mark} -->"));
    let missing = || format!("there is no `{begin}` with a `{end}` after it");
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}\n{part}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::spliced;

    #[test]
    fn spliced_replaces_the_text_between_marks() {
        let page = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n";
        let spliced = |page: &str| spliced(page, "bench", "new\n");
        let new = spliced(page).unwrap();
        assert_eq!(new, "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n");
        assert_eq!(spliced(&new).unwrap(), new);
        assert!(spliced("a\n<!-- /bench --><!-- bench -->").is_err());
    }
}
