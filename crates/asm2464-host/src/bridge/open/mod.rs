//! The open firmware's protocol: control requests, and the bulk data that some of them arm.
//!
//! [`OpenCommand`] holds each request with its wire format. [`OpenBridge`] sends them to a unit, one at a time or with
//! many in flight. Source: tinygrad's open firmware and its runtime client, openpilot's flasher.

mod command;
mod error;
mod pcie;
mod queue;
mod recovery;
#[cfg(test)]
mod tests;
mod workload;

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::flash::RegisterAccess;
use asm2464::scsi::{XDATA_PAGE_LEN, XDATA_READ_MAX, XdataAddress};
use asm2464::sram::{COMPLETIONS_PAGE, DMA_STATE, OPEN_COMPLETIONS_PAGE, SRAM_LEN, SRAM_SECTOR_LEN, SRAM_SLOT_LEN};
use asm2464::tlp::{Completion, Tlp};
use tracing::info;

use self::queue::{SramDma, TransferQueue};
use self::workload::{BulkWork, OneRequest, Tlps, XdataExchange};
use super::attached::BusSpeed;
use super::pipes::{self, ControlPipes};
use super::transport::DataPhase;

pub use command::{OpenCommand, OpenJob, OpenRequest, SUPPLY_LEN, SramTransfer, Supply, SupplyMeasurement, TLP_LEN};
pub use error::ControlError;
pub use queue::MAX_DEPTH;
pub use workload::OpenWorkload;

/// Time limit of a request or a bulk transfer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes of one F0 stream. Longer ones go as several. On silicon one stream of 4 MiB of writes
/// succeeds, and the unit answers nothing afterwards until it is restarted; streams of 1 MiB work. Source: tinygrad's
/// issue 18136 and pull request 18137; its newer client has the same limit.
const STREAM_MAX: usize = 1 << 20;

/// Time limit of C0. Builds that know the request answer within milliseconds. Some of the others never answer, so every
/// caller waits this long.
const SUPPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// Most bytes that one E4 returns at high speed: one packet. Longer answers are cut, and end without an empty packet.
/// Source: openpilot's flasher.
const HIGH_SPEED_XDATA_READ_MAX: usize = 64;

/// A unit that runs open firmware.
///
/// Every method has a deadline, and leaves nothing in flight.
pub struct OpenBridge {
    queue: TransferQueue,
    speed: BusSpeed,
    timeout: Duration,
    depth: usize,
    /// Most bytes that an E4 returns: what this speed allows, or less once an answer has shown that this build gives
    /// less.
    xdata_read_max: usize,
    /// Bytes of the longest answer to an E4 so far.
    longest_xdata_read: usize,
    /// Contents of 0xB26E:0xB26F, kept from the first read until an E5 there.
    completions_page: Option<u16>,
}

