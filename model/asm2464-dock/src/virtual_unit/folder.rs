//! A unit in a folder: its flash, its SSD and its scenario, so that separate commands use the same unit; and the factory
//! state of a new one.

use std::error::Error;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use asm2464::escape::Escape as _;
use asm2464::firmware::{ConfigBlock, ConfigField, MAX_FILE_LEN, known_blocks};
use asm2464::flash::{SLOT_LEN, Slot};
use asm2464::scsi::BLOCK_LEN;
use asm2464::{Failure, Kind, text};
use asm2464_chip::chip::{BlockStore, StoreFailed};
use asm2464_chip::practice;
use asm2464_chip::spi_flash::{FLASH_LEN, SpiFlash};
use asm2464_files::{atomic, file, toml_file};
use asm2464_host::usb::sysfs::{Process, Sysfs};
use sha2::{Digest, Sha256};

use super::replug::{REQUEST_FILE, ReplugRequests};
use super::scenario::{Downstream, Factory, INVALID, Scenario, SetKey};
use super::unit::VirtualUnit;

/// Lengths of a dock's flash, in bytes, if they are powers of two.
const COPY_LENS: std::ops::RangeInclusive<u64> = 0x10_0000..=0x100_0000;
/// File with the SPI flash's cells.
const FLASH_FILE: &str = "flash.bin";
/// File with the SSD's blocks.
const SSD_FILE: &str = "ssd.bin";
/// Maximum length of a scenario in bytes.
const MAX_SCENARIO_LEN: usize = 1 << 20;
/// File with the scenario.
const SCENARIO_FILE: &str = "bridge.toml";

impl VirtualUnit {
    /// Opens the unit in a folder. Creates the folder and a new unit if there is none. The unit is locked against other
    /// processes as long as the value lives.
    ///
    /// `image` is the image that a new unit gets at the factory; `None` is the practice image.
    ///
    /// # Errors
    /// With codes of `asm2464::virtual_unit`: `busy` if another process has the unit; `foreign` if the folder has other
    /// things and no unit; `flash_size`, `scenario` or `factory` if a file or the image is wrong; `file` if the system
    /// can't access a file. `asm2464::file::write` if a new unit can't be written.
    pub fn open(dir: &Path, image: Option<&[u8]>) -> Result<Self, Failure> {
        let scenario = scenario_in(dir)?;
        refuse_foreign(dir)?;
        file::make_folder(dir).map_err(file_error("make the folder", dir))?;
        let flash = flash_in(dir, &scenario, image)?;
        let requests = ReplugRequests::of(dir);
        let disk = match scenario.behind {
            Downstream::Ssd { bytes } => {
                let path = dir.join(SSD_FILE);
                let file = file::open_own(&path).map_err(file_error("open", &path))?;
                Some(Disk::in_file(file, bytes).map_err(file_error("size", &path))?)
            }
            Downstream::Nothing | Downstream::Gpu | Downstream::TinyGpu => None,
        };
        let mut unit = Self::assemble(scenario, flash, disk);
        unit.requests = Some(requests);
        Ok(unit)
    }

    /// Whether the folder has no unit yet: opening it makes one.
    pub fn is_new(dir: &Path) -> bool {
        dir.join(FLASH_FILE).symlink_metadata().is_err()
    }

    /// Sets keys of the scenario in a folder, each to a value as TOML writes it or to a text; without a value, takes
    /// the key out. Creates folder and file if they are missing. Changes nothing if the result is no scenario.
    ///
    /// # Errors
    /// As for [`VirtualUnit::open`].
    pub fn configure(dir: &Path, edits: &[(String, String)]) -> Result<(), Failure> {
        refuse_foreign(dir)?;
        let mut text = scenario_text(dir)?;
        for (key, value) in edits {
            let quoted = edited(&text, key, &toml_file::string(value));
            text = edited(&text, key, value);
            // A serial number of digits alone is text, too.
            if Scenario::parse(&text).is_err() && Scenario::parse(&quoted).is_ok() {
                text = quoted;
            }
        }
        Scenario::parse(&text).map_err(|error| invalid_scenario(dir, error))?;
        file::make_folder(dir).map_err(file_error("make the folder", dir))?;
        atomic::write(&dir.join(SCENARIO_FILE), text.as_bytes())
    }

    /// The keys of a folder's scenario that are set so that the unit is not like a sound dock with a card; none if there is
    /// no scenario, or one that can't be read.
    pub fn set_apart(dir: &Path) -> Vec<SetKey> {
        scenario_in(dir).map(|scenario| scenario.set_apart()).unwrap_or_default()
    }

    /// Whether another process, or another value in this one, has the folder's unit open.
    ///
    /// # Errors
    /// `asm2464::virtual_unit::file` if there is no unit, or if it can't be accessed.
    pub fn is_in_use(dir: &Path) -> Result<bool, Failure> {
        let path = dir.join(FLASH_FILE);
        match file::hold(File::options().read(true), &path) {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(file_error("open", &path)(error)),
        }
    }

