//! Typed commands over any transport, and the E5 writes of a GPU runtime around WRITE(16).

use std::time::Duration;

use asm2464::ParseError;
use asm2464::firmware::{BlockIndex, BridgeState, CONFIG_BLOCK_LEN, FirmwareVersion, Part};
use asm2464::scsi::runtime::{Variables, freeing};
use asm2464::scsi::{
    BLOCK_LEN, Capacity, Command, INQUIRY_LEN, Inquiry, LONG_READ, LONG_READ_LEN, Lun, REPORT_LUNS_LEN, ResetMode,
    ScsiStatus, Sense, SenseKey, XdataAddress, has_long_read, listed_luns,
};
use tracing::info;

use super::error::{CommandError, TransportError};
use super::transport::{AnyTransport, CommandEnd, DataPhase, Transport};

/// Maximum number of bytes that E2 reads in one command. Source: E2's handler in image 240417.
const FLASH_READ_MAX: usize = 0x1_0000;
/// Bytes in NVMe Identify Controller data.
const IDENTIFY_LEN: usize = 4096;
/// Maximum number of UNIT ATTENTIONs to clear. A unit that was just reset answers with one for each reset that it
/// counts.
const ATTENTIONS: usize = 3;

/// Time limit of reading 64 KiB of SPI flash.
const FLASH_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of E1 and E3 on firmware. Allows for 64 KiB of SPI flash: sixteen 4 KiB sector erases at up to 0.4 s by NOR
/// data sheets, and the pages.
const FLASH_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of all other commands on firmware: those that it answers from memory, E0, READ(16), WRITE(16).
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of every command on the boot loader, which is slow. Source: openpilot's flasher.
const BOOT_LOADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A bridge: the typed commands of [`Command`] over a transport.
///
/// A CHECK CONDITION becomes [`CommandError::CheckCondition`]. If a command gets UNIT ATTENTION after a reset, it is
/// sent again.
pub struct Bridge {
    transport: AnyTransport,
    state: BridgeState,
    /// The running firmware's version, once it was read.
    version: Option<FirmwareVersion>,
}

impl Bridge {
    /// Creates a bridge over this transport to a unit in this state, which decides how long commands may take.
    pub fn new(transport: AnyTransport, state: BridgeState) -> Self {
        Self { transport, state, version: None }
    }

    /// Time limit of a command, unless it reads or writes the flash.
    pub fn timeout(&self) -> Duration {
        if self.state == BridgeState::BootLoader { BOOT_LOADER_TIMEOUT } else { TIMEOUT }
    }

    /// The transport, for streams of commands.
    pub fn transport_mut(&mut self) -> &mut dyn Transport {
        &mut *self.transport
    }

    /// Recovers the device, so that the next command can be sent.
    ///
    /// # Errors
    /// [`CommandError::Transport`] if recovery fails.
    pub fn recover(&mut self) -> Result<(), CommandError> {
        Ok(self.transport.recover()?)
    }

