//! Finds an image in a zip: by its member's name, or by its digest if the name is unknown.
//!
//! Members are never written under their own names. Even so, an archive that tries to escape, to be ambiguous, or to
//! grow without bound is refused: it was made to do harm.

use std::io::{self, Cursor, Read};

use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use zip::read::ZipReadOptions;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// More members than any firmware archive has. Each member costs memory before its name is read.
const MAX_MEMBERS: usize = 0x1_0000;
/// Signature of a member's entry in the central directory (APPNOTE.TXT, 4.3.12).
const CENTRAL_HEADER: &[u8; 4] = b"PK\x01\x02";

/// The most bytes that one file may expand to, including all archives inside it.
pub(super) const MAX_EXPANDED: u64 = 64 << 20;
/// The most bytes that are searched for images. Bytes in overlapping sections, and each candidate, count again.
pub(super) const MAX_SEARCHED: u64 = 512 << 20;

/// The remaining budget of a search in a file and everything nested in it, and the flag that stops the work.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    /// How many bytes may still be expanded.
    pub(super) expand: u64,
    /// How many bytes may still be searched.
    pub(super) search: u64,
    /// Whether something failed because the budget is used up: what follows would fail, too.
    pub(super) is_spent: bool,
    pub(super) interrupt: Interrupt<'a>,
}

impl<'a> Budget<'a> {
    /// Creates a full budget.
    pub(super) const fn new(interrupt: Interrupt<'a>) -> Self {
        Self { expand: MAX_EXPANDED, search: MAX_SEARCHED, is_spent: false, interrupt }
    }
}

/// An archive whose names have been checked.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// The files, each with its index and name.
    members: Vec<(usize, String)>,
}

impl<'a> Archive<'a> {
    /// Opens a zip and checks its names.
    ///
    /// # Errors
    /// Fails if it is damaged, has too many members, two of the same name, or one whose name leads out of the archive.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Failure> {
        if bytes.windows(CENTRAL_HEADER.len()).filter(|window| window == CENTRAL_HEADER).nth(MAX_MEMBERS).is_some() {
            let label = Kind::BadInput.code("asmpatch::archive::members");
            return Err(Failure::new(label, format!("the archive has more than {MAX_MEMBERS} members")));
        }
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
        if zip.has_duplicate_names() {
            let label = Kind::BadInput.code("asmpatch::archive::twice");
            return Err(Failure::new(label, "the archive has two members of the same name"));
        }
        let mut members = Vec::new();
        for index in 0..zip.len() {
            let member = zip.by_index_raw(index).map_err(damaged)?;
            let name = member.name().map_err(damaged)?.into_owned();
            if !stays_inside(&name) || member.enclosed_name().is_none() {
                let label = Kind::BadInput.code("asmpatch::archive::unsafe_name");
                let message = format!("the archive's member {name:?} has a name that leads out of the archive");
                return Err(Failure::new(label, message));
            }
            if member.is_file() {
                members.push((index, name));
            }
        }
        Ok(Self { zip, members })
    }

    /// Describes the content in words: the first names, and how many more there are.
    pub fn listed(&self) -> String {
        const SHOWN: usize = 8;
        let mut listed = self.names().take(SHOWN).collect::<Vec<_>>().join(", ");
        if self.members.len() > SHOWN {
            listed.push_str(&format!(" and {} more", self.members.len() - SHOWN));
        }
        if listed.is_empty() {
            listed.push_str("no files");
        }
        listed
    }

    /// Returns the names of the files, in the archive's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the place of the member with this name, among [`names`](Self::names).
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn place(&self, name: &str) -> Result<usize, Failure> {
        self.names().position(|member| member == name).ok_or_else(|| {
            let label = Kind::BadInput.code("asmpatch::archive::missing");
            Failure::new(label, format!("the archive has no member \"{name}\"; it has {}", self.listed()))
        })
    }

    /// Expands the member at a [place](Self::place) and charges it to `budget`.
    ///
    /// # Errors
    /// Fails if the member is encrypted, damaged, compressed by another method than deflate, or larger than it declares or
    /// than the rest of the budget; also on Ctrl-C.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn read(&mut self, place: usize, budget: &mut Budget<'_>) -> Result<Vec<u8>, AnyFailure> {
        budget.interrupt.check()?;
        let (index, name) = &self.members[place];
        let member = self.zip.by_index_raw(*index).map_err(damaged)?;
        if member.encrypted() {
            let label = Kind::BadInput.code("asmpatch::archive::encrypted");
            return Err(Failure::new(label, format!("the member \"{name}\" is encrypted")).into());
        }
        let method = member.compression();
        if !matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated) {
            let label = Kind::BadInput.code("asmpatch::archive::unsupported");
            let message = format!("the member \"{name}\" is compressed by {method}, which asmpatch can't undo");
            return Err(Failure::new(label, message).into());
        }
        let declared = member.size();
        drop(member);
        if declared > budget.expand {
            budget.is_spent = budget.expand < MAX_EXPANDED;
            return Err(expands(name, budget.expand).into());
        }
        // A damaged member is charged, too: the work is done.
        budget.expand -= declared;
        Ok(expanded(&mut self.zip, *index, name, declared)?)
    }
}

