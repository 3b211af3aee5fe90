//! Commands about the connection and about the commands: HELLO, CLIENT, COMMAND.

use bytes::Bytes;

use super::{Request, RequestError, Secret, arguments::texts};
use crate::resp::RespVersion;

/// Parses `HELLO [2|3 [AUTH default <key>] [SETNAME <name>]]`, as in Redis.
pub(super) fn hello(args: &[Bytes]) -> Result<Request, RequestError> {
    let Some((version, mut options)) = args.split_first() else {
        return Ok(Request::Hello { version: None, auth: None, name: None });
    };
    let version = match &version[..] {
        b"2" => RespVersion::Two,
        b"3" => RespVersion::Three,
        _ => return Err(RequestError::HelloVersion),
    };
    let (mut auth, mut name) = (None, None);
    while let [option, rest @ ..] = options {
        options = match (option.to_ascii_uppercase().as_slice(), rest) {
            (b"AUTH", [_user, key, rest @ ..]) => {
                auth = Some(Secret(key.clone()));
                rest
            }
            (b"SETNAME", [set, rest @ ..]) => {
                name = Some(set.clone());
                rest
            }
            _ => {
                let syntax = "use HELLO [2|3 [AUTH default <session_key>] [SETNAME <name>]]";
                return Err(RequestError::Arguments(syntax.into()));
            }
        };
    }
    Ok(Request::Hello { version: Some(version), auth, name })
}

/// CLIENT and its subcommands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ClientCommand {
    /// Names the connection, which then acts for the registered worker of this id.
    SetName(Bytes),
    /// Returns the name of the connection.
    GetName,
    /// Returns the number of the connection.
    Id,
    /// Lists all connections.
    List,
    /// Shows this connection, as CLIENT LIST does.
    Info,
    /// Stores an attribute of the client library: `lib-name` or `lib-ver`.
    SetInfo { attribute: Bytes, value: Bytes },
}

pub(super) fn client(args: &[Bytes]) -> Result<Request, RequestError> {
    let Some((sub, rest)) = args.split_first() else { return Err(RequestError::Syntax) };
    let command = match (sub.to_ascii_uppercase().as_slice(), rest) {
        (b"SETNAME", [name]) => ClientCommand::SetName(name.clone()),
        (b"GETNAME", []) => ClientCommand::GetName,
        (b"ID", []) => ClientCommand::Id,
        (b"LIST", []) => ClientCommand::List,
        (b"INFO", []) => ClientCommand::Info,
        (b"SETINFO", [attribute, value]) => {
            ClientCommand::SetInfo { attribute: attribute.clone(), value: value.clone() }
        }
        _ => return Err(RequestError::Syntax),
    };
    Ok(Request::Client(command))
}

/// Parses COMMAND and its subcommands.
pub(super) fn command(args: &[Bytes]) -> Result<Request, RequestError> {
    let Some((sub, names)) = args.split_first() else { return Ok(Request::CommandInfo { names: None }) };
    match sub.to_ascii_uppercase().as_slice() {
        b"DOCS" => Ok(Request::CommandDocs { names: texts(names)? }),
        b"INFO" => Ok(Request::CommandInfo { names: Some(texts(names)?).filter(|names| !names.is_empty()) }),
        b"COUNT" if names.is_empty() => Ok(Request::CommandCount),
        _ => Err(RequestError::Syntax),
    }
}
