//! The initial state of every history, and the flash contents with which it may end.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, Image, known_blocks};
use asm2464::flash::{FIRST_SLOT, SLOT_LEN, Slot};
use asm2464_chip::practice;
use asm2464_chip::spi_flash::FLASH_LEN;
use asm2464_dock::virtual_unit::{Scenario, VirtualUnit};
use asmpatch::flash::backup::{BackedUpUnit, Backup};
use asmpatch::flash::backup_folder;
use asmpatch::flash::identity::neutral_blocks;
use asmpatch::patch::{PatchSet, Patched, Selection};

use crate::campaign::history::{Build, Companion, Config, Firmware, History, Job, Own, Start};

/// The serial number of every unit.
pub const SERIAL: &str = "DOCK0007";
/// The serial number in the example of docs/recovery.md for a unit without a backup.
pub const DOCUMENTED_SERIAL: &str = "MYDOCK01";
/// The serial number that a unit had before.
pub const FORMER_SERIAL: &str = "DOCK0001";
/// The serial number that `config set` gives.
pub const NEW_SERIAL: &str = "LAB-07";
/// The default folder for backups, and the names in it of those that are there before the first command.
pub const PAST: &str = "data/asmpatch/backups";
pub const PAST_OWN: &str = "past-own";
pub const PAST_OTHERS: &str = "past-others";
pub const PAST_DAMAGED: &str = "past-damaged";
pub const PAST_CLOSED: &str = "past-closed";
/// Folder of the stock unit's backup, made beforehand.
pub const EARLIER: &str = "earlier";
/// Folder of the second unit, if any.
pub const COMPANION: &str = "companion";

/// Both configuration blocks.
pub type Blocks = [ConfigBlock; 2];

/// Flash contents and files that all histories share.
pub struct World {
    practice: Image,
    open: Image,
    /// The newest open firmware, if a variable names it.
    newest: Option<Image>,
    patched: Patched,
    stock: Vec<u8>,
    /// The folder of the earlier backup.
    earlier: PathBuf,
}

impl World {
    /// Makes the contents, and the earlier backup in `folder`.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let practice = practice::image();
        let library = asmpatch::embedded::patches().map_err(|failure| io::Error::other(failure.to_string()))?;
        let digest = practice.sha256();
        let set = PatchSet::resolve(&library, &Selection::default(), &practice, digest).map_err(io::Error::other)?;
        let patched = set.apply().map_err(io::Error::other)?;

