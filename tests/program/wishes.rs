//! What the user named, and what for: a file of another kind than a command takes, and what is set on a virtual unit.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::process::{command, good, run, text};
use crate::{chip_images, schemas};

/// A folder with the virtual unit `u`, and `part.bin`: the beginning of its flash, up to the end of its image.
fn with_copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    good(folder.path(), &["list", "--device", "virtual:u"]);
    let flash = fs::read(folder.path().join("u/flash.bin")).unwrap();
    let field: [u8; 4] = flash[0x100..0x104].try_into().unwrap();
    let end = 0x100 + u32::from_le_bytes(field) as usize + 10;
    assert!(!end.is_multiple_of(0x1000), "no whole sectors");
    fs::write(folder.path().join("part.bin"), &flash[..end]).unwrap();
    folder
}

/// Runs a command that must be refused with this code. Returns what it printed.
fn refused(folder: &Path, words: &[&str], code: &str) -> String {
    let output = run(folder, words);
    let text = text(&output);
    assert!(!output.status.success() && text.contains(&format!("asmpatch::{code}")), "{words:?}: {text}");
    text
}

fn serial(folder: &Path, device: &str) -> String {
    good(folder, &["config", "get", "serial", "--device", device])
}

#[test]
fn a_copy_of_a_part_of_a_flash_gives_its_image_and_the_unit_keeps_its_identity() {
    let folder = with_copy();
    let folder = folder.path();
    good(folder, &["virtual", "set", "factory=open", "--device", "virtual:o"]);
    let own = serial(folder, "virtual:o");
    let help = refused(folder, &["restore", "part.bin", "--device", "virtual:o", "--yes"], "flash::clone");
    assert!(help.contains("\n            asmpatch flash part.bin --device virtual:o\n"), "{help}");
    good(folder, &["flash", "part.bin", "--device", "virtual:o", "--yes"]);
    assert_eq!(serial(folder, "virtual:o"), own);
    for command in ["verify", "info", "run"] {
        good(folder, &[command, "part.bin"]);
    }
}

#[test]
fn a_unit_that_lost_its_identity_is_not_written_without_the_one_in_the_copy_that_was_named() {
    let folder = with_copy();
    let folder = folder.path();
    let erased = vec![0xFF; fs::read(folder.join("u/flash.bin")).unwrap().len()];
    fs::write(folder.join("u/flash.bin"), erased).unwrap();
    let words = ["flash", "part.bin", "--device", "virtual:u", "--yes", "--no-backup"];
    let help = refused(folder, &words, "flash::own_backup");
    let step = "asmpatch flash part.bin --config-from part.bin --device virtual:u";
    assert!(help.contains(step) && help.contains("you named it"), "{help}");
    good(folder, &["flash", "part.bin", "--config-from", "part.bin", "--device", "virtual:u", "--no-backup", "--yes"]);
}

#[test]
fn the_folder_of_a_backup_is_its_firmware_for_each_command_that_takes_an_image() {
    let folder = with_copy();
    let folder = folder.path();
    good(folder, &["backup", "--device", "virtual:u", "-o", "b"]);
    good(folder, &["verify", "b"]);
    let dry = good(folder, &["flash", "b", "--device", "virtual:other", "--dry-run"]);
    assert!(dry.contains("nothing to do"), "{dry}");
}

#[test]
fn an_image_in_the_second_slot_alone_comes_with_the_command_that_takes_it_out() {
    let folder = with_copy();
    let folder = folder.path();
    let part = fs::read(folder.join("part.bin")).unwrap();
    let mut second = vec![0xFF; 0x20000];
    second.extend(&part);
    fs::write(folder.join("second.bin"), second).unwrap();
    let help = refused(folder, &["flash", "second.bin", "--device", "virtual:u"], "image::is_flash");
    assert!(help.contains("asmpatch info second.bin --slot 2 -o second.slot-2.bin"), "{help}");
    good(folder, &["info", "second.bin", "--slot", "2", "-o", "second.slot-2.bin"]);
}

