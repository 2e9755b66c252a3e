//! What vendor firmware knows of SSDs behind it, asked without harm to either. A dock with several bays has a logical
//! unit for each.

use asm2464::firmware::FirmwareVersion;
use asm2464::scsi::runtime::{SetUp, Variables};
use asm2464::scsi::{Capacity, Command, Lun, ScsiStatus, Sense, SenseKey, XdataAddress};
use serde::{Deserialize, Serialize};

use super::client::Bridge;
use super::error::CommandError;
use super::transport::DataPhase;

/// Bytes 24 to 63 of Identify Controller are the model number. Source: NVMe base specification 1.4, figure 247.
const MODEL: std::ops::Range<usize> = 24..64;

/// What is behind the bridge, by READ CAPACITY and E6 Identify.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Behind {
    /// No medium that WRITE(16) could overwrite: a GPU, or nothing.
    #[display("no SSD; PCIe not searched for other devices")]
    NoMedium,
    /// An SSD: its model and capacity, if it reports them.
    #[display("SSD {_0}")]
    Ssd(String),
    /// Unknown, because a GPU runtime has initialised the bridge, with the variables that show it, in words.
    #[display("SSD: can't tell ({_0})")]
    Initialised(String),
    /// Unknown, with another reason.
    #[display("SSD: can't tell ({_0})")]
    CannotTell(String),
}

/// What vendor firmware answers about an SSD behind it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Storage {
    /// The version that runs.
    pub version: Option<FirmwareVersion>,
    /// The firmware's variables before any question that could change them: addresses in XDATA and their bytes. In a
    /// version whose variables are not known, the bytes at the places of every other version.
    pub variables: Vec<(u16, u8)>,
    /// LUN 0's answer to READ CAPACITY, unless there is no medium.
    pub capacity: Option<Capacity>,
    /// Whether LUN 0 has a medium that is not ready.
    pub is_not_ready: bool,
    /// The model in E6's answer, of LUN 0.
    pub model: Option<String>,
    /// The variable that says whether an SSD was found, after these questions.
    pub found_after: Option<u8>,
    /// The error of the question that failed.
    pub failed: Option<String>,
    /// The logical units besides LUN 0, if REPORT LUNS lists any.
    pub bays: Vec<Bay>,
}

/// What a logical unit besides LUN 0 answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Bay {
    /// The logical unit's number.
    pub lun: Lun,
    /// Its answer to READ CAPACITY, unless there is no medium.
    pub capacity: Option<Capacity>,
    /// Whether it has a medium that is not ready.
    pub is_not_ready: bool,
    /// Vendor and product in INQUIRY's answer, if it has a medium.
    pub model: Option<String>,
}

impl Storage {
    /// Asks each logical unit that REPORT LUNS lists with READ CAPACITY, and LUN 0 with E6 Identify, but only if the
    /// firmware's variables show that both are safe: E6 hangs a unit that a GPU runtime has initialised.
    ///
    /// # Errors
    /// [`CommandError`] if the unit left the bus, or does not recover after a command that it did not answer.
    pub fn ask(bridge: &mut Bridge) -> Result<Self, CommandError> {
        let mut storage = Self::default();
        if let Err(error) = storage.ask_all(bridge) {
            storage.failed = Some(failed(bridge, error)?);
        }
        Ok(storage)
    }

    fn ask_all(&mut self, bridge: &mut Bridge) -> Result<(), CommandError> {
        self.ask_variables(bridge)?;
        if self.by_variables().is_some() {
            return Ok(());
        }
        self.ask_lun_0(bridge)?;
        self.ask_bays(bridge)
    }

    fn ask_lun_0(&mut self, bridge: &mut Bridge) -> Result<(), CommandError> {
        (self.capacity, self.is_not_ready) = medium(bridge, Lun::ZERO)?;
        match bridge.identify() {
            // A bridge that answers with zeros has no SSD.
            Ok(data) if data[MODEL].iter().any(u8::is_ascii_graphic) => self.model = Some(model(&data[MODEL])),
            // Refused or short: no device behind the bridge speaks NVMe, or it is not ready.
            Ok(_) | Err(CommandError::CheckCondition { .. } | CommandError::Short { .. }) => {}
            // Without a medium, a hanging SSD looks the same.
            Err(error) if self.capacity.is_none() => return Err(error),
            Err(error) => return failed(bridge, error).map(drop),
        }
        // The questions made the firmware search, if nothing has before.
        if self.capacity.is_none()
            && self.model.is_none()
            && let Some(variables) = self.version.and_then(Variables::of)
        {
            self.found_after = Some(bridge.xdata_byte(XdataAddress::main(variables.ssd_found()))?);
        }
        Ok(())
    }