        let scenario = Scenario { serial: Some(SERIAL.to_owned()), ..Scenario::default() };
        let mut unit = VirtualUnit::in_memory(scenario, &[], None).map_err(io::Error::other)?;
        let flash = unit.flash();
        let mut stock = flash.get(FIRST_SLOT, FLASH_LEN).unwrap_or_default().to_vec();
        // Each unit has its own USB4 ID.
        if let Some([zero, mut one]) = own_blocks(&stock) {
            one.set_bytes(ConfigField::Usb4UniqueId, &[7, 7, 7, 7, 7]).map_err(io::Error::other)?;
            stock[..SLOT_LEN].copy_from_slice(&slot(&[zero, one], &practice));
        }
        // Nothing may touch the second slot: fill it, so that a stray write shows.
        for (at, cell) in stock.iter_mut().enumerate().skip(SLOT_LEN) {
            *cell = (at >> 8) as u8 ^ at as u8;
        }
        let earlier = folder.join(EARLIER);
        let newest = match env::var_os("ASMPATCH_OPEN_NEW_IMAGE") {
            Some(path) => Some(Image::parse(&fs::read(path)?).map_err(io::Error::other)?),
            None => None,
        };
        let world = Self { practice, open: practice::open_image(), newest, patched, stock, earlier };
        backup_folder::save(&backup_of(&world.stock), &world.earlier).map_err(io::Error::other)?;
        Ok(world)
    }

    /// A unit's initial flash.
    pub fn flash(&self, start: Start) -> Vec<u8> {
        let mut flash = self.stock.clone();
        match start {
            Start::Stock => {}
            Start::Open(build) => flash[..SLOT_LEN].copy_from_slice(&slot(&self.stock_blocks(), self.open(build))),
            Start::Patched => {
                let slot = slot(&self.edited(self.stock_blocks(), Firmware::Patched), &self.patched.image);
                flash[..SLOT_LEN].copy_from_slice(&slot);
            }
            Start::NoImage => flash[0x100..SLOT_LEN].fill(0xFF),
            Start::Erased => flash[..SLOT_LEN].fill(0xFF),
        }
        flash
    }

    /// Fills a history's folder.
    pub fn furnish(&self, history: &History, folder: &Path) -> io::Result<()> {
        for name in ["tmp", "data", "cache", "home"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let unit = folder.join(history.unit_name);
        fs::create_dir(&unit)?;
        fs::write(unit.join("flash.bin"), self.flash(history.start))?;
        if history.has_ssd {
            fs::write(unit.join("ssd.bin"), ssd())?;
        }
        if let Some(companion) = history.companion {
            fs::create_dir(folder.join(COMPANION))?;
            fs::write(folder.join(COMPANION).join("flash.bin"), self.companion(companion))?;
        }
        self.furnish_past(history, folder)?;
        let image = folder.join(history.image_name);
        match history.job {
            Job::Flash { firmware: Firmware::Patched, .. } | Job::DryRun => {
                fs::write(&image, self.patched.image.to_file())?;
                let mut receipt = image.into_os_string();
                receipt.push(".toml");
                fs::write(receipt, self.patched.receipt.to_string())?;
            }
            Job::Flash { firmware: Firmware::Practice, .. } => fs::write(&image, self.practice.to_file())?,
            // There is no network: what `doctor --fix` flashes is in the cache.
            Job::Fix => {
                if let Some(newest) = &self.newest {
                    let images = folder.join("cache/asmpatch/images");
                    fs::create_dir_all(&images)?;
                    fs::write(images.join(format!("{}.bin", newest.sha256())), newest.to_file())?;
                }
            }
            Job::Flash { firmware: Firmware::Open(build), .. } => fs::write(&image, self.open(build).to_file())?,
            _ => {}
        }
        if matches!(history.job, Job::Restore { .. } | Job::Flash { config: Config::Earlier, .. }) {
            let to = folder.join(EARLIER);
            fs::create_dir(&to)?;
            for entry in fs::read_dir(&self.earlier)? {
                let entry = entry?;
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Makes the backups that are there before the first command.
    fn furnish_past(&self, history: &History, folder: &Path) -> io::Result<()> {
        let place = folder.join(PAST);
        let save = |name: &str, device: String, serial: &str, flash: &[u8]| {
            let mut backup = backup_of(flash);
            (backup.unit.device, backup.unit.serial) = (device, serial.to_owned());
            backup_folder::save(&backup, &place.join(name)).map_err(io::Error::other).map(drop)
        };
        let here = format!("virtual:{}", history.unit_name);
        if let Some(own) = history.past.own {
            let device = if own == Own::AtAnotherPort { "virtual:elsewhere".to_owned() } else { here.clone() };
            let serial = if own == Own::WithFormerSerial { FORMER_SERIAL } else { SERIAL };
            save(PAST_OWN, device, serial, &self.past_own(own))?;
        }
        if history.past.others {
            let mut flash = self.stock.clone();
            let mut blocks = self.stock_blocks();
            blocks[0].set_text(ConfigField::Serial, "OTHER009").map_err(io::Error::other)?;
            blocks[1].set_bytes(ConfigField::Usb4UniqueId, &[9, 9, 9, 9, 9]).map_err(io::Error::other)?;
            flash[..SLOT_LEN].copy_from_slice(&slot(&blocks, &self.practice));
            save(PAST_OTHERS, "virtual:other".to_owned(), "OTHER009", &flash)?;
        }
        // The unit's, too, at an earlier time.
        let mut flash = self.stock.clone();
        flash[SLOT_LEN - 1] ^= 1;
        if history.past.damaged {
            save(PAST_DAMAGED, here.clone(), SERIAL, &flash)?;
            fs::write(place.join(PAST_DAMAGED).join("config-0.bin"), "")?;
        }
        if history.past.closed {
            save(PAST_CLOSED, here, SERIAL, &flash)?;
            fs::set_permissions(place.join(PAST_CLOSED), fs::Permissions::from_mode(0o000))?;
        }
        Ok(())
    }

    /// The flash of which the unit's own backup is.
    pub fn past_own(&self, own: Own) -> Vec<u8> {
        let mut flash = self.stock.clone();
        if own == Own::WithFormerSerial {
            let mut blocks = self.stock_blocks();
            // Eight characters fit the field.
            let _ = blocks[0].set_text(ConfigField::Serial, FORMER_SERIAL);
            flash[..SLOT_LEN].copy_from_slice(&slot(&blocks, &self.practice));
        }
        flash
    }

    /// The second unit's initial flash: stock.
    pub fn companion(&self, companion: Companion) -> Vec<u8> {
        let mut flash = self.stock.clone();
        flash[..SLOT_LEN].copy_from_slice(&slot(&self.companion_blocks(companion), &self.practice));
        flash
    }

    /// The second unit's slot after a `flash`.
    pub fn companion_asked_for(&self, companion: Companion) -> Vec<u8> {
        slot(&self.edited(self.companion_blocks(companion), Firmware::Patched), &self.patched.image)
    }

    fn companion_blocks(&self, companion: Companion) -> Blocks {
        let mut blocks = self.stock_blocks();
        if companion == Companion::Own {
            // Eight characters fit the field.
            let _ = blocks[0].set_text(ConfigField::Serial, "DOCK0008");
            let _ = blocks[1].set_bytes(ConfigField::Usb4UniqueId, &[8, 8, 8, 8, 8]);
        }
        blocks
    }

    fn stock_blocks(&self) -> Blocks {
        own_blocks(&self.stock).unwrap_or_else(known_blocks)
    }

    fn image(&self, firmware: Firmware) -> &Image {
        match firmware {
            Firmware::Practice => &self.practice,
            Firmware::Patched => &self.patched.image,
            Firmware::Open(build) => self.open(build),
        }
    }

    fn open(&self, build: Build) -> &Image {
        match build {
            Build::Practice => &self.open,
            Build::Newest => self.newest.as_ref().unwrap_or(&self.open),
        }
    }

    /// Whether the newest open firmware is the real one.
    pub fn has_newest_open(&self) -> bool {
        self.newest.is_some()
    }

    /// Whether the flash holds open firmware, which has an identity of its own.
    pub fn is_open(&self, flash: &[u8]) -> bool {
        image_in(flash).is_some_and(|image| image == self.open || Some(&image) == self.newest.as_ref())
    }

    fn edited(&self, mut blocks: Blocks, firmware: Firmware) -> Blocks {
        if firmware == Firmware::Patched {
            // The built-in patches fit their fields.
            let _ = self.patched.receipt.config.apply(&mut blocks);
        }
        blocks
    }

    /// The slots that the history's command makes if it succeeds.
    pub fn asked_for(&self, history: &History) -> Vec<Vec<u8>> {
        match history.job {
            Job::Flash { firmware, config, backup } => {
                let mut bases = Vec::new();
                if history.start.is_readable() {
                    bases.extend(own_blocks(&self.flash(history.start)));
                }
                if config == Config::Earlier {
                    bases.push(self.stock_blocks());
                }
                // Without a backup the unit's own blocks can be lost; the known blocks then replace them.
                if !backup && config != Config::Earlier {
                    for serial in [None, Some(SERIAL), Some(DOCUMENTED_SERIAL)] {
                        let mut blocks = Self::stand_ins(firmware);
                        if let Some(serial) = serial {
                            let _ = blocks[0].set_text(ConfigField::Serial, serial);
                        }
                        bases.push(blocks);
                    }
                }
                if let Some(own) = history.past.own.filter(|_| !history.start.is_readable() || !backup)
                    && let Some(mut blocks) = own_blocks(&self.past_own(own))
                {
                    bases.push(blocks);
                    if config == Config::Serial {
                        let _ = blocks[0].set_text(ConfigField::Serial, SERIAL);
                        bases.push(blocks);
                    }
                }
                let image = self.image(firmware);
                bases.into_iter().map(|blocks| slot(&self.edited(blocks, firmware), image)).collect()
            }
            Job::Restore { .. } => vec![self.stock[..SLOT_LEN].to_vec()],
            // Open firmware, with the blocks that the unit has or those of its backup.
            Job::Fix => {
                let owns = history.past.own.map(|own| self.past_own(own));
                let bases = [Some(self.flash(history.start)), owns].into_iter().flatten();
                bases.filter_map(|flash| Some(slot(&own_blocks(&flash)?, self.open(Build::Newest)))).collect()
            }
            Job::SetSerial => {
                let flash = self.flash(history.start);
                let (Some(mut blocks), Some(image)) = (own_blocks(&flash), image_in(&flash)) else { return Vec::new() };
                let _ = blocks[0].set_text(ConfigField::Serial, NEW_SERIAL);
                vec![slot(&blocks, &image)]
            }
            Job::DryRun | Job::Reset | Job::Backup { .. } | Job::Bench { .. } | Job::List => {
                vec![self.flash(history.start)[..SLOT_LEN].to_vec()]
            }
        }
    }

    /// The blocks that stand in for lost ones. What is drawn at random in the neutral ones is not compared.
    fn stand_ins(firmware: Firmware) -> Blocks {
        if firmware != Firmware::Practice {
            return known_blocks();
        }
        neutral_blocks("", None).unwrap_or_else(|_| known_blocks())
    }

    /// The slots to which the history's unit can return.
    pub fn ways_back(&self, history: &History) -> Vec<Vec<u8>> {
        let mut slots = Vec::new();
        if history.start.is_readable() {
            slots.push(self.flash(history.start)[..SLOT_LEN].to_vec());
        }
        if matches!(history.job, Job::Restore { .. } | Job::Flash { config: Config::Earlier, .. }) {
            slots.push(self.stock[..SLOT_LEN].to_vec());
        }
        slots.extend(history.past.own.map(|own| self.past_own(own)[..SLOT_LEN].to_vec()));
        slots
    }
}

/// Content of the SSD, in which a stray write shows.
pub fn ssd() -> Vec<u8> {
    (0..64 * 1024u32).map(|at| (at % 251) as u8).collect()
}

/// The slot without what is drawn at random in the neutral identity, if it has that.
pub fn without_random(slot: &[u8]) -> Vec<u8> {
    let mut slot = slot.to_vec();
    let is_neutral = own_blocks(&slot).is_some_and(|[_, one]| one.text(ConfigField::Usb4Model) == "246x");
    if is_neutral {
        let serial = ConfigField::Serial.range();
        let unique_id = ConfigField::Usb4UniqueId.range();
        for drawn in [serial, 0x7F..0x80, 0x80 + unique_id.start..0x80 + unique_id.end, 0xFF..0x100] {
            slot[drawn].fill(0);
        }
    }
    slot
}

/// The slot with these blocks and this image, as E1 and E3 leave it.
fn slot(blocks: &Blocks, image: &Image) -> Vec<u8> {
    Slot::of(blocks.each_ref().map(ConfigBlock::bytes), &image.to_file()).bytes().to_vec()
}

/// The configuration blocks in a flash, if both are valid.
pub fn own_blocks(flash: &[u8]) -> Option<Blocks> {
    let [zero, one] = Slot::at(FIRST_SLOT, flash).blocks();
    Some([ConfigBlock::parse(BlockIndex::Zero, &zero).ok()?, ConfigBlock::parse(BlockIndex::One, &one).ok()?])
}

/// The image in a flash that the chip would start, if its container is valid.
pub fn image_in(flash: &[u8]) -> Option<Image> {
    Slot::at(FIRST_SLOT, flash).image().ok()
}

/// The backup that this flash gives.
pub fn backup_of(flash: &[u8]) -> Backup {
    let slot = Slot::at(FIRST_SLOT, flash);
    Backup {
        unit: BackedUpUnit {
            device: "virtual:unit".into(),
            usb_id: "174C:2464".into(),
            state: "vendor firmware".into(),
            serial: SERIAL.into(),
            product: "ASM246X USB4 NVMe".into(),
            firmware_version: None,
        },
        tool: "asmpatch campaign".into(),
        blocks: slot.blocks(),
        parts: slot.parts().map(<[u8]>::to_vec),
    }
}

/// Digest of the content of this flash's backup.
pub fn backup_digest(flash: &[u8]) -> [u8; 32] {
    backup_of(flash).content_digest()
}

/// All backups under a folder, found by their manifests.
pub fn backups_under(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    visit(folder, &mut |path| {
        if path.file_name().is_some_and(|name| name == "backup.toml")
            && let Some(parent) = path.parent()
            && !is_temporary(parent)
        {
            found.insert(parent.to_owned());
        }
    })?;
    Ok(found)
}

/// All temporary files and folders under a folder.
pub fn temporaries_under(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    visit(folder, &mut |path| {
        if is_temporary(path) || path.parent().is_some_and(|parent| parent == folder.join("tmp")) {
            found.push(path.to_owned());
        }
    })?;
    Ok(found)
}

/// Whether asmpatch or its libraries give this name to an unfinished file.
fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with(".asmpatch-") || name.starts_with(".tmp") || name.ends_with(".partial")
    })
}

/// Opens what was closed, so that it can be removed.
pub fn open_closed(folder: &Path) -> io::Result<()> {
    let closed = folder.join(PAST).join(PAST_CLOSED);
    if closed.exists() { fs::set_permissions(closed, fs::Permissions::from_mode(0o700)) } else { Ok(()) }
}

/// Visits what is below a folder, except in what is closed.
fn visit(folder: &Path, each: &mut dyn FnMut(&Path)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        each(&entry.path());
        if entry.file_type()?.is_dir() && entry.file_name() != PAST_CLOSED {
            visit(&entry.path(), each)?;
        }
    }
    Ok(())
}
