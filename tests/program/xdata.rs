//! `xdata` on a whole page, too long for a transcript, and on a register that makes the unit leave the bus.

use std::process::Command;

use crate::schemas;

#[test]
fn a_whole_page_is_read() {
    let home = tempfile::tempdir().unwrap();
    let words = ["xdata", "read", "0", "0x10000", "--json", "--device", "virtual:unit"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
    let output = command.current_dir(home.path()).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = schemas::parse(&words, &output.stdout);
    assert_eq!(read["bytes"].as_str().map(str::len), Some(2 * 0x1_0000));
}

#[test]
fn a_write_after_which_the_unit_leaves_the_bus_succeeds() {
    let home = tempfile::tempdir().unwrap();
    let write = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        let device = ["--yes", "--device", "virtual:unit"];
        let output = command.current_dir(home.path()).args(words).args(device).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (status, said) = write(&["xdata", "write", "0xCC31", "01"]);
    assert!(status == Some(0) && said.contains("the unit left the bus"), "{said}");
    // The second byte was not written.
    let (status, said) = write(&["xdata", "write", "0xCC31", "0100"]);
    assert!(status == Some(4), "{said}");
}
