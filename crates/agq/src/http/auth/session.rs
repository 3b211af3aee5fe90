//! Sessions of users who have logged in to the dashboard with a browser. A random cookie identifies
//! a session. A request that changes something also needs a CSRF token, which no other site can
//! read (OWASP, synchronizer token pattern).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use agenix_protocol::time::Timestamp;
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};

use crate::{
    auth::{
        keyring::Identity,
        session_key::{GeneratedKey, KeyHash},
    },
    http::{
        HttpState,
        auth::role::{Authenticated, refuse_agent, unauthorized},
        response::{ApiError, HttpResult, forbidden},
    },
    sync::lock,
};

const COOKIE_PREFIX: &str = "agq_session_";
/// Number of characters at the end of a cookie's name that differ between agq processes.
const SUFFIX_LEN: usize = 8;
/// Lifetime of a session in milliseconds: 12 hours.
const LIFETIME_MS: u64 = 12 * 3_600_000;
/// Maximum number of sessions. A new session replaces the oldest one at the bound.
const MAX_SESSIONS: usize = 1000;
const CSRF_HEADER: &str = "x-csrf-token";

#[derive(Debug, Clone)]
pub(in crate::http) struct DashboardSession {
    /// Hash of the key of the login. The session ends when agq no longer accepts the key.
    pub(in crate::http) key: KeyHash,
    /// Synchronizer token.
    pub(in crate::http) csrf: GeneratedKey,
    since: Timestamp,
}

#[derive(Debug)]
pub(in crate::http) struct DashboardSessions {
    /// Unique for each agq of a host, because browsers keep cookies by host and not by port.
    cookie_name: String,
    sessions: Mutex<HashMap<[u8; 32], DashboardSession>>,
}

impl DashboardSessions {
    /// The last characters of `own` distinguish the cookies of this agq from those of others.
    pub(in crate::http) fn new(own: &str) -> Self {
        let own = &own[own.len().saturating_sub(SUFFIX_LEN)..];
        Self { cookie_name: format!("{COOKIE_PREFIX}{own}"), sessions: Mutex::default() }
    }

    /// Begins a session, and returns it with the value of its `Set-Cookie` header.
    pub(in crate::http) fn begin(
        &self,
        key: KeyHash,
        now: Timestamp,
        is_tls: bool,
    ) -> anyhow::Result<(DashboardSession, HeaderValue)> {
        let (cookie, csrf) = (GeneratedKey::new()?, GeneratedKey::new()?);
        let session = DashboardSession { key, csrf, since: now };
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| now.ms_since(session.since) < LIFETIME_MS);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.since).map(|(id, _)| *id)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(cookie.hash().bytes(), session.clone());
        let secure = if is_tls { "; Secure" } else { "" };
        let max_age = LIFETIME_MS / 1000;
        let text = format!(
            "{}={}; Path=/dashboard; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}",
            self.cookie_name,
            cookie.reveal()
        );
        Ok((session, HeaderValue::try_from(text)?))
    }

    pub(in crate::http) fn of(&self, headers: &HeaderMap, now: Timestamp) -> Option<DashboardSession> {
        let session = lock(&self.sessions).get(&self.cookie_of(headers)?.bytes()).cloned()?;
        (now.ms_since(session.since) < LIFETIME_MS).then_some(session)
    }

    pub(in crate::http) fn end(&self, headers: &HeaderMap) {
        if let Some(cookie) = self.cookie_of(headers) {
            lock(&self.sessions).remove(&cookie.bytes());
        }
    }

    /// The duration of a look-up by hash reveals nothing about the cookie.
    fn cookie_of(&self, headers: &HeaderMap) -> Option<KeyHash> {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.cookie_name).map(|(_, value)| KeyHash::of(value.as_bytes()))
    }
}

impl DashboardSession {
    pub(in crate::http) fn has_csrf_token(&self, headers: &HeaderMap) -> bool {
        let token = headers.get(CSRF_HEADER).map_or(&[][..], HeaderValue::as_bytes);
        KeyHash::of(token).matches(&self.csrf.hash()).into()
    }
}

