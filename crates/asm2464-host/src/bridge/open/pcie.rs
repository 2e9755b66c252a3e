//! The PCIe side of a unit that runs open firmware: its link; access to memory and registers, any number of bytes at any
//! address, with repeated attempts after a failure; and windows of data that a device behind the bridge takes from the
//! SRAM.

use std::num::NonZeroU32;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::sram::{FENCE, SRAM_SECTOR_LEN};
use asm2464::tlp::{Completion, CompletionStatus, LTSSM, Tlp};
use tracing::info;

use super::command::OpenCommand;
use super::workload::OneRequest;
use super::{ControlError, OpenBridge, SramTransfer, sectors};
use crate::bridge::pipes;
use crate::pcie::Link;

impl OpenBridge {
    /// F0: sends a TLP and returns the dword of its completion, which is 0 for a write.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Completion`] if the completion has an error status.
    pub fn dword(&mut self, tlp: &Tlp) -> Result<u32, ControlError> {
        match self.tlp(tlp)? {
            None => Ok(0),
            Some(Completion { status: CompletionStatus::Success, data }) => Ok(data),
            Some(Completion { status, .. }) => Err(ControlError::Completion { tlp: *tlp, status }),
        }
    }

    /// Reads memory on the PCIe side, such as behind a BAR. One dword comes by a single TLP, which has a status, and
    /// several as a stream, which has none. Of the dwords at the ends, only the requested bytes are read.
    ///
    /// # Errors
    /// As for [`OpenBridge::dword`] and [`OpenBridge::stream_read`].
    pub fn memory_read(&mut self, address: u64, buffer: &mut [u8]) -> Result<(), ControlError> {
        let [head, dwords, tail] = parts("F0 (memory read)", address, buffer.len())?;
        let at = |part: &Range<usize>| address + part.start as u64;
        self.read_bytes(at(&head), &mut buffer[head])?;
        match dwords.len() {
            0 => {}
            4 => self.read_bytes(at(&dwords), &mut buffer[dwords])?,
            _ => self.stream_read(at(&dwords), &mut buffer[dwords])?,
        }
        self.read_bytes(at(&tail), &mut buffer[tail])
    }

    /// Writes memory on the PCIe side, such as behind a BAR, in the order of the addresses. One dword goes as a single
    /// TLP, several as a stream. Of the dwords at the ends, only these bytes are written. Writes are posted: an address
    /// that no device decodes causes no error.
    ///
    /// # Errors
    /// As for [`OpenBridge::dword`] and [`OpenBridge::stream_write`].
    pub fn memory_write(&mut self, address: u64, data: &[u8]) -> Result<(), ControlError> {
        let [head, dwords, tail] = parts("F0 (memory write)", address, data.len())?;
        let at = |part: &Range<usize>| address + part.start as u64;
        self.write_bytes(at(&head), &data[head])?;
        match dwords.len() {
            0 => {}
            4 => self.write_bytes(at(&dwords), &data[dwords])?,
            _ => self.stream_write(at(&dwords), &data[dwords])?,
        }
        self.write_bytes(at(&tail), &data[tail])
    }

    /// Reads bytes of one dword.
    fn read_bytes(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), ControlError> {
        let Some((dword, first, enables)) = place(address, bytes.len()) else { return Ok(()) };
        let found = self.dword(&Tlp::memory_read(dword).with_enables(enables))?.to_le_bytes();
        bytes.copy_from_slice(&found[first..first + bytes.len()]);
        Ok(())
    }

    /// Writes bytes of one dword.
    fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), ControlError> {
        let Some((dword, first, enables)) = place(address, bytes.len()) else { return Ok(()) };
        let mut value = [0; 4];
        value[first..first + bytes.len()].copy_from_slice(bytes);
        self.dword(&Tlp::memory_write(dword, u32::from_le_bytes(value)).with_enables(enables)).map(drop)
    }

    /// Does `work` up to `attempts` times, with a pause in between, while it ends in an error that
    /// [may pass](ControlError::may_pass). GPU runtimes allow a TLP 10 attempts with 1 ms in between.
    ///
    /// A request that failed may have reached the device: repeat only what the device may see twice. A stream begins
    /// again at its first dword; the new F0 ends the old stream. Source: the open firmware's `main.c`.
    ///
    /// # Errors
    /// That of the last attempt.
    pub fn attempt<T>(
        &mut self,
        attempts: u32,
        pause: Duration,
        mut work: impl FnMut(&mut Self) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        for _ in 1..attempts {
            match work(self) {
                Err(error) if error.may_pass() => info!("{error}: trying again"),
                settled => return settled,
            }
            thread::sleep(pause);
        }
        work(self)
    }
}

/// The parts of `len` bytes at an address: those before the first whole dword, the whole dwords, and those behind them.
fn parts(request: &'static str, address: u64, len: usize) -> Result<[Range<usize>; 3], ControlError> {
    if address.checked_add(len as u64).is_none() {
        let found = format!("{len} bytes at {address:#x}");
        return Err(ControlError::Length { request, limit: "addresses of 64 bits", found });
    }
    let head = len.min((address.wrapping_neg() % 4) as usize);
    let tail = head + (len - head) / 4 * 4;
    Ok([0..head, head..tail, tail..len])
}

