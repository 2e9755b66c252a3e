//! The README's "Try it without a dock" on a terminal of 80 columns: each command exactly as the page has it and, after
//! the power has failed in the middle of a write, only commands that asmpatch has printed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use asm2464::firmware::UsbId;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::Port as _;
use asmpatch::flash::access::Access;

use crate::chip_images;
use crate::printed_lines;
use crate::program::process::good;
use crate::program::terminal::{self, COLUMNS};

/// Result of a shell's command at a terminal: its status, and the lines on the screen.
struct Seen {
    status: Option<i32>,
    lines: Vec<String>,
}

impl Seen {
    /// The commands that it printed, each on a line of its own.
    fn commands(&self) -> Vec<&str> {
        self.lines.iter().flat_map(|line| printed_lines::commands(line)).collect()
    }

    fn text(&self) -> String {
        self.lines.join("\n")
    }
}

fn at_terminal(folder: &Path, line: &str) -> Seen {
    let (status, text) = terminal::run(folder, line);
    Seen { status, lines: terminal::on_screen(&text) }
}

/// The commands of the README from this heading to the next, block by block.
fn readme(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let section = text.split_once(&format!("\n## {heading}\n")).unwrap().1.split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(|block| block.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect()).collect()
}

/// The unit's ID, serial number and USB4 identity.
fn identity(folder: &Path) -> (UsbId, String, Vec<u8>) {
    let mut port = VirtualPort::open_dir(&folder.join("dock")).unwrap();
    let attached = port.attached().unwrap();
    let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
    let [_, usb4] = blocks;
    (attached.id, attached.serial().to_owned(), usb4.unwrap().to_vec())
}

/// Goes through the README's section up to the write that loses its power; checks each screen. Returns the folder, the
/// identity from before, and the screen of that write.
fn interrupted() -> (tempfile::TempDir, (UsbId, String, Vec<u8>), Seen) {
    let home = tempfile::tempdir().unwrap();
    let [flash, fault] = <[Vec<String>; 2]>::try_from(readme("Try it without a dock")).unwrap();
    for line in &flash {
        let seen = at_terminal(home.path(), line);
        assert_eq!(seen.status, Some(0), "{line}: {}", seen.text());
        let is_long =
            |line: &&String| console::measure_text_width(line) > COLUMNS && !line.trim_start().starts_with("asmpatch ");
        assert_eq!(seen.lines.iter().find(is_long), None, "{line}");
        // A terminal offers the self-test, and it was answered with yes.
        let is_tested = seen.text().contains("READ(16) against E4: not measured");
        assert_eq!(is_tested, line.starts_with("asmpatch flash"), "{line}: {}", seen.text());
    }
    let before = identity(home.path());
    assert_eq!(before.0, UsbId::PATCHED);
    let [trouble, write] = <[String; 2]>::try_from(fault).unwrap();
    assert_eq!(at_terminal(home.path(), &trouble).status, Some(0));
    let stopped = at_terminal(home.path(), &write);
    assert_eq!(stopped.status, Some(4), "{}", stopped.text());
    assert_eq!(at_terminal(home.path(), stopped.commands()[0]).status, Some(0));
    (home, before, stopped)
}

#[test]
fn no_journey_of_the_readme_fails_because_an_earlier_one_wrote_its_files() {
    let journeys = ["Try it without a dock", "Flash the open firmware", "Flash the patched vendor firmware"];
    let commands = journeys.into_iter().flat_map(readme).flatten();
    let mut written = BTreeSet::new();
    for command in commands {
        if let Some((_, output)) = command.split_once(" -o ") {
            assert!(written.insert(output.to_owned()), "{command}: asmpatch::file::exists");
        }
    }
    assert!(written.len() >= 4, "{written:?}");
}

#[test]
fn the_demo_the_plan_and_doctor_each_fit_one_screen() {
    let home = tempfile::tempdir().unwrap();
    let fits =
        |lines: &[String]| lines.len() <= terminal::ROWS && lines.iter().all(|line| line.chars().count() <= COLUMNS);
    for line in ["asmpatch demo", "asmpatch demo --keep practice"] {
        let demo = at_terminal(home.path(), line);
        assert!(fits(&demo.lines), "{}", demo.text());
    }
    let whole = at_terminal(home.path(), "asmpatch demo -v");
    for says in ["$ asmpatch flash patched.bin", "read back firmware part 2: the same", "instructions of the 8051"] {
        assert!(whole.text().contains(says), "{says}: {}", whole.text());
    }
    let doctor = at_terminal(home.path(), "asmpatch doctor");
    assert!(fits(&doctor.lines), "{}", doctor.text());
    assert_eq!(at_terminal(home.path(), "asmpatch patch practice/stock.bin -o trial.bin").status, Some(0));
    let flash = at_terminal(home.path(), "asmpatch flash trial.bin");
    let asked = flash.lines.iter().position(|line| line.contains("[y/N]")).unwrap();
    assert!(fits(&flash.lines[..=asked]), "{}", flash.text());
}

