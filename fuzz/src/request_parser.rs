//! Arguments as commands: what was read is written as arguments that are read as the same.

use agenix_protocol::{limits::Limits, request::Request, resp::CommandDecoder};
use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::check_refusal;

/// Commands in the bytes of a connection: inline commands, or arrays.
pub fn request_parser(data: &[u8]) -> bool {
    let mut decoder = CommandDecoder::new(&Limits::default());
    let mut bytes = BytesMut::from(data);
    let mut is_accepted = false;
    while let Ok(Some(args)) = decoder.decode(&mut bytes) {
        is_accepted |= check(&args);
    }
    is_accepted
}

fn check(args: &[Bytes]) -> bool {
    let (command, request) = match Request::parse(args) {
        Ok(parsed) => parsed,
        Err(error) => {
            check_refusal(error.line());
            return false;
        }
    };
    assert!(command.takes(args.len()), "{} does not take {} words", command.name, args.len());
    let encoded = request.encode();
    let (known_as, again) = match Request::parse(&encoded) {
        Ok(parsed) => parsed,
        Err(error) => panic!("{args:?} is {request:?}, but {encoded:?} is refused: {error}"),
    };
    assert_eq!(again, request, "{args:?}, then {encoded:?}");
    assert_eq!(again.encode(), encoded);
    assert_eq!(
        again.concurrency(known_as),
        request.concurrency(command),
        "{} and {}",
        known_as.name,
        command.name
    );
    true
}
