//! Graphics processors of this machine, as the drivers of NVIDIA and AMD list them in files. The
//! numbers are those of `CUDA_VISIBLE_DEVICES` in the order of the bus, and of
//! `ROCR_VISIBLE_DEVICES`.

use std::{fs, path::Path};

use rustix::fs::{Access, access};
use tracing::warn;

/// Environment variable with the NVIDIA GPUs that a process may use.
pub(crate) const CUDA_VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// Environment variable with the AMD GPUs that a process may use.
pub(crate) const ROCR_VISIBLE: &str = "ROCR_VISIBLE_DEVICES";

/// Device that every program of CUDA opens.
const NVIDIA_DEVICE: &str = "dev/nvidiactl";
/// Device that every program of ROCm opens.
const AMD_DEVICE: &str = "dev/kfd";

/// Variables that AMD's libraries read after [`ROCR_VISIBLE`]. The indices of these variables count
/// the GPUs that [`ROCR_VISIBLE`] has left.
pub(crate) const AFTER_ROCR: [&str; 3] = [CUDA_VISIBLE, "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];

/// Variables by which the tasks of a job see its GPUs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GpuVariables {
    /// [`CUDA_VISIBLE`] and [`ROCR_VISIBLE`]: on a machine of NVIDIA, or of an unknown vendor.
    #[default]
    Both,
    /// [`ROCR_VISIBLE`] without [`AFTER_ROCR`]: on a machine of AMD.
    RocrAlone,
}

/// Returns the GPUs below the directory `root`: those of NVIDIA, or those of AMD if there are none.
/// `variable` returns a variable of the environment of the worker, which may hide some of them.
///
/// Omits all GPUs if this process may not open the device of their driver, because its tasks may
/// not open the device either.
pub(super) fn found(root: &Path, variable: impl Fn(&str) -> Option<String>) -> (Vec<String>, GpuVariables) {
    let (nvidia, amd) = (nvidia(root), amd(root));
    let (count, name, device, variables) = match (nvidia, amd) {
        (0, 1..) => (amd, ROCR_VISIBLE, AMD_DEVICE, GpuVariables::RocrAlone),
        _ => (nvidia, CUDA_VISIBLE, NVIDIA_DEVICE, GpuVariables::Both),
    };
    let mut gpus = match variable(name) {
        Some(shown) => visible(&shown, count),
        None => (0..count).map(|index| index.to_string()).collect(),
    };
    if !gpus.is_empty()
        && let Err(error) = access(root.join(device), Access::READ_OK | Access::WRITE_OK)
    {
        warn!(
            %error,
            device,
            "the GPUs of this machine are not offered, because tasks could not open their device; docs/operations.md says how a unit of systemd permits devices"
        );
        gpus.clear();
    }
    (gpus, variables)
}

/// Returns the number of NVIDIA GPUs, of which a container may show only the devices.
fn nvidia(root: &Path) -> usize {
    match names(root, "proc/driver/nvidia/gpus").len() {
        0 => names(root, "dev").iter().filter(|name| is_nvidia_device(name)).count(),
        count => count,
    }
}

/// Returns true for `nvidia0`, and false for `nvidiactl`.
fn is_nvidia_device(name: &str) -> bool {
    name.strip_prefix("nvidia").is_some_and(is_number)
}

/// Returns the number of AMD GPUs: nodes with vector units. The other nodes are processors.
fn amd(root: &Path) -> usize {
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    let has_vector_units = |node: &String| {
        let properties = fs::read_to_string(root.join(nodes).join(node).join("properties"));
        let properties = properties.unwrap_or_default();
        let count = properties.lines().find_map(|line| line.strip_prefix("simd_count "));
        count.and_then(|count| count.trim().parse().ok()).is_some_and(|count: u64| count > 0)
    };
    names(root, nodes).iter().filter(|node| has_vector_units(node)).count()
}

