//! The shell tour in examples/ succeeds and leaves nothing behind.

use std::process::Command;

use e2e::{Lab, Ran};

#[test]
fn tour_goes_through() {
    let lab = Lab::new();
    let tmp = lab.path().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let mut tour = Command::new("sh");
    tour.arg(Lab::repository("examples/tour.sh"))
        .env("AGENIX_BIN", lab.bin())
        .env("TMPDIR", &tmp)
        .current_dir(lab.path());
    for variable in ["AGQ_SESSION_KEY", "AGQ_ADDR"] {
        tour.env_remove(variable);
    }
    let ran = Ran::from(tour.output().unwrap()).expect(0);
    assert!(ran.out.ends_with("tour: all went well\n"), "{}\n{}", ran.out, ran.err);
    assert_eq!(std::fs::read_dir(tmp).unwrap().count(), 0, "the tour left files behind");
}