/// The dword that holds these bytes, their first place in it, and their enables; `None` for no bytes.
const fn place(address: u64, len: usize) -> Option<(u64, usize, u8)> {
    if len == 0 {
        return None;
    }
    let first = (address % 4) as usize;
    Some((address - first as u64, first, (((1_u32 << len) - 1) << first) as u8))
}

impl OpenBridge {
    /// F2: writes a window to the SRAM, and waits until a device has taken it. The data is a whole number of sectors.
    /// One more sector, which repeats `sentinel`, follows it.
    ///
    /// The device waits until it reads `sentinel` in that sector, takes the data, and writes `sentinel` to
    /// [`FENCE_ADDRESS`](asm2464::sram::FENCE_ADDRESS). Give each window a sentinel of its own, so that the device
    /// never takes an old sector for the new one.
    ///
    /// # Errors
    /// As for [`OpenBridge::sram_write`]; [`ControlError::NotTaken`] if the device has not written the fence within the
    /// [time limit](OpenBridge::set_timeout).
    pub fn sram_write_taken(&mut self, first_slot: u8, data: &[u8], sentinel: NonZeroU32) -> Result<(), ControlError> {
        let sectors = sectors(data.len())?.saturating_add(1);
        self.xdata_write_all(&[0, 1, 2, 3].map(|at| (FENCE.plus(at), 0)))?;
        self.arm_sram(SramTransfer { to_host: false, first_slot, sectors })?;
        self.bulk_out(data)?;
        self.bulk_out(&sentinel.get().to_le_bytes().repeat(SRAM_SECTOR_LEN / 4))?;
        let until = pipes::deadline(self.timeout);
        loop {
            let mut fence = [0; 4];
            self.xdata_read(FENCE, &mut fence)?;
            match u32::from_le_bytes(fence) {
                found if found == sentinel.get() => return Ok(()),
                found if Instant::now() >= until => {
                    return Err(ControlError::NotTaken { deadline: self.timeout, sentinel: sentinel.get(), found });
                }
                _ => {}
            }
        }
    }
}

/// Time limit of F3, which answers after up to 2 s. Source: tinygrad's runtime, which waits as long.
const PCIE_POWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between reads of the link's state.
const TICK: Duration = Duration::from_millis(20);

impl OpenBridge {
    /// F3: switches the power of PCIe, within 10 s. This clears bus numbers and BARs.
    ///
    /// # Errors
    /// [`ControlError`]; older builds refuse it.
    pub fn pcie_power(&mut self, on: bool) -> Result<(), ControlError> {
        self.pcie_power_within(on, self.timeout.max(PCIE_POWER_TIMEOUT))
    }

    fn pcie_power_within(&mut self, on: bool, deadline: Duration) -> Result<(), ControlError> {
        self.queue.run(&mut OneRequest::of(OpenCommand::PciePower(on)), 1, deadline)
    }

    /// Reads the state of the PCIe link.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn link(&mut self) -> Result<Link, ControlError> {
        let mut state = [0];
        self.xdata_read(LTSSM, &mut state)?;
        Ok(Link::of(state[0]))
    }

    /// Takes the PCIe link down: switches PCIe's power off with F3, and waits until the link is in Detect. Returns the link
    /// as it was last read: a build may acknowledge F3 and do nothing.
    ///
    /// # Errors
    /// [`ControlError::Stalled`] on builds without F3; [`ControlError::Interrupted`]; any other [`ControlError`].
    pub fn take_link_down(&mut self, deadline: Duration, interrupt: Interrupt<'_>) -> Result<Link, ControlError> {
        self.pcie_power(false)?;
        let begun = Instant::now();
        loop {
            let link = self.link()?;
            let rest = deadline.saturating_sub(begun.elapsed());
            if link.is_in_detect() || rest.is_zero() {
                return Ok(link);
            }
            interrupt.check()?;
            thread::sleep(rest.min(TICK));
        }
    }

    /// Brings the PCIe link up: switches PCIe's power on with F3 unless the link is up already, and waits for it until the
    /// deadline. Builds without F3 train the link at boot; this waits for that. Some builds with F3 do so as well: a link
    /// that trains gets until the deadline to come up by itself, and as long again after F3.
    ///
    /// # Errors
    /// [`ControlError::LinkDown`] with the LTSSM's state; [`ControlError::Interrupted`]; any other [`ControlError`].
    pub fn bring_link_up(&mut self, deadline: Duration, interrupt: Interrupt<'_>) -> Result<(), ControlError> {
        let mut begun = Instant::now();
        let mut link = self.link()?;
        while link.is_training() && begun.elapsed() < deadline {
            interrupt.check()?;
            thread::sleep(TICK);
            link = self.link()?;
        }
        if !link.is_up {
            begun = Instant::now();
            info!("the PCIe link is down ({:#04x}): PCIe power on", link.ltssm);
            match self.pcie_power_within(true, deadline) {
                Ok(()) | Err(ControlError::Stalled { .. }) => link = self.link()?,
                Err(error) => return Err(error),
            }
        }
        while !link.is_up {
            interrupt.check()?;
            let rest = deadline.saturating_sub(begun.elapsed());
            if rest.is_zero() {
                // Without 12 V PCIe never leaves reset. An error of C0 must not replace this one.
                let supply = self.supply().ok().flatten().and_then(|supply| supply.measured);
                return Err(ControlError::LinkDown { waited: deadline, ltssm: link.ltssm, supply });
            }
            thread::sleep(rest.min(TICK));
            link = self.link()?;
        }
        Ok(())
    }
}