    /// Creates a new unit without a folder. `seed` determines its serial number; `image` is as for
    /// [`VirtualUnit::open`].
    ///
    /// # Errors
    /// `asm2464::virtual_unit::factory` if the flash can't hold the image, or a block the serial number.
    pub fn in_memory(scenario: Scenario, seed: &[u8], image: Option<&[u8]>) -> Result<Self, Failure> {
        let flash = SpiFlash::holding(new_cells(&scenario, seed, image)?, None);
        let disk = match scenario.behind {
            Downstream::Ssd { bytes } => Some(Disk::in_memory(bytes)),
            Downstream::Nothing | Downstream::Gpu | Downstream::TinyGpu => None,
        };
        Ok(Self::assemble(scenario, flash, disk))
    }
}

/// Reads a folder's scenario; the default one if there is none.
fn scenario_in(dir: &Path) -> Result<Scenario, Failure> {
    Scenario::parse(&scenario_text(dir)?).map_err(|error| invalid_scenario(dir, error))
}

/// Reads the scenario's file; empty if there is none.
fn scenario_text(dir: &Path) -> Result<String, Failure> {
    let path = dir.join(SCENARIO_FILE);
    let bytes = match file::read_regular(&path, MAX_SCENARIO_LEN) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(file_error("read", &path)(error)),
    };
    let text = text::decode(&bytes).map_err(|why| invalid_scenario(dir, format!("it is {why}")))?;
    Ok(text.into_owned())
}

fn invalid_scenario(dir: &Path, why: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    let path = dir.join(SCENARIO_FILE);
    Failure::new(INVALID, format!("{} is not a valid scenario for a virtual unit", path.display())).because(why)
}

/// Sets a key among those before the first table of a scenario, or takes it out if `value` is empty.
fn edited(text: &str, key: &str, value: &str) -> String {
    let mut kept = String::new();
    // The table that a line is in, by the first part of its name.
    let mut table = None;
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            let name = line.trim_start().trim_start_matches('[');
            table = name.split(['.', ']']).next().map(str::trim);
        }
        let is_keys = match table {
            Some(table) => table == key,
            None => line.split_once('=').is_some_and(|(own, _)| own.trim() == key),
        };
        if !is_keys {
            kept = kept + line + "\n";
        }
    }
    if value.is_empty() {
        return kept;
    }
    let line = format!("{key} = {value}\n");
    if line.parse::<toml::Table>().is_ok() {
        return line + &kept;
    }
    format!("{key} = {}\n", toml_file::string(value)) + &kept
}

/// Refuses a folder without a unit that holds other things: a mistyped name, where nobody expects new files.
fn refuse_foreign(dir: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    if !VirtualUnit::is_new(dir) {
        return Ok(());
    }
    let mut others = Vec::new();
    for entry in entries {
        let found = entry.map_err(file_error("read", dir))?.file_name().to_string_lossy().into_owned();
        let is_ours = [SCENARIO_FILE, SSD_FILE, REQUEST_FILE].contains(&found.as_str()) || atomic::is_temporary(&found);
        if !is_ours {
            others.push(found);
        }
    }
    let Some(found) = others.into_iter().min() else { return Ok(()) };
    let message = format!("{} holds {}, and no virtual unit", dir.display(), found.shown());
    Err(Failure::new(Kind::Refused.code("asm2464::virtual_unit::foreign"), message))
}

fn named(users: &[Process]) -> String {
    if users.is_empty() {
        return "another process".to_owned();
    }
    users.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn flash_in(dir: &Path, scenario: &Scenario, image: Option<&[u8]>) -> Result<SpiFlash, Failure> {
    let path = dir.join(FLASH_FILE);
    if path.symlink_metadata().is_err() {
        // Written completely or not at all: no unit has half a flash.
        atomic::create(&path, &factory_cells(dir, scenario, image)?)?;
    }
    let mut file = match hold(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let users = named(&Sysfs::system().lock_holders_at(&path));
            let message = format!("the virtual unit in {} is in use by {users}", dir.display());
            return Err(Failure::new(Kind::Device.code("asm2464::virtual_unit::busy"), message));
        }
        Err(error) => return Err(file_error("open", &path)(error)),
    };
    let found = file.metadata().map_err(file_error("read", &path))?.len();
    if found == FLASH_LEN as u64 || (found.is_power_of_two() && COPY_LENS.contains(&found)) {
        let mut cells = Vec::new();
        file.read_to_end(&mut cells).map_err(file_error("read", &path))?;
        return Ok(SpiFlash::holding(cells, Some(file)));
    }
    if found != 0 {
        let path = path.display();
        let message = format!(
            "{path} has {found} bytes, expected {FLASH_LEN}, or 1, 2, 4, 8 or 16 MiB of a copy of a dock's flash"
        );
        return Err(Failure::new(Kind::BadInput.code("asm2464::virtual_unit::flash_size"), message));
    }
    let cells = factory_cells(dir, scenario, image)?;
    file.write_all(&cells).and_then(|()| file.sync_all()).map_err(file_error("write", &path))?;
    Ok(SpiFlash::holding(cells, Some(file)))
}

