//! Checks that the README's picture shows what asmpatch prints, and that the tests that the documents name exist.
//!
//! `SESSION=overwrite cargo test --test program readme:: -- --include-ignored` redraws the picture. Look at it before you
//! commit it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::chip_images;
use crate::program::process;

const SESSION: [&str; 2] = ["asmpatch flash ed4e39b --yes --quiet", "asmpatch doctor"];

/// Width of the picture in columns. Longer lines fold as on a terminal: between words, two columns further in.
const COLUMNS: usize = 112;

fn fold(line: &str, shown: &mut String) {
    let indent = line.len() - line.trim_start().len() + 2;
    let mut rest = line.to_owned();
    while let Some((end, _)) = rest.char_indices().nth(COLUMNS) {
        let Some(space) = rest[..end].rfind(' ').filter(|at| *at >= indent) else { break };
        let _ = writeln!(shown, "{}", &rest[..space]);
        rest = format!("{:indent$}{}", "", &rest[space + 1..]);
    }
    let _ = writeln!(shown, "{rest}");
}

/// Runs the session and returns its terminal output.
fn session(folder: &Path) -> String {
    let mut shown = String::new();
    for line in SESSION {
        let _ = writeln!(shown, "\x1b[1m$ {line}\x1b[0m");
        let mut command = process::command(folder, &process::arguments(line));
        command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
        command.env("ASMPATCH_CACHE_DIR", folder.join("cache")).env("ASMPATCH_DEVICE", "virtual:dock");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            fold(line, &mut shown);
        }
    }
    shown
}

/// The picture with each time replaced by `N us`.
fn without_times(picture: &str) -> String {
    let words: Vec<&str> = picture.split(' ').collect();
    let timeless = |at: usize| {
        if words.get(at + 1).is_some_and(|unit| unit.starts_with("us")) { "N" } else { words[at] }
    };
    (0..words.len()).map(timeless).collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn the_picture_in_the_readme_shows_what_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dock")).unwrap();
    let scenario = "serial = \"DOCK0001\"\nport-power = true\n";
    std::fs::write(folder.path().join("dock/bridge.toml"), scenario).unwrap();
    std::fs::create_dir_all(folder.path().join("cache/images")).unwrap();
    let image = chip_images::file("ASMPATCH_OPEN_NEW_IMAGE");
    let name = format!("{}.bin", asm2464::digest::Sha256Digest::of(&image));
    std::fs::write(folder.path().join("cache/images").join(name), image).unwrap();
    let picture = anstyle_svg::Term::new().render_svg(&session(folder.path()));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/session.svg");
    if std::env::var("SESSION").is_ok_and(|value| value == "overwrite") {
        std::fs::write(&file, &picture).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        without_times(&kept) == without_times(&picture),
        "docs/session.svg is out of date: see tests/program/readme.rs"
    );
}

/// The pages whose claims name the tests that show them.
const CLAIMS: [&str; 4] = ["e4-length-16.md", "firmware.md", "read16-sram.md", "usbgpu.md"];

/// Adds the text of every source file in a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_test_that_a_page_of_claims_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (crates, this) = (root.join("crates"), root.join(file!()));
    // The published package lacks the other crates, but the pages also name their tests.
    let Some(tests) = this.ancestors().nth(2).filter(|_| crates.is_dir()) else { return };
    let mut text = String::new();
    for folder in [&crates, &root.join("model"), &root.join("src"), &root.join("lab"), tests] {
        sources(folder, &mut text);
    }
    for page in CLAIMS {
        let claims = fs::read_to_string(root.join("docs/lab").join(page)).unwrap();
        // A test's name is a sentence with several underscores. Names of registers and functions have fewer.
        let is_test = |word: &&str| {
            word.matches('_').count() > 2 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let named: Vec<&str> = claims.split('`').filter(is_test).collect();
        assert!(!named.is_empty(), "{page}");
        let lost: Vec<&str> = named.into_iter().filter(|name| !text.contains(&format!("fn {name}("))).collect();
        assert!(lost.is_empty(), "{page} names tests that don't exist: {lost:?}");
    }
}
