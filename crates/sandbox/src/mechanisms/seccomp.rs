//! Filters of system calls (seccomp). A denied call fails with EPERM, and the program continues. An
//! allow list would break with each new C library.
//!
//! A foreign architecture ends the process. On x86-64, each number is denied once more with the bit
//! of the x32 interface, which has the same architecture, and so are all calls that have a number
//! of their own there.

use std::collections::BTreeMap;
#[cfg(target_arch = "x86_64")]
use std::ops::RangeInclusive;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::syscalls::{DENIED, DENIED_OF_ARCHITECTURE};
use crate::fault::{Step, StepFault};

/// Rules by number. A call without rules is denied with all arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Bit of a system call of the x32 interface.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
const X32: i64 = 0x4000_0000;
/// Numbers of calls that only the x32 interface has, such as its ptrace, process_vm_readv, ioctl
/// and execveat.
#[cfg(target_arch = "x86_64")]
const OF_X32: RangeInclusive<c_long> = 512..=547;
/// Flags of clone(2) that create namespaces: mount, cgroup, UTS, IPC, user, PID, network.
const NAMESPACE_FLAGS: [u64; 7] =
    [0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// `TIOCSTI` and `TIOCLINUX`, which type into a terminal.
const TERMINAL_REQUESTS: [u64; 2] = [0x5412, 0x541c];
/// `AT_EMPTY_PATH`: executes a descriptor instead of a path.
const EMPTY_PATH: u64 = 0x1000;
/// Bits of the type of a socket.
const TYPE_OF_SOCKET: u64 = 0xf;
/// Argument of personality(2) that only asks.
const PERSONALITY_QUERY: u64 = 0xffff_ffff;

/// Filters all system calls of this thread and of what it starts. `has_network` permits internet
/// sockets, and no others.
pub(crate) fn filter(has_network: bool) -> Result<(), StepFault> {
    let refused = |error: &dyn std::fmt::Display| StepFault::new(Step::Seccomp, error.to_string());
    for (rules, errno) in filters(has_network).map_err(|error| refused(&error))? {
        let program = compile(rules, errno).map_err(|error| refused(&error))?;
        apply_filter(&program).map_err(|error| refused(&error))?;
    }
    Ok(())
}

/// Returns the rules of each filter, with the error number of its denials.
fn filters(has_network: bool) -> Result<[(Rules, i32); 2], BackendError> {
    let mut denied = Rules::new();
    for (_, number) in DENIED.iter().chain(DENIED_OF_ARCHITECTURE) {
        deny(&mut denied, *number, Vec::new());
    }
    #[cfg(target_arch = "x86_64")]
    for number in OF_X32 {
        // The number without the bit is denied, too: kernels before 5.4 accept it as well.
        deny(&mut denied, number, Vec::new());
    }
    deny(&mut denied, libc::SYS_socket, socket_rules(has_network)?);
    deny(&mut denied, libc::SYS_socketpair, pair_rules()?);
    let namespaces =
        NAMESPACE_FLAGS.map(|flag| rule([(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)]));
    deny(&mut denied, libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?);
    let requests =
        TERMINAL_REQUESTS.map(|request| rule([(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)]));
    deny(&mut denied, libc::SYS_ioctl, requests.into_iter().collect::<Result<_, _>>()?);
    let descriptor = rule([(4, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(EMPTY_PATH), EMPTY_PATH)])?;
    deny(&mut denied, libc::SYS_execveat, vec![descriptor]);
    let personality = rule([
        (0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0),
        (0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, PERSONALITY_QUERY),
    ])?;
    deny(&mut denied, libc::SYS_personality, vec![personality]);
    // Programs and C libraries name themselves by 0. The supervisor, whose limits the tasks of
    // later jobs inherit, has the same user.
    let other_process = rule([(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)])?;
    deny(&mut denied, libc::SYS_prlimit64, vec![other_process]);
    // The filter cannot see the flags of clone3. Without clone3, C libraries use clone.
    let mut absent = Rules::new();
    deny(&mut absent, libc::SYS_clone3, Vec::new());
    Ok([(absent, libc::ENOSYS), (denied, libc::EPERM)])
}

/// Returns the rules that deny sockets: all, or all but those of IPv4 and IPv6.
fn socket_rules(has_network: bool) -> Result<Vec<SeccompRule>, BackendError> {
    if !has_network {
        return Ok(Vec::new());
    }
    let differs = |family: i32| {
        let family = u64::from(family.unsigned_abs());
        (0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    Ok(vec![rule([differs(libc::AF_INET), differs(libc::AF_INET6)])?])
}

/// Returns the rules that deny pairs of sockets: all but Unix streams and Unix packets in sequence,
/// which stay connected to each other. A Unix datagram socket, as which the kernel treats a raw
/// one, can send to every other one by its path.
fn pair_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let family = (0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(libc::AF_UNIX.unsigned_abs()));
    let of_type = |kind: i32| {
        // The other bits are flags.
        let operator = SeccompCmpOp::MaskedEq(TYPE_OF_SOCKET);
        rule([(1, SeccompCmpArgLen::Dword, operator, u64::from(kind.unsigned_abs()))])
    };
    Ok(vec![rule([family])?, of_type(libc::SOCK_DGRAM)?, of_type(libc::SOCK_RAW)?])
}

fn rule<const N: usize>(
    conditions: [(u8, SeccompCmpArgLen, SeccompCmpOp, u64); N],
) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .map(|(argument, length, operator, value)| SeccompCondition::new(argument, length, operator, value));
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

fn deny(rules: &mut Rules, number: c_long, of_arguments: Vec<SeccompRule>) {
    #[cfg(target_arch = "x86_64")]
    rules.insert(number | X32, of_arguments.clone());
    rules.insert(number, of_arguments);
}

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let denial = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, denial, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::{X32, compile, filters};

    #[test]
    fn filters_compile_below_the_limit_of_the_kernel() {
        for has_network in [false, true] {
            for (rules, errno) in filters(has_network).unwrap() {
                let program = compile(rules, errno).unwrap();
                assert!((5..4096).contains(&program.len()), "{} instructions", program.len());
            }
        }
    }

    #[test]
    fn network_changes_the_rule_of_sockets_alone() {
        let [off, on] = [false, true].map(|has_network| filters(has_network).unwrap()[1].0.clone());
        let different: Vec<i64> =
            off.keys().copied().filter(|number| off.get(number) != on.get(number)).collect();
        let sockets = [libc::SYS_socket, libc::SYS_socket | X32];
        assert_eq!(off.len(), on.len());
        assert!(
            !different.is_empty() && different.iter().all(|number| sockets.contains(number)),
            "{different:?}"
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_number_is_denied_with_the_bit_of_x32() {
        for (rules, _) in filters(false).unwrap() {
            let (x32, plain): (Vec<i64>, Vec<i64>) = rules.keys().partition(|&&number| number & X32 != 0);
            assert_eq!(x32, plain.into_iter().map(|number| number | X32).collect::<Vec<_>>());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_x32_alone_are_denied_with_all_arguments() {
        let [_, (denied, _)] = filters(true).unwrap();
        // ioctl, ptrace, kexec_load, move_pages, process_vm_readv, process_vm_writev, execveat.
        for number in [514, 521, 528, 533, 539, 540, 545] {
            assert_eq!(denied.get(&(number | X32)), Some(&Vec::new()), "{number}");
        }
    }
}
