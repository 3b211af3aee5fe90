//! Events that stop the server, and signals that it ignores.

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Ignores SIGXFSZ while the returned value is alive. A write beyond the file size limit then fails
/// with an error, and does not end the process.
pub(crate) fn ignore_file_size_signal() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// Returns a future that is ready when stdin has ended. If `is_wanted` is false, the future is
/// never ready.
pub(crate) fn stdin_ends(is_wanted: bool) -> std::io::Result<impl Future<Output = ()>> {
    let (sender, receiver) = oneshot::channel();
    if is_wanted {
        let read_to_end = move || {
            let _ignored = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _receiver_gone = sender.send(());
        };
        std::thread::Builder::new().name("stdin".into()).spawn(read_to_end)?;
    }
    Ok(async move {
        if !is_wanted || receiver.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

pub(crate) async fn next_signal() -> anyhow::Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}