#[test]
fn the_practice_image_has_an_id_for_every_command_that_takes_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for words in [
        &["info", "practice"][..],
        &["run", "practice"],
        &["disasm", "practice", "0x0"],
        &["verify", "practice"],
        &["patch", "practice", "-o", "p.bin"],
        &["flash", "practice", "--device", "virtual:u", "--dry-run"],
    ] {
        good(folder, words);
    }
    refused(folder, &["unpatch", "practice", "-o", "q.bin"], "patch::not_patched");
}

#[test]
fn an_address_and_standard_input_are_no_files_and_say_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = "http://127.0.0.1:1/AS_USB4_240417_85_00_00.zip";
    for command in ["flash", "info", "verify"] {
        let help = refused(folder, &[command, url], "file::address");
        assert!(help.contains(&format!("asmpatch download 240417 --from {url}")), "{help}");
        refused(folder, &[command, "-"], "file::standard_input");
    }
    let help = refused(folder, &["flash", "https://me:secret@host/240417.bin"], "file::address");
    assert!(!help.contains("secret"), "{help}");
}

#[test]
fn a_damaged_patched_image_is_made_again_by_its_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["patch", "practice", "-o", "p.bin"]);
    let mut image = fs::read(folder.join("p.bin")).unwrap();
    image[0x1000] ^= 1;
    fs::write(folder.join("p.bin"), image).unwrap();
    for words in [&["flash", "p.bin", "--device", "virtual:u"][..], &["verify", "p.bin"]] {
        let help = text(&run(folder, words));
        assert_eq!(help.matches("    asmpatch patch practice -o p-2.bin\n").count(), 1, "{help}");
    }
    good(folder, &["patch", "practice", "-o", "p-2.bin"]);
}

#[test]
fn an_image_that_is_cut_off_is_named_with_its_length_and_what_it_may_have_been() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    // The beginning of an image of the vendor's length, with and without its version.
    let mut image = vec![0x5A; 50_000];
    image[..8].copy_from_slice(&[0xD6, 0x7E, 0x01, 0x00, 0x02, 0x0E, 0x00, 0x00]);
    write("early.bin", &image[..300]);
    image[0x204..0x20A].copy_from_slice(&[0x24, 0x04, 0x17, 0x85, 0, 0]);
    write("fw.bin", &image);
    write("own.bin", &[0, 4, 0, 0, 2, 0, 0, 0, 0]);
    let cut = "is cut off: by its length field it has 98016 bytes, and the file has";
    for words in [&["info", "fw.bin"][..], &["flash", "fw.bin", "--device", "virtual:u"], &["verify", "fw.bin"]] {
        let help = terminal_line(&run(folder, words));
        assert!(help.contains(&format!("{cut} 50000")), "{help}");
        assert!(help.contains(" asmpatch download 240417 ") && !help.contains("download 250123"), "{help}");
        let again = words.iter().map(|word| if *word == "fw.bin" { "240417" } else { word });
        let again = again.collect::<Vec<_>>().join(" ");
        assert!(help.contains(&format!(" asmpatch {again}")), "{help}");
    }
    let help = terminal_line(&run(folder, &["info", "early.bin"]));
    assert!(help.contains(&format!("{cut} 300")), "{help}");
    for id in ["231204", "240417", "250123"] {
        assert!(help.contains(&format!("if it was {id}, fetch that: asmpatch download {id}")), "{help}");
    }
    let help = terminal_line(&run(folder, &["info", "own.bin"]));
    assert!(help.contains("it has 1034 bytes, and the file has 9") && !help.contains("asmpatch download"), "{help}");
    let help = terminal_line(&run(folder, &["restore", "fw.bin", "--device", "virtual:u"]));
    assert!(help.contains("fw.bin is an image that is cut off"), "{help}");
}