#[test]
fn after_a_power_failure_the_printed_commands_finish_the_write_and_keep_the_identity() {
    let (home, before, stopped) = interrupted();
    let on = stopped.commands()[1];
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

/// Takes a blank board to an SSD box under the neutral identity, from there to open firmware and back. After the name of
/// each image it runs only commands that asmpatch has printed.
fn a_boards_first_programming(stock: &[u8], open: &[u8]) {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("dock")).unwrap();
    let blank = "factory = 'erased'\nbehind = { ssd = { bytes = 67108864 } }\n";
    fs::write(home.path().join("dock/bridge.toml"), blank).unwrap();
    fs::write(home.path().join("stock.bin"), stock).unwrap();
    fs::write(home.path().join("open.bin"), open).unwrap();
    let at = |line: &str, status| {
        let seen = at_terminal(home.path(), line);
        assert_eq!(seen.status, Some(status), "{line}: {}", seen.text());
        seen
    };
    let cells = || fs::read(home.path().join("dock/flash.bin")).unwrap();
    let erased = cells_of_new_unit(home.path());
    let refused = at("asmpatch flash stock.bin", 5);
    assert!(cells() == erased, "nothing is written without a yes");
    let is_write = |command: &&str| command.starts_with("asmpatch flash ");
    let write = refused.commands().into_iter().find(is_write).unwrap_or_else(|| panic!("{}", refused.text()));
    let drawn = write.split_once("--serial ").expect(write).1.split(' ').next().unwrap();
    let written = at(write, 0);
    let shown = written.text().replace('\n', " ");
    for says in ["174C:2463", "ASM246X series", "USB4 ASMedia", drawn] {
        assert!(shown.contains(says), "{says}: {shown}");
    }
    let [read_back] = written.commands()[..] else { panic!("{shown}") };
    at(read_back, 0);
    let listed = at("asmpatch list --device virtual:dock", 0).text();
    assert!(listed.contains("174C:2463") && listed.contains("SSD"), "{listed}");

    let box_of_ssd = (cells(), identity(home.path()));
    assert_eq!((box_of_ssd.1.0, box_of_ssd.1.1.as_str()), (UsbId::BOOT_LOADER, drawn));
    assert!(!box_of_ssd.0.windows(8).any(|bytes| bytes == b"AAAABBBB"), "no template's serial number");
    assert!(!box_of_ssd.0[..0x100].windows(5).any(|bytes| bytes == b"Gopod"), "no other maker's name");
    let bridge = at("asmpatch flash open.bin", 0);
    assert_ne!(identity(home.path()).0, UsbId::BOOT_LOADER, "open firmware has an ID of its own");
    let back = bridge.commands().into_iter().find(|command| command.starts_with("asmpatch restore ")).unwrap();
    at(back, 0);
    assert_eq!(identity(home.path()), box_of_ssd.1);
    assert!(cells()[..0x2_0000] == box_of_ssd.0[..0x2_0000]);
    let again = at("asmpatch flash stock.bin", 0);
    assert!(again.text().contains("nothing to do"), "{}", again.text());
}

/// The flash of the unit `dock`, made by a command that writes nothing.
fn cells_of_new_unit(home: &Path) -> Vec<u8> {
    assert_eq!(at_terminal(home, "asmpatch list --device virtual:dock").status, Some(0));
    fs::read(home.join("dock/flash.bin")).unwrap()
}

#[test]
fn printed_commands_alone_make_a_blank_board_a_neutral_ssd_box_then_a_gpu_dock_and_back() {
    use asm2464_chip::practice;

    a_boards_first_programming(&practice::image().to_file(), &practice::open_image().to_file());
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE, ASMPATCH_OPEN_NEW_IMAGE"]
fn a_blank_board_goes_the_same_way_with_the_vendors_image_and_the_open_one() {
    let [stock, open] = ["ASMPATCH_VENDOR_IMAGE", "ASMPATCH_OPEN_NEW_IMAGE"].map(chip_images::file);
    a_boards_first_programming(&stock, &open);
}

#[test]
fn each_page_of_the_documents_fits_the_terminal_but_for_commands() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let folder = tempfile::tempdir().unwrap();
    for page in ["recovery", "bench.md", "docs/virtual-unit.md"] {
        let seen = at_terminal(folder.path(), &format!("PAGER=cat asmpatch help {page} --all"));
        assert_eq!(seen.status, Some(0), "{page}");
        // Blocks of code, long words and commands stay whole.
        for line in &seen.lines {
            let is_whole = line.starts_with("    ") || line.contains('`') || !line.trim().contains(' ');
            assert!(line.chars().count() <= COLUMNS || is_whole, "{page}: {line}");
        }
        // Text on a terminal, Markdown in a pipe.
        let marks = |line: &&String| line.starts_with(['|', '#']) || line.starts_with("```") || line.contains("](");
        assert!(seen.lines.iter().find(marks).is_none(), "{page}: {:?}", seen.lines.iter().find(marks));
        let name = page.trim_start_matches("docs/").trim_end_matches(".md");
        let text = fs::read_to_string(docs.join(format!("{name}.md"))).unwrap();
        assert_eq!(good(folder.path(), &["help", page, "--all"]).trim_end(), text.trim_end(), "{page}");
    }
}

#[test]
fn a_page_longer_than_the_terminal_goes_through_the_pager_and_without_one_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let lines =
        |pager: &str| at_terminal(folder.path(), &format!("PAGER='{pager}' asmpatch help recovery --all")).lines;
    assert_eq!(lines("head -n 1").concat(), "Recovery");
    assert!(lines("no-such-pager").len() > 100);
}

#[test]
fn a_new_virtual_unit_is_said_once_so_that_a_mistyped_name_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let said = |line: &str| at_terminal(folder.path(), line).text().contains("a new virtual unit in dock2");
    assert!(said("asmpatch doctor --device virtual:dock2"));
    assert!(!said("asmpatch doctor --device virtual:dock2"));
}
