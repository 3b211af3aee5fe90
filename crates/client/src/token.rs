//! Tokens: address, key and CA of an agq as one word, for `agx join`.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// Prefix of a token. The number is the version of the format.
const PREFIX: &str = "agx1.";
/// Command before the token in the line that `agq token` prints.
const COMMAND: &str = "agx join ";
/// Maximum length of a token in bytes. The largest part is a CA certificate.
const MAX_BYTES: usize = 64 * 1024;

/// Address and credentials of an agq.
#[derive(Debug, Clone)]
pub struct Token {
    /// One address or several, in the form of [`crate::Address::parse_all`].
    pub agq: String,
    /// Session key, or the key of one worker.
    pub key: SecretString,
    /// CA of agq's certificate, PEM.
    pub ca: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFields {
    agq: String,
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
}

impl Token {
    /// Returns the token as one word.
    pub fn encode(&self) -> SecretString {
        let fields = TokenFields {
            agq: self.agq.clone(),
            key: self.key.expose_secret().to_owned(),
            ca: self.ca.clone(),
        };
        let json = serde_json::to_string(&fields).unwrap_or_default();
        format!("{PREFIX}{}", BASE64.encode(json)).into()
    }

    /// Parses a token, or the line that `agq token` prints. The error does not quote the token,
    /// because it holds a key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "it is not whole: paste the line that `agq token` prints, to its end".to_owned();
        let text = text.trim();
        let text = text.strip_prefix(COMMAND).map_or(text, str::trim_start);
        let Some(body) = text.strip_prefix(PREFIX) else {
            let is_newer = has_version(text);
            return Err(if is_newer { "it is for a newer agx: install that".into() } else { wrong() });
        };
        if body.len() > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
        let json = BASE64.decode(body).map_err(|_| wrong())?;
        let fields: TokenFields = serde_json::from_slice(&json).map_err(|_| wrong())?;
        Address::parse_all(&fields.agq)?;
        Ok(Self { agq: fields.agq, key: fields.key.into(), ca: fields.ca })
    }
}

/// Returns true if `text` begins with `agx`, the version of a format, and a dot.
fn has_version(text: &str) -> bool {
    let version = text.strip_prefix("agx").and_then(|rest| Some(rest.split_once('.')?.0));
    version.is_some_and(|version| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::Token;

    #[test]
    fn tokens_survive_a_round_trip() {
        let token =
            Token { agq: "rediss://a:1,b:2".into(), key: "secret".into(), ca: Some("-----BEGIN".into()) };
        let text = token.encode().expose_secret().to_owned();
        assert!(!format!("{token:?}").contains("secret"));
        for line in [format!(" {text}\n"), format!("agx join {text}\n")] {
            let read = Token::parse(&line).unwrap();
            assert_eq!(
                (read.agq.as_str(), read.key.expose_secret(), read.ca.as_deref()),
                ("rediss://a:1,b:2", "secret", Some("-----BEGIN"))
            );
        }
    }

    #[test]
    fn invalid_tokens_are_refused_without_showing_them() {
        let token = Token { agq: "a:1".into(), key: "secret".into(), ca: None };
        let text = token.encode().expose_secret().to_owned();
        let error = |text: &str| Token::parse(text).unwrap_err();
        for wrong in ["", "x", &text[..text.len() - 3], "agx1.!!!", "agx1.e30", "agx join x.y", "agx.e30"] {
            assert!(error(wrong).contains("not whole"), "{wrong}");
        }
        assert!(error("agx2.e30").contains("newer agx") && error("agx join agx12.e30").contains("newer agx"));
        let elsewhere = Token { agq: "nowhere".into(), ..token };
        assert!(error(elsewhere.encode().expose_secret()).contains("write host:port"));
        assert!(error(&format!("agx1.{}", "a".repeat(70_000))).contains("more than 65536 bytes"));
    }
}