/// What a command printed, on one line.
fn terminal_line(output: &std::process::Output) -> String {
    text(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_on_a_register_that_is_none_names_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (topic, near) in
        [("pcie_link_stat", "PCIE_LINK_STATE"), ("0xB451", "PCIE_LINK_STATE"), ("b44f", "PCIE_LINK_STATE")]
    {
        let help = refused(folder, &["help", topic], "help::topic");
        assert!(help.contains(&format!("\n            asmpatch help {near}\n")), "{help}");
        good(folder, &["help", near]);
    }
    for topic in ["0xB450", "B450", "B212"] {
        assert!(good(folder, &["help", topic]).contains("PCI"), "{topic}");
    }
}

#[test]
fn a_configuration_is_given_with_images_that_are_named() {
    let folder = with_copy();
    let folder = folder.path();
    let part = fs::read(folder.join("part.bin")).unwrap();
    fs::write(folder.join("page.bin"), &part[..0x100]).unwrap();
    for (words, code) in [
        (&["flash", "nope.bin", "--config-from", "page.bin", "--device", "virtual:u"][..], "file::not_found"),
        (&["restore", "page.bin", "--device", "virtual:u"], "backup::no_copy"),
        (&["flash", "page.bin", "--device", "virtual:u"], "image::is_flash"),
    ] {
        let help = refused(folder, words, code);
        for image in ["ed4e39b", "240417"] {
            let step = format!("\n            asmpatch flash {image} --config-from page.bin --device virtual:u\n");
            assert!(help.contains(&step) && !help.contains("flash IMAGE"), "{help}");
        }
    }
}

#[test]
fn a_backup_in_a_folder_of_its_own_is_found_as_the_printed_step_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["backup", "--device", "virtual:u", "--backup-dir", "kept/here"]);
    let listed = good(folder, &["restore", "--device", "virtual:u"]);
    assert!(listed.contains("\nif its backups are elsewhere: `restore --backup-dir DIR`\n"), "{listed}");
    let found = good(folder, &["restore", "--backup-dir", "kept/here", "--device", "virtual:u"]);
    assert!(found.contains("    asmpatch restore kept/here/asmpatch-backup-"), "{found}");
    assert!(!found.contains("elsewhere"), "{found}");
}

#[test]
fn a_short_text_is_named_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("note.bin"), "hello world\n").unwrap();
    for words in [&["info", "note.bin"][..], &["flash", "note.bin", "--device", "virtual:u"], &["verify", "note.bin"]] {
        let help = refused(folder, words, "image::is_text");
        assert!(help.contains("note.bin is text, expected an image"), "{help}");
    }
    // So short, code may be characters.
    fs::write(folder.join("code.raw"), "\"\"\"").unwrap();
    good(folder, &["wrap", "code.raw", "-o", "c.bin"]);
}

#[test]
fn an_image_that_nobody_knows_is_taken_out_of_an_archive_by_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let image = |filler: u8| {
        let code = [&[0x02, 0x04, 0x00][..], &[filler; 0x600]].concat();
        fs::write(folder.join("code.raw"), code).unwrap();
        good(folder, &["wrap", "code.raw", "-o", "own.bin", "--force"]);
        fs::read(folder.join("own.bin")).unwrap()
    };
    let images = [image(0xE4), image(0xF4)];
    let zip = |name: &str, images: &[Vec<u8>]| {
        let mut zip = zip::ZipWriter::new(fs::File::create(folder.join(name)).unwrap());
        for (at, image) in images.iter().enumerate() {
            zip.start_file(format!("{at}.bin"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(image).unwrap();
        }
        zip.finish().unwrap();
    };
    zip("one.zip", &images[..1]);
    zip("two.zip", &images);
    fs::write(folder.join("one.bin"), "mine").unwrap();
    for words in [&["info", "one.zip"][..], &["verify", "one.zip"], &["flash", "one.zip", "--device", "virtual:u"]] {
        let help = refused(folder, words, "image::is_archive");
        let again: Vec<_> = words.iter().map(|word| if *word == "one.zip" { "one-2.bin" } else { word }).collect();
        assert!(help.contains("\n            asmpatch info one.zip -o one-2.bin\n"), "{help}");
        assert!(help.contains(&format!("\n            asmpatch {}\n", again.join(" "))), "{help}");
    }
    good(folder, &["info", "one.zip", "-o", "one-2.bin"]);
    assert_eq!(fs::read(folder.join("one-2.bin")).unwrap(), images[0]);
    good(folder, &["info", "one-2.bin"]);
    let help = refused(folder, &["patch", "one.zip", "-o", "p.bin"], "image::is_archive");
    assert!(help.contains("have no patches") && !help.contains("-o one"), "{help}");
    let help = refused(folder, &["info", "two.zip", "-o", "x.bin"], "image::is_archive");
    assert!(cfg!(windows) || help.contains("\n            unzip two.zip -d two.unpacked\n"), "{help}");
    assert!(!folder.join("x.bin").exists());
}

#[test]
fn a_printed_patch_writes_where_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("patched.bin"), "mine").unwrap();
    for command in ["patch", "info"] {
        let help = refused(folder, &[command, "practice", "-o", "patched.bin"], "file::exists");
        assert!(help.contains(&format!("\n            asmpatch {command} practice -o patched-2.bin\n")), "{help}");
    }
    good(folder, &["disasm", "practice", "--elf", "x.elf"]);
    let help = refused(folder, &["disasm", "practice", "--elf", "patched.bin"], "file::exists");
    assert!(!help.contains("free"), "{help}");
    let page = text(&run(folder, &["doctor", "--device", "virtual:u"]));
    assert!(page.contains("asmpatch patch 240417 -o patched-2.bin\n"), "{page}");
    assert!(page.contains("asmpatch flash patched-2.bin --device virtual:u\n"), "{page}");
}

