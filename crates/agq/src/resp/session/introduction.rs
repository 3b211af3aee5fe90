//! HELLO and CLIENT: version of RESP, name and library of the client.

use agenix_protocol::{
    ids::WorkerId,
    request::ClientCommand,
    resp::{Reply, RespVersion},
};
use bytes::Bytes;

use super::{RespSession, SessionAction};
use crate::auth::keyring::Role;

/// Maximum number of bytes of the name of a client, and of the name and the version of its library.
const MAX_NAME_BYTES: usize = 255;

impl RespSession {
    pub(crate) fn hello(
        &mut self,
        version: Option<RespVersion>,
        auth: Option<&Bytes>,
        name: Option<&Bytes>,
    ) -> SessionAction {
        if let Some(key) = auth
            && let Err(delay) = self.authenticate(key)
        {
            return self.wrong_key(delay);
        }
        if let Some(name) = name
            && let Err(reply) = self.take_name(name)
        {
            return SessionAction::Answer(reply);
        }
        self.version = version.unwrap_or(self.version);
        let proto = if self.version == RespVersion::Three { 3 } else { 2 };
        self.app.connections.update(self.caller.number, |entry| entry.resp = proto);
        let field = |name: &'static str, value| (Reply::bulk(name), value);
        SessionAction::Answer(Reply::Map(vec![
            field("server", Reply::bulk("agq")),
            field("version", Reply::bulk(env!("CARGO_PKG_VERSION"))),
            field("proto", Reply::Integer(proto.into())),
            field("id", Reply::Integer(self.caller.number.cast_signed())),
            field("mode", Reply::bulk("standalone")),
            field("role", Reply::bulk("master")),
            field("modules", Reply::Array(Vec::new())),
        ]))
    }

    pub(crate) fn client(&mut self, client: ClientCommand) -> Reply {
        let (number, now) = (self.caller.number, self.app.clock.now());
        match client {
            ClientCommand::SetName(name) => self.take_name(&name).err().unwrap_or_else(Reply::ok),
            ClientCommand::GetName if self.name.is_empty() => Reply::Nil,
            ClientCommand::GetName => Reply::Bulk(self.name.clone()),
            ClientCommand::Id => Reply::Integer(number.cast_signed()),
            ClientCommand::Info => Reply::bulk(self.app.connections.lines(Some(number), now)),
            ClientCommand::List => {
                let role = self.caller.identity.as_ref().map(|identity| identity.role);
                // Only an administrator sees the other connections.
                Reply::bulk(self.app.connections.lines((role != Some(Role::Admin)).then_some(number), now))
            }
            ClientCommand::SetInfo { attribute, value } => self.set_info(&attribute, &value),
        }
    }

    fn set_info(&self, attribute: &[u8], value: &[u8]) -> Reply {
        let value = match checked("lib-name", value) {
            Ok(value) => value,
            Err(reply) => return reply,
        };
        self.app.connections.update(self.caller.number, |entry| {
            match attribute.to_ascii_lowercase().as_slice() {
                b"lib-name" => entry.library = value,
                b"lib-ver" => entry.library_version = value,
                _ => {}
            }
        });
        Reply::ok()
    }

    /// Lets the connection act as the worker of that id, if the name is a worker id (ADR 1).
    fn take_name(&mut self, name: &Bytes) -> Result<(), Reply> {
        let text = checked("Client names", name)?;
        // Copy the bytes, because a slice would keep the whole read buffer alive.
        self.name = Bytes::copy_from_slice(name);
        let worker = WorkerId::new(text.as_str()).ok();
        self.app.connections.update(self.caller.number, |entry| entry.name = text);
        self.change(|caller| caller.name = worker);
        Ok(())
    }
}

/// Returns `name` as text. The error names `field`. Redis permits printable ASCII without spaces.
fn checked(field: &str, name: &[u8]) -> Result<String, Reply> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Reply::Error(format!("ERR {field} cannot have more than {MAX_NAME_BYTES} bytes.")));
    }
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        let line = format!("ERR {field} cannot contain spaces, newlines or special characters.");
        return Err(Reply::Error(line));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME_BYTES, Reply, checked};

    #[test]
    fn names_of_clients_are_bounded() {
        let name = "n".repeat(MAX_NAME_BYTES);
        assert_eq!(checked("Client names", name.as_bytes()), Ok(name.clone()));
        assert_eq!(
            checked("lib-name", format!("{name}n").as_bytes()),
            Err(Reply::Error("ERR lib-name cannot have more than 255 bytes.".into()))
        );
        assert!(checked("Client names", b"two words").is_err());
    }
}
