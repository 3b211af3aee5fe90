//! Events that stop the server, and signals that it ignores.

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// While the value is alive, a write beyond the file size limit fails with an error.
pub(crate) fn ignore_file_size_signal() -> std::io::Result<Signal> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
}

/// Waits until stdin has ended, and for ever unless `is_wanted`.
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
