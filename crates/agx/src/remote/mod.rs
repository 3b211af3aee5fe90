//! Calls to agq that survive a restart of agq, and views that need several calls.

pub(crate) mod chunked_submit;
pub(crate) mod command_input;
pub(crate) mod command_pace;
pub(crate) mod full_queue;
pub(crate) mod local_blob;
pub(crate) mod output_reader;
pub(crate) mod overview;
pub(crate) mod retrying_client;
pub(crate) mod stored_stream;
pub(crate) mod worker_resources;