    /// Sends TEST UNIT READY. Returns `false` if the unit answers NOT READY.
    ///
    /// # Errors
    /// [`CommandError`] for any other refusal.
    pub fn is_ready(&mut self) -> Result<bool, CommandError> {
        match self.exactly(Lun::ZERO, Command::TestUnitReady, DataPhase::None) {
            Ok(()) => Ok(true),
            Err(error) if error.sense().is_some_and(|sense| sense.key == SenseKey::NOT_READY) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads standard INQUIRY data.
    ///
    /// # Errors
    /// [`CommandError`]; [`CommandError::Malformed`] if the data is too short.
    pub fn inquiry(&mut self) -> Result<Inquiry, CommandError> {
        self.inquiry_of(Lun::ZERO)
    }

    /// As [`Bridge::inquiry`], of a logical unit that [`Bridge::luns`] returned.
    pub(super) fn inquiry_of(&mut self, lun: Lun) -> Result<Inquiry, CommandError> {
        let mut data = [0; INQUIRY_LEN as usize];
        let command = Command::Inquiry { len: INQUIRY_LEN };
        let found = self.settled(lun, command, DataPhase::In(&mut data))?;
        Inquiry::parse(&data[..found]).map_err(|error| malformed(&command, &error))
    }

    /// REPORT LUNS: the logical units of the dock, each once.
    ///
    /// # Errors
    /// [`CommandError`]; [`CommandError::Malformed`] if the list is cut off, or names a logical unit that can't be asked.
    pub fn luns(&mut self) -> Result<Vec<Lun>, CommandError> {
        let mut data = [0; REPORT_LUNS_LEN as usize];
        let command = Command::ReportLuns;
        let found = self.settled(Lun::ZERO, command, DataPhase::In(&mut data))?;
        listed_luns(&data[..found]).map_err(|error| malformed(&command, &error))
    }

    /// E0: reads a configuration block without checking it.
    ///
    /// # Errors
    /// [`CommandError`]; sense 3/11/00 if the flash does not answer.
    pub fn read_config(&mut self, block: BlockIndex) -> Result<[u8; CONFIG_BLOCK_LEN], CommandError> {
        let mut data = [0; CONFIG_BLOCK_LEN];
        self.exactly(Lun::ZERO, Command::ConfigRead(block), DataPhase::In(&mut data))?;
        Ok(data)
    }

    /// E1: writes a configuration block.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn write_config(&mut self, block: BlockIndex, data: &[u8; CONFIG_BLOCK_LEN]) -> Result<(), CommandError> {
        self.exactly(Lun::ZERO, Command::ConfigWrite(block), DataPhase::Out(data))
    }

    /// E2: reads the first `buffer.len()` bytes of a part of the flash, at most 65,536.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn read_flash(&mut self, part: Part, buffer: &mut [u8]) -> Result<(), CommandError> {
        let command = Command::FlashRead { part, len: buffer.len() as u32 };
        limited(&command, buffer.len(), buffer.len() <= FLASH_READ_MAX, "at most 65,536 bytes")?;
        self.exactly(Lun::ZERO, command, DataPhase::In(buffer))
    }