pub(in crate::http) fn session_user(
    state: &HttpState,
    headers: &HeaderMap,
) -> HttpResult<(Identity, DashboardSession)> {
    let session = state.sessions.of(headers, state.app.clock.now()).ok_or_else(unauthorized)?;
    let identity = state.access_control.keyring.identify_hash(&session.key).ok_or_else(unauthorized)?;
    refuse_agent(&identity)?;
    Ok((identity, session))
}

/// Requires the CSRF token of the session, which other sites cannot read.
pub(in crate::http) fn confirmed_user(state: &HttpState, headers: &HeaderMap) -> HttpResult<Identity> {
    let (identity, session) = session_user(state, headers)?;
    if session.has_csrf_token(headers) {
        return Ok(identity);
    }
    Err(forbidden("the header X-CSRF-Token is not that of this session"))
}

/// User whose request has the CSRF token of the session. The check precedes the reading of the
/// body.
pub(in crate::http) struct ConfirmedUser(pub(in crate::http) Identity);

impl FromRequestParts<Arc<HttpState>> for ConfirmedUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<HttpState>) -> HttpResult<Self> {
        let identity = confirmed_user(state, &parts.headers)?;
        parts.extensions.insert(Authenticated(identity.clone()));
        Ok(Self(identity))
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::{DashboardSessions, LIFETIME_MS, MAX_SESSIONS};
    use crate::auth::session_key::KeyHash;

    fn cookie(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::try_from(format!("other=1; {pair}")).unwrap());
        headers
    }

    #[test]
    fn session_is_found_by_its_cookie_until_it_ends() {
        let (sessions, key) =
            (DashboardSessions::new("0198c3a1-0000-7000-8000-00005eed0001"), KeyHash::of(b"k"));
        let (session, set) = sessions.begin(key, Timestamp(0), true).unwrap();
        let shown = set.to_str().unwrap();
        assert!(shown.contains("HttpOnly; SameSite=Strict") && shown.ends_with("; Secure"), "{shown}");
        let mut headers = cookie(&set);
        assert!(sessions.of(&headers, Timestamp(LIFETIME_MS - 1)).is_some());
        assert!(sessions.of(&headers, Timestamp(LIFETIME_MS)).is_none());
        assert!(sessions.of(&HeaderMap::new(), Timestamp(0)).is_none());
        assert!(
            !session.has_csrf_token(&headers),
            "a page of another site can make the browser send the cookie"
        );
        headers.insert("x-csrf-token", HeaderValue::try_from(session.csrf.reveal()).unwrap());
        assert!(session.has_csrf_token(&headers));
        sessions.end(&headers);
        assert!(sessions.of(&headers, Timestamp(0)).is_none());
    }

    #[test]
    fn sessions_of_two_agq_on_one_host_have_different_cookies() {
        let key = || KeyHash::of(b"k");
        let (one, other) = (DashboardSessions::new("a-5eed0001"), DashboardSessions::new("a-5eed0002"));
        let mut jar = HeaderMap::new();
        for sessions in [&one, &other] {
            let (_, set) = sessions.begin(key(), Timestamp(0), false).unwrap();
            jar.append(header::COOKIE, cookie(&set)[header::COOKIE].clone());
        }
        assert!(one.of(&jar, Timestamp(0)).is_some() && other.of(&jar, Timestamp(0)).is_some());
        one.end(&jar);
        assert!(one.of(&jar, Timestamp(0)).is_none() && other.of(&jar, Timestamp(0)).is_some());
    }

    #[test]
    fn session_beyond_the_maximum_replaces_the_oldest() {
        let sessions = DashboardSessions::new("0198c3a1-0000-7000-8000-00005eed0001");
        let begin = |at| cookie(&sessions.begin(KeyHash::of(b"k"), Timestamp(at), false).unwrap().1);
        let (first, second) = (begin(0), begin(1));
        (2..MAX_SESSIONS as u64).for_each(|at| drop(begin(at)));
        assert!(sessions.of(&first, Timestamp(MAX_SESSIONS as u64)).is_some());
        begin(MAX_SESSIONS as u64);
        assert!(sessions.of(&first, Timestamp(MAX_SESSIONS as u64)).is_none());
        assert!(sessions.of(&second, Timestamp(MAX_SESSIONS as u64)).is_some());
    }
}