#[test]
fn what_is_set_on_a_virtual_unit_stands_below_each_verdict_with_the_command_that_takes_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(!text(&run(folder, &["doctor", "--device", "virtual:u"])).contains("bridge.toml sets"));
    good(folder, &["virtual", "set", "state=boot-loader", "speed=high", "--device", "virtual:u"]);
    let line = "virtual:u: its bridge.toml sets state, speed; without:\n    asmpatch virtual set state= speed= --device virtual:u\n";
    for command in ["doctor", "list"] {
        assert!(text(&run(folder, &[command, "--device", "virtual:u"])).ends_with(line), "{command}");
    }
    let quiet = text(&run(folder, &["doctor", "--device", "virtual:u", "--json"]));
    assert!(!quiet.contains("bridge.toml sets"), "{quiet}");
    // The same fact in JSON, which is there also where a unit is only listed.
    let set = |words: &[&str]| schemas::parse(words, &run(folder, words).stdout);
    let [listed, page] = [["list", "--device", "virtual:u", "--json"], ["doctor", "--device", "virtual:u", "--json"]]
        .map(|words| set(&words));
    assert_eq!([&listed["units"][0]["set"], &page["set"]], [&serde_json::json!(["state", "speed"]); 2]);
    let unset = line.lines().last().unwrap().trim();
    assert_eq!([&listed["units"][0]["unset"], &page["unset"]], [unset; 2]);
    good(folder, &["virtual", "set", "state=", "speed=", "--device", "virtual:u"]);
    assert!(!text(&run(folder, &["doctor", "--device", "virtual:u"])).contains("bridge.toml sets"));
}

#[test]
fn a_serial_number_that_is_set_on_a_unit_that_exists_comes_with_the_command_that_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let set = ["virtual", "set", "serial=NEW", "--device", "virtual:u"];
    assert!(!good(folder, &set).contains("config set"));
    assert_eq!(serial(folder, "virtual:u"), "NEW\n");
    let again = good(folder, &["virtual", "set", "serial=NEXT", "--device", "virtual:u"]);
    assert!(again.ends_with("    asmpatch config set serial=NEXT --device virtual:u\n"), "{again}");
}

#[test]
fn advice_on_a_unit_of_several_that_could_not_be_examined_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["virtual", "set", "fault=[{kind=\"timeout\",times=99}]", "--device", "virtual:b"]);
    let words = ["flash", "practice", "--device", "virtual:a", "--device", "virtual:b", "--yes"];
    let output = text(&run(folder, &words));
    assert!(output.contains("asmpatch doctor --device virtual:b\n"), "{output}");
    assert!(!output.contains("asmpatch doctor\n"), "{output}");
}

#[test]
fn a_failure_after_a_json_document_is_no_second_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = ["bench", "--path", "e4-255", "--seconds", "0.05", "--min-mb-s", "e4-255=100000", "--json"];
    let output = run(folder, &[&words[..], &["--device", "virtual:u"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let documents: Vec<_> =
        serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>().collect();
    assert_eq!(documents.len(), 1, "{}", text(&output));
    assert!(documents[0].is_ok() && String::from_utf8_lossy(&output.stderr).contains("asmpatch::bench::floor"));
}

#[test]
fn a_report_names_each_step_once_and_no_command_of_this_host() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["doctor", "--device", "virtual:u", "--report", "r.json"]);
    let page = text(&run(folder, &["doctor", "--from", "r.json"]));
    assert!(!page.contains("\n            asmpatch "), "{page}");
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.windows(2).all(|two| two[0] != two[1]), "{page}");
}

