//! Tests of the options that select agq.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
};

use agenix_client::Server;

use super::{
    ConnectionArgs, FILES,
    ServerSelection::{self, Address, Profile},
    open_default, selected,
};
use crate::error::CliError;

fn of(agq: Option<&str>, profile: Option<&str>, set: &[(&str, &str)]) -> Result<ServerSelection, String> {
    let variable = |name: &str| Some(set.iter().find(|(known, _)| *known == name)?.1.to_owned());
    selected(agq, profile, variable).map_err(|failure| failure.to_string())
}

#[test]
fn server_options_override_variables() {
    let all = [("AGQ_ADDR", "a:1"), ("AGQ_URL", "u:1"), ("AGX_PROFILE", "p")];
    assert_eq!(of(Some("o:1"), None, &all), Ok(Address("o:1".into())));
    assert_eq!(of(None, Some("o"), &all), Ok(Profile("o".into())));
    assert_eq!(of(None, None, &all[..2]), Ok(Address("a:1".into())));
    assert_eq!(of(None, None, &all[1..2]), Ok(Address("u:1".into())));
    assert_eq!(of(None, None, &all[2..]), Ok(Profile("p".into())));
    assert_eq!(of(None, None, &[("AGQ_ADDR", " "), ("AGX_PROFILE", "")]), Ok(ServerSelection::None));
}

#[test]
fn server_variables_of_files_do_not_count_with_a_profile() {
    let args = |ca: Option<&str>| ConnectionArgs {
        agq: None,
        profile: None,
        session_key_file: None,
        tls_ca: ca.map(PathBuf::from),
        tls_cert: None,
        tls_key: None,
    };
    let all = |name: &str| Some(OsString::from(name));
    let none: [Option<PathBuf>; 4] = Default::default();
    assert_eq!(args(None).files(false, all), FILES.map(|(_, name)| Some(PathBuf::from(name))));
    assert_eq!(args(None).files(false, |_| Some(OsString::new())), none);
    assert_eq!(args(None).files(true, all), none);
    assert_eq!(args(Some("own")).files(true, all), [None, Some("own".into()), None, None]);
    assert_eq!(args(Some("own")).files(false, all)[1], Some("own".into()));
}

#[test]
fn server_variables_that_contradict_each_other_are_named() {
    let refused = of(None, None, &[("AGQ_URL", "u:1"), ("AGX_PROFILE", "p")]).unwrap_err();
    assert!(refused.contains("AGQ_URL and AGX_PROFILE"), "{refused}");
}

#[test]
fn server_variable_with_an_address_of_http_is_named() {
    for address in ["http://h:6381", "HTTPS://h"] {
        let refused = of(None, None, &[("AGQ_URL", address)]).unwrap_err();
        assert!(refused.contains("variable AGQ_URL has an address of HTTP"), "{refused}");
        assert_eq!(of(None, Some("p"), &[("AGQ_URL", address)]), Ok(Profile("p".into())));
    }
    assert_eq!(of(None, None, &[("AGQ_URL", "redis://h")]), Ok(Address("redis://h".into())));
}

#[tokio::test]
async fn server_at_the_default_address_counts_if_it_answers() {
    let without_key = Err(CliError::NoServer { problem: String::new(), help: String::new() });
    assert!(open_default(without_key).await.unwrap().is_none());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agq.sock");
    let server = Server::new(&format!("unix:{}", path.display()), "key".to_owned().into()).unwrap();
    assert!(open_default(Ok(server.clone())).await.unwrap().is_none());
    let listener = UnixListener::bind(&path).unwrap();
    // The thread ends with the connection.
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            // Each command begins with an asterisk.
            let commands = buffer[..length].iter().filter(|byte| **byte == b'*').count();
            if client.write_all("+OK\r\n".repeat(commands).as_bytes()).is_err() {
                break;
            }
        }
    });
    let (_connection, address) = open_default(Ok(server)).await.unwrap().unwrap();
    assert_eq!(address, format!("unix:{}", path.display()));
}