impl std::fmt::Debug for OpenBridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBridge").field("speed", &self.speed).field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl OpenBridge {
    /// Creates a connection to the unit behind these pipes, at this speed.
    pub fn new(pipes: Box<dyn ControlPipes + Send>, speed: BusSpeed) -> Self {
        let xdata_read_max = if speed.is_super() { XDATA_READ_MAX } else { HIGH_SPEED_XDATA_READ_MAX };
        let queue = TransferQueue::new(pipes);
        Self {
            queue,
            speed,
            timeout: TIMEOUT,
            depth: MAX_DEPTH,
            xdata_read_max,
            longest_xdata_read: 0,
            completions_page: None,
        }
    }

    /// The unit's speed.
    pub const fn speed(&self) -> BusSpeed {
        self.speed
    }

    /// Sets the time limit of a request or bulk transfer, 5 s by default. [`OpenBridge::pcie_power`] may always
    /// take 10 s.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sets how many transfers may be in flight, 1 to [`MAX_DEPTH`]. The default is [`MAX_DEPTH`].
    pub fn set_depth(&mut self, depth: usize) {
        self.depth = depth.clamp(1, MAX_DEPTH);
    }

    /// Maximum number of bytes that one E4 returns, as far as this unit has shown it: some builds give less than this
    /// speed allows. The first longer [`OpenBridge::xdata_read`] shows it.
    pub const fn xdata_read_max(&self) -> usize {
        self.xdata_read_max
    }

    /// E4: reads XDATA, in several requests if necessary.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Length`] if the range crosses the page's end.
    pub fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), ControlError> {
        self.xdata_exchange(&[], from, buffer)
    }

    /// E5: writes one byte of XDATA, registers included.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn xdata_write(&mut self, at: XdataAddress, value: u8) -> Result<(), ControlError> {
        self.xdata_write_all(&[(at, value)])
    }

    /// E5: writes these bytes, in this order, with many requests in flight.
    ///
    /// # Errors
    /// [`ControlError`]; some bytes may have been written.
    pub fn xdata_write_all(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), ControlError> {
        self.xdata_exchange(writes, XdataAddress::main(0), &mut [])
    }

    /// E5, then E4: writes these bytes in this order and then reads XDATA, with all requests in flight together. The
    /// unit carries them out in order.
    ///
    /// # Errors
    /// As for [`OpenBridge::xdata_read`]; some bytes may have been written.
    pub fn xdata_exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        buffer: &mut [u8],
    ) -> Result<(), ControlError> {
        within_page("E4", from, buffer.len())?;
        if writes.iter().any(|(at, _)| *at == COMPLETIONS_PAGE || *at == COMPLETIONS_PAGE.plus(1)) {
            self.completions_page = None;
        }
        let writes = writes.iter().map(|&(at, value)| OpenCommand::XdataWrite { at, value });
        let mut work = XdataExchange::new(writes, from, buffer, self.xdata_read_max, self.longest_xdata_read);
        self.run(&mut work)?;
        // The requests in flight had asked for more than this build gives.
        while !work.is_complete() {
            self.run(&mut work)?;
        }
        (self.xdata_read_max, self.longest_xdata_read) = (work.most, work.longest);
        Ok(())
    }

    /// F0: sends a TLP and fetches its completion; `None` for a memory write, which has none.
    ///
    /// # Errors
    /// [`ControlError`]; a completion with an error status is not an error here.
    pub fn tlp(&mut self, tlp: &Tlp) -> Result<Option<Completion>, ControlError> {
        Ok(self.tlps(std::slice::from_ref(tlp))?.pop().flatten())
    }

    /// F0: sends these TLPs in order, with many requests in flight. Returns their completions in the same order.
    ///
    /// # Errors
    /// As for [`OpenBridge::tlp`]; some TLPs may have been sent.
    pub fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, ControlError> {
        let mut work = Tlps::new(tlps);
        self.run(&mut work)?;
        Ok(work.completions)
    }

    /// F0, mode 1: writes memory on the PCIe side, at most 1 MiB a stream. Address and length are multiples of 4.
    ///
    /// # Errors
    /// [`ControlError`]. An address that no device decodes causes no error.
    pub fn stream_write(&mut self, address: u64, data: &[u8]) -> Result<(), ControlError> {
        whole_dwords("F0 (stream of memory writes)", address, data.len())?;
        for (address, piece) in addresses(address).zip(data.chunks(STREAM_MAX)) {
            let command = OpenCommand::StreamWrite { address, dwords: dwords(piece) };
            self.run(&mut BulkWork::new(Some(command), DataPhase::Out(piece)))?;
        }
        Ok(())
    }

    /// F0, mode 2: reads memory on the PCIe side, at most 1 MiB a stream. Address and length are multiples of 4.
    ///
    /// # Errors
    /// [`ControlError`]. A stream has no status: where no device answers, both open images return FF.
    pub fn stream_read(&mut self, address: u64, buffer: &mut [u8]) -> Result<(), ControlError> {
        whole_dwords("F0 (stream of memory reads)", address, buffer.len())?;
        for (address, piece) in addresses(address).zip(buffer.chunks_mut(STREAM_MAX)) {
            let command = OpenCommand::StreamRead { address, dwords: dwords(piece) };
            self.run(&mut BulkWork::new(Some(command), DataPhase::In(piece)))?;
        }
        Ok(())
    }

    /// F2: arms the SRAM DMA once it is idle. If armed while busy, it loses the first sectors. The data follows through
    /// [`OpenBridge::bulk_out`] or [`OpenBridge::bulk_in`].
    ///
    /// Reads 0xC450 first, unless all data of the last F2 has moved and only E4, C0 and F0 were sent since.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::SramBusy`] if the DMA does not become idle in time.
    pub fn arm_sram(&mut self, transfer: SramTransfer) -> Result<(), ControlError> {
        let end = usize::from(transfer.first_slot) * SRAM_SLOT_LEN + usize::from(transfer.sectors) * SRAM_SECTOR_LEN;
        if transfer.sectors == 0 || end > SRAM_LEN {
            let found = format!("{} sectors from slot {}", transfer.sectors, transfer.first_slot);
            let limit = "1 to 1,024 sectors within 32 slots of 32 sectors each";
            return Err(ControlError::Length { request: "F2", limit, found });
        }
        if self.queue.sram != SramDma::Idle {
            self.wait_until_sram_is_idle()?;
        }
        self.request(OpenCommand::ArmSram(transfer)).map(drop)
    }

    /// F2: writes to the SRAM from the start of a slot on. The length is a multiple of [`SRAM_SECTOR_LEN`].
    ///
    /// When this returns, the data has left this host, but may not be in the SRAM yet: 0xC450 = 0 means only that the
    /// DMA may be armed again. So end each window with a sector that holds a number of its own, and let the device wait
    /// for that number before it takes the data: [`OpenBridge::sram_write_taken`] does this for one window. Without it,
    /// docks lost the first 1 KiB of windows. After some 7,000 to 10,000 F2 without a pause, a window never arrives; up
    /// to 4,096, and then a wait until the device has taken all of them, moved 3 GB without an error. Source: owners'
    /// measurements (jacobrosenthal/tinygrad, `extra/usbgpu`); tinygrad's newer client.
    ///
    /// # Errors
    /// [`ControlError`]; as for [`OpenBridge::arm_sram`].
    pub fn sram_write(&mut self, first_slot: u8, data: &[u8]) -> Result<(), ControlError> {
        self.arm_sram(SramTransfer { to_host: false, first_slot, sectors: sectors(data.len())? })?;
        self.bulk_out(data)
    }

    /// Sends bulk data that an earlier request has armed.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn bulk_out(&mut self, data: &[u8]) -> Result<(), ControlError> {
        self.run(&mut BulkWork::new(None, DataPhase::Out(data)))
    }

    /// Receives bulk data that an earlier request has armed. The data of [`OpenBridge::arm_sram`] arrives once a device
    /// on the PCIe side has written the completion entry at 0x00822000.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn bulk_in(&mut self, buffer: &mut [u8]) -> Result<(), ControlError> {
        self.run(&mut BulkWork::new(None, DataPhase::In(buffer)))
    }

    /// C0: reads the state of the supply; `None` from builds that don't know the request, which stall it, don't answer,
    /// or give less than voltage and current.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn supply(&mut self) -> Result<Option<Supply>, ControlError> {
        let mut work = OneRequest::of(OpenCommand::Supply);
        match self.queue.run(&mut work, 1, self.timeout.min(SUPPLY_TIMEOUT)) {
            Ok(()) => Ok(Supply::parse(&work.answer)),
            Err(ControlError::Stalled { .. }) => Ok(None),
            // A unit that answers nothing at all is an error, not a build without the request.
            Err(ControlError::Timeout { .. }) => self.link().map(|_| None),
            Err(error) => Err(error),
        }
    }

    /// The page of 4 KiB on the PCIe side where a device writes the completion entry that lets F2's data go to the
    /// host: 0xB26E:0xB26F. It is read once, and again after an E5 there. A value of 0, which a model of the chip has
    /// until the first write, stands for [`OPEN_COMPLETIONS_PAGE`].
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn completions_page(&mut self) -> Result<u16, ControlError> {
        if let Some(page) = self.completions_page {
            return Ok(page);
        }
        let mut page = [0; 2];
        self.xdata_read(COMPLETIONS_PAGE, &mut page)?;
        let page = match u16::from_be_bytes(page) {
            0 => OPEN_COMPLETIONS_PAGE,
            page => page,
        };
        self.completions_page = Some(page);
        Ok(page)
    }

    /// Moves that page, such as to [`VENDOR_COMPLETIONS_PAGE`](asm2464::sram::VENDOR_COMPLETIONS_PAGE), which a runtime
    /// for NVIDIA's GPUs uses. No F2 may be armed.
    ///
    /// # Errors
    /// [`ControlError`]; one byte may have been written.
    pub fn set_completions_page(&mut self, page: u16) -> Result<(), ControlError> {
        let [high, low] = page.to_be_bytes();
        self.xdata_write_all(&[(COMPLETIONS_PAGE, high), (COMPLETIONS_PAGE.plus(1), low)])
    }

    /// Runs a stream of transfers, with as many in flight as [`OpenBridge::set_depth`] allows.
    ///
    /// # Errors
    /// [`ControlError`]; also any error of [`OpenWorkload::complete`].
    pub fn run(&mut self, work: &mut dyn OpenWorkload) -> Result<(), ControlError> {
        self.queue.run(work, self.depth, self.timeout)
    }

    /// Makes one control request. Returns its data, as many bytes as it asks for.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn request(&mut self, command: OpenCommand) -> Result<Vec<u8>, ControlError> {
        let mut work = OneRequest::of(command);
        self.run(&mut work)?;
        let (expected, found) = (command.len(), work.answer.len());
        if command.is_read() && found < expected {
            return Err(ControlError::Short { request: OpenRequest::Command(command), expected, found });
        }
        Ok(work.answer)
    }

    /// Resets the port: the last resort if bulk pipes hang.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn reset_port(&mut self) -> Result<(), ControlError> {
        info!("port reset");
        self.queue.sram = SramDma::Unknown;
        let error = |source| ControlError::of_request(OpenRequest::PortReset, source, self.timeout);
        self.queue.pipes.reset_port().map_err(error)
    }

    fn wait_until_sram_is_idle(&mut self) -> Result<(), ControlError> {
        let until = pipes::deadline(self.timeout);
        loop {
            let mut status = [0];
            self.xdata_read(DMA_STATE, &mut status)?;
            match status[0] {
                0 => return Ok(()),
                status if Instant::now() >= until => {
                    return Err(ControlError::SramBusy { deadline: self.timeout, status });
                }
                _ => {}
            }
        }
    }
}

