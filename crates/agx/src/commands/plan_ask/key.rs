//! Key for the server of the model.

use secrecy::{ExposeSecret, SecretString};
use ureq::http::HeaderValue;

use crate::error::{CliError, Result};

/// Environment variable with the key. There is no option for the key, because other users of the
/// machine could read an option.
pub(super) const KEY: &str = "AGX_ASK_KEY";
/// Minimum number of bytes of a key that is hidden. A shorter key, as `none`, is for servers that
/// check no key, and may be a part of any text.
const MIN_HIDDEN_BYTES: usize = 8;

/// Key for the server, which no text of the server may show.
#[derive(Debug)]
pub(super) struct ServerKey(Option<SecretString>);

impl ServerKey {
    /// Returns the key in the environment. An empty variable is no key.
    pub(super) fn of_environment() -> Result<Self> {
        match std::env::var_os(KEY).map(std::ffi::OsString::into_string) {
            None => Ok(Self::new("")),
            Some(Ok(key)) => Ok(Self::new(&key)),
            Some(Err(_)) => Err(wrong("is not UTF-8")),
        }
    }

    /// Returns a key without white space around it.
    pub(super) fn new(key: &str) -> Self {
        let key = key.trim();
        Self((!key.is_empty()).then(|| key.into()))
    }

    /// Returns the header with the key.
    pub(super) fn header(&self) -> Result<Option<HeaderValue>> {
        let Some(key) = &self.0 else { return Ok(None) };
        let header = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()));
        let mut header = header.map_err(|_| wrong("has characters that no key has"))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    /// Returns `text` with `***` in place of the key.
    pub(super) fn masked(&self, text: &str) -> String {
        self.hidden().map_or_else(|| text.to_owned(), |key| text.replace(key, "***"))
    }

    /// Returns true if the JSON text has the key in it.
    pub(super) fn is_in(&self, json: &str) -> bool {
        let Some(key) = self.hidden() else { return false };
        let escaped = serde_json::Value::from(key).to_string();
        json.contains(key) || json.contains(&escaped[1..escaped.len() - 1])
    }

    fn hidden(&self) -> Option<&str> {
        let key = self.0.as_ref()?.expose_secret();
        (key.len() >= MIN_HIDDEN_BYTES).then_some(key)
    }
}

fn wrong(problem: &str) -> CliError {
    CliError::usage(format!("{KEY} {problem}"), "set it to the key alone, in one line")
}

#[cfg(test)]
mod tests {
    use super::ServerKey;

    #[test]
    fn key_is_not_shown() {
        let key = ServerKey::new(" sk-secret-1 \n");
        let header = key.header().unwrap().unwrap();
        assert_eq!(
            (header.as_bytes(), format!("{header:?}")),
            (&b"Bearer sk-secret-1"[..], "Sensitive".into())
        );
        assert!(!format!("{key:?}").contains("secret-1"), "{key:?}");
        let error = ServerKey::new("sec\nret").header().unwrap_err();
        assert!(!format!("{error:?}").contains("ret\""), "{error:?}");
        assert!(ServerKey::new(" ").header().unwrap().is_none());
    }

    #[test]
    fn key_is_hidden_in_texts_of_the_server() {
        let key = ServerKey::new("sk-a\"secret");
        assert_eq!(key.masked("no key 'sk-a\"secret' (sk-a\"secret)"), "no key '***' (***)");
        assert!(key.is_in(r#"{"args":["sk-a\"secret"]}"#) && !key.is_in(r#"{"args":["sk"]}"#));
        for short in ["", "none", "ollama"] {
            let key = ServerKey::new(short);
            assert_eq!(key.masked("none of ollama"), "none of ollama");
            assert!(!key.is_in("none of ollama"));
        }
    }
}
