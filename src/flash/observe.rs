//! Observes a unit before any decision. Reads, and writes nothing.

use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::firmware::{BridgeState, Image, MAX_FILE_LEN, Part, container_len};
use asm2464::flash::image_file;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Behind, Bridge, CommandError, Port, Storage, UnitInfo};
use asm2464_host::pcie::{Survey, is_ssd};

use super::access::{Access, FlashReader as _, UnitBlocks, is_readable};
use super::error::FlashError;
use crate::gpus::PciId;
use crate::image::Images;
use crate::unit::facts::{Asked, Behaviour, Contents, HostState, RunningFirmware};
use crate::unit::{Live, ask};

/// Time limit of the check for E4's extension.
const E4_DEADLINE: Duration = Duration::from_secs(5);

/// The firmware that runs, and the contents of the flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedFirmware {
    /// What runs.
    pub runs: Behaviour,
    /// Both parts of the flash: complete if read by E2; if read through registers, only as much as the image takes.
    pub parts: Option<[Vec<u8>; 2]>,
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
        Ok(Self { runs: Behaviour::only(state), parts, storage: None })
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
        Ok(Self { runs: Behaviour { version, e4_extension, ..Behaviour::only(state) }, parts, storage })
    }

    /// What is behind the bridge, as far as the firmware itself says it.
    pub fn behind(&self) -> Behind {
        match &self.storage {
            Some(storage) => storage.behind(),
            None => Behind::CannotTell(format!("the {} does not say", self.runs.state)),
        }
    }

    /// The image in the flash; `None` if none was read, or if the chip would not start it.
    pub fn image(&self) -> Option<Image> {
        Image::parse(&image_file(self.parts.as_ref()?)).ok()
    }

    /// The firmware that runs on the unit, if it can be determined.
    pub fn running_firmware(&self, images: &Images) -> RunningFirmware {
        self.contents(images).running_firmware()
    }

    /// What runs, and the image in the flash as what it is.
    pub fn contents(&self, images: &Images) -> Contents {
        let mut contents = Contents { runs: self.runs.clone(), sha256: None, flashed: None };
        if let Some(image) = self.image() {
            // Open firmware is known by its descriptors, and its image is not asked for.
            if self.runs.state == BridgeState::Vendor {
                let known = images.identify(&image);
                (contents.sha256, contents.flashed) = (Some(known.sha256), Some(known.firmware.clone()));
            } else {
                contents.sha256 = Some(image.sha256());
            }
        }
        contents
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
    /// The running firmware, and what it says of an SSD.
    pub running: ObservedFirmware,
    /// The PCIe tree behind it. Only open firmware is asked: vendor firmware drives an SSD through the same registers.
    pub tree: Asked<Survey>,
    /// Whether the system allowed an exclusive open of the disk. If not, only mounts, swap and holders were checked.
    pub is_disk_checked: bool,
}

impl Observation {
    /// Examines the unit at a port, and gives it back to the system. PCIe bridges behind open firmware get bus numbers if
    /// they have none, which last as long as PCIe has power; not while a runtime holds its lock.
    ///
    /// # Errors
    /// If the unit can't be opened or fails, and on Ctrl-C.
    pub fn of(port: &mut dyn Port, interrupt: Interrupt<'_>) -> Result<Self, AnyFailure> {
        interrupt.check()?;
        let attached = port.attached()?;
        let is_in_use = !HostState::of(&attached.location).locks.is_empty();
        let mut live = Live::at(port, attached.state)?;
        let tree = match &mut live {
            Live::Open(bridge) => ask::pcie(bridge, !is_in_use, interrupt).1,
            Live::Vendor(_) => Asked::NotAsked,
        };
        interrupt.check()?;
        let (blocks, running) = read(&mut Access::of(live)?, attached.state, interrupt)?;
        // Opening the port has checked the disk.
        let is_disk_checked = port.is_disk_checked();
        Ok(Self { attached, blocks, running, tree, is_disk_checked })
    }

    /// What is behind the bridge: what vendor firmware says, or what open firmware finds on PCIe.
    pub fn behind(&self) -> Behind {
        let tree = match &self.tree {
            Asked::Is(tree) => tree,
            Asked::Failed(problem) => return Behind::CannotTell(problem.message.clone()),
            Asked::NotAsked if self.attached.state == BridgeState::OpenFirmware => {
                return Behind::CannotTell("its PCIe link is down".to_owned());
            }
            Asked::NotAsked => return self.running.behind(),
        };
        let ssds = tree.functions.iter().filter(|function| is_ssd(function.class));
        let ssds: Vec<String> = ssds.map(|ssd| format!("{} {}", ssd.at, PciId::of(ssd))).collect();
        match tree.notes.first() {
            _ if !ssds.is_empty() => Behind::Ssd(ssds.join(", ")),
            // What was not scanned may be one.
            Some(note) => Behind::CannotTell(note.to_string()),
            None => Behind::NoMedium,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::virtual_port;

    #[test]
    fn an_ssd_behind_open_firmware_is_seen_before_the_unit_is_written() {
        let behind = |what: &str| {
            let mut port = virtual_port(&format!("factory = 'open'\n{what}"));
            Observation::of(&mut port, Interrupt::never()).unwrap().behind()
        };
        let ssd = behind("behind = { ssd = { bytes = 67108864 } }");
        assert!(matches!(&ssd, Behind::Ssd(what) if what.contains(':')), "{ssd:?}");
        assert_eq!(behind("behind = 'gpu'"), Behind::NoMedium);
    }
}
