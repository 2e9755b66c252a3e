//! The command line as transcripts: commands, their output, and their exit status.
//!
//! Each `tests/cli/*.md` runs in a copy of the folder of the same name with `.in`; the files in the folder with `.out`
//! must exist afterwards. After an intended change of the output, `TRYCMD=overwrite cargo test --test program
//! transcripts::` rewrites the transcripts. Read the difference before you commit it.
use std::fs;
use std::path::Path;

use asm2464::firmware::BodyOffset;
use asm2464_chip::practice;

use crate::schemas;

/// Writes a file unless it is unchanged. Unchanged files keep their time, so cargo rebuilds nothing.
fn write(path: &Path, bytes: &[u8]) {
    if fs::read(path).ok().as_deref() != Some(bytes) {
        fs::write(path, bytes).unwrap();
    }
}

/// Writes the practice images into the transcripts' folders. They are built from source, so git doesn't have them.
fn write_images(folder: &Path) {
    let image = practice::image();
    let file = image.to_file();
    let write = |name: &str, bytes: &[u8]| write(&folder.join(name), bytes);
    write("practice.bin", &file);
    write("truncated.bin", &file[..file.len() - 1]);
    write("empty.bin", b"");
    write("oversized.bin", &vec![0; 0x1FF01]);
    let broken = |at: usize| {
        let mut broken = file.clone();
        broken[at] ^= 1;
        broken
    };
    write("checksum.bin", &broken(file.len() - 5));
    write("crc.bin", &broken(file.len() - 1));
    write("magic.bin", &broken(file.len() - 6));
    // The practice image as another version of the vendor's.
    let mut unknown = image.clone();
    assert!(unknown.replace(BodyOffset(0x200), &[0x25, 0x07, 0x17, 0x84, 0x00, 0x00]));
    write("unknown.bin", &unknown.to_file());
    let mut foreign = image;
    assert!(foreign.replace(BodyOffset(0x1_0000), &[0x77]));
    write("foreign.bin", &foreign.to_file());
}

#[test]
fn transcripts_show_what_the_program_prints() {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    write_images(&cli.join("patch.in"));
    for folder in ["devices.in", "doctor.in", "help.in", "run.in", "wrap.in"] {
        fs::create_dir_all(cli.join(folder)).unwrap();
        write(&cli.join(folder).join("practice.bin"), &practice::image().to_file());
    }
    for folder in ["wrap.in", "doctor.in", "log.in", "patch.in", "run.in"] {
        write(&cli.join(folder).join("open.bin"), &practice::open_image().to_file());
    }
    // The reset vector jumps to itself.
    let mut stuck = practice::image();
    assert!(stuck.replace(BodyOffset(0), &[0x80, 0xFE]));
    write(&cli.join("run.in/stuck.bin"), &stuck.to_file());
    // Remove old flash files, so that each unit is new and gets the current practice image.
    for folder in ["reset.in", "pcie.in", "xdata.in"] {
        for unit in fs::read_dir(cli.join(folder)).unwrap() {
            let _ = fs::remove_file(unit.unwrap().path().join("flash.bin"));
        }
    }
    let cases = trycmd::TestCases::new();
    cases
        .env("ASMPATCH_CACHE_DIR", "cache")
        .env("ASMPATCH_BACKUP_DIR", "backups")
        .env("XDG_DATA_HOME", "/nowhere")
        .env("NO_COLOR", "1")
        .case("tests/cli/*.md");
    if cfg!(unix) {
        cases.case("tests/cli/unix/*.md");
    }
}

#[test]
fn the_json_in_the_transcripts_is_as_its_schemas_say() {
    let mut checked = Vec::new();
    for folder in ["tests/cli", "tests/cli/flash"] {
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                checked.extend(schemas::transcript(&fs::read_to_string(&path).unwrap()));
            }
        }
    }
    for (words, document) in &checked {
        schemas::check(words, document).unwrap_or_else(|faults| panic!("{words:?}: {faults}"));
    }
    // If there are fewer, this test no longer finds the documents.
    assert!(checked.len() >= 16, "{checked:#?}");
}

#[test]
fn a_schema_refuses_a_missing_or_unknown_key_and_another_type_or_version() {
    let transcript = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/reset.md")).unwrap();
    let (words, good) = schemas::transcript(&transcript).swap_remove(0);
    schemas::check(&words, &good).unwrap();
    let wrong = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut document = good.clone();
        change(&mut document);
        schemas::check(&words, &document).is_err()
    };
    assert!(wrong(&|document| drop(document["after"].as_object_mut().unwrap().remove("speed"))));
    assert!(wrong(&|document| drop(document["after"].as_object_mut().unwrap().remove("faults"))));
    assert!(wrong(&|document| document["after"]["colour"] = "red".into()));
    assert!(wrong(&|document| document["after"]["speed"] = "fast".into()));
    assert!(wrong(&|document| document["device"] = 7.into()));
    assert!(wrong(&|document| document["schema"] = 99.into()));
    assert!(wrong(&|document| drop(document.as_object_mut().unwrap().remove("schema"))));
    assert!(wrong(&|document| *document = serde_json::json!([document])));
}
