//! A token: all that another machine has to know of an agq, in one word that can be pasted.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// How a token begins; the number goes up when what follows is read differently.
const PREFIX: &str = "agx1.";
/// Longest token, in bytes; one holds a CA certificate at the most.
const MOST_BYTES: usize = 64 * 1024;

/// Where an agq is, and what lets one in.
#[derive(Debug, Clone)]
pub struct Token {
    /// One address or several, as [`Address::parse_all`] reads them.
    pub agq: String,
    /// The session key, or a worker's own.
    pub key: SecretString,
    /// The CA of its certificate, PEM.
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
    /// The token as one word.
    pub fn encode(&self) -> SecretString {
        let fields = TokenFields {
            agq: self.agq.clone(),
            key: self.key.expose_secret().to_owned(),
            ca: self.ca.clone(),
        };
        let json = serde_json::to_string(&fields).unwrap_or_default();
        format!("{PREFIX}{}", BASE64.encode(json)).into()
    }

    /// Reads one; the error says what is wrong with it, and never what is in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "it is not whole: paste the line that `agq token` prints, to its end".to_owned();
        let text = text.trim();
        let Some(body) = text.strip_prefix(PREFIX) else {
            let newer = text.starts_with("agx") && text.contains('.');
            return Err(if newer { "it is for a newer agx: install that".into() } else { wrong() });
        };
        if body.len() > MOST_BYTES {
            return Err(format!("it has more than {MOST_BYTES} bytes"));
        }
        let json = BASE64.decode(body).map_err(|_| wrong())?;
        let fields: TokenFields = serde_json::from_slice(&json).map_err(|_| wrong())?;
        Address::parse_all(&fields.agq)?;
        Ok(Self { agq: fields.agq, key: fields.key.into(), ca: fields.ca })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::Token;

    #[test]
    fn what_is_told_is_understood() {
        let token =
            Token { agq: "rediss://a:1,b:2".into(), key: "secret".into(), ca: Some("-----BEGIN".into()) };
        let text = token.encode().expose_secret().to_owned();
        assert!(!format!("{token:?}").contains("secret"));
        let read = Token::parse(&format!(" {text}\n")).unwrap();
        assert_eq!(
            (read.agq.as_str(), read.key.expose_secret(), read.ca.as_deref()),
            ("rediss://a:1,b:2", "secret", Some("-----BEGIN"))
        );
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        let token = Token { agq: "a:1".into(), key: "secret".into(), ca: None };
        let text = token.encode().expose_secret().to_owned();
        let error = |text: &str| Token::parse(text).unwrap_err();
        for wrong in ["", "x", &text[..text.len() - 3], "agx1.!!!", "agx1.e30"] {
            assert!(error(wrong).contains("not whole"), "{wrong}");
        }
        assert!(error("agx2.e30").contains("newer agx"));
        let elsewhere = Token { agq: "nowhere".into(), ..token };
        assert!(error(elsewhere.encode().expose_secret()).contains("write host:port"));
        assert!(error(&format!("agx1.{}", "a".repeat(70_000))).contains("more than 65536 bytes"));
    }
}
