//! Tests of files that hold an image, a damaged one, or none.

use asm2464::firmware::Image;

use super::super::archive::tests::zip_of;
use super::super::limits::MAX_EXPANDED;
use super::super::updater::tests::pe;
use super::*;

fn image(seed: u32) -> Vec<u8> {
    Image::from_body((0..0x9000u32).map(|i| (i.wrapping_mul(seed) >> 5) as u8).collect()).unwrap().to_file()
}

/// Returns manifests with one image, "known", in addition to the embedded ones.
fn manifests(bytes: &[u8], md5: Md5Digest, sha256: Sha256Digest) -> Manifests {
    let mut manifests = Manifests::of_repository(&[]).unwrap();
    let size = bytes.len();
    let text = format!(
        "id = 'known'\nversion = '250102.85.00.00'\nchip = 'ASM2464PD'\nsize = {size}\nmd5 = '{md5}'\nsha256 = '{sha256}'"
    );
    manifests.add("known.toml", &text).unwrap();
    manifests
}

fn unpack_known(file: Vec<u8>, member: Option<&str>) -> Result<Verified, AnyFailure> {
    let bytes = image(3);
    let known = manifests(&bytes, Md5Digest::of(&bytes), Sha256Digest::of(&bytes));
    let wanted = Wanted { manifest: known.by_id("known").unwrap(), member, known: &known };
    Ok(unpack("file", file, wanted, Interrupt::never())?)
}

/// The code of the error for a file, without its first part.
fn refusal(file: Vec<u8>) -> &'static str {
    unpack_known(file, None).unwrap_err().code().split_once("::").unwrap().1
}

#[test]
fn an_image_is_found_bare_zipped_in_an_updater_and_in_an_updater_in_a_zip() {
    let bytes = image(3);
    let updater = pe(&[0; 100], &[image(5), bytes.clone(), image(7)].concat(), &[]);
    let zip = zip_of(&[("readme.txt", b"read me"), ("fw.bin", &bytes)]);
    let nested = zip_of(&[("readme.txt", b"read me"), ("setup.exe", &updater)]);
    let self_extracting = pe(&[0; 100], &[0; 100], &zip);
    for (file, member) in [
        (bytes.clone(), None),
        (zip.clone(), Some("fw.bin")),
        (zip, None),
        (updater, None),
        (nested.clone(), Some("setup.exe")),
        (nested, None),
        (self_extracting, None),
    ] {
        assert_eq!(unpack_known(file, member).unwrap().bytes, bytes);
    }
}

#[test]
fn a_right_md5_with_a_wrong_sha256_is_its_own_error() {
    let bytes = image(3);
    let known = manifests(&bytes, Md5Digest::of(&bytes), Sha256Digest([7; 32]));
    let wanted = Wanted { manifest: known.by_id("known").unwrap(), member: None, known: &known };
    let error = AnyFailure::from(unpack("file", bytes, wanted, Interrupt::never()).unwrap_err());
    assert_eq!(error.code(), "asmpatch::fetch::md5_only");
}

#[test]
fn what_is_not_the_image_is_named() {
    let mut changed = image(3);
    changed[99] ^= 1;
    assert_eq!(refusal(changed), "fetch::sha256");
    assert_eq!(refusal(image(3)[1..].to_vec()), "fetch::size");
    assert_eq!(refusal(Vec::new()), "fetch::empty");
    assert_eq!(refusal(b"\r\n<!DOCTYPE html><p>".to_vec()), "fetch::html");
    let other = unpack_known(pe(&[0; 100], &image(5), &[]), None).unwrap_err().to_string();
    assert!(other.contains("it has") && other.contains("in .rsrc"), "{other}");
    let other = unpack_known(zip_of(&[("a.txt", b"a")]), None).unwrap_err().to_string();
    assert_eq!(other, "file has no image known; it has a.txt");
}

fn other_version() -> Vec<u8> {
    let mut body: Vec<u8> = (0..0x9000u32).map(|i| (i.wrapping_mul(11) >> 5) as u8).collect();
    body[0x200..0x206].copy_from_slice(&[0x25, 0x01, 0x23, 0x85, 0x00, 0x00]);
    Image::from_body(body).unwrap().to_file()
}

#[test]
fn in_an_archive_the_best_candidate_decides_and_not_the_order() {
    let packed = pe(&[0; 100], &[0; 100], &[]);
    let tool = zip_of(&[("MPTool.exe", &packed)]);
    let mut damaged = image(3);
    damaged[99] ^= 1;
    let (other, good) = (other_version(), image(3));
    let mut members: Vec<(&str, &[u8])> = vec![("tool.zip", &tool)];
    let refusal = |members: &[(&str, &[u8])]| unpack_known(zip_of(members), None).unwrap_err();
    assert_eq!(refusal(&members).code(), "asmpatch::updater::no_image");
    members.push(("damaged.bin", &damaged));
    assert_eq!(refusal(&members).code(), "asmpatch::fetch::sha256");
    members.push(("other.bin", &other));
    let error = refusal(&members);
    assert_eq!(error.code(), "asmpatch::fetch::other_version");
    let message = error.to_string();
    assert!(message.starts_with("file: other.bin is an intact image, version 250123.85.00.00, SHA-256"), "{message}");
    members.push(("good.bin", &good));
    assert_eq!(unpack_known(zip_of(&members), None).unwrap().bytes, good);
}

#[test]
fn a_library_is_no_updater_and_a_program_beside_scripts_is_none_either() {
    let program = [b"MZ".as_slice(), &[0; 1022]].concat();
    let members: [(&str, &[u8]); 4] =
        [("cdef.txt", b"x"), ("Launcher.cmd", b"x"), ("lua51.dll", &program), ("luajit.exe", &program)];
    let message = unpack_known(zip_of(&members), None).unwrap_err().to_string();
    assert_eq!(message, "file has no image known; it has cdef.txt, Launcher.cmd, lua51.dll, luajit.exe");
    let mut library = pe(&[0; 100], &[0; 100], &[]);
    library[0x97] |= 0x20;
    assert_eq!(refusal(library), "fetch::library");
}

#[test]
fn archives_can_not_nest_without_a_limit() {
    let mut zip = zip_of(&[("fw.bin", &image(3))]);
    for _ in 0..MAX_DEPTH {
        zip = zip_of(&[("inner.zip", &zip)]);
    }
    assert_eq!(refusal(zip), "fetch::nested");
}

#[test]
fn archives_in_an_archive_share_its_budget() {
    // Each inner archive alone is within the limit; together they expand to 20 times as much.
    let bomb = zip_of(&[("zeros.bin", &vec![0; (MAX_EXPANDED / 2) as usize])]);
    let names: Vec<String> = (0..40).map(|at| format!("{at}.zip")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), bomb.as_slice())).collect();
    assert_eq!(refusal(zip_of(&members)), "archive::expands");
}

proptest::proptest! {
    #[test]
    fn any_bytes_never_panic(bytes: Vec<u8>) {
        let _ = unpack_known(bytes, None);
    }
}