/// Builds the flash cells of a new unit.
fn factory_cells(dir: &Path, scenario: &Scenario, image: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
    let seed = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    new_cells(scenario, seed.as_os_str().as_encoded_bytes(), image)
}

/// Opens a unit's flash, and retries for a second: a child process that was just started holds its parent's files
/// until its own program is loaded.
fn hold(path: &Path) -> io::Result<File> {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        match file::hold_own(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            settled => return settled,
        }
    }
    file::hold_own(path)
}

fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let message = format!("virtual unit: cannot {what} {}", path.display());
        if error.kind() == io::ErrorKind::InvalidFilename {
            return Failure::new(Kind::BadInput.code("asm2464::virtual_unit::name"), message).because(error);
        }
        Failure::new(Kind::System.code("asm2464::virtual_unit::file"), message).because(error)
    }
}

/// Makes a new unit's flash cells as the scenario says. `seed` determines the unit's serial number.
fn new_cells(scenario: &Scenario, seed: &[u8], image: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
    let failed = |why: &str| {
        let label = Kind::BadInput.code("asm2464::virtual_unit::factory");
        Failure::new(label, format!("the new unit's flash cannot be filled: {why}"))
    };
    let mut cells = vec![0xFF; FLASH_LEN];
    let made = match scenario.factory {
        Factory::Stock => Some(practice::image()),
        Factory::Open => Some(practice::open_image()),
        Factory::NoImage => None,
        Factory::Erased => return Ok(cells),
    };
    let file = made.map_or_else(Vec::new, |made| image.map_or_else(|| made.to_file(), <[u8]>::to_vec));
    if file.len() > MAX_FILE_LEN {
        let found = file.len();
        let what = format!("the file has {found} bytes; the two parts in flash hold at most {MAX_FILE_LEN}");
        return Err(failed(&what));
    }
    let serial = scenario.serial.clone().unwrap_or_else(|| serial(seed));
    let blocks = blocks(&serial).map_err(|error| failed(&error.to_string()))?;
    let slot = Slot::of(blocks.each_ref().map(ConfigBlock::bytes), &file);
    cells[..SLOT_LEN].copy_from_slice(slot.bytes());
    Ok(cells)
}

/// Makes a serial number of twelve hexadecimal digits, like the maker's own.
fn serial(seed: &[u8]) -> String {
    Sha256::digest(seed).iter().take(6).map(|byte| format!("{byte:02X}")).collect()
}

/// Builds configuration blocks with the frame and flags of the known blocks and the chip maker's names and IDs.
fn blocks(serial: &str) -> Result<[ConfigBlock; 2], Failure> {
    let [mut zero, one] = known_blocks();
    zero.set_text(ConfigField::Serial, serial)?;
    zero.set_stock_identity()?;
    zero.set_number(ConfigField::DeviceRelease, 0x0100)?;
    Ok([zero, one])
}

/// What holds the blocks.
trait Medium: Read + Write + Seek + Debug + Send {
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Medium for Cursor<Box<[u8]>> {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks of 512 bytes. Clones share the blocks: while the chip runs, the drive behind it has a clone.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    medium: Arc<Mutex<dyn Medium>>,
    bytes: u64,
}

impl Disk {
    /// Locks the medium, positioned at this block.
    fn at(&self, block: u64) -> io::Result<MutexGuard<'_, dyn Medium + 'static>> {
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        medium.seek(SeekFrom::Start(block * BLOCK_LEN as u64))?;
        Ok(medium)
    }

    /// Blocks in memory.
    pub(super) fn in_memory(bytes: u64) -> Self {
        let blocks = vec![0; bytes as usize].into_boxed_slice();
        Self { medium: Arc::new(Mutex::new(Cursor::new(blocks))), bytes }
    }

    /// Blocks in a file. Extends a shorter file to `bytes` (with a hole if the system supports it). The rest of a
    /// longer file stays as it is.
    fn in_file(file: File, bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        Ok(Self { medium: Arc::new(Mutex::new(file)), bytes })
    }
}

impl BlockStore for Disk {
    fn blocks(&self) -> u64 {
        self.bytes / BLOCK_LEN as u64
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        self.at(first).and_then(|mut medium| medium.read_exact(into)).map_err(|_| StoreFailed)
    }

    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed> {
        self.at(first).and_then(|mut medium| medium.write_all(data)).map_err(|_| StoreFailed)
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        self.at(0).and_then(|medium| medium.sync()).map_err(|_| StoreFailed)
    }
}
