//! Space on the disk of the spool for the inputs that jobs download. The worker adds up the bytes
//! that it has still to write, because the disk does not show them yet.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use crate::exec::output_quota::{DiskSpace, Quota};

/// Number of bytes of all inputs that have reserved space and are not yet written.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnwrittenInputs(Arc<Mutex<u64>>);

/// Space for the unwritten rest of one input. The drop releases the space.
#[derive(Debug)]
pub(crate) struct ReservedSpace {
    inputs: UnwrittenInputs,
    bytes: u64,
}

impl UnwrittenInputs {
    /// Reserves space for an input of `bytes`. The error reports a shortage, or the reason why the
    /// input can never be stored on a disk with this `room`.
    pub(crate) fn reserve(&self, bytes: u64, quota: &Quota, room: DiskSpace) -> io::Result<ReservedSpace> {
        let DiskSpace { free, total } = room;
        if !quota.admits_input(bytes, DiskSpace { free: total, total }) {
            let reserve = quota.reserve_on(room);
            return Err(io::Error::other(format!(
                "it has {bytes} bytes, and the disk of the spool has {total}, of which {reserve} stay free: \
                 choose another --spool-dir of agw"
            )));
        }
        let mut unwritten = self.lock();
        if !quota.admits_input(bytes, DiskSpace { free: free.saturating_sub(*unwritten), total }) {
            return Err(Errno::NOSPC.into());
        }
        *unwritten += bytes;
        Ok(ReservedSpace { inputs: self.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReservedSpace {
    /// Releases the space of `bytes` that the file has now.
    pub(crate) fn release(&mut self, bytes: u64) {
        let released = bytes.min(self.bytes);
        self.bytes -= released;
        *self.inputs.lock() -= released;
    }
}

impl Drop for ReservedSpace {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{DiskSpace, Quota, UnwrittenInputs};
    use crate::exec::resource_wait::is_shortage;

    #[test]
    fn inputs_that_fit_alone_wait_for_each_other() {
        let (inputs, quota) =
            (UnwrittenInputs::default(), Quota { of_job: 1, reserve: 100, of_budget: None });
        let reserve = |bytes, free| inputs.reserve(bytes, &quota, DiskSpace { free, total: 1000 });
        let mut first = reserve(600, 1000).unwrap();
        assert!(is_shortage(&reserve(600, 1000).unwrap_err()));
        first.release(500);
        assert!(is_shortage(&reserve(600, 500).unwrap_err()), "the first one has it");
        drop(first);
        assert!(reserve(600, 1000).is_ok());
        let never = reserve(950, 1000).unwrap_err();
        assert!(!is_shortage(&never) && never.to_string().contains("950 bytes"), "{never}");
    }
}