fn names(root: &Path, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns the GPUs of a list of indices and UUIDs. As in CUDA, the first wrong entry ends the
/// list. A GPU that the list has twice is one GPU.
fn visible(shown: &str, count: usize) -> Vec<String> {
    let is_right = |id: &&str| match id.parse::<usize>() {
        Ok(index) => is_number(id) && index < count,
        Err(_) => id.starts_with("GPU-") || id.starts_with("MIG-"),
    };
    let mut gpus: Vec<String> = Vec::new();
    for id in shown.split(',').map(str::trim).take_while(is_right) {
        let id = normalized(id);
        if !gpus.contains(&id) {
            gpus.push(id);
        }
    }
    gpus
}

/// Returns the usual form of an index or a UUID: the index 00 is the index 0.
pub(super) fn normalized(id: &str) -> String {
    let index = id.parse::<usize>().ok().filter(|_| is_number(id));
    index.map_or_else(|| id.to_owned(), |index| index.to_string())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{CUDA_VISIBLE, GpuVariables, ROCR_VISIBLE, visible};

    fn found(root: &Path, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
        super::found(root, variable).0
    }

    fn directory(root: &Path, path: &str) {
        fs::create_dir_all(root.join(path)).unwrap();
    }

    /// Adds a node of AMD's driver with this number of vector units.
    fn node_of_amd(root: &Path, node: &str, units: u32) {
        let node = format!("sys/class/kfd/kfd/topology/nodes/{node}");
        directory(root, &node);
        let properties = format!("cpu_cores_count 0\nsimd_count {units}\nmem_banks_count 1\n");
        fs::write(root.join(node).join("properties"), properties).unwrap();
    }

    #[test]
    fn gpus_of_nvidia_are_listed_by_their_driver_or_are_devices() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(super::found(root.path(), |_| None), (Vec::new(), GpuVariables::Both));
        directory(root.path(), "dev");
        for device in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"] {
            fs::write(root.path().join("dev").join(device), "").unwrap();
        }
        assert_eq!(found(root.path(), |_| None), ["0", "1"]);
        for bus in ["0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"] {
            directory(root.path(), &format!("proc/driver/nvidia/gpus/{bus}"));
        }
        assert_eq!(found(root.path(), |_| None), ["0", "1", "2"]);
        assert_eq!(super::found(root.path(), |_| None).1, GpuVariables::Both);
        let hides = |name: &str| (name == CUDA_VISIBLE).then(|| "2,0".to_owned());
        assert_eq!(found(root.path(), hides), ["2", "0"]);
    }

    #[test]
    fn gpus_without_the_device_of_their_driver_are_not_offered() {
        let root = tempfile::tempdir().unwrap();
        directory(root.path(), "dev");
        node_of_amd(root.path(), "0", 304);
        assert_eq!(super::found(root.path(), |_| None), (Vec::new(), GpuVariables::RocrAlone));
        fs::write(root.path().join("dev/kfd"), "").unwrap();
        assert_eq!(found(root.path(), |_| None), ["0"]);
        directory(root.path(), "proc/driver/nvidia/gpus/0000:3b:00.0");
        assert_eq!(super::found(root.path(), |_| None), (Vec::new(), GpuVariables::Both));
        fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        assert_eq!(found(root.path(), |_| None), ["0"]);
    }

    #[test]
    fn gpus_of_amd_are_nodes_with_vector_units() {
        let root = tempfile::tempdir().unwrap();
        directory(root.path(), "dev");
        fs::write(root.path().join("dev/kfd"), "").unwrap();
        for (node, units) in [("0", 0), ("1", 304), ("2", 304)] {
            node_of_amd(root.path(), node, units);
        }
        directory(root.path(), "sys/class/kfd/kfd/topology/nodes/3");
        assert_eq!(found(root.path(), |_| None), ["0", "1"]);
        let hides = |name: &str| (name == ROCR_VISIBLE).then(|| "1".to_owned());
        assert_eq!(super::found(root.path(), hides), (vec!["1".into()], GpuVariables::RocrAlone));
        let of_cuda = |name: &str| (name == CUDA_VISIBLE).then(String::new);
        assert_eq!(found(root.path(), of_cuda), ["0", "1"]);
    }

    #[test]
    fn wrong_gpu_ends_the_list_of_visible_ones() {
        for (shown, gpus) in [
            ("", &[][..]),
            ("-1", &[]),
            ("NoDevFiles", &[]),
            ("1, 0", &["1", "0"]),
            ("0,7,1", &["0"]),
            ("GPU-8932f937,1", &["GPU-8932f937", "1"]),
            ("MIG-GPU-1/0/0", &["MIG-GPU-1/0/0"]),
            ("+1", &[]),
            ("1,0,1,00", &["1", "0"]),
            ("GPU-8932f937,GPU-8932f937", &["GPU-8932f937"]),
        ] {
            assert_eq!(visible(shown, 2), gpus, "{shown}");
        }
    }
}
