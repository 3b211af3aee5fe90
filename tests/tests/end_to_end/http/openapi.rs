//! The OpenAPI document: every path in it exists, and responses have the documented form.

use e2e::Lab;

use super::client::Http;

#[test]
fn every_operation_that_is_documented_is_there() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    let document = http.get("/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 50, "{}", paths.len());
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let filled: Vec<&str> =
                path.split('/').map(|part| if part.starts_with('{') { "quiet" } else { part }).collect();
            let path = format!("/{}", filled.join("/"));
            let body = if operation["requestBody"].is_null() { "" } else { "{}" };
            let answer = http.ask(&method.to_uppercase(), &path, body);
            assert_ne!(answer.status, 405, "{method} {path}: {}", answer.text);
            assert!(!answer.text.contains("there is no path"), "{method} {path}: {}", answer.text);
            assert!(answer.status < 500, "{method} {path}: {}", answer.text);
            let has_reference = operation["requestBody"].to_string().contains("#/components/schemas/");
            assert_eq!(has_reference, !body.is_empty(), "{method} {path}");
        }
    }
}
