//! Decoder of the requests to a sandbox supervisor: any split of the bytes is decoded alike, and a
//! decoded request is encoded to a frame with the same meaning.

use agenix_sandbox::protocol::{FrameDecoder, SupervisorRequest, encode};

/// Bytes from a worker.
pub fn sandbox_request(data: &[u8]) -> bool {
    let (requests, end) = decoded(data.chunks(data.len().max(1)));
    for portion in [1, 3, 64] {
        assert_eq!(decoded(data.chunks(portion)), (requests.clone(), end.clone()), "portions of {portion}");
    }
    let encoded: Vec<u8> = requests.iter().flat_map(|request| encode(request).unwrap_or_default()).collect();
    assert_eq!(decoded([&*encoded].into_iter()), (requests.clone(), Ok(())));
    !requests.is_empty() && end.is_ok()
}

/// Returns the requests, and the error that ended them.
fn decoded<'d>(portions: impl Iterator<Item = &'d [u8]>) -> (Vec<SupervisorRequest>, Result<(), String>) {
    let (mut decoder, mut requests) = (FrameDecoder::<SupervisorRequest>::default(), Vec::new());
    for portion in portions {
        decoder.push(portion);
        loop {
            match decoder.next_message() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Err(error.to_string())),
            }
        }
    }
    (requests, decoder.finish().map_err(|error| error.to_string()))
}