    /// E3: writes a part of the flash from its start, at most [`Part::max_len`] bytes.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn write_flash(&mut self, part: Part, data: &[u8]) -> Result<(), CommandError> {
        let command = Command::FlashWrite { part, len: data.len() as u32 };
        let limit = "at most 0xff00 bytes of part 1 and 0x10000 of part 2";
        limited(&command, data.len(), data.len() <= part.max_len(), limit)?;
        self.exactly(Lun::ZERO, command, DataPhase::Out(data))
    }

    /// E4: reads XDATA. Stock firmware takes up to 255 bytes; with the length extension up to 4,096.
    ///
    /// # Errors
    /// [`CommandError`]; sense 5/24/00 if the firmware does not support the length; [`CommandError::ShortXdata`] if it
    /// returns fewer bytes with good status. Bulk-Only's residue may be 0 then, and UAS has none.
    pub fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), CommandError> {
        let command = Command::XdataRead { from, len: buffer.len() as u16 };
        limited(&command, buffer.len(), buffer.len() <= usize::from(u16::MAX), "at most 65,535 bytes")?;
        let expected = buffer.len();
        let found = self.settled(Lun::ZERO, command, DataPhase::In(buffer))?;
        if found == expected { Ok(()) } else { Err(CommandError::ShortXdata { expected, found }) }
    }

    /// E4: reads one byte of XDATA, registers included.
    ///
    /// # Errors
    /// As for [`Bridge::xdata_read`].
    pub fn xdata_byte(&mut self, from: XdataAddress) -> Result<u8, CommandError> {
        let mut byte = [0];
        self.xdata_read(from, &mut byte)?;
        Ok(byte[0])
    }

    /// E5: writes one byte of XDATA, registers included.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn xdata_write(&mut self, at: XdataAddress, value: u8) -> Result<(), CommandError> {
        self.exactly(Lun::ZERO, Command::XdataWrite { at, value }, DataPhase::None)
    }

    /// Reads the version of the running firmware through E4.
    ///
    /// # Errors
    /// [`CommandError`]; the boot loader refuses.
    pub fn firmware_version(&mut self) -> Result<FirmwareVersion, CommandError> {
        let mut version = [0; 6];
        self.xdata_read(XdataAddress::VERSION, &mut version)?;
        Ok(*self.version.insert(FirmwareVersion(version)))
    }

    /// As [`Bridge::firmware_version`], but sends an E4 only the first time: firmware does not change while it runs.
    pub(super) fn running_version(&mut self) -> Result<FirmwareVersion, CommandError> {
        self.version.map_or_else(|| self.firmware_version(), Ok)
    }

    /// READ(16): reads whole blocks of 512 bytes.
    ///
    /// # Errors
    /// [`CommandError`]; [`TransportErrorKind::Timeout`](super::TransportErrorKind::Timeout) if nothing behind the
    /// bridge answers.
    pub fn read16(&mut self, lba: u64, buffer: &mut [u8]) -> Result<(), CommandError> {
        let command = Command::Read16 { lba, blocks: (buffer.len() / BLOCK_LEN) as u32 };
        whole_blocks(&command, buffer.len())?;
        self.exactly(Lun::ZERO, command, DataPhase::In(buffer))
    }

    /// WRITE(16): writes whole blocks of 512 bytes. Overwrites an SSD behind the bridge.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn write16(&mut self, lba: u64, data: &[u8]) -> Result<(), CommandError> {
        let command = Command::Write16 { lba, blocks: (data.len() / BLOCK_LEN) as u32 };
        whole_blocks(&command, data.len())?;
        self.exactly(Lun::ZERO, command, DataPhase::Out(data))
    }

    /// READ CAPACITY: reads the capacity; `None` if the logical unit has no medium (sense 2/3A).
    ///
    /// # Errors
    /// [`CommandError`] for any other refusal; NOT READY if there is a medium that is not ready.
    pub fn read_capacity(&mut self, lun: Lun) -> Result<Option<Capacity>, CommandError> {
        let mut data = [0; 8];
        match self.exactly(lun, Command::ReadCapacity10, DataPhase::In(&mut data)) {
            Err(error) if error.sense().is_some_and(Sense::is_no_medium) => return Ok(None),
            outcome => outcome?,
        }
        let capacity = Capacity::parse10(&data).filter(|capacity| !capacity.is_past_32_bits());
        if capacity.is_some() {
            return Ok(capacity);
        }
        let mut data = [0; 32];
        self.exactly(lun, Command::ReadCapacity16, DataPhase::In(&mut data))?;
        Ok(Capacity::parse16(&data))
    }

    /// E6: reads the NVMe Identify Controller data of the SSD behind the bridge.
    ///
    /// # Errors
    /// [`CommandError`]; without an SSD the unit refuses or does not answer.
    pub fn identify(&mut self) -> Result<[u8; IDENTIFY_LEN], CommandError> {
        let mut data = [0; IDENTIFY_LEN];
        self.exactly(Lun::ZERO, Command::NvmeIdentifyController, DataPhase::In(&mut data))?;
        Ok(data)
    }

    /// E8: resets the unit. It leaves the bus, and comes back by itself or after a power cycle. It is not an error if
    /// the unit leaves before it answers.
    ///
    /// # Errors
    /// [`CommandError`] if the unit refuses or does not answer.
    pub fn reset(&mut self, mode: ResetMode) -> Result<(), CommandError> {
        self.version = None;
        match self.exactly(Lun::ZERO, Command::Reset(mode), DataPhase::None) {
            Err(CommandError::Transport(error)) if error.is_gone() => Ok(()),
            other => other,
        }
    }

    /// Whether E4 gives more than 255 bytes, by [`LONG_READ`]; `None` if the firmware refuses that command.
    ///
    /// # Errors
    /// [`TransportError`] if the wire failed.
    pub fn has_e4_extension(&mut self, timeout: Duration) -> Result<Option<bool>, TransportError> {
        let completion = self.execute(LONG_READ, DataPhase::In(&mut [0; LONG_READ_LEN]), timeout)?;
        Ok(has_long_read(completion.status, completion.transferred))
    }

    /// Whether the patch read16-sram answers READ(16) in software. Requests 0 sectors, which only that patch refuses.
    /// Call it only on an [initialised](Bridge::initialise) unit; before that the answer shows nothing.
    ///
    /// # Errors
    /// [`TransportError`] if the wire failed.
    pub fn has_read16_sram(&mut self, timeout: Duration) -> Result<bool, TransportError> {
        let command = Command::Read16 { lba: 0, blocks: 0 };
        let completion = self.execute(command, DataPhase::None, timeout)?;
        Ok(completion.sense == Some(Sense::INVALID_FIELD_IN_CDB))
    }

    /// Returns where the running firmware keeps the variables of the initialisation. Reads its version by E4, unless it
    /// was read before.
    ///
    /// # Errors
    /// [`CommandError::UnknownVariables`] for a version whose variables are not known.
    pub fn variables(&mut self) -> Result<Variables, CommandError> {
        let version = self.running_version()?;
        Variables::of(version).ok_or(CommandError::UnknownVariables(version))
    }

    /// Initialises the bridge for WRITE(16) as a GPU runtime does, at the addresses of its firmware's version. Call it
    /// only if [`Bridge::has_no_medium`] returns `true`.
    ///
    /// # Errors
    /// [`CommandError`]; [`CommandError::UnknownVariables`] as for [`Bridge::variables`].
    pub fn initialise(&mut self) -> Result<(), CommandError> {
        let all = self.variables()?.initialisation();
        all.iter().try_for_each(|&(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }

    /// Frees the SRAM after a WRITE(16) of `written` bytes, and clears the counters that the command leaves.
    /// Only an [initialised](Self::initialise) unit takes a WRITE(16).
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn free_slots(&mut self, written: usize) -> Result<(), CommandError> {
        // `initialise` refuses an unknown version. The default is for a unit that another program has initialised.
        let variables = self.version.and_then(Variables::of).unwrap_or(Variables::As240417);
        let mut all = freeing(written).chain(variables.counters());
        all.try_for_each(|(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }

    /// Runs one command with any data. A CHECK CONDITION is a [`CommandEnd`] here.
    ///
    /// # Errors
    /// [`TransportError`] if the wire failed.
    pub fn execute(
        &mut self,
        command: Command,
        data: DataPhase<'_>,
        timeout: Duration,
    ) -> Result<CommandEnd, TransportError> {
        self.transport.execute(&command.cdb(), data, timeout)
    }

    /// Runs a command that moves all of this data.
    fn exactly(&mut self, lun: Lun, command: Command, data: DataPhase<'_>) -> Result<(), CommandError> {
        let expected = data.len();
        let found = self.settled(lun, command, data)?;
        if found == expected {
            Ok(())
        } else {
            Err(CommandError::Short { command: command.name().to_owned(), expected, found })
        }
    }

    /// Sends a command until the answer is not UNIT ATTENTION. Returns the bytes moved.
    fn settled(&mut self, lun: Lun, command: Command, mut data: DataPhase<'_>) -> Result<usize, CommandError> {
        let timeout = match command {
            Command::FlashRead { .. } => FLASH_READ_TIMEOUT,
            Command::ConfigWrite(_) | Command::FlashWrite { .. } if self.state != BridgeState::BootLoader => {
                FLASH_WRITE_TIMEOUT
            }
            _ => self.timeout(),
        };
        let cdb = command.cdb();
        let mut attentions = 0;
        loop {
            let completion = self.transport.execute_on(lun, &cdb, data.reborrow(), timeout)?;
            match (completion.status, completion.sense) {
                (ScsiStatus::Good, _) => return Ok(completion.transferred),
                (ScsiStatus::CheckCondition, Some(sense))
                    if sense.key == SenseKey::UNIT_ATTENTION && attentions < ATTENTIONS =>
                {
                    attentions += 1;
                    info!("{}: {sense}: sent again", cdb.name());
                }
                (status, sense) => return Err(CommandError::of_status(&cdb, status, sense)),
            }
        }
    }
}

fn malformed(command: &Command, error: &ParseError) -> CommandError {
    CommandError::Malformed { command: command.name().to_owned(), what: error.to_string() }
}

fn limited(command: &Command, found: usize, fits: bool, limit: &'static str) -> Result<(), CommandError> {
    if fits { Ok(()) } else { Err(CommandError::Length { command: command.name().to_owned(), limit, found }) }
}

fn whole_blocks(command: &Command, found: usize) -> Result<(), CommandError> {
    let fits = found != 0 && found.is_multiple_of(BLOCK_LEN);
    limited(command, found, fits, "whole blocks of 512 bytes")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use asm2464::Coded as _;

    use super::*;
    use crate::bridge::{TransportKind, Workload};

    /// A transport that answers every command with good status and this many bytes.
    struct Brings(usize);

    impl Transport for Brings {
        fn kind(&self) -> TransportKind {
            TransportKind::UasStreams
        }

        fn max_depth(&self) -> usize {
            1
        }

        fn run(&mut self, workload: &mut dyn Workload, _depth: usize, _: Duration) -> Result<(), TransportError> {
            let mut buffer = vec![0; workload.buffer_len()];
            while let Some(job) = workload.next(&mut buffer) {
                let completion = CommandEnd { transferred: self.0, status: ScsiStatus::Good, sense: None };
                if !workload.complete(&job, &completion, &buffer[..self.0], Duration::ZERO) {
                    break;
                }
            }
            Ok(())
        }

        fn recover(&mut self) -> Result<(), TransportError> {
            Ok(())
        }
    }

    /// A transport that answers each command with the next of these data, and keeps each command's time limit.
    struct Answers {
        data: Vec<Vec<u8>>,
        limits: Arc<Mutex<Vec<Duration>>>,
    }

    impl Transport for Answers {
        fn kind(&self) -> TransportKind {
            TransportKind::UasStreams
        }

        fn max_depth(&self) -> usize {
            1
        }

        fn run(&mut self, workload: &mut dyn Workload, _: usize, limit: Duration) -> Result<(), TransportError> {
            let mut buffer = vec![0; workload.buffer_len()];
            while let Some(job) = workload.next(&mut buffer) {
                self.limits.lock().unwrap().push(limit);
                let data = if self.data.is_empty() { buffer.clone() } else { self.data.remove(0) };
                let completion = CommandEnd { transferred: data.len(), status: ScsiStatus::Good, sense: None };
                if !workload.complete(&job, &completion, &data, Duration::ZERO) {
                    break;
                }
            }
            Ok(())
        }

        fn recover(&mut self) -> Result<(), TransportError> {
            Ok(())
        }
    }

    fn answering(state: BridgeState, data: Vec<Vec<u8>>) -> (Bridge, Arc<Mutex<Vec<Duration>>>) {
        let limits = Arc::<Mutex<Vec<Duration>>>::default();
        (Bridge::new(Box::new(Answers { data, limits: limits.clone() }), state), limits)
    }

    #[test]
    fn a_medium_past_2_to_the_32_blocks_is_asked_with_the_longer_command() {
        let mut long = vec![0; 32];
        long[..12].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0]);
        let short = |last: [u8; 4]| [last, [0, 0, 2, 0]].concat();
        let (mut bridge, limits) = answering(BridgeState::Vendor, vec![short([0xFF; 4]), long]);
        let capacity = bridge.read_capacity(Lun::ZERO).unwrap().unwrap();
        assert_eq!((capacity.blocks, limits.lock().unwrap().len()), (0x2_0000_0001, 2));
        let (mut bridge, limits) = answering(BridgeState::Vendor, vec![short([0xFF, 0xFF, 0xFF, 0xFE])]);
        let capacity = bridge.read_capacity(Lun::ZERO).unwrap().unwrap();
        assert_eq!((capacity.blocks, limits.lock().unwrap().len()), (0xFFFF_FFFF, 1));
    }

    #[test]
    fn commands_that_write_the_flash_get_the_time_that_an_erase_takes() {
        let limit = |state, act: &dyn Fn(&mut Bridge)| {
            let (mut bridge, limits) = answering(state, Vec::new());
            act(&mut bridge);
            let limits = limits.lock().unwrap();
            limits[0]
        };
        let config = |bridge: &mut Bridge| bridge.write_config(BlockIndex::Zero, &[0; CONFIG_BLOCK_LEN]).unwrap();
        let flash = |bridge: &mut Bridge| bridge.write_flash(Part::One, &[0; 512]).unwrap();
        let write: [&dyn Fn(&mut Bridge); 2] = [&config, &flash];
        for act in write {
            assert_eq!(limit(BridgeState::Vendor, act), FLASH_WRITE_TIMEOUT);
            assert_eq!(limit(BridgeState::BootLoader, act), BOOT_LOADER_TIMEOUT);
        }
        let read = |bridge: &mut Bridge| bridge.read16(0, &mut [0; 512]).unwrap();
        assert_eq!(limit(BridgeState::Vendor, &read), TIMEOUT);
    }

    #[test]
    fn a_long_e4_that_ends_well_but_short_says_how_many_bytes_came_and_which_firmware_does_that() {
        for (expected, found, why) in [
            (4096, 0, "xdata_one_byte"),
            (1000, 1000 & 0xFF, "xdata_one_byte"),
            (4096, 1024, "xdata_one_packet"),
            (4096, 512, "xdata_one_packet"),
            (4096, 3072, "short_xdata"),
            (64, 32, "short_xdata"),
        ] {
            let mut buffer = vec![0; expected];
            let error = Bridge::new(Box::new(Brings(found)), BridgeState::Vendor)
                .xdata_read(XdataAddress::main(0xF000), &mut buffer)
                .unwrap_err();
            assert!(error.to_string().contains(&format!("{found} of {expected} bytes")), "{error}");
            assert_eq!(error.code(), format!("asm2464::bridge::{why}"), "{expected}, {found}");
        }
        assert_eq!(
            Bridge::new(Box::new(Brings(4096)), BridgeState::Vendor)
                .xdata_read(XdataAddress::main(0xF000), &mut [0; 4096]),
            Ok(())
        );
    }
}
