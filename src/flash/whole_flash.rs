//! A copy of a unit's whole flash, read through registers into the folder of the unit's backup.
//!
//! A backup has the first slot, which is all that asmpatch writes. The copy has every byte. It is a file of its own that
//! `backup.toml` does not list, so that every version reads the backup; its beginning has to be what the backup has.
//!
//! Reading takes some 70,000 requests for 2 MiB at 480 Mbit/s. What was read is kept in a partial file beside the copy,
//! and the next run continues there. The partial file's name stands for the unit, its flash and its backup, so that
//! nobody else's is continued. It is always replaced as a whole. What it has is checked before it is continued: the
//! backup's part against the backup, the first and the last sector against the flash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use asm2464::digest::Sha256Digest;
use asm2464::firmware::FlashAddress;
use asm2464::flash::{JedecId, SECTOR_LEN, SLOT_LEN};
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_files::atomic;
use asm2464_files::file;
use serde::{Serialize, Serializer};

use super::access::Access;
use super::backup::{BackedUpUnit, Backup};
use super::error::{BackupFolderError, FlashError};
use super::progress::{FlashEvent, FlashProgress};

/// The copy's name in the folder of a backup.
pub const WHOLE_FLASH: &str = "flash-whole.bin";
/// Number of times that a run keeps what it has read so far.
const CHECKPOINTS: usize = 8;

/// A copy of a whole flash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "WholeFlashJson"))]
pub struct WholeFlashReport {
    /// The copy.
    #[serde(serialize_with = "path_as_text")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub file: PathBuf,
    /// Whether this run created the file; `false` if it was already there with the same content.
    #[serde(rename = "new")]
    pub is_new: bool,
    /// Bytes.
    pub size: usize,
    /// Bytes of it that an earlier run had read, and this one continued.
    pub resumed_at: usize,
    /// Its SHA-256.
    pub sha256: Sha256Digest,
    /// The flash's answer to command 9F, which gives the size.
    pub jedec_id: JedecId,
}

