//! Runs `tests/vm/run` as a test: a real Linux USB stack in a virtual machine, with virtual units.

use std::path::Path;
use std::process::Command;

use crate::program::process::PROGRAM;

#[test]
#[ignore = "needs QEMU and Debian's packages: tests/vm/run --install"]
fn vm_a_real_usb_stack_and_asmpatch_agree() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/run");
    let ended = Command::new(script).env("ASMPATCH_BIN", PROGRAM).status().expect("tests/vm/run needs a shell");
    assert!(ended.success(), "tests/vm/run: {ended}");
}