/// Expands the member at this index, which declares this length.
fn expanded(zip: &mut ZipArchive<Cursor<&[u8]>>, index: usize, name: &str, declared: u64) -> Result<Vec<u8>, Failure> {
    // The zip crate reports a member that is longer than declared like any other damage. The CRC is checked below
    // instead, so that an error after the last declared byte can only mean this.
    let options = ZipReadOptions::new().ignore_crc32(true);
    let mut member = zip.by_index_with_options(index, options).map_err(damaged)?;
    // Without room for the declared bytes, it would take twice as many while it grows. They are within the budget.
    let mut bytes = Vec::with_capacity(declared as usize);
    member.by_ref().take(declared).read_to_end(&mut bytes).map_err(ZipError::Io).map_err(damaged)?;
    if !matches!(member.read(&mut [0]), Ok(0)) {
        return Err(expands(name, declared));
    }
    if crc32fast::hash(&bytes) != member.crc32() {
        let wrong = format!("the CRC-32 of {name:?} is wrong");
        return Err(damaged(ZipError::Io(io::Error::new(io::ErrorKind::InvalidData, wrong))));
    }
    Ok(bytes)
}

fn expands(name: &str, limit: u64) -> Failure {
    let label = Kind::BadInput.code("asmpatch::archive::expands");
    Failure::new(label, format!("the member \"{name}\" expands to more than {limit} bytes"))
}

fn damaged(error: ZipError) -> Failure {
    Failure::new(Kind::BadInput.code("asmpatch::archive::damaged"), format!("the archive can't be read: {error}"))
}