    fn ask_bays(&mut self, bridge: &mut Bridge) -> Result<(), CommandError> {
        for lun in bridge.other_luns()? {
            match Bay::ask(bridge, lun) {
                Ok(bay) => self.bays.push(bay),
                Err(error) => {
                    self.failed = Some(format!("{lun}: {}", failed(bridge, error)?));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn ask_variables(&mut self, bridge: &mut Bridge) -> Result<(), CommandError> {
        let version = bridge.running_version()?;
        self.version = Some(version);
        let mut read = initialised(version);
        if let Some(variables) = Variables::of(version) {
            read.extend([variables.ssd_found(), variables.ssd_started()]);
        }
        for at in read {
            let byte = bridge.xdata_byte(XdataAddress::main(at))?;
            self.variables.push((at, byte));
        }
        Ok(())
    }

    /// What is behind the bridge. An SSD that answered is one, also if another bay could not be asked.
    pub fn behind(&self) -> Behind {
        let others = self.bays.iter().map(|bay| (bay.lun, ssd(bay.model.as_deref(), bay.capacity, bay.is_not_ready)));
        let mut found = Vec::new();
        for (lun, ssd) in std::iter::once((Lun::ZERO, self.at_lun_0())).chain(others) {
            let place = if self.bays.is_empty() { String::new() } else { format!(" at {lun}") };
            found.extend(ssd.map(|ssd| ssd + &place));
        }
        match &self.failed {
            Some(failed) if found.is_empty() => return Behind::CannotTell(failed.clone()),
            Some(failed) => found.push(format!("other bays: can't tell ({failed})")),
            None => {}
        }
        if !found.is_empty() {
            return Behind::Ssd(found.join("; "));
        }
        self.by_variables().unwrap_or(Behind::NoMedium)
    }

    /// The SSD at LUN 0 in words; `None` if none was found there.
    pub fn at_lun_0(&self) -> Option<String> {
        // 250123 is NOT READY without an SSD, too, so that alone says nothing of a dock with one bay.
        let is_bay = self.is_not_ready && !self.bays.is_empty();
        let is_not_ready = is_bay || self.found_after.is_some_and(|found| found != 0);
        ssd(self.model.as_deref(), self.capacity, is_not_ready)
    }

    /// What the variables alone say; `None` if the questions are safe.
    fn by_variables(&self) -> Option<Behind> {
        let version = self.version?;
        let Some(variables) = Variables::of(version) else {
            // On another version the byte can mean anything, so don't report that there is no SSD.
            let (at, byte) = self.variables.iter().find(|(_, byte)| *byte != 0)?;
            let why = format!("{at:#06x} reads {byte:#04x}, and nobody knows what it means in version {version}");
            return Some(Behind::CannotTell(why));
        };
        let byte = |at: u16| self.variables.iter().find(|(address, _)| *address == at).map_or(0, |(_, byte)| *byte);
        let initialised = variables.initialised().map(|(at, _)| (at, byte(at)));
        let bytes = initialised.map(|(_, byte)| byte);
        match SetUp::of(bytes, byte(variables.ssd_found()), byte(variables.ssd_started())) {
            SetUp::Nothing | SetUp::ForSsd => None,
            SetUp::OverSsd => Some(Behind::Ssd("over which a GPU runtime has initialised the bridge".to_owned())),
            SetUp::ByRuntime => {
                let set: Vec<String> = initialised.map(|(at, byte)| format!("{at:#06x} reads {byte:#04x}")).into();
                let why = format!("a GPU runtime has initialised the bridge: {}", set.join(", "));
                Some(Behind::Initialised(why))
            }
        }
    }
}

impl Bay {
    fn ask(bridge: &mut Bridge, lun: Lun) -> Result<Self, CommandError> {
        let (capacity, is_not_ready) = medium(bridge, lun)?;
        let mut bay = Self { lun, capacity, is_not_ready, model: None };
        if capacity.is_some() || is_not_ready {
            let inquiry = bridge.inquiry_of(lun)?;
            let name = format!("{} {}", inquiry.vendor, inquiry.product);
            bay.model = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
        }
        Ok(bay)
    }
}

/// Asks a logical unit for its capacity. Returns that, and whether it has a medium that is not ready.
fn medium(bridge: &mut Bridge, lun: Lun) -> Result<(Option<Capacity>, bool), CommandError> {
    match bridge.read_capacity(lun) {
        Ok(capacity) => Ok((capacity.filter(|capacity| capacity.blocks > 0 && capacity.block_len > 0), false)),
        Err(error) if error.sense().is_some_and(|sense| sense.key == SenseKey::NOT_READY) => Ok((None, true)),
        Err(error) => Err(error),
    }
}

/// The SSD of a logical unit in words; `None` if there is none.
fn ssd(model: Option<&str>, capacity: Option<Capacity>, is_not_ready: bool) -> Option<String> {
    let capacity = capacity.map(|capacity| decimal_bytes(capacity.bytes()));
    let known: Vec<String> = model.map(str::to_owned).into_iter().chain(capacity).collect();
    if known.is_empty() {
        return is_not_ready.then(|| "that is not ready".to_owned());
    }
    Some(known.join(", "))
}

/// Where a version keeps the variables of the initialisation; for an unknown one, where any version does. A GPU runtime
/// writes to one of these, whatever the version. If all are 0, no runtime has initialised the unit, so E6 is safe in an
/// unknown version, too.
fn initialised(version: FirmwareVersion) -> Vec<u16> {
    let places = |variables: Variables| variables.initialised().map(|(at, _)| at);
    match Variables::of(version) {
        Some(variables) => places(variables).into(),
        None => Variables::ALL.into_iter().flat_map(places).collect(),
    }
}

impl Bridge {
    /// Whether READ CAPACITY of each logical unit and E6 answer 2/3A (medium not present) on a unit that is not
    /// initialised. WRITE(16) can't reach an SSD then.
    ///
    /// # Errors
    /// [`CommandError`] if the unit left the bus, or does not recover after a command that it did not answer.
    pub fn has_no_medium(&mut self) -> Result<bool, CommandError> {
        let version = self.running_version()?;
        for at in initialised(version) {
            if self.xdata_byte(XdataAddress::main(at))? != 0 {
                return Ok(false);
            }
        }
        if !self.answers_no_medium(Lun::ZERO, Command::ReadCapacity10, &mut [0; 8])?
            || !self.answers_no_medium(Lun::ZERO, Command::NvmeIdentifyController, &mut [0; 4096])?
        {
            return Ok(false);
        }
        for lun in self.other_luns()? {
            if !self.answers_no_medium(lun, Command::ReadCapacity10, &mut [0; 8])? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The logical units besides LUN 0. A unit that refuses REPORT LUNS, or doesn't answer it, has none that could be
    /// asked.
    fn other_luns(&mut self) -> Result<Vec<Lun>, CommandError> {
        match self.luns() {
            Ok(luns) => Ok(luns.into_iter().filter(|lun| *lun != Lun::ZERO).collect()),
            Err(error @ CommandError::Malformed { .. }) => Err(error),
            Err(error) => failed(self, error).map(|_| Vec::new()),
        }
    }

    fn answers_no_medium(&mut self, lun: Lun, command: Command, buffer: &mut [u8]) -> Result<bool, CommandError> {
        let timeout = self.timeout();
        match self.transport_mut().execute_on(lun, &command.cdb(), DataPhase::In(buffer), timeout) {
            Ok(completion) => {
                Ok(completion.status == ScsiStatus::CheckCondition && completion.sense.is_some_and(Sense::is_no_medium))
            }
            Err(error) if error.is_timeout() => self.recover().map(|()| false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Recovers the unit after a failed command, so that the next command works. Returns the error's text.
fn failed(bridge: &mut Bridge, error: CommandError) -> Result<String, CommandError> {
    match &error {
        CommandError::Transport(transport) if transport.is_gone() => return Err(error),
        CommandError::Transport(_) => bridge.recover()?,
        _ => {}
    }
    Ok(error.to_string())
}

fn model(bytes: &[u8]) -> String {
    let printable = |byte: &u8| if matches!(byte, 0x20..=0x7E) { *byte as char } else { '\u{FFFD}' };
    bytes.iter().map(printable).collect::<String>().trim().to_owned()
}

/// Formats a capacity as SSDs are sold: in powers of 1000, with the largest unit that it has at least one of.
fn decimal_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // From 999.95 on, one decimal would show 1000.0 of the smaller unit.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use asm2464::TransportKind;
    use asm2464::firmware::BridgeState;

    use super::super::error::{TransportError, TransportErrorKind};
    use super::*;
    use crate::bridge::transport::{CommandEnd, JobData, Transport, Workload};

    /// A unit without an SSD at LUN 0: its XDATA, its answer to REPORT LUNS, what the other logical units answer to READ
    /// CAPACITY, and the commands that it got.
    #[derive(Default)]
    struct Fake {
        xdata: BTreeMap<u16, u8>,
        luns: Option<Vec<u8>>,
        bays: BTreeMap<u8, Result<[u8; 8], Sense>>,
        asked: Asked,
    }

    /// The CDBs that a unit got, in order.
    type Asked = Arc<Mutex<Vec<Vec<u8>>>>;

    impl Transport for Fake {
        fn kind(&self) -> TransportKind {
            TransportKind::BulkOnly
        }

        fn max_depth(&self) -> usize {
            1
        }

        fn run(&mut self, workload: &mut dyn Workload, _: usize, _: Duration) -> Result<(), TransportError> {
            let mut buffer = vec![0; workload.buffer_len()];
            while let Some(job) = workload.next(&mut buffer) {
                let cdb = job.cdb.as_slice();
                self.asked.lock().unwrap().push(cdb.to_vec());
                let good = |len| (CommandEnd { transferred: len, status: ScsiStatus::Good, sense: None }, len);
                let check =
                    |sense| (CommandEnd { transferred: 0, status: ScsiStatus::CheckCondition, sense: Some(sense) }, 0);
                let lun = u8::from(job.lun);
                let bay = self.bays.get(&lun);
                assert!(lun == 0 || bay.is_some(), "{} was not listed", job.lun);
                let (end, len) = match (cdb[0], job.data) {
                    (0xA0, _) => match &self.luns {
                        Some(luns) => {
                            buffer[..luns.len()].copy_from_slice(luns);
                            good(luns.len())
                        }
                        None => check(Sense::INVALID_OPCODE),
                    },
                    (0x25, _) if bay.is_some() => match self.bays[&lun] {
                        Ok(capacity) => {
                            buffer[..8].copy_from_slice(&capacity);
                            good(8)
                        }
                        Err(sense) => check(sense),
                    },
                    (0x12, _) if bay.is_some() => {
                        buffer[..36].fill(b' ');
                        buffer[8..11].copy_from_slice(b"WDC");
                        buffer[16..21].copy_from_slice(b"SN850");
                        good(36)
                    }
                    (0xE4, JobData::In(len)) => {
                        let from = u16::from_be_bytes([cdb[3], cdb[4]]);
                        (from..).zip(&mut buffer[..len]).for_each(|(at, byte)| {
                            *byte = self.xdata.get(&at).copied().unwrap_or(0);
                        });
                        (CommandEnd { transferred: len, status: ScsiStatus::Good, sense: None }, len)
                    }
                    (0x25 | 0xE6, _) => {
                        let (status, sense) = (ScsiStatus::CheckCondition, Some(Sense::MEDIUM_NOT_PRESENT));
                        (CommandEnd { transferred: 0, status, sense }, 0)
                    }
                    (0xE5, _) => (CommandEnd { transferred: 0, status: ScsiStatus::Good, sense: None }, 0),
                    _ => return Err(TransportErrorKind::Protocol("unexpected".to_owned()).during(job.cdb.name())),
                };
                if !workload.complete(&job, &end, &buffer[..len], Duration::ZERO) {
                    break;
                }
            }
            Ok(())
        }

        fn recover(&mut self) -> Result<(), TransportError> {
            Ok(())
        }
    }

    fn fake(version: [u8; 6], xdata: &[(u16, u8)]) -> Fake {
        let version = (XdataAddress::VERSION.addr..).zip(version);
        Fake { xdata: version.chain(xdata.iter().copied()).collect(), ..Fake::default() }
    }

    fn unit(version: [u8; 6], xdata: &[(u16, u8)]) -> (Bridge, Asked) {
        let fake = fake(version, xdata);
        let asked = fake.asked.clone();
        (Bridge::new(Box::new(fake), BridgeState::Vendor), asked)
    }

    /// A unit of an unknown version with this answer to REPORT LUNS.
    fn listing(luns: Vec<u8>, bays: &[(u8, Result<[u8; 8], Sense>)]) -> Bridge {
        let bays = bays.iter().copied().collect();
        Bridge::new(Box::new(Fake { luns: Some(luns), bays, ..fake(UNKNOWN, &[]) }), BridgeState::Vendor)
    }

    /// A unit of an unknown version that lists LUN 0 and these, with their answers to READ CAPACITY.
    fn with_bays(bays: &[(u8, Result<[u8; 8], Sense>)]) -> Bridge {
        let entries = bays.iter().map(|(lun, _)| *lun).flat_map(|lun| [0, lun, 0, 0, 0, 0, 0, 0]);
        let header = [0, 0, 0, (bays.len() as u8 + 1) * 8, 0, 0, 0, 0].into_iter().chain([0; 8]);
        listing(header.chain(entries).collect(), bays)
    }

    /// The addresses of the E4 or E5 in the order in which they came.
    fn addresses(asked: &Asked, opcode: u8) -> Vec<u16> {
        let asked = asked.lock().unwrap();
        let asked = asked.iter().filter(|cdb| cdb[0] == opcode);
        asked.map(|cdb| u16::from_be_bytes([cdb[3], cdb[4]])).collect()
    }

    fn opcodes(asked: &Asked) -> Vec<u8> {
        asked.lock().unwrap().iter().map(|cdb| cdb[0]).collect()
    }

    const V240417: [u8; 6] = [0x24, 0x04, 0x17, 0x85, 0, 0];
    const V231204: [u8; 6] = [0x23, 0x12, 0x04, 0x85, 0, 0];
    const UNKNOWN: [u8; 6] = [0x24, 0x11, 0x29, 0x85, 0, 0];

    #[test]
    fn what_is_asked_of_a_version_is_its_own_variables_and_no_others() {
        for (version, expected) in [
            (V240417, &[0x07F0, 0x054B, 0x05A8, 0x05F8, 0x05AC, 0x053E, 0x05AC][..]),
            (V231204, &[0x07F0, 0x054C, 0x05A5, 0x05F5, 0x05A9, 0x053F, 0x05A9]),
            (UNKNOWN, &[0x07F0, 0x054B, 0x05A8, 0x05F8, 0x054C, 0x05A5, 0x05F5]),
        ] {
            let (mut bridge, asked) = unit(version, &[]);
            assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), Behind::NoMedium, "{version:02x?}");
            assert_eq!(addresses(&asked, 0xE4), expected);
            assert!(opcodes(&asked).contains(&0xE6), "{version:02x?}");
        }
        // What 240417 keeps there means nothing in 231204.
        assert_eq!(Storage::ask(&mut unit(V231204, &[(0x054B, 9)]).0).unwrap().behind(), Behind::NoMedium);
    }

    #[test]
    fn an_ssd_that_is_found_and_not_ready_is_an_ssd_and_one_under_a_runtime_is_not_asked() {
        let not_ready =
            Storage::ask(&mut unit(V240417, &[(0x05A8, 2), (0x05F8, 0x12), (0x05AC, 1)]).0).unwrap().behind();
        assert_eq!(not_ready.to_string(), "SSD that is not ready");
        let (mut bridge, asked) = unit(V240417, &[(0x054B, 0x20), (0x05A8, 2), (0x05F8, 4), (0x05AC, 1)]);
        let found = Storage::ask(&mut bridge).unwrap().behind();
        assert!(matches!(found, Behind::Ssd(_)), "{found:?}");
        assert!(opcodes(&asked).iter().all(|opcode| *opcode == 0xE4));
        let (mut bridge, asked) = unit(V240417, &[(0x054B, 0x20), (0x05A8, 2), (0x05F8, 4)]);
        assert!(matches!(Storage::ask(&mut bridge).unwrap().behind(), Behind::Initialised(_)));
        assert!(opcodes(&asked).iter().all(|opcode| *opcode == 0xE4));
    }

    #[test]
    fn an_unknown_version_where_any_runtime_may_have_been_is_never_asked_for_its_ssd() {
        for at in [0x054B, 0x05A8, 0x05F8, 0x054C, 0x05A5, 0x05F5] {
            let (mut bridge, asked) = unit(UNKNOWN, &[(at, 1)]);
            let found = Storage::ask(&mut bridge).unwrap().behind();
            assert!(matches!(&found, Behind::CannotTell(why) if why.contains("241129")), "{found:?}");
            assert!(opcodes(&asked).iter().all(|opcode| *opcode == 0xE4), "{at:#06x}");
        }
    }

    const CAPACITY: [u8; 8] = [0, 0, 0x0F, 0xFF, 0, 0, 2, 0];
    const BECOMING_READY: Sense = Sense::new(SenseKey::NOT_READY, 0x04, 0x01);

    #[test]
    fn an_ssd_in_any_bay_is_found_with_its_lun_and_is_a_medium() {
        let mut bridge = with_bays(&[(1, Ok(CAPACITY)), (3, Err(Sense::MEDIUM_NOT_PRESENT)), (2, Err(BECOMING_READY))]);
        let storage = Storage::ask(&mut bridge).unwrap();
        assert_eq!(storage.bays.len(), 3);
        assert_eq!(storage.behind().to_string(), "SSD WDC SN850, 2.1 MB at LUN 1; WDC SN850 at LUN 2");
        assert!(!bridge.has_no_medium().unwrap());
    }

    #[test]
    fn only_bays_that_all_answer_medium_not_present_have_none() {
        let empty = Err(Sense::MEDIUM_NOT_PRESENT);
        let mut bridge = with_bays(&[(1, empty), (2, empty), (3, empty)]);
        assert_eq!(Storage::ask(&mut bridge).unwrap().behind(), Behind::NoMedium);
        assert!(bridge.has_no_medium().unwrap());
        for other in [BECOMING_READY, Sense::INVALID_OPCODE] {
            let mut bridge = with_bays(&[(1, empty), (2, Err(other))]);
            assert_ne!(Storage::ask(&mut bridge).unwrap().behind(), Behind::NoMedium, "{other}");
            assert!(!bridge.has_no_medium().unwrap(), "{other}");
        }
    }

    #[test]
    fn an_ssd_that_answers_is_named_although_another_bay_cannot_be_asked() {
        let mut bridge = with_bays(&[(1, Ok(CAPACITY)), (2, Err(Sense::INVALID_OPCODE))]);
        let storage = Storage::ask(&mut bridge).unwrap();
        let Behind::Ssd(what) = storage.behind() else { panic!("{storage:?}") };
        assert!(what.starts_with("WDC SN850, 2.1 MB at LUN 1; other bays: can't tell (LUN 2: "), "{what}");
        assert_eq!(storage.at_lun_0(), None);
        let at_lun_0 = Storage { failed: Some("LUN 1: no answer".to_owned()), model: Some("A".to_owned()), ..storage };
        assert_eq!(at_lun_0.at_lun_0().as_deref(), Some("A"));
    }

    #[test]
    fn a_list_of_luns_that_cannot_be_followed_leaves_open_what_is_behind() {
        for list in [vec![0, 0, 0, 16, 0, 0, 0, 0], vec![0; 3], vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0]] {
            let mut bridge = listing(list, &[]);
            let behind = Storage::ask(&mut bridge).unwrap().behind();
            assert!(matches!(&behind, Behind::CannotTell(why) if why.contains("LUN")), "{behind:?}");
            assert!(bridge.has_no_medium().is_err());
        }
    }

    #[test]
    fn asking_initialisation_and_freeing_read_the_version_once_and_write_at_its_addresses() {
        let (mut bridge, asked) = unit(V231204, &[]);
        Storage::ask(&mut bridge).unwrap();
        assert!(bridge.has_no_medium().unwrap());
        bridge.initialise().unwrap();
        bridge.free_slots(512).unwrap();
        let version = XdataAddress::VERSION.addr;
        assert_eq!(addresses(&asked, 0xE4).into_iter().filter(|at| *at == version).count(), 1);
        let written = addresses(&asked, 0xE5);
        assert!(written.starts_with(&[0x054C, 0x054F, 0x05A5]) && written.ends_with(&[0x0518, 0x0519, 0x051A]));
        asked.lock().unwrap().clear();
        // After a reset other firmware may run.
        let _ = bridge.reset(asm2464::scsi::ResetMode::CpuReset);
        bridge.variables().unwrap();
        assert_eq!(addresses(&asked, 0xE4), [version]);
    }

    #[test]
    fn a_capacity_is_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (512, "512 bytes"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (1_048_576, "1.0 MB"),
            (500_107_862_016, "500.1 GB"),
            (2_000_398_934_016, "2.0 TB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(decimal_bytes(bytes), text);
        }
    }
}
