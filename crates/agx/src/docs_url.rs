//! Addresses of the documentation, which no package installs.

/// Expands to the address of a page of the documentation, as a literal.
macro_rules! docs_url {
    ($page:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/", $page)
    };
}

pub(crate) use docs_url;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn documentation_that_messages_name_exists() {
        for url in [
            docs_url!("agx.md"),
            docs_url!("policy.md"),
            docs_url!("security.md"),
            docs_url!("protocol/README.md"),
            docs_url!("protocol/plans.md"),
        ] {
            let (_, page) = url.split_once("/blob/main/").unwrap();
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            assert!(url.starts_with("https://") && root.join(page).is_file(), "{url}");
        }
    }
}
