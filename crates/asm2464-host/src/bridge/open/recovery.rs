//! What owners do with a unit whose transfers hang, without touching its cable: a check of the bulk pipe, strobes of
//! the transfer engines, and a reset of the CPU. F3 is [`OpenBridge::pcie_power`].
//!
//! This project has run none of it on silicon. Sources: an owner's notes on a unit with an RTX 3090 (2026); the open
//! firmware ed4e39b, which strobes on each SET_CONFIGURATION; the patch to it of which the build quiet1 is made
//! (asiusai/openpilot, September 2026).

use std::time::Duration;

use asm2464::flash::{ARM_OUT, BUFFER, BULK_ARM, DROP_OUT};
use asm2464::scsi::XdataAddress;
use asm2464::sram::DMA_STATE;
use tracing::info;

use super::super::pipes::Endpoint;
use super::command::{OpenCommand, OpenRequest};
use super::workload::OneRequest;
use super::{ControlError, OpenBridge};

/// Value of 0xC450 while the SRAM DMA waits for data or moves it.
const SRAM_BUSY: u8 = 2;
/// Bytes of the check. At high speed the chip loses any further bytes.
const CHECK_LEN: usize = 64;
/// Time limit of each transfer of the check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// 0xCC31.0 resets the CPU.
const CHIP_RESET: XdataAddress = XdataAddress::main(0xCC31);

/// The owner's strobes, as bytes to write.
const STROBES: [(u16, u8); 6] = [(0xC412, 0), (0xC42A, 1), (0xC42A, 0), (0x9094, 1), (0x9094, DROP_OUT), (0x9093, 2)];
/// The open firmware's strobes: bits to set in this order, and then to clear in the same order, group by group.
const BITS: [&[(u16, u8)]; 2] = [&[(0xC42A, 0x01), (0x900B, 0x01), (0xC42A, 0x08)], &[(0xB298, 0x04)]];

impl OpenBridge {
    /// Checks that bulk data to the unit arrives and that no SRAM DMA is pending. Overwrites 64 bytes of the flash
    /// controller's buffer at 0x7000, and nothing else. Data from the unit is not checked, because that needs a PCIe
    /// device that answers.
    ///
    /// # Errors
    /// [`ControlError::SramBusy`]; [`ControlError::BulkTimeout`]; [`ControlError::Malformed`] if other bytes arrive
    /// than were sent; any other [`ControlError`].
    pub fn check_bulk(&mut self) -> Result<(), ControlError> {
        let timeout = std::mem::replace(&mut self.timeout, CHECK_TIMEOUT);
        let result = self.check_bulk_in_time();
        self.timeout = timeout;
        result
    }

    fn check_bulk_in_time(&mut self) -> Result<(), ControlError> {
        let mut status = [0];
        self.xdata_read(DMA_STATE, &mut status)?;
        if status == [SRAM_BUSY] {
            return Err(ControlError::SramBusy { deadline: Duration::ZERO, status: SRAM_BUSY });
        }
        let mut before = [0; CHECK_LEN];
        self.xdata_exchange(&[(BULK_ARM, ARM_OUT)], BUFFER, &mut before)?;
        // Bytes that the buffer does not hold yet.
        let sent = before.map(|byte| !byte);
        if let Err(error) = self.bulk_out(&sent) {
            // The next request shows whether the unit still answers.
            let _ = self.xdata_write(BULK_ARM, DROP_OUT);
            return Err(error);
        }
        let mut found = [0; CHECK_LEN];
        self.xdata_read(BUFFER, &mut found)?;
        let differ = sent.iter().zip(found).filter(|(sent, found)| **sent != *found).count();
        if differ == 0 {
            return Ok(());
        }
        let what = format!("{differ} of {CHECK_LEN} bytes arrived changed or not at all");
        Err(ControlError::Malformed { request: OpenRequest::Bulk(Endpoint::DataOut), what })
    }

    /// Strobes the transfer engines and clears the halts of both bulk pipes, for pipes that hang while control requests
    /// are answered. Drops what is armed. Code, memory and PCIe stay.
    ///
    /// # Errors
    /// [`ControlError`]; some registers may have been written.
    pub fn strobe_engines(&mut self) -> Result<(), ControlError> {
        info!("strobing the transfer engines");
        self.xdata_write_all(&STROBES.map(|(at, value)| (XdataAddress::main(at), value)))?;
        for endpoint in [Endpoint::DataIn, Endpoint::DataOut] {
            let request = OpenRequest::Bulk(endpoint);
            let error = |source| ControlError::of_request(request, source, self.timeout);
            self.queue.pipes.clear_halt(endpoint).map_err(error)?;
        }
        for group in BITS {
            for (on, &(at, bits)) in group.iter().map(|bits| (true, bits)).chain(group.iter().map(|bits| (false, bits)))
            {
                let (at, mut value) = (XdataAddress::main(at), [0]);
                self.xdata_read(at, &mut value)?;
                self.xdata_write(at, if on { value[0] | bits } else { value[0] & !bits })?;
            }
        }
        Ok(())
    }

    /// Resets the CPU through 0xCC31. The unit leaves the bus, as a rule without an answer, and comes back by itself
    /// within 2 s. Reports differ on whether it then runs the code that it had or loads its flash, so check what runs.
    /// Drop this bridge only after the unit has left: a kernel driver that takes a unit about to leave delays the bus.
    ///
    /// # Errors
    /// [`ControlError::Stalled`] if the firmware refuses. A missing answer is not an error.
    pub fn restart_cpu(&mut self) -> Result<(), ControlError> {
        info!("CPU reset through {CHIP_RESET}");
        only_refusals(self.xdata_write(CHIP_RESET, 1))
    }

    /// Restarts a build that has fallen back to USB 2 so that it trains its link at SuperSpeed again. Otherwise as
    /// [`OpenBridge::restart_cpu`], which keeps the fallback: the firmware has cleared 0xCC30.0. Setting the bit by a
    /// request of its own is not safe: changed while USB 2 is in use, 0xCC30 can spoil the next request's setup packet
    /// (an owner's note in the build with F4).
    ///
    /// Only for builds that have F4: see [`restarts_by_f4`](asm2464::firmware::restarts_by_f4).
    ///
    /// # Errors
    /// As for [`OpenBridge::restart_cpu`].
    pub fn restart_at_super_speed(&mut self) -> Result<(), ControlError> {
        info!("restart at SuperSpeed (F4)");
        let mut request = OneRequest::of(OpenCommand::RestartAtSuperSpeed);
        only_refusals(self.queue.run(&mut request, 1, self.timeout))
    }
}

/// A unit that resets at once gives no answer.
fn only_refusals(answer: Result<(), ControlError>) -> Result<(), ControlError> {
    match answer {
        Err(refused @ ControlError::Stalled { .. }) => Err(refused),
        Err(_) | Ok(()) => Ok(()),
    }
}
