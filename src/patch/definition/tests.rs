//! Tests of patch files that are accepted and refused.

use super::super::HunkAddress;
use super::*;

const SAMPLE: &str = r#"
    id = "sample"
    title = "A sample"
    purpose = "Shows the format."
    source = "Made up."
    default = false
    [[images]]
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    name = "abc"
    [[images.hunks]]
    at = "c:0x2A0E"
    expect = "0a"
    new = "05"
    [[images.hunks]]
    at = "file:0x2A13"
    expect = '''
        22 33
        44'''
    new = "223355"
    [config]
    vendor-id = 0xADD1
"#;

#[test]
fn both_kinds_of_address_mean_the_same_byte() {
    let file: HunkAddress = "file:0x2A12".parse().unwrap();
    assert_eq!(file, "c:0x2A0E".parse().unwrap());
    assert_eq!(file.to_string(), "c:0x2A0E (file 0x02a12)");
    let bank1: HunkAddress = "b1:0xC98D".parse().unwrap();
    assert_eq!(bank1, "file:0x148FC".parse().unwrap());
}

#[test]
fn a_patch_file_is_read_whole() {
    let patch = Patch::parse("sample.toml", SAMPLE).unwrap();
    let image = patch.images[0].sha256;
    assert_eq!(patch.hunks(&image)[1].expect, [0x22, 0x33, 0x44]);
    assert!(patch.is_for(&image) && !patch.is_for(&Sha256Digest([0; 32])));
    assert_eq!(patch.config.iter().count(), 1);
}

#[test]
fn the_digest_covers_the_changes_and_not_their_description() {
    let digest = |text: &str| {
        let patch = Patch::parse("sample.toml", text).unwrap();
        patch.digest(&patch.images[0].sha256)
    };
    assert_eq!(digest(SAMPLE), digest(&SAMPLE.replace("Made up.", "Rumour.").replace("c:0x2A0E", "file:0x2A12")));
    for (from, to) in [("\"05\"", "\"06\""), ("\"0a\"", "\"0b\""), ("0xADD1", "0xADD2"), ("2A0E", "2A0D")] {
        assert_ne!(digest(SAMPLE), digest(&SAMPLE.replace(from, to)), "{from}");
    }
}

#[test]
fn everything_that_is_wrong_has_its_own_message() {
    for (from, to, expected) in [
        ("title", "titel", "unknown field `titel`"),
        ("expect = \"0a\"", "expects = \"0a\"", "unknown field `expects`"),
        ("vendor-id", "vendor", "unknown field `vendor`"),
        ("\"0a\"", "\"0a1\"", "odd number of hexadecimal digits: 3"),
        ("\"0a\"", "\"0g\"", "'g' at position 1"),
        ("\"sample\"", "\"Sample\"", "lower-case letters"),
        ("default = false", "", "missing field `default`"),
        ("c:0x2A0E", "c:0x8000", "outside its bank"),
        ("c:0x2A0E", "2A0E", "is written file:0x2A12"),
        ("file:0x2A13", "file:2A13", "not of the form file:0x2A12"),
        ("file:0x2A13", "file:0x3", "in the container's header"),
        ("file:0x2A13", "file:0x1FF00", "past the end of the largest possible image"),
        ("file:0x2A13", "file:0xFFFFFFFFFF", "past the end of the largest possible image"),
        ("file:0x2A13", "file:0x2A12", "c:0x2A0E (file 0x02a12) and c:0x2A0E (file 0x02a12) overlap"),
        ("\"05\"", "\"05\"\ninstruction = \"c:0x2A0F\"", "the instruction at c:0x2A0F does not reach"),
        ("\"05\"", "\"05\"\ninstruction = \"c:0x2A0B\"", "the instruction at c:0x2A0B does not reach"),
        ("\"05\"", "\"0506\"", "expects 1 bytes and has 2 new ones"),
        ("\"05\"", "\"0a\"", "which are the same"),
        ("\"05\"", "\"\"", "expects 1 bytes and has 0"),
    ] {
        assert!(SAMPLE.contains(from), "{from}");
        let message = Patch::parse("sample.toml", &SAMPLE.replace(from, to)).unwrap_err().to_string();
        assert!(message.starts_with("sample.toml: ") && message.contains(expected), "{message} lacks {expected}");
    }
    let head = SAMPLE.split("[[images]]").next().unwrap();
    assert_eq!(Patch::parse("x", head).unwrap_err().code(), "asmpatch::patch::empty");
    let section = SAMPLE.split_once("[config]").unwrap().0;
    let twice = format!("{section}{}", &section[head.len()..]);
    assert_eq!(Patch::parse("x", &twice).unwrap_err().code(), "asmpatch::patch::image_twice");
}

proptest::proptest! {
    #[test]
    fn parsing_any_text_never_panics(text: String, at: String, bytes: String) {
        let _ = Patch::parse("x", &text);
        let _ = at.parse::<HunkAddress>();
        let _ = Patch::parse("x", &SAMPLE.replace("c:0x2A0E", &at).replace("0a", &bytes));
    }
}
