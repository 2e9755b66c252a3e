//! The README's "Try it without a dock", as somebody at a terminal of 80 columns goes through it: each command as it is
//! there, and after the power failed in the middle of a write only commands that asmpatch has printed.

use std::fs;
use std::path::Path;

use asm2464::firmware::UsbId;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::Port as _;
use asmpatch::flash::access::Access;

use crate::terminal::{self, COLUMNS};

/// What somebody at a terminal sees of a shell's command: its status, and the lines on the screen.
struct Seen {
    status: Option<i32>,
    lines: Vec<String>,
}

impl Seen {
    /// The commands that it printed, each on a line of its own.
    fn commands(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.trim()).filter(|line| line.starts_with("asmpatch ")).collect()
    }

    fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// The lines that stay on a terminal: without control sequences, and without what a later text on the line replaced.
fn on_screen(text: &str) -> Vec<String> {
    let plain = console::strip_ansi_codes(text).into_owned();
    let last = |line: &str| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().trim_end().to_owned();
    plain.split('\n').map(last).collect()
}

fn at_terminal(folder: &Path, line: &str) -> Seen {
    let (status, text) = terminal::run(folder, line);
    Seen { status, lines: on_screen(&text) }
}

/// The commands of the README's section, block by block.
fn readme() -> Vec<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let section = text.split_once("## Try it without a dock\n").unwrap().1.split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| block.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()).collect()
}

/// The unit's ID, serial number and USB4 identity.
fn identity(folder: &Path) -> (UsbId, String, Vec<u8>) {
    let mut port = VirtualPort::open_dir(&folder.join("dock")).unwrap();
    let attached = port.attached().unwrap();
    let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
    let [_, usb4] = blocks;
    (attached.usb_id, attached.serial, usb4.unwrap().to_vec())
}

/// Goes through the README's section up to the write that loses its power; checks each screen. Returns the folder, the
/// identity from before, and the screen of that write.
fn interrupted() -> (tempfile::TempDir, (UsbId, String, Vec<u8>), Seen) {
    let home = tempfile::tempdir().unwrap();
    let [flash, fault] = <[Vec<String>; 2]>::try_from(readme()).unwrap();
    for line in &flash {
        let seen = at_terminal(home.path(), line);
        assert_eq!(seen.status, Some(0), "{line}: {}", seen.text());
        let is_long =
            |line: &&String| console::measure_text_width(line) > COLUMNS && !line.trim_start().starts_with("asmpatch ");
        assert_eq!(seen.lines.iter().find(is_long), None, "{line}");
    }
    let before = identity(home.path());
    assert_eq!(before.0, UsbId::PATCHED);
    let [trouble, write, repair] = <[String; 3]>::try_from(fault).unwrap();
    assert_eq!(at_terminal(home.path(), &trouble).status, Some(0));
    let stopped = at_terminal(home.path(), &write);
    assert_eq!(stopped.status, Some(4), "{}", stopped.text());
    assert_eq!(at_terminal(home.path(), &repair).status, Some(0));
    (home, before, stopped)
}

#[test]
fn after_a_power_failure_the_first_printed_command_finishes_the_write_and_the_identity_is_kept() {
    let (home, before, stopped) = interrupted();
    let on = stopped.commands()[0];
    let seen = at_terminal(home.path(), on);
    assert_eq!(seen.status, Some(0), "{on}: {}", seen.text());
    assert_eq!(identity(home.path()), before);
    let shown = at_terminal(home.path(), "asmpatch list --device virtual:dock");
    assert!(shown.text().contains("practice image") && shown.text().contains(&before.1), "{}", shown.text());
}

#[test]
fn after_a_power_failure_doctor_prints_the_command_that_brings_everything_back() {
    let (home, before, _) = interrupted();
    let page = at_terminal(home.path(), "asmpatch doctor");
    assert_eq!(page.status, Some(1), "{}", page.text());
    let [back, ..] = page.commands()[..] else { panic!("{}", page.text()) };
    let seen = at_terminal(home.path(), back);
    assert_eq!(seen.status, Some(0), "{back}: {}", seen.text());
    assert_eq!(identity(home.path()), before);
    // A GPU runtime can start again.
    let page = at_terminal(home.path(), "asmpatch doctor");
    assert_eq!(page.status, Some(0), "{}", page.text());
}
