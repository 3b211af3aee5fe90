//! Who has logged in with a browser. A session is known by a random cookie; what changes something also needs a second secret,
//! which no other site can read (OWASP, synchronizer token).

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use agenix_protocol::time::Timestamp;
use axum::http::{HeaderMap, HeaderValue, header};

use crate::auth::session_key::{GeneratedKey, KeyHash};

/// Prefix of the names of all session cookies.
const COOKIE: &str = "agq_session_";
/// Number of characters in a cookie's name that differ between agqs.
const OWN: usize = 8;
/// How long a session lasts, in milliseconds: half a day.
const LASTS_MS: u64 = 12 * 3_600_000;
/// Most sessions; the oldest goes for a new one.
const MOST: usize = 1000;
/// The header with the second secret.
const CSRF: &str = "x-csrf-token";

/// Somebody who has logged in.
#[derive(Debug, Clone)]
pub(in crate::http) struct DashboardSession {
    /// What they logged in with: when that is a key no more, they are out.
    pub(in crate::http) key: KeyHash,
    /// The second secret.
    pub(in crate::http) csrf: GeneratedKey,
    since: Timestamp,
}

/// All sessions, by the hashes of their cookies.
#[derive(Debug)]
pub(in crate::http) struct DashboardSessions {
    /// Name of the cookie. Each agq of a host needs a name of its own, because browsers keep
    /// cookies by host and not by port.
    name: String,
    known: Mutex<HashMap<[u8; 32], DashboardSession>>,
}

impl DashboardSessions {
    /// Creates an empty set of sessions. The last characters of `own` distinguish this agq from
    /// others.
    pub(in crate::http) fn new(own: &str) -> Self {
        let own = &own[own.len().saturating_sub(OWN)..];
        Self { name: format!("{COOKIE}{own}"), known: Mutex::default() }
    }

    /// Begins a session; its cookie, as the header says it.
    pub(in crate::http) fn begin(
        &self,
        key: KeyHash,
        now: Timestamp,
        is_tls: bool,
    ) -> anyhow::Result<(DashboardSession, HeaderValue)> {
        let (cookie, csrf) = (GeneratedKey::new()?, GeneratedKey::new()?);
        let session = DashboardSession { key, csrf, since: now };
        let mut sessions = self.lock();
        sessions.retain(|_, session| now.ms_since(session.since) < LASTS_MS);
        if sessions.len() >= MOST
            && let Some(oldest) = sessions.iter().min_by_key(|(_, session)| session.since).map(|(id, _)| *id)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(cookie.hash().bytes(), session.clone());
        let secure = if is_tls { "; Secure" } else { "" };
        let lasts = LASTS_MS / 1000;
        let text = format!(
            "{}={}; Path=/dashboard; HttpOnly; SameSite=Strict; Max-Age={lasts}{secure}",
            self.name,
            cookie.reveal()
        );
        Ok((session, HeaderValue::try_from(text)?))
    }

    /// The session of a request.
    pub(in crate::http) fn of(&self, headers: &HeaderMap, now: Timestamp) -> Option<DashboardSession> {
        let session = self.lock().get(&self.cookie_of(headers)?.bytes()).cloned()?;
        (now.ms_since(session.since) < LASTS_MS).then_some(session)
    }

    /// Ends the session of a request.
    pub(in crate::http) fn end(&self, headers: &HeaderMap) {
        if let Some(cookie) = self.cookie_of(headers) {
            self.lock().remove(&cookie.bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], DashboardSession>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only the hash is looked up: how long that takes says nothing of the cookie.
    fn cookie_of(&self, headers: &HeaderMap) -> Option<KeyHash> {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|told| told.to_str().ok());
        let mut pairs = all.flat_map(|told| told.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| KeyHash::of(value.as_bytes()))
    }
}

impl DashboardSession {
    /// Whether the second secret came with the request.
    pub(in crate::http) fn is_meant(&self, headers: &HeaderMap) -> bool {
        let told = headers.get(CSRF).map_or(&[][..], HeaderValue::as_bytes);
        KeyHash::of(told).matches(&self.csrf.hash()).into()
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::{DashboardSessions, LASTS_MS, MOST};
    use crate::auth::session_key::KeyHash;

    fn cookie(set: &HeaderValue) -> HeaderMap {
        let pair = set.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::try_from(format!("other=1; {pair}")).unwrap());
        headers
    }

    #[test]
    fn a_session_is_known_by_its_cookie_until_it_ends() {
        let (sessions, key) =
            (DashboardSessions::new("0198c3a1-0000-7000-8000-00005eed0001"), KeyHash::of(b"k"));
        let (session, set) = sessions.begin(key, Timestamp(0), true).unwrap();
        let shown = set.to_str().unwrap();
        assert!(shown.contains("HttpOnly; SameSite=Strict") && shown.ends_with("; Secure"), "{shown}");
        let mut headers = cookie(&set);
        assert!(sessions.of(&headers, Timestamp(LASTS_MS - 1)).is_some());
        assert!(sessions.of(&headers, Timestamp(LASTS_MS)).is_none());
        assert!(sessions.of(&HeaderMap::new(), Timestamp(0)).is_none());
        assert!(!session.is_meant(&headers), "a cookie alone may come from anywhere");
        headers.insert("x-csrf-token", HeaderValue::try_from(session.csrf.reveal()).unwrap());
        assert!(session.is_meant(&headers));
        sessions.end(&headers);
        assert!(sessions.of(&headers, Timestamp(0)).is_none());
    }

    #[test]
    fn two_agq_of_one_host_do_not_take_each_others_cookies() {
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
    fn the_oldest_goes_for_one_too_many() {
        let sessions = DashboardSessions::new("0198c3a1-0000-7000-8000-00005eed0001");
        let begin = |at| cookie(&sessions.begin(KeyHash::of(b"k"), Timestamp(at), false).unwrap().1);
        let (first, second) = (begin(0), begin(1));
        (2..MOST as u64).for_each(|at| drop(begin(at)));
        assert!(sessions.of(&first, Timestamp(MOST as u64)).is_some());
        begin(MOST as u64);
        assert!(sessions.of(&first, Timestamp(MOST as u64)).is_none());
        assert!(sessions.of(&second, Timestamp(MOST as u64)).is_some());
    }
}
