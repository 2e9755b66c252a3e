//! asmpatch on input made to mislead or to harm: what it prints, refuses and leaves alone.
use std::ffi::OsStr;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use asm2464::digest::Sha256Digest;
use asm2464::escape::is_harmful;
use asm2464::firmware::ConfigField;
use asm2464_chip::practice;

use crate::program::process::{PROGRAM, command, run as asmpatch};
use crate::schemas;

/// Forges lines, clears the screen, reverses text.
const HOSTILE: &str = "X\n  backup    none\r\x1b[2J\u{9b}8m\u{202E}\u{2028}end";

/// A folder that contains the practice image.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("practice.bin"), practice::image().to_file()).unwrap();
    folder
}

/// Returns all output. Checks that it has no control characters except line ends and tabs.
fn printed(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let harmful: Vec<char> = text.chars().filter(|c| is_harmful(*c) && !matches!(c, '\n' | '\t')).collect();
    assert!(harmful.is_empty(), "{harmful:?} in {text}");
    text
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_hostile_backup_forges_no_line_of_the_restore_plan() {
    let folder = workspace();
    let run = |arguments: &[&str]| asmpatch(folder.path(), arguments);
    assert!(run(&["backup", "--device", "virtual:unit", "-o", "before"]).status.success());
    let manifest = folder.path().join("before/backup.toml");
    let good = fs::read_to_string(&manifest).unwrap();
    for key in ["serial", "state", "usb-id", "product", "device"] {
        let hostile = asm2464_files::toml_file::string(HOSTILE);
        let lines: Vec<String> = good
            .lines()
            .map(|line| if line.starts_with(&format!("{key} = ")) { format!("{key} = {hostile}") } else { line.into() })
            .collect();
        fs::write(&manifest, lines.join("\n")).unwrap();
        let output = run(&["restore", "before", "--device", "virtual:unit", "--force"]);
        assert_eq!(output.status.code(), Some(5), "no terminal to ask on");
        let text = printed(&output);
        assert_eq!(text.lines().filter(|line| line.starts_with("  backup ")).count(), 1, "{key}: {text}");
        assert!(text.contains("  image    before: backup of "), "{text}");
    }
    // An error quotes text that doesn't parse, and escapes it.
    fs::write(&manifest, format!("format = 1\n{HOSTILE} = 1\n")).unwrap();
    let output = run(&["restore", "before", "--device", "virtual:unit"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!printed(&output).lines().any(|line| line.starts_with("  backup ")));
}

/// A configuration block's strings appear on USB, and anyone can write them.
#[test]
fn a_unit_with_false_strings_is_identified_by_its_behaviour_and_shown_escaped() {
    let folder = workspace();
    let home = folder.path();
    fs::write(home.join("open.bin"), practice::open_image().to_file()).unwrap();
    fs::create_dir(home.join("unit")).unwrap();
    fs::write(home.join("unit/bridge.toml"), "port-power = true\n").unwrap();
    assert!(asmpatch(home, &["list", "--device", "virtual:unit"]).status.success());
    let path = home.join("unit/flash.bin");
    let mut cells = fs::read(&path).unwrap();
    // Open firmware's product string, a serial number that forges a line, and a manufacturer that clears the screen.
    for (field, text) in [
        (ConfigField::Product, "custom c5e2090a-CLEAN"),
        (ConfigField::Serial, "1\n  runs  nothing"),
        (ConfigField::Manufacturer, "\x1b[2J\x07tiny"),
    ] {
        cells[field.range()].fill(0xFF);
        cells[field.range().start..][..text.len()].copy_from_slice(text.as_bytes());
    }
    cells[0x7F] = cells[0x04..=0x7E].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
    fs::write(&path, &cells).unwrap();

    let listed = printed(&asmpatch(home, &["list", "--device", "virtual:unit"]));
    assert!(listed.contains("runs     practice image") && listed.contains("custom c5e2090a-CLEAN"), "{listed}");
    for words in [["config", "get"].as_slice(), &["backup"], &["doctor"], &["pcie"], &["list", "--json"]] {
        let output = asmpatch(home, &[words, &["--device", "virtual:unit"]].concat());
        let text = printed(&output);
        assert!(!text.lines().any(|line| line.starts_with("  runs  nothing")), "{words:?}: {text}");
    }
    // The flash doesn't hold what the name claims, so asmpatch writes it with vendor commands.
    let flash = ["flash", "open.bin", "--device", "virtual:unit", "--yes", "--backup-dir", "backups"];
    let printed = printed(&asmpatch(home, &flash));
    assert!(
        printed.contains("check what runs: open firmware \"custom practice\": it runs what was written"),
        "{printed}"
    );
    let file = practice::open_image().to_file();
    assert!(fs::read(&path).unwrap()[0x100..][..file.len()] == file);
}

#[test]
fn a_unit_that_answers_e4_with_less_ends_each_command_in_an_error_and_keeps_its_flash() {
    let folder = workspace();
    let home = folder.path();
    fs::create_dir(home.join("unit")).unwrap();
    let tell = |text: &str| fs::write(home.join("unit/bridge.toml"), format!("factory = 'open'\n{text}")).unwrap();
    let run = |words: &[&str]| asmpatch(home, &[words, &["--device", "virtual:unit"]].concat());
    tell("");
    assert!(run(&["list"]).status.success());
    let cells = || fs::read(home.join("unit/flash.bin")).unwrap();
    let before = cells();
    tell("[[fault]]\nkind = 'short-data'\nopcode = 0xE4\ntimes = 1000000\n");
    for words in [
        ["backup"].as_slice(),
        &["flash", "practice.bin", "--yes"],
        &["config", "get"],
        &["config", "set", "serial=LAB-07", "--yes"],
        &["verify", "practice.bin"],
        &["pcie"],
        &["bench", "--path", "config-read"],
    ] {
        let output = run(words);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(4), "{words:?}: {text}");
        assert!(text.contains("asmpatch::control::short") && text.contains("bytes, expected"), "{words:?}: {text}");
    }
    let page = run(&["doctor"]);
    assert_eq!(page.status.code(), Some(1), "{}", printed(&page));
    assert!(cells() == before);
    tell("");
    assert!(printed(&run(&["list"])).contains("open firmware"));
}

#[test]
fn hostile_names_in_files_manifests_receipts_and_archives_are_shown_escaped() {
    let folder = workspace();
    let run = |arguments: &[&str]| asmpatch(folder.path(), arguments);
    let name = "a\n  b: ok\x1b[2J\u{202E}.bin";
    fs::copy(folder.path().join("practice.bin"), folder.path().join(name)).unwrap();
    for arguments in [vec!["verify", name], vec!["info", name], vec!["verify", "--json", name]] {
        let output = run(&arguments);
        assert!(output.status.success(), "{arguments:?}");
        assert!(!printed(&output).lines().any(|line| line.starts_with("  b: ok")));
    }
    let output = run(&["verify", "--json", name]);
    let report = schemas::parse(&["verify"], &output.stdout);
    assert_eq!(report[0]["file"], name, "JSON has the exact name");
    printed(&run(&["verify", &format!("{name}.gone")]));

    let output = run(&["patch", name, "-o", "-out 1.bin", "--force"]);
    assert_ne!(output.status.code(), Some(0), "clap takes it for an option");
    let output = run(&["patch", name, "-o", "./-out 1.bin"]);
    assert!(printed(&output).contains("next:\n    asmpatch flash './-out 1.bin'\n"));

    let receipt = folder.path().join("receipt.toml");
    fs::write(&receipt, format!("format = 1 # {HOSTILE}\ntool = 7\n")).unwrap();
    let output = run(&["verify", "practice.bin", "--receipt", "receipt.toml"]);
    assert_eq!(output.status.code(), Some(3));
    printed(&output);

    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("x\n  practice: verified\x1b[2J\u{202E}", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"no image").unwrap();
    fs::write(folder.path().join("fw.zip"), zip.finish().unwrap().into_inner()).unwrap();
    let output = run(&["download", "--from", "fw.zip"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(printed(&output).contains("x\\n"));

    fs::create_dir(folder.path().join("manifests")).unwrap();
    fs::write(folder.path().join("manifests/a.toml"), format!("id = {}\n", asm2464_files::toml_file::string(HOSTILE)))
        .unwrap();
    let output = run(&["download", "--manifest-dir", "manifests"]);
    assert_eq!(output.status.code(), Some(3));
    printed(&output);
}

#[test]
fn results_go_to_regular_files_alone() {
    let folder = workspace();
    let (link, fifo, target) = ("link", "fifo", folder.path().join("target"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, folder.path().join(link)).unwrap();
    make_fifo(&folder.path().join(fifo));
    let image = fs::read(folder.path().join("practice.bin")).unwrap();
    let manifest = format!(
        "id = 'practice'\nversion = '261121.00.00.01'\nchip = 'ASM2464PD'\nsize = {}\nsha256 = '{}'\n",
        image.len(),
        Sha256Digest::of(&image)
    );
    fs::write(folder.path().join("practice.toml"), manifest).unwrap();
    for out in [link, fifo] {
        for arguments in [
            vec!["patch", "practice.bin", "--force", "-o", out],
            vec!["disasm", "practice.bin", "--force", "--elf", out],
            vec!["download", "practice", "--from", "practice.bin", "--manifest-dir", ".", "--force", "-o", out],
            vec!["bench", "--device", "virtual:unit", "--svg", out],
        ] {
            let status = asmpatch(folder.path(), &arguments).status;
            assert!(matches!(status.code(), Some(5 | 6)), "{arguments:?}: {status}");
        }
    }
    symlink(&target, folder.path().join("asmpatch.1")).unwrap();
    assert_eq!(asmpatch(folder.path(), &["man", "."]).status.code(), Some(6));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(folder.path().join(link).is_symlink());
    assert!(folder.path().join(fifo).symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn every_reader_refuses_an_endless_file() {
    let folder = workspace();
    for name in ["dir/endless.toml", "unit/bridge.toml", "backup/backup.toml"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink("/dev/zero", path).unwrap();
    }
    for arguments in [
        vec!["download", "--manifest-dir", "dir"],
        vec!["verify", "practice.bin", "--patch-dir", "dir"],
        vec!["verify", "practice.bin", "--receipt", "/dev/zero"],
        vec!["verify", "/dev/zero"],
        vec!["list", "--device", "virtual:unit"],
        vec!["list", "--devices-dir", "dir"],
        vec!["restore", "backup", "--device", "virtual:other"],
        vec!["bench", "--device", "virtual:other", "--baseline", "/dev/zero"],
    ] {
        let status = asmpatch(folder.path(), &arguments).status.code();
        assert!(matches!(status, Some(3 | 6)), "{arguments:?}: {status:?}");
    }
}

#[test]
fn ctrl_c_ends_a_read_from_a_pipe_that_gives_nothing() {
    let folder = workspace();
    let fifo = folder.path().join("fifo");
    make_fifo(&fifo);
    let mut child = command(folder.path(), &["download", "--from", "fifo"]).stderr(Stdio::null()).spawn().unwrap();
    // The open returns once the program has opened the pipe for reading. By then its signal handler is installed.
    let writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(writer);
}

#[test]
fn a_restrictive_umask_leaves_no_temporary_file_and_no_file_that_its_owner_can_not_use() {
    let folder = workspace();
    let script = format!(
        "umask 0777; '{PROGRAM}' backup --device virtual:unit -o units/before && \
         '{PROGRAM}' patch practice.bin -o patched.bin && \
         '{PROGRAM}' backup --device virtual:unit -o units/before && \
         '{PROGRAM}' flash patched.bin --device virtual:unit --backup-dir units --yes"
    );
    let output = Command::new("sh").arg("-c").arg(script).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777;
    for name in ["units", "units/before", "unit"] {
        assert_eq!(mode(name), 0o700, "{name}");
    }
    for name in
        ["patched.bin", "patched.bin.toml", "units/before/backup.toml", "units/before/part-1.bin", "unit/flash.bin"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    for place in ["", "units", "units/before", "unit"] {
        let names = fs::read_dir(folder.path().join(place)).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.map(|name| name.into_string().unwrap()).all(|name| !name.starts_with('.')), "in {place:?}");
    }
}

#[test]
fn captures_logs_and_backups_are_for_their_owner_alone() {
    let folder = workspace();
    let script = format!(
        "umask 0022; '{PROGRAM}' backup --device virtual:unit -o units/before --pcap unit.pcapng --log-file unit.log"
    );
    let mut command = Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(folder.path()).env("ASMPATCH_CONFIG", "").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let backup = folder.path().join("units/before");
    assert_eq!(mode(&backup), 0o700);
    let files = fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain(["unit.pcapng", "unit.log"].map(|name| folder.path().join(name))) {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_folder_whose_name_is_not_utf_8_does_not_prevent_json() {
    let folder = workspace();
    assert!(asmpatch(folder.path(), &["patch", "practice.bin", "-o", "patched.bin"]).status.success());
    let backups = OsStr::from_bytes(b"bk\xFF");
    for (name, words) in [
        ("backup", &["backup", "--json", "-o"][..]),
        ("flash", &["flash", "patched.bin", "--yes", "--json", "--backup-dir"]),
    ] {
        let mut command = command(folder.path(), words);
        let output = command.arg(backups).args(["--device", "virtual:unit"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document = schemas::parse(&[name], &output.stdout);
        let document = document.get(0).unwrap_or(&document);
        assert!(document["backup"].as_str().unwrap().contains("bk\u{FFFD}"), "{document}");
    }
}

#[test]
fn a_full_disk_under_the_output_fails_what_only_prints_and_a_closed_pipe_does_not() {
    let folder = workspace();
    for words in [
        "info practice.bin",
        "verify practice.bin",
        "list --device virtual:unit",
        "list --device virtual:unit --json",
        "udev",
        "completions bash",
        "disasm practice.bin c:0x0000",
        "config get --device virtual:unit",
        "xdata read 0x07F0 --device virtual:unit",
        "--version",
        "flash --help",
    ] {
        for (lost, expected) in [(">/dev/full", "6"), ("| true", "0")] {
            let line = format!("{{ \"$0\" {words}; echo $? >status; }} {lost}");
            let shell = Command::new("sh").current_dir(folder.path()).args(["-c", &line, PROGRAM]).output().unwrap();
            let status = fs::read_to_string(folder.path().join("status")).unwrap();
            let said = String::from_utf8_lossy(&shell.stderr);
            assert_eq!(status.trim(), expected, "{words} {lost}: {said}");
            assert_eq!(said.contains("some output was lost"), expected == "6", "{words} {lost}: {said}");
        }
    }
}

#[test]
fn the_same_command_twice_succeeds_and_other_contents_are_not_replaced() {
    let folder = workspace();
    for words in [
        &["patch", "practice.bin", "-o", "patched.bin"][..],
        &["unpatch", "patched.bin", "-o", "stock.bin"],
        &["disasm", "practice.bin", "--elf", "practice.elf"],
        &["demo", "--keep", "demo"],
        &["doctor", "--device", "virtual:unit", "--report", "report.json"],
    ] {
        let first = asmpatch(folder.path(), words);
        let second = asmpatch(folder.path(), words);
        assert_eq!(first.status.code(), second.status.code(), "{words:?}: {}", printed(&second));
        assert!(!printed(&second).contains("already exists"), "{words:?}");
    }
    for words in
        [&["patch", "practice.bin", "-o", "other"][..], &["doctor", "--device", "virtual:unit", "--report", "other"]]
    {
        fs::write(folder.path().join("other"), "precious").unwrap();
        let output = asmpatch(folder.path(), words);
        assert_eq!(output.status.code(), Some(5), "{words:?}: {}", printed(&output));
        assert_eq!(fs::read_to_string(folder.path().join("other")).unwrap(), "precious");
    }
}

#[test]
fn an_argument_with_a_line_end_forges_no_line_of_a_usage_error() {
    let folder = workspace();
    for words in [&["list", "--color=x\nok: nothing is wrong"][..], &["lis\nok: nothing is wrong"]] {
        let output = asmpatch(folder.path(), words);
        assert_eq!(output.status.code(), Some(2));
        let text = printed(&output);
        assert!(!text.lines().any(|line| line.starts_with("ok:")), "{text}");
    }
}

#[test]
fn a_virtual_unit_that_another_process_holds_is_refused_with_its_name() {
    let folder = workspace();
    let socket = folder.path().join("s");
    let listen = format!("unix:{}", socket.display());
    let serve = ["virtual", "serve", "--listen", &listen, "--device", "virtual:unit"];
    let mut server = command(folder.path(), &serve).stderr(Stdio::null()).spawn().unwrap();
    while !socket.exists() && server.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let refused = asmpatch(folder.path(), &["doctor", "--device", "virtual:unit"]);
    server.kill().unwrap();
    server.wait().unwrap();
    let text = printed(&refused);
    assert_eq!(refused.status.code(), Some(4), "{text}");
    assert!(text.contains("asmpatch::virtual_unit::busy"), "{text}");
    if cfg!(target_os = "linux") {
        assert!(text.contains(&format!("process {} (asmpatch)", server.id())), "{text}");
    }
}