fn within_page(request: &'static str, from: XdataAddress, len: usize) -> Result<(), ControlError> {
    if usize::from(from.addr) + len <= XDATA_PAGE_LEN {
        return Ok(());
    }
    let found = format!("{len} bytes from {from}");
    Err(ControlError::Length { request, limit: "bytes up to 0xFFFF", found })
}

/// Checks that a stream has whole dwords, up to the last address.
fn whole_dwords(request: &'static str, address: u64, len: usize) -> Result<(), ControlError> {
    if len.is_multiple_of(4) && address.is_multiple_of(4) && address.checked_add(len as u64).is_some() {
        return Ok(());
    }
    let found = format!("{len} bytes at {address:#x}");
    Err(ControlError::Length { request, limit: "whole dwords", found })
}

/// Addresses of the streams that carry one range.
fn addresses(first: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(first), |address| address.checked_add(STREAM_MAX as u64))
}

/// Number of dwords of a stream.
const fn dwords(piece: &[u8]) -> u32 {
    (piece.len() / 4) as u32
}

/// Number of SRAM sectors of a length in bytes.
pub(crate) fn sectors(len: usize) -> Result<u16, ControlError> {
    if let Ok(sectors) = u16::try_from(len / SRAM_SECTOR_LEN)
        && len.is_multiple_of(SRAM_SECTOR_LEN)
    {
        return Ok(sectors);
    }
    let found = format!("{len} bytes");
    Err(ControlError::Length { request: "F2", limit: "whole sectors of 512 bytes", found })
}

/// Start of the clock that [`RegisterAccess::now`] reads.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The flash controller's registers, which open firmware lets a host reach: E4, E5 and the bulk pipe.
impl RegisterAccess for OpenBridge {
    type Error = ControlError;

    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), ControlError> {
        self.xdata_exchange(writes, from, into)
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), ControlError> {
        self.xdata_write_all(writes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.bulk_out(bytes)
    }

    fn is_gone(error: &ControlError) -> bool {
        matches!(error, ControlError::Disconnected { .. })
    }

    fn is_super_speed(&self) -> bool {
        self.speed.is_super()
    }

    fn now(&mut self) -> Duration {
        BEGUN.elapsed()
    }

    fn pause(&mut self, time: Duration) {
        thread::sleep(time);
    }
}
