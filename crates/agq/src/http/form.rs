//! Checks of the form of a request: HTTP/1.1 syntax, version of the specification, and origin of
//! the page that sends it.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header},
};

use crate::http::response::{ApiError, HttpResult, quoted};

/// Refuses ambiguous headers (RFC 9112 §3.2 and §6.1; RFC 9110 §10.1.1).
pub(super) fn check_form(request: &Request<Body>) -> HttpResult<()> {
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        return Err(ApiError::invalid(format!("there are {hosts} Host headers: send one")));
    }
    let codings = headers.get_all(header::TRANSFER_ENCODING);
    if codings.iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        let (text, hint) = (
            "Transfer-Encoding is not 'chunked', and agq decodes nothing else",
            "Send the body as it is, with its Content-Length or in chunks.",
        );
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "unsupported", text, hint));
    }
    let expected = headers.get_all(header::EXPECT);
    if expected.iter().any(|expected| !expected.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        let (text, hint) =
            ("Expect is not '100-continue', and agq supports no other expectation", "Omit the header.");
        return Err(ApiError::new(StatusCode::EXPECTATION_FAILED, "unsupported", text, hint));
    }
    Ok(())
}

/// Checks that the version in `OJS-Version`, if there is one, is 1.x.
pub(super) fn check_version(request: &Request<Body>) -> HttpResult<()> {
    let version = request.headers().get("ojs-version").and_then(|value| value.to_str().ok());
    let Some(version) = version.filter(|version| *version != "1" && !version.starts_with("1.")) else {
        return Ok(());
    };
    let (text, hint) = (
        format!("OJS-Version is '{}', and agq speaks 1.0", quoted(version)),
        "Omit the header, or send 1.0.",
    );
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", text, hint))
}

pub(super) fn may_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Returns true if a browser sends the request for a page of another site (Fetch Metadata; RFC
/// 6454). Other clients do not send these headers.
pub(super) fn is_of_another_site(headers: &HeaderMap) -> bool {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_cross_site = value("sec-fetch-site").is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    let host = value("host").unwrap_or_default();
    let is_foreign = value("origin").is_some_and(|origin| {
        let scheme = origin.windows(3).position(|part| part == b"://");
        scheme.is_none_or(|at| !origin[at + 3..].eq_ignore_ascii_case(host))
    });
    is_cross_site || is_foreign
}

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{HeaderMap, HeaderName, HeaderValue, Request, Version},
    };

    use super::{check_form, is_of_another_site};

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        all.iter().map(pair).collect()
    }

    #[test]
    fn form_recognises_requests_of_pages_of_other_sites() {
        for own in [
            &[("host", "agq:6381")][..],
            &[("host", "agq:6381"), ("origin", "https://agq:6381"), ("sec-fetch-site", "same-origin")],
            &[("host", "agq:6381"), ("origin", "https://AGQ:6381")],
            &[("host", "agq"), ("sec-fetch-site", "none")],
        ] {
            assert!(!is_of_another_site(&headers(own)), "{own:?}");
        }
        for other in [
            &[("host", "agq:6381"), ("origin", "https://evil.example")][..],
            &[("host", "agq:6381"), ("origin", "https://agq:8000")],
            &[("host", "agq:6381"), ("origin", "null")],
            &[("host", "agq:6381"), ("sec-fetch-site", "cross-site")],
            &[("host", "agq:6381"), ("sec-fetch-site", "same-site")],
            &[("host", "agq:6381"), ("origin", "https://agq:6381"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(is_of_another_site(&headers(other)), "{other:?}");
        }
    }

    #[test]
    fn form_refuses_ambiguous_requests() {
        let status = |version, all: &[(&'static str, &'static str)]| {
            let mut request = Request::new(Body::empty());
            *request.version_mut() = version;
            for (name, value) in all {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            check_form(&request).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
        };
        let one = status(Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "Chunked")]);
        assert_eq!((one, status(Version::HTTP_10, &[])), (200, 200));
        assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("expect", "100-Continue")]), 200);
        assert_eq!(status(Version::HTTP_11, &[]), 400);
        assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("host", "a")]), 400);
        assert_eq!(status(Version::HTTP_10, &[("host", "a"), ("host", "b")]), 400);
        assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "gzip, chunked")]), 501);
        let twice = [("host", "a"), ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")];
        assert_eq!(status(Version::HTTP_11, &twice), 501);
        assert_eq!(status(Version::HTTP_11, &[("host", "a"), ("expect", "200-ok")]), 417);
    }
}