/// Whether a name stays inside the archive. On Unix the zip crate treats a backslash as part of a name; on Windows it
/// is a separator.
fn stays_inside(name: &str) -> bool {
    let absolute = name.starts_with(['/', '\\']) || name.as_bytes().get(1) == Some(&b':');
    !absolute && name.split(['/', '\\']).all(|part| part != "..")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use asm2464::Coded as _;
    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    fn budget() -> Budget<'static> {
        Budget::new(Interrupt::never())
    }

    fn refusal(zip: &[u8]) -> &'static str {
        Archive::open(zip).unwrap_err().code()
    }

    /// Builds a zip of these files.
    pub(crate) fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// Expands the member with this name.
    fn read(archive: &mut Archive<'_>, name: &str, budget: &mut Budget<'_>) -> Result<Vec<u8>, AnyFailure> {
        archive.read(archive.place(name)?, budget)
    }

    fn replace_all(zip: &mut [u8], from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        let at: Vec<usize> = (0..=zip.len() - from.len()).filter(|at| zip[*at..].starts_with(from)).collect();
        assert!(!at.is_empty());
        for at in at {
            zip[at..at + to.len()].copy_from_slice(to);
        }
    }

    #[test]
    fn a_member_is_read_by_its_name() {
        let zip = zip_of(&[("a.txt", b"a"), ("dir/b.bin", &[7; 5000])]);
        let mut archive = Archive::open(&zip).unwrap();
        assert_eq!(read(&mut archive, "dir/b.bin", &mut budget()).unwrap(), [7; 5000]);
        assert!(archive.names().eq(["a.txt", "dir/b.bin"]));
    }

    #[test]
    fn the_error_for_a_missing_member_lists_the_others() {
        let zip = zip_of(&[("a.txt", b"a")]);
        let error = Archive::open(&zip).unwrap().place("b.bin").unwrap_err();
        assert_eq!(error.to_string(), "the archive has no member \"b.bin\"; it has a.txt");
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused() {
        let mut zip = zip_of(&[("one.bin", b"1"), ("two.bin", b"2")]);
        replace_all(&mut zip, b"two.bin", b"one.bin");
        assert_eq!(refusal(&zip), "asmpatch::archive::twice");
    }

    #[test]
    fn names_that_lead_out_of_the_archive_are_refused() {
        for name in ["../evil.bin", "a/../../b.bin", "..\\evil.bin", "/etc/evil", "C:\\evil"] {
            let mut zip = zip_of(&[("good.bin", b"1"), (&"x".repeat(name.len()), b"2")]);
            replace_all(&mut zip, "x".repeat(name.len()).as_bytes(), name.as_bytes());
            assert_eq!(refusal(&zip), "asmpatch::archive::unsafe_name", "{name}");
        }
    }

    #[test]
    fn an_encrypted_member_is_named() {
        let mut zip = zip_of(&[("a.bin", b"secret")]);
        // Bit 0 of the general purpose flags, in the local and the central header.
        let central = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        zip[6] |= 1;
        zip[central + 8] |= 1;
        let error = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget()).unwrap_err();
        assert_eq!(error.code(), "asmpatch::archive::encrypted", "{error}");
    }

    #[test]
    fn a_member_that_is_compressed_by_another_method_is_not_called_damaged() {
        let mut zip = zip_of(&[("a.bin", b"image")]);
        // The method in the local and the central header: 14, LZMA.
        let central = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        zip[8] = 14;
        zip[central + 10] = 14;
        let error = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget()).unwrap_err();
        assert_eq!(error.code(), "asmpatch::archive::unsupported", "{error}");
    }

    #[test]
    fn a_member_that_expands_past_its_declared_size_is_refused() {
        let mut zip = zip_of(&[("a.bin", &[0; 1 << 20])]);
        replace_all(&mut zip, &(1u32 << 20).to_le_bytes(), &1000u32.to_le_bytes());
        let error = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget()).unwrap_err();
        assert_eq!(error.to_string(), "the member \"a.bin\" expands to more than 1000 bytes");
    }

    #[test]
    fn a_member_larger_than_any_firmware_is_not_expanded() {
        let mut zip = zip_of(&[("a.bin", &[0; 1 << 20])]);
        replace_all(&mut zip, &(1u32 << 20).to_le_bytes(), &(1u32 << 30).to_le_bytes());
        let error = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget()).unwrap_err();
        assert_eq!(error.to_string(), format!("the member \"a.bin\" expands to more than {MAX_EXPANDED} bytes"));
    }

    #[test]
    fn members_share_one_limit() {
        let half = vec![0; (MAX_EXPANDED / 2 + 1) as usize];
        let zip = zip_of(&[("a.bin", &half), ("b.bin", &half)]);
        let mut archive = Archive::open(&zip).unwrap();
        let mut budget = budget();
        assert!(read(&mut archive, "a.bin", &mut budget).is_ok());
        assert_eq!(read(&mut archive, "b.bin", &mut budget).unwrap_err().code(), "asmpatch::archive::expands");
    }

    #[test]
    fn an_archive_of_a_million_members_is_refused_before_they_are_listed() {
        let bytes = [b"PK\x03\x04".as_slice(), &CENTRAL_HEADER.repeat(MAX_MEMBERS + 1)].concat();
        assert_eq!(refusal(&bytes), "asmpatch::archive::members");
    }

    #[test]
    fn ctrl_c_comes_before_the_next_member() {
        let zip = zip_of(&[("a.bin", b"a")]);
        let stop = std::sync::atomic::AtomicBool::new(true);
        let mut budget = Budget::new(Interrupt::watching(&stop));
        let read = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget);
        assert_eq!(read.unwrap_err().kind(), Kind::Interrupted);
    }

    #[test]
    fn a_member_with_a_changed_byte_is_damaged() {
        let mut zip = zip_of(&[("a.bin", b"incompressible")]);
        let at = zip.windows(5).position(|bytes| bytes == b"a.bin").unwrap() + 8;
        zip[at] ^= 1;
        let error = read(&mut Archive::open(&zip).unwrap(), "a.bin", &mut budget()).unwrap_err();
        assert_eq!(error.code(), "asmpatch::archive::damaged", "{error}");
    }

    #[test]
    fn a_truncated_archive_is_damaged() {
        let zip = zip_of(&[("a.bin", &[1; 100])]);
        assert_eq!(refusal(&zip[..zip.len() - 10]), "asmpatch::archive::damaged");
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(damage in proptest::collection::vec((proptest::num::usize::ANY, proptest::num::u8::ANY), 1..6)) {
            let mut zip = zip_of(&[("a.bin", &[1; 100]), ("b/c.bin", b"text")]);
            let len = zip.len();
            for (at, byte) in damage {
                zip[at % len] = byte;
            }
            if let Ok(mut archive) = Archive::open(&zip) {
                let _ = read(&mut archive, "a.bin", &mut budget());
            }
        }
    }
}
