//! System calls that tasks do not need, with their numbers.

use libc::c_long;

/// Name and number of a system call.
pub(super) type Syscall = (&'static str, c_long);

macro_rules! syscalls {
    ($($name:ident)*) => {
        &[$((stringify!($name), libc::$name)),*]
    };
}

/// Calls that no task may make.
pub(super) const DENIED: &[Syscall] = syscalls! {
    // Asynchronous calls that pass the filter of their synchronous form.
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
    // Code in the kernel, and its measurement.
    SYS_bpf SYS_userfaultfd SYS_perf_event_open SYS_lookup_dcookie
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load
    // Memory and descriptors of other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_process_mrelease
    SYS_pidfd_getfd SYS_kcmp SYS_move_pages SYS_migrate_pages
    // Mounts and namespaces.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
    SYS_move_mount SYS_open_tree SYS_mount_setattr SYS_unshare SYS_setns
    // Files by handles instead of paths, and of all users.
    SYS_open_by_handle_at SYS_name_to_handle_at SYS_fanotify_init SYS_fanotify_mark
    SYS_quotactl SYS_quotactl_fd SYS_acct SYS_swapon SYS_swapoff
    // Programs without a file.
    SYS_memfd_create SYS_memfd_secret
    // Keys of the session.
    SYS_keyctl SYS_add_key SYS_request_key
    // Objects that outlive a job, and that other processes of the user share.
    SYS_shmget SYS_shmat SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink
    // State of the machine.
    SYS_reboot SYS_syslog SYS_vhangup SYS_sethostname SYS_setdomainname SYS_settimeofday
    SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_nfsservctl
};

/// Calls that exist on x86-64 alone.
#[cfg(target_arch = "x86_64")]
pub(super) const DENIED_OF_ARCHITECTURE: &[Syscall] = syscalls! {
    SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS_ustat SYS__sysctl SYS_kexec_file_load
};

/// Calls that exist on 64-bit Arm alone: none.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const DENIED_OF_ARCHITECTURE: &[Syscall] = syscalls! { SYS_kexec_file_load };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{DENIED, DENIED_OF_ARCHITECTURE};

    #[test]
    fn each_denied_call_has_a_number_of_its_own() {
        let all = || DENIED.iter().chain(DENIED_OF_ARCHITECTURE);
        let numbers: BTreeSet<_> = all().map(|(_, number)| *number).collect();
        assert_eq!(numbers.len(), all().count());
        assert!(numbers.iter().all(|&number| (0..1024).contains(&number)), "{numbers:?}");
    }
}
