//! Observes a unit before any decision. Reads, and writes nothing.

use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::{BridgeState, FirmwareVersion, Image, MAX_FILE_LEN, Part, container_len};
use asm2464::flash::image_file;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Behind, Bridge, CommandError, Port, Storage, UnitInfo};

use super::access::{Access, FlashReader as _, UnitBlocks, is_readable};
use super::error::FlashError;
use crate::image::{Firmware, Images};
use crate::unit::facts::{Contents, RunningFirmware};

/// Time limit of the check for E4's extension.
const E4_DEADLINE: Duration = Duration::from_secs(5);

/// The firmware that runs, and the contents of the flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedFirmware {
    /// The unit's state, as its USB interface shows it.
    pub state: BridgeState,
    /// The version, read by E4.
    pub version: Option<FirmwareVersion>,
    /// Both parts of the flash: complete if read by E2; if read through registers, only as much as the image takes.
    pub parts: Option<[Vec<u8>; 2]>,
    /// Whether E4 takes more than 255 bytes.
    pub e4_extension: Option<bool>,
    /// What the firmware answers about an SSD; `None` if it takes no SCSI commands.
    pub storage: Option<Storage>,
}

impl ObservedFirmware {
    /// Examines an opened unit. Anything that it does not answer stays unknown.
    ///
    /// # Errors
    /// [`FlashError`] if the unit left the bus or can't be recovered.
    pub fn of(access: &mut Access, state: BridgeState) -> Result<Self, FlashError> {
        let parts = match access {
            Access::Commands(bridge) if is_readable(state) => return Ok(Self::by_commands(bridge, state)?),
            Access::Commands(_) => None,
            Access::Registers(flash) => {
                let field = flash.part(Part::One, 4)?;
                let len = field.first_chunk().copied().and_then(container_len);
                // If the field is invalid, there is no image.
                let len = len.filter(|len| *len <= MAX_FILE_LEN).unwrap_or(field.len());
                let one = flash.part(Part::One, len.min(Part::One.max_len()))?;
                let two = flash.part(Part::Two, len - one.len())?;
                Some([one, two])
            }
        };
        Ok(Self { state, version: None, parts, e4_extension: None, storage: None })
    }

    fn by_commands(bridge: &mut Bridge, state: BridgeState) -> Result<Self, CommandError> {
        let storage = Some(Storage::ask(bridge)?);
        let version = known(bridge, Bridge::firmware_version)?;
        let e4_extension = known(bridge, |bridge| Ok(bridge.has_e4_extension(E4_DEADLINE)?))?.flatten();
        let mut part = |part: Part| {
            let mut bytes = vec![0; part.max_len()];
            let read = known(bridge, |bridge| bridge.read_flash(part, &mut bytes))?;
            Ok::<_, CommandError>(read.map(|()| bytes))
        };
        let parts = match part(Part::One)? {
            Some(one) => part(Part::Two)?.map(|two| [one, two]),
            None => None,
        };
        Ok(Self { state, version, parts, e4_extension, storage })
    }

    /// What is behind the bridge.
    pub fn behind(&self) -> Behind {
        match &self.storage {
            Some(storage) => storage.behind(),
            None => Behind::CannotTell(format!("the {} does not say", self.state)),
        }
    }

    /// The image in the flash; `None` if none was read, or if the chip would not start it.
    pub fn image(&self) -> Option<Image> {
        Image::parse(&image_file(self.parts.as_ref()?)).ok()
    }

    /// Whether the unit behaves differently from this firmware.
    pub fn contradicts(&self, firmware: &Firmware) -> bool {
        self.without_image().contradicts(firmware)
    }

    /// The firmware that runs on the unit, if it can be determined.
    pub fn running_firmware(&self, images: &Images) -> RunningFirmware {
        self.contents(images).running_firmware()
    }

    /// What runs, and the image in the flash as what it is.
    pub fn contents(&self, images: &Images) -> Contents {
        let mut contents = self.without_image();
        if let Some(image) = self.image() {
            // Open firmware is known by its descriptors, and its image is not asked for.
            if self.state == BridgeState::Vendor {
                let known = images.identify(&image);
                (contents.sha256, contents.flashed) = (Some(known.sha256), Some(known.firmware.clone()));
            } else {
                contents.sha256 = Some(image.sha256());
            }
        }
        contents
    }

    fn without_image(&self) -> Contents {
        let Self { state, version, e4_extension, .. } = self;
        Contents { state: *state, version: *version, e4_extension: *e4_extension, sha256: None, flashed: None }
    }
}

/// Asks a unit. Returns its answer; `None` if it refused, or did not answer and was recovered.
fn known<T>(
    bridge: &mut Bridge,
    ask: impl FnOnce(&mut Bridge) -> Result<T, CommandError>,
) -> Result<Option<T>, CommandError> {
    match ask(bridge) {
        Ok(answer) => Ok(Some(answer)),
        Err(CommandError::Transport(error)) if error.is_gone() => Err(error.into()),
        Err(CommandError::Transport(_)) => bridge.recover().map(|()| None),
        Err(_) => Ok(None),
    }
}

/// State of a unit before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The attached unit.
    pub attached: UnitInfo,
    /// Its configuration blocks.
    pub blocks: UnitBlocks,
    /// The running firmware and what is behind the bridge.
    pub running: ObservedFirmware,
    /// Whether the system allowed an exclusive open of the disk. If not, only mounts, swap and holders were checked.
    pub is_disk_checked: bool,
}

impl Observation {
    /// Examines the unit at a port, and gives it back to the system.
    ///
    /// # Errors
    /// If the unit can't be opened or fails, and on Ctrl-C.
    pub fn of(port: &mut dyn Port, interrupt: Interrupt<'_>) -> Result<Self, AnyFailure> {
        interrupt.check()?;
        let attached = port.attached()?;
        let mut access = Access::open(port)?;
        let (blocks, running) = read(&mut access, attached.state, interrupt)?;
        // Opening the port has checked the disk.
        let is_disk_checked = port.is_disk_checked();
        Ok(Self { attached, blocks, running, is_disk_checked })
    }
}

/// Reads the configuration blocks of an open unit in this state, what runs on it, and what is in its flash.
///
/// # Errors
/// If the unit fails, and on Ctrl-C.
pub fn read(
    access: &mut Access,
    state: BridgeState,
    interrupt: Interrupt<'_>,
) -> Result<(UnitBlocks, ObservedFirmware), AnyFailure> {
    let blocks = access.blocks(state)?;
    interrupt.check()?;
    let running = ObservedFirmware::of(access, state)?;
    interrupt.check()?;
    Ok((blocks, running))
}

/// Reads the unit at a port and its configuration blocks, and gives it back to the system.
///
/// # Errors
/// If the unit can't be opened or fails, and on Ctrl-C.
pub fn configuration(port: &mut dyn Port, interrupt: Interrupt<'_>) -> Result<(UnitInfo, UnitBlocks), AnyFailure> {
    interrupt.check()?;
    let attached = port.attached()?;
    let blocks = Access::open(port)?.blocks(attached.state)?;
    Ok((attached, blocks))
}