#[test]
fn an_image_that_has_patches_already_is_undone_into_a_file_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["patch", "practice", "-o", "p.bin"]);
    fs::write(folder.join("original.bin"), "mine").unwrap();
    let help = refused(folder, &["patch", "p.bin", "-o", "q.bin"], "patch::already_patched");
    assert!(help.contains("asmpatch unpatch p.bin -o original-2.bin\n"), "{help}");
    good(folder, &["unpatch", "p.bin", "-o", "original-2.bin"]);
}

#[test]
fn the_practice_image_is_no_download_and_download_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let help = refused(folder.path(), &["download", "practice"], "manifest::practice");
    assert!(help.contains("is a part of the program") && help.contains("asmpatch info practice"), "{help}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn a_zip_of_two_versions_leads_to_the_one_that_has_patches_and_lists_both_where_both_serve() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut zip = zip::ZipWriter::new(fs::File::create(folder.join("z.zip")).unwrap());
    for (name, variable) in [("a.bin", "ASMPATCH_VENDOR_231204_IMAGE"), ("b.bin", "ASMPATCH_VENDOR_IMAGE")] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(&chip_images::file(variable)).unwrap();
    }
    zip.finish().unwrap();
    let help = refused(folder, &["patch", "z.zip", "-o", "p.bin"], "image::is_archive");
    assert!(help.contains("asmpatch download 240417 --from z.zip\n") && !help.contains("231204"), "{help}");
    assert!(help.contains("asmpatch patch 240417 -o p.bin\n"), "{help}");
    let help = refused(folder, &["flash", "z.zip", "--device", "virtual:u"], "image::is_archive");
    for id in ["231204", "240417"] {
        assert!(help.contains(&format!("asmpatch download {id} --from z.zip\n")), "{help}");
    }
    good(folder, &["download", "240417", "--from", "z.zip"]);
    good(folder, &["patch", "240417", "-o", "p.bin"]);
}

#[test]
fn a_command_with_a_wrong_or_missing_name_prints_the_one_that_leads_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (line, code, step) in [
        ("flash 240418 --device virtual:u", "file::not_found", "asmpatch flash 240417 --device virtual:u\n"),
        ("info PRACTICE", "file::not_found", "asmpatch info practice\n"),
        ("flash patched.bin --device virtual:u", "file::not_found", "asmpatch patch 240417 -o patched.bin\n"),
        ("patch stock.bin -o p.bin", "file::not_found", "asmpatch download 240417 -o stock.bin\n"),
        ("restore --yes --device virtual:u", "restore::no_folder", "asmpatch restore --oldest --device virtual:u\n"),
        (
            "config set serial=A1 --device virtual:u --device virtual:v",
            "flash::several",
            "asmpatch config set serial=A1 --device virtual:v\n",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let help = refused(folder, &words, code);
        assert!(help.contains(step), "{line}: {help}");
    }
    for line in ["unpatch p.bin -o s.bin", "wrap code.raw -o s.bin --force"] {
        good(folder, &["patch", "practice", "-o", "p.bin", "--force"]);
        std::fs::write(folder.join("code.raw"), [&[0x80, 0xFE][..], &[0; 600]].concat()).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        assert!(good(folder, &words).contains("    asmpatch flash s.bin\n"), "{line}");
    }
    let help = refused(folder, &["flash", "s.bin", "--device", "virtual:u"], "flash::unverified");
    assert!(help.contains("asmpatch run s.bin\n"), "{help}");
}

#[test]
fn a_unit_that_the_environment_names_is_named_in_each_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    good(folder, &["virtual", "set", "speed=high", "--device", "virtual:u"]);
    let printed = text(&command(folder, &["doctor"]).env("ASMPATCH_DEVICE", "virtual:u").output().unwrap());
    assert!(printed.ends_with("    asmpatch virtual set speed= --device virtual:u\n"), "{printed}");
}
