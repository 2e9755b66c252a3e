//! `xdata` on a whole page, too long for a transcript, and on a register that makes the unit leave the bus.

use crate::program::process::{json, run, text};

#[test]
fn a_whole_page_is_read() {
    let home = tempfile::tempdir().unwrap();
    let words = ["xdata", "read", "0", "0x10000", "--json", "--device", "virtual:unit"];
    let read = json(home.path(), &words);
    assert_eq!(read["bytes"].as_str().map(str::len), Some(2 * 0x1_0000));
}

#[test]
fn a_write_after_which_the_unit_leaves_the_bus_succeeds() {
    let home = tempfile::tempdir().unwrap();
    let write = |words: &[&str]| {
        let output = run(home.path(), &[words, &["--yes", "--device", "virtual:unit"]].concat());
        (output.status.code(), text(&output))
    };
    let (status, said) = write(&["xdata", "write", "0xCC31", "01"]);
    assert!(status == Some(0) && said.contains("the unit left the bus"), "{said}");
    // The second byte was not written.
    let (status, said) = write(&["xdata", "write", "0xCC31", "0100"]);
    assert!(status == Some(4), "{said}");
}
