//! Nodes that share no directory store large outputs in a bucket.

use e2e::{Lab, S3};

use crate::support::{ended, plan};

#[test]
fn nodes_read_the_outputs_of_each_other_from_a_bucket() {
    let s3 = S3::new();
    let lab = s3.known_to(Lab::of_nodes(), &s3.address());
    let of_node = |name: &str| {
        let data = lab.path().join(name).display().to_string();
        lab.agq(&["--blobs", "s3://outputs", "--data-dir", &data])
    };
    let (here, there) = (of_node("here"), of_node("there"));
    for (name, last, at, from) in [("a", "200000", &here, &there), ("b", "300000", &there, &here)] {
        let _agw = lab.agw(at, &format!("w-{name}"), &[]);
        lab.submit_plan(at, &plan(name, "seq", &[last]));
        lab.submit_action(at, name, name, "[{}]");
        assert_eq!(ended(&lab, at, name)["status"], "completed");
        let expected = std::process::Command::new("seq").arg(last).output().unwrap().stdout;
        assert!(lab.agx(from, &["action", "results", name]).expect(0).out.as_bytes() == expected);
    }
    assert_eq!(s3.objects("").len(), 2);
}
