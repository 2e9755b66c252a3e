//! A USB port with a bridge: the unit behind it is found again whatever it then says it is.

use std::time::{Duration, Instant};

use miette::Diagnostic;
use thiserror::Error;

use super::boot_loader;
use super::device::Device;
use super::discovery::{Found, find_at, find_in};
use super::error::UsbError;
use super::hotplug::Watch;
use super::sysfs::{DiskUse, Sysfs};
use crate::bridge::{AnyTransport, Attached, Bridge, Port, PortPath, Speed, Timeouts, UnitInfo};
use crate::failure::{AnyFailure, Exit, Failure};
use crate::firmware::BridgeState;
use crate::interrupt::Interrupt;

/// How long a unit that has just come back may still belong to udev, which sets the permissions, or to the kernel's
/// driver, which asks it who it is.
const SETTLING: Duration = Duration::from_secs(10);
/// How often a unit that settles is tried, and the buses are looked at where no event comes.
const TICK: Duration = Duration::from_millis(200);

/// The disk behind a unit is in use.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
#[error("the disk behind the unit at {port} is in use: {}", listed(uses))]
#[diagnostic(
    code(asmpatch::device::mounted),
    help(
        "asmpatch would take the unit from the system and cut the disk off; unmount it first: `umount PLACE`, \
         `swapoff DEVICE`"
    )
)]
pub struct MountedError {
    /// The unit's port.
    pub port: PortPath,
    /// What uses it.
    pub uses: Vec<DiskUse>,
}

fn listed(uses: &[DiskUse]) -> String {
    uses.iter().map(|used| format!("{} at {}", used.device, used.place)).collect::<Vec<_>>().join(", ")
}

impl Failure for MountedError {
    fn exit(&self) -> Exit {
        Exit::Refused
    }
}

/// Refuses where the system uses the disk behind a unit: taking the unit would cut the disk off. Only Linux tells;
/// elsewhere the system itself keeps a mounted disk from being taken.
///
/// # Errors
/// [`MountedError`].
pub fn refuse_mounted(port: &PortPath) -> Result<(), MountedError> {
    let uses = Sysfs::system().uses(port);
    if uses.is_empty() { Ok(()) } else { Err(MountedError { port: port.clone(), uses }) }
}

/// A port of this machine.
#[derive(Debug, Clone)]
pub struct UsbPort {
    port: PortPath,
    /// The address of the unit that was seen last: what comes back has another one.
    seen: Option<u8>,
    /// The address of the boot loader whose port was reset: it needs that once.
    woken: Option<u8>,
}

impl UsbPort {
    /// The port at which this unit was found.
    pub fn of(found: &Found) -> Self {
        Self { port: found.port.clone(), seen: Some(found.address()), woken: None }
    }

    /// Where it is.
    pub const fn path(&self) -> &PortPath {
        &self.port
    }

    fn gone(&self) -> UsbError {
        UsbError::Gone { port: self.port.clone() }
    }

    fn try_open(&mut self) -> Result<Bridge<AnyTransport>, UsbError> {
        let found = find_at(&self.port)?.ok_or_else(|| self.gone())?;
        let layout = found.layout.as_ref().map_err(Clone::clone)?;
        let state = found.info.state;
        let device = if state == BridgeState::BootLoader {
            let is_reset = self.woken == Some(found.address());
            boot_loader::open(&found, is_reset)?
        } else {
            Device::open(&found, layout.bulk_only)?
        };
        // The reset of a boot loader's port may have given it another address.
        self.seen = Some(device.address());
        self.woken = self.seen.filter(|_| state == BridgeState::BootLoader);
        Ok(Bridge::with_timeouts(super::bulk_only(device)?, Timeouts::of(state)))
    }
}

fn attached(info: UnitInfo) -> Attached {
    Attached {
        usb_id: info.id,
        state: info.state,
        serial: info.serial.unwrap_or_default(),
        manufacturer: info.manufacturer,
        product: info.product,
    }
}

impl Port for UsbPort {
    fn device(&self) -> String {
        self.port.to_string()
    }

    fn attached(&mut self) -> Result<Attached, AnyFailure> {
        let found = find_at(&self.port)?.ok_or_else(|| self.gone())?;
        self.seen = Some(found.address());
        Ok(attached(found.info))
    }

    fn speed(&mut self) -> Result<Speed, AnyFailure> {
        Ok(find_at(&self.port)?.ok_or_else(|| self.gone())?.info.speed)
    }

    /// A unit that has just come back is tried for a while: see `SETTLING`.
    fn open(&mut self) -> Result<Bridge<AnyTransport>, AnyFailure> {
        let until = Instant::now() + SETTLING;
        loop {
            refuse_mounted(&self.port)?;
            match self.try_open() {
                // What passes when udev and the kernel's driver are done with a unit that has just come.
                Err(UsbError::Busy { .. } | UsbError::Gone { .. } | UsbError::Permission { .. })
                    if Instant::now() < until =>
                {
                    std::thread::sleep(TICK);
                }
                other => return Ok(other?),
            }
        }
    }

    fn wait_for_return(
        &mut self,
        deadline: Duration,
        interrupt: Interrupt<'_>,
    ) -> Result<Option<Attached>, AnyFailure> {
        let watch = Watch::new()?;
        let until = Instant::now() + deadline;
        // A link that is trained anew may come up at the other speed: then the unit is on the connector's other port.
        let peer = Sysfs::system().peer(&self.port);
        let mut left = false;
        loop {
            match find_in(watch.context(), &self.port)? {
                Some(found) if left || self.seen != Some(found.address()) => return Ok(Some(attached(found.info))),
                Some(_) => {}
                None => left = true,
            }
            if left
                && let Some(peer) = &peer
                && let Some(found) = find_in(watch.context(), peer)?
            {
                (self.port, self.seen) = (peer.clone(), Some(found.address()));
                return Ok(Some(attached(found.info)));
            }
            let rest = until.saturating_duration_since(Instant::now());
            if interrupt.is_requested() || rest.is_zero() {
                return Ok(None);
            }
            watch.wait(rest.min(TICK));
        }
    }
}