/// Serialises a path as it is shown: JSON has no place for a name that is not Unicode.
fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Copies the whole flash of a unit into `folder`, which has this backup of it. Continues an earlier run.
///
/// # Errors
/// If the flash can't be read through registers, its size is not known or not what its ID says, a sector reads
/// differently each time, or the file can't be written. A run that stops keeps what it has read, and says so.
pub fn copy(
    access: &mut Access,
    backup: &Backup,
    folder: &Path,
    observer: &mut FlashProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<WholeFlashReport, AnyFailure> {
    let Access::Registers(flash) = access else { return Err(only_commands(&backup.unit).into()) };
    let id = flash.id();
    // A flash of 16 MiB takes longer than any write.
    flash.expect_progress();
    let mut read = |at| {
        let sector = flash.read_sector(at)?;
        flash.progressed();
        Ok(sector.to_vec())
    };
    copy_by(&mut read, id, backup, folder, observer, interrupt)
}

/// Reads a sector until two readings agree.
type ReadSector<'r> = dyn FnMut(FlashAddress) -> Result<Vec<u8>, FlashError> + 'r;

fn copy_by(
    read: &mut ReadSector<'_>,
    jedec_id: JedecId,
    backup: &Backup,
    folder: &Path,
    observer: &mut FlashProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<WholeFlashReport, AnyFailure> {
    let size = jedec_id.capacity().ok_or_else(|| unknown_size(jedec_id))?;
    let whole = folder.join(WHOLE_FLASH);
    let earlier = finished(&whole, size)?;
    let partial = folder.join(partial_name(&backup.unit, jedec_id, &backup.content_digest()));
    let slot = backup.slot();

    let mut bytes = resumable(read, &partial, &slot, size)?;
    let resumed_at = bytes.len();
    observer.event(FlashEvent::Total(size as u64));
    observer.event(FlashEvent::Moved(resumed_at as u64));
    let mut kept = resumed_at;
    let mut read_on = || {
        while bytes.len() < size {
            interrupt.check()?;
            bytes.extend(read(FlashAddress(bytes.len() as u32))?);
            observer.event(FlashEvent::Moved(SECTOR_LEN as u64));
            // The first sector's write shows early whether the folder takes any.
            if kept == 0 || bytes.len().is_multiple_of(size / CHECKPOINTS) {
                atomic::write(&partial, &bytes).map_err(unwritten)?;
                kept = bytes.len();
            }
        }
        Ok::<_, AnyFailure>(())
    };
    if let Err(error) = read_on() {
        if bytes.len() > kept && atomic::write(&partial, &bytes).is_ok() {
            kept = bytes.len();
        }
        return Err(if kept == 0 { error } else { error.stopping(stopped(&partial, kept, size)) });
    }

    // Bytes that can't be right must not be continued.
    let discard = || drop(fs::remove_file(&partial));
    if bytes[..slot.len()] != slot {
        discard();
        return Err(differs_from_backup().into());
    }
    if let Some(found) = repeated_after(&bytes) {
        discard();
        return Err(smaller(jedec_id, size, found).into());
    }
    if let Err(error) = atomic::create(&whole, &bytes) {
        return Err(AnyFailure::from(unwritten(error)).stopping(stopped(&partial, kept, size)));
    }
    // Another process may have created the file meanwhile, and an earlier run's may differ.
    if finished(&whole, size)?.as_ref() != Some(&bytes) {
        discard();
        return Err(other_copy(&whole).into());
    }
    discard();
    let sha256 = Sha256Digest::of(&bytes);
    Ok(WholeFlashReport { file: whole, is_new: earlier.is_none(), size, resumed_at, sha256, jedec_id })
}

/// Reads the copy that an earlier run has finished; `None` if there is none.
fn finished(whole: &Path, size: usize) -> Result<Option<Vec<u8>>, AnyFailure> {
    match file::read_regular(whole, size) {
        Ok(bytes) if bytes.len() == size => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) => Err(other_copy(whole).into()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(other_copy(whole).into()),
        Err(source) => {
            let label = Kind::BadInput.code("asmpatch::backup::io");
            let why = Failure::new(label, format!("cannot read {}", whole.display())).because(source);
            Err(BackupFolderError::Unread { folder: whole.to_owned(), why: Box::new(why) }.into())
        }
    }
}

/// Returns what an earlier run has kept of this flash; nothing if it can't be read or is not what the flash has now.
fn resumable(read: &mut ReadSector<'_>, partial: &Path, slot: &[u8], size: usize) -> Result<Vec<u8>, FlashError> {
    let Ok(bytes) = file::read_regular(partial, size) else { return Ok(Vec::new()) };
    let (sectors, torn) = bytes.as_chunks::<SECTOR_LEN>();
    let is_slots = bytes.iter().zip(slot).all(|(kept, backed_up)| kept == backed_up);
    if sectors.is_empty() || !torn.is_empty() || !is_slots {
        return Ok(Vec::new());
    }
    for sector in [0, sectors.len() - 1] {
        if read(FlashAddress((sector * SECTOR_LEN) as u32))? != sectors[sector] {
            return Ok(Vec::new());
        }
    }
    Ok(bytes)
}

/// Returns the partial file's name: the same only for the same unit at the same port, with the same flash and backup.
fn partial_name(unit: &BackedUpUnit, jedec_id: JedecId, content: &[u8; 32]) -> String {
    let BackedUpUnit { device, usb_id, state, serial, product, firmware_version: _ } = unit;
    let mut identity = content.to_vec();
    for text in [device, usb_id, state, serial, product, &jedec_id.to_string()] {
        identity.extend((text.len() as u64).to_le_bytes());
        identity.extend(text.as_bytes());
    }
    format!("flash-whole-{}.part", &Sha256Digest::of(&identity).to_string()[..16])
}

/// Returns the length after which a flash's bytes begin again, and again up to the end. A part that is smaller than its
/// ID says reads so, because it ignores the upper address bits. Both slots may well have the same.
fn repeated_after(bytes: &[u8]) -> Option<usize> {
    if bytes.iter().all(|byte| *byte == bytes[0]) {
        return None;
    }
    let mut len = 2 * SLOT_LEN;
    while len < bytes.len() {
        if bytes[len..] == bytes[..bytes.len() - len] {
            return Some(len);
        }
        len *= 2;
    }
    None
}

fn only_commands(unit: &BackedUpUnit) -> Failure {
    let label = Kind::Refused.code("asmpatch::backup::only_commands");
    let message = format!(
        "the whole flash of {} can't be read: the {} has commands for its first 256 KiB only, of which the backup has \
         the slot that is in use",
        unit.device, unit.state
    );
    Failure::new(label, message)
}

fn unknown_size(id: JedecId) -> Failure {
    let label = Kind::Refused.code("asmpatch::backup::unknown_flash");
    Failure::new(label, format!("the flash's JEDEC ID {id} doesn't say how many bytes it has"))
}

fn smaller(id: JedecId, size: usize, found: usize) -> Failure {
    let label = Kind::Device.code("asmpatch::backup::smaller_flash");
    let message = format!("the flash's JEDEC ID {id} means {size} bytes, but after {found} bytes the same come again");
    Failure::new(label, message)
}

fn unwritten(error: Failure) -> Failure {
    let label = Kind::System.code("asmpatch::backup::whole_flash");
    Failure::new(label, "what is read of the whole flash can't be saved").because(error)
}

fn differs_from_backup() -> Failure {
    let label = Kind::Device.code("asmpatch::backup::unsteady_flash");
    Failure::new(label, "the beginning of the flash reads differently from the backup that was just made of it")
}

fn other_copy(whole: &Path) -> Failure {
    let label = Kind::Refused.code("asmpatch::backup::exists");
    Failure::new(label, format!("{} exists and is not what the unit's flash has", whole.display()))
}

/// Says what a run that has stopped leaves behind.
fn stopped(partial: &Path, kept: usize, size: usize) -> String {
    let place = partial.display();
    format!("{kept} of the flash's {size} bytes are read and kept in {place}; the same command continues there")
}

#[cfg(test)]
mod tests {
    use asm2464::interrupt::Interrupted;

    use super::super::backup::tests::sample_backup;
    use super::*;

    /// An ID of 512 KiB.
    const ID: JedecId = JedecId([0xEF, 0x30, 0x13]);
    const LEN: usize = 0x8_0000;
    const SECTORS: usize = LEN / SECTOR_LEN;

    /// A unit's flash, and a folder in place of its backup's.
    struct Rig {
        home: tempfile::TempDir,
        backup: Backup,
        jedec_id: JedecId,
        cells: Vec<u8>,
        /// The number of sectors that can be read before Ctrl-C.
        sectors_left: usize,
        reads: usize,
    }

    impl Rig {
        fn new() -> Self {
            let backup = sample_backup();
            let mut cells = backup.slot();
            cells.extend((cells.len() as u32..LEN as u32).map(|at| (at.wrapping_mul(0x9E37) >> 8) as u8));
            let home = tempfile::tempdir().unwrap();
            Self { home, backup, jedec_id: ID, cells, sectors_left: usize::MAX, reads: 0 }
        }

        fn copy(&mut self) -> Result<WholeFlashReport, AnyFailure> {
            let Self { home, backup, jedec_id, cells, sectors_left, reads } = self;
            *reads = 0;
            let mut read = |FlashAddress(at)| {
                *sectors_left = sectors_left.checked_sub(1).ok_or(Interrupted)?;
                *reads += 1;
                let at = at as usize % cells.len();
                Ok(cells[at..at + SECTOR_LEN].to_vec())
            };
            copy_by(&mut read, *jedec_id, backup, home.path(), &mut (), Interrupt::never())
        }

        /// Reads so many sectors until Ctrl-C.
        fn stopped_after(sectors: usize) -> Self {
            let mut rig = Self { sectors_left: sectors, ..Self::new() };
            let error = rig.copy().unwrap_err();
            assert_eq!(error.code(), "asm2464::interrupted");
            rig.sectors_left = usize::MAX;
            rig
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.home.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }

        fn saved(&self) -> Vec<u8> {
            fs::read(self.home.path().join(WHOLE_FLASH)).unwrap()
        }

        fn partial(&self) -> PathBuf {
            let names = self.names();
            let [name] = &names[..] else { panic!("{names:?}") };
            assert!(name.starts_with("flash-whole-") && name.ends_with(".part"), "{name}");
            self.home.path().join(name)
        }
    }

    #[test]
    fn a_copy_has_every_byte_of_the_flash_and_a_second_run_changes_nothing() {
        let mut rig = Rig::new();
        let copy = rig.copy().unwrap();
        assert_eq!((copy.is_new, copy.size, copy.resumed_at), (true, LEN, 0));
        assert_eq!(copy.sha256, Sha256Digest::of(&rig.cells));
        assert!(rig.saved() == rig.cells);
        assert_eq!(rig.names(), [WHOLE_FLASH], "nothing partial is left");
        assert!(!rig.copy().unwrap().is_new);
        assert_eq!(rig.names(), [WHOLE_FLASH]);
    }

    #[test]
    fn a_run_that_stopped_says_where_and_is_continued_without_reading_everything_again() {
        for sectors in [1, 50, SECTORS - 1] {
            let mut rig = Rig { sectors_left: sectors, ..Rig::new() };
            let error = rig.copy().unwrap_err().to_string();
            let kept = sectors * SECTOR_LEN;
            assert!(error.starts_with(&format!("{kept} of the flash's {LEN} bytes are read and kept in")), "{error}");
            assert!(fs::read(rig.partial()).unwrap() == rig.cells[..kept]);
            rig.sectors_left = usize::MAX;
            assert_eq!(rig.copy().unwrap().resumed_at, kept);
            assert_eq!(rig.reads, SECTORS - sectors + 2, "the rest, and the first and the last sector again");
            assert!(rig.saved() == rig.cells);
            assert_eq!(rig.names(), [WHOLE_FLASH]);
        }
    }

    #[test]
    fn another_units_partial_copy_is_never_continued() {
        let changes: [fn(&mut Rig); 6] = [
            |rig| rig.backup.unit.device = "3-1".into(),
            |rig| rig.backup.unit.usb_id = "ADD1:0001".into(),
            |rig| rig.backup.unit.serial = "S/N 8".into(),
            |rig| rig.backup.unit.product.push('2'),
            |rig| rig.jedec_id = JedecId([0xC2, 0x28, 0x13]),
            |rig| {
                rig.backup.parts[1][0xFFFF] = 0;
                rig.cells[0x1_FFFF] = 0;
            },
        ];
        for change in changes {
            let mut rig = Rig::stopped_after(50);
            change(&mut rig);
            assert_eq!(rig.copy().unwrap().resumed_at, 0);
            assert!(rig.saved() == rig.cells);
            assert_eq!(rig.names().len(), 2, "the other unit's stays");
        }
    }

    #[test]
    fn a_flash_that_has_changed_is_read_from_the_start_again() {
        let changes: [fn(&mut Rig); 5] = [
            |rig| rig.cells[49 * SECTOR_LEN] ^= 1,
            // What the backup has is compared with all that was kept.
            |rig| {
                fs::write(rig.partial(), [&rig.cells[..0x8000], &[7; 0x8000], &rig.cells[0x1_0000..0x4_0000]].concat())
                    .unwrap()
            },
            |rig| fs::write(rig.partial(), &rig.cells[..50 * SECTOR_LEN - 1]).unwrap(),
            |rig| fs::write(rig.partial(), []).unwrap(),
            |rig| fs::write(rig.partial(), [&rig.cells[..], &[0; SECTOR_LEN]].concat()).unwrap(),
        ];
        for change in changes {
            let mut rig = Rig::stopped_after(50);
            change(&mut rig);
            assert_eq!(rig.copy().unwrap().resumed_at, 0);
            assert!(rig.saved() == rig.cells);
            assert_eq!(rig.names(), [WHOLE_FLASH]);
        }
    }

    #[test]
    fn a_copy_of_the_right_length_or_none_is_made() {
        for (id, code, words) in [
            ([0x12, 0x34, 0x12], "asmpatch::backup::unknown_flash", "12 34 12 doesn't say how many bytes"),
            ([0xEF, 0x30, 0x14], "asmpatch::backup::smaller_flash", "means 1048576 bytes, but after 524288 bytes"),
            // Nobody has listed this maker.
            ([0x12, 0x34, 0x15], "asmpatch::backup::smaller_flash", "means 2097152 bytes, but after 524288 bytes"),
        ] {
            let mut rig = Rig { jedec_id: JedecId(id), ..Rig::new() };
            let error = rig.copy().unwrap_err();
            assert_eq!(error.code(), code);
            assert!(error.to_string().contains(words), "{error}");
            assert!(rig.names().is_empty(), "{id:?}");
        }
        // A flash in which both slots are the same, or that is erased, has the length that it says.
        let slot = sample_backup().slot();
        assert_eq!(repeated_after(&slot.repeat(2)), None);
        assert_eq!(repeated_after(&vec![0xFF; LEN]), None);
    }

    #[test]
    fn what_differs_from_the_backup_that_was_just_made_is_thrown_away() {
        let mut rig = Rig::new();
        rig.cells[0x1234] ^= 1;
        assert_eq!(rig.copy().unwrap_err().code(), "asmpatch::backup::unsteady_flash");
        assert!(rig.names().is_empty());
    }

    #[test]
    fn an_earlier_copy_is_never_overwritten() {
        let mut rig = Rig::new();
        rig.copy().unwrap();
        let earlier = rig.saved();
        rig.cells[0x7_0000] ^= 1;
        let error = rig.copy().unwrap_err();
        assert_eq!((error.code(), error.kind()), ("asmpatch::backup::exists", Kind::Refused));
        assert!(rig.saved() == earlier);
        for foreign in [&b"mine"[..], &[0; LEN + 1]] {
            fs::write(rig.home.path().join(WHOLE_FLASH), foreign).unwrap();
            assert_eq!(rig.copy().unwrap_err().code(), "asmpatch::backup::exists");
            assert_eq!(rig.reads, 0, "before anything is read");
            assert!(rig.saved() == foreign);
        }
    }

    #[test]
    fn a_folder_that_takes_no_file_is_noticed_at_the_first_sector() {
        let mut rig = Rig::new();
        let folder = rig.home.path().join("gone");
        let mut reads = 0;
        let mut read = |FlashAddress(at)| {
            reads += 1;
            Ok(rig.cells[at as usize..][..SECTOR_LEN].to_vec())
        };
        let error = copy_by(&mut read, ID, &rig.backup, &folder, &mut (), Interrupt::never()).unwrap_err();
        assert_eq!((error.code(), error.kind()), ("asmpatch::backup::whole_flash", Kind::System));
        assert_eq!(reads, 1);
        // The place of the finished copy is taken by a folder: what was read stays.
        fs::create_dir(rig.home.path().join(WHOLE_FLASH)).unwrap();
        assert_eq!(rig.copy().unwrap_err().code(), "asmpatch::backup::unread");
    }
}
