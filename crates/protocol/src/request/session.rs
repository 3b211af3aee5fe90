//! The commands by which a client introduces itself: HELLO and CLIENT.

use bytes::Bytes;

use super::{Request, RequestError};
use crate::resp::RespVersion;

/// `HELLO [2|3 [AUTH default <key>] [SETNAME <name>]]`, as Redis has it.
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
                auth = Some(key.clone());
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

pub(super) fn encode_hello(
    version: Option<RespVersion>,
    auth: Option<&Bytes>,
    name: Option<&Bytes>,
) -> Vec<Bytes> {
    let mut args = vec![Bytes::from_static(b"HELLO")];
    match version {
        None => return args,
        Some(RespVersion::Two) => args.push(Bytes::from_static(b"2")),
        Some(RespVersion::Three) => args.push(Bytes::from_static(b"3")),
    }
    if let Some(key) = auth {
        args.extend([Bytes::from_static(b"AUTH"), Bytes::from_static(b"default"), key.clone()]);
    }
    if let Some(name) = name {
        args.extend([Bytes::from_static(b"SETNAME"), name.clone()]);
    }
    args
}

pub(super) fn client(sub: &Bytes, rest: &[Bytes]) -> Result<Request, RequestError> {
    match (sub.to_ascii_uppercase().as_slice(), rest) {
        (b"SETNAME", [name]) => Ok(Request::ClientSetName { name: name.clone() }),
        (b"SETINFO", [_attribute, _value]) => Ok(Request::ClientSetInfo),
        _ => Err(RequestError::Arguments(
            "use CLIENT SETNAME <name> or CLIENT SETINFO <attribute> <value>".into(),
        )),
    }
}
