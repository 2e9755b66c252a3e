//! Experiments for owners: questions about the SRAM's DMA that only silicon can answer, with E4, E5 and WRITE(16) only.
//!
//! Each answer decides how a GPU's results can come back faster than by E4. On the chip model the answers are known. On
//! silicon they are expected, but not confirmed.

use std::time::Duration;

use asm2464::scsi::XdataAddress;
use asm2464::sram::SECTOR_LEN;
use asm2464_host::bridge::{Bridge, CommandError, Transport};
use asm2464_host::pcie::{Entry, NoTime, Pcie, SramReadError, VendorTlp};
use derive_more::Display;
use serde::Serialize;

/// Time limit for data that may never arrive.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAGE: usize = 0x1000;
/// XDATA 0xC8D9, bits 2:0: the page of the SRAM that the window shows. Source: c:0x4013.
const WINDOW_PAGE: u16 = 0xC8D9;
/// 0xC401.1 is set around a drain of the data that the host still sends. Source: c:0x0152.
const DRAIN: u16 = 0xC401;
const DRAIN_ON: u8 = 0x02;
/// Registers of the completion queue's window: index, enable bit, and an entry's command ID and phase. Source:
/// c:0x2608.
const ENTRY_INDEX: u16 = 0xC8D5;
const ENTRY_WINDOW_ON: u16 = 0xC8D6;
const ENTRY_ID: u16 = 0xB80C;
/// Bytes of an entry and of the queue.
const ENTRY_LEN: u64 = 16;
const QUEUE_LEN: u64 = 0x200;
/// Registers and variables that a WRITE(16) is expected to change besides the counters of [`Bridge::variables`]: slots in
/// use, the first free slot, the ends of the queues. The last are at the same address in 240417 and in 231204, by their
/// code.
const AFTER_WRITE: [(u16, usize); 3] = [(0xCE40, 4), (0xCE60, 1), (0x0456, 5)];

/// The experiments, the safest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display(rename_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Checks what a WRITE(16) leaves in the allocator and in the counters.
    SlotsAfterWrite,
    /// Checks whether 0xC8D9 turns the pages of the SRAM's window.
    WindowPages,
    /// The DMA, which nothing completes.
    DmaAlone,
    /// The DMA, with a completion entry written by the CPU.
    DmaCpuEntry,
    /// The DMA, with a completion entry written by the bridge's own TLP engine.
    DmaTlpEntry,
    /// The same as a drain.
    DmaDrain,
}

/// Answer of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Yes.
    #[display("yes")]
    Yes,
    /// No.
    #[display("no")]
    No,
    /// Neither.
    #[display("?")]
    Unclear,
    /// The unit does not answer any more. Only a power cycle helps.
    #[display("HANG")]
    Hang,
    /// The experiment was not run.
    #[display("-")]
    NotRun,
}

/// Result of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The experiment.
    pub experiment: Experiment,
    /// Its question.
    pub question: &'static str,
    /// Its answer.
    pub answer: Answer,
    /// What was observed.
    pub saw: String,
    /// What the answer decides.
    pub decides: &'static str,
}

impl Experiment {
    /// All experiments, in the order of execution.
    pub const ALL: [Self; 6] = [
        Self::SlotsAfterWrite,
        Self::WindowPages,
        Self::DmaAlone,
        Self::DmaCpuEntry,
        Self::DmaTlpEntry,
        Self::DmaDrain,
    ];

    /// The experiment's question.
    pub const fn question(self) -> &'static str {
        match self {
            Self::SlotsAfterWrite => "does WRITE(16) take a slot of the SRAM, and leave its counter behind?",
            Self::WindowPages => "does XDATA 0xC8D9 turn the pages of the SRAM's window at 0xF000?",
            Self::DmaAlone => "does the SRAM's DMA send to the host without a completion entry?",
            Self::DmaCpuEntry => "does it send when the CPU writes the completion entry, by E5?",
            Self::DmaTlpEntry => "does it send when the bridge's own TLP engine writes the entry?",
            Self::DmaDrain => "does it with 0xC401.1 set, as the firmware sets it around a drain?",
        }
    }

    /// What the experiment sends to the unit.
    pub const fn sends(self) -> &'static str {
        match self {
            Self::SlotsAfterWrite => "WRITE(16) of 4 KiB into the SRAM, E4, E5",
            Self::WindowPages => "WRITE(16) of 8 KiB into the SRAM, E4, E5",
            Self::DmaAlone | Self::DmaCpuEntry => "E4 and E5, and reads 512 bytes of a stream",
            Self::DmaTlpEntry | Self::DmaDrain => {
                "E4, E5 and one memory write on PCIe, and reads 512 bytes of a stream"
            }
        }
    }

    /// The experiment's risk.
    pub const fn risk(self) -> &'static str {
        match self {
            Self::SlotsAfterWrite => "little: a GPU runtime does the same",
            Self::WindowPages => "a hang until the power goes; nobody has written this register on a unit",
            Self::DmaAlone => "the bulk pipes hang until the port is reset or the power goes; data may come late",
            Self::DmaCpuEntry => "the same; the firmware may act on an entry that no drive sent",
            Self::DmaTlpEntry => "the same; a device behind the bridge may see the write",
            Self::DmaDrain => "the same; the firmware may halt every endpoint",
        }
    }

    /// What an answer decides.
    const fn decides(self, answer: Answer) -> &'static str {
        match (self, answer) {
            (_, Answer::NotRun) => "nothing",
            (_, Answer::Unclear) => "nothing yet: what was seen is for those who maintain asmpatch",
            (_, Answer::Hang) => "that nobody else should try it: a unit needs its power after it",
            (Self::SlotsAfterWrite, Answer::Yes) => {
                "READ(16) needs slots and counters cleared after WRITE(16), as asmpatch clears them"
            }
            (Self::SlotsAfterWrite, Answer::No) => "the chip model's allocator is wrong: READ(16) may read elsewhere",
            (Self::WindowPages, Answer::Yes) => "the patch read16-sram reaches 32 KiB",
            (Self::WindowPages, Answer::No) => "the patch read16-sram reaches 4 KiB, the page that E4 sees",
            (Self::DmaAlone, Answer::Yes) => "READ(16) needs no GPU's help: a patch of its status is enough",
            (Self::DmaAlone, Answer::No) => "as expected: something has to write a completion entry",
            (_, Answer::Yes) => "READ(16) needs no GPU's help: the host can complete it by E5",
            (_, Answer::No) => "as expected: a device behind the bridge has to write the entry",
        }
    }

    fn found(self, answer: Answer, saw: impl Into<String>) -> Finding {
        Finding { experiment: self, question: self.question(), answer, saw: saw.into(), decides: self.decides(answer) }
    }

    /// The result of an experiment that was not run.
    pub fn not_run(self, why: impl Into<String>) -> Finding {
        self.found(Answer::NotRun, why)
    }

    /// Runs the experiment on a unit without an SSD, over UAS with streams. Afterwards the unit may be initialised as
    /// by a GPU runtime. Restart it at the end.
    pub fn run<T: Transport>(self, bridge: &mut Bridge<T>) -> Finding {
        let outcome = match self {
            Self::SlotsAfterWrite => slots_after_write(bridge),
            Self::WindowPages => window_pages(bridge),
            Self::DmaAlone => Ok(dma(bridge, |_, _| Ok(()))),
            Self::DmaCpuEntry => Ok(dma(bridge, cpu_entry)),
            Self::DmaTlpEntry => Ok(dma(bridge, tlp_entry)),
            Self::DmaDrain => dma_drain(bridge),
        };
        match outcome {
            Ok((answer, saw)) => self.found(answer, saw),
            Err(error) if unit_is_gone(bridge, &error) => self.found(Answer::Hang, error.to_string()),
            Err(error) => self.found(Answer::Unclear, error.to_string()),
        }
    }
}

type ExperimentAnswer = (Answer, String);

/// Whether the unit answers nothing any more after an error.
fn unit_is_gone<T: Transport>(bridge: &mut Bridge<T>, error: &CommandError) -> bool {
    matches!(error, CommandError::Transport(_)) && matches!(bridge.is_ready(), Err(CommandError::Transport(_)))
}

/// Initialises the bridge if it is not initialised.
fn ready<T: Transport>(bridge: &mut Bridge<T>) -> Result<(), CommandError> {
    let device = XdataAddress::main(bridge.variables()?.device());
    if bridge.xdata_byte(device)? == 0 { bridge.initialise() } else { Ok(()) }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ ((at >> 8) * 29) ^ 0xA5) as u8).collect()
}

fn slots_after_write<T: Transport>(bridge: &mut Bridge<T>) -> Result<ExperimentAnswer, CommandError> {
    ready(bridge)?;
    bridge.free_slots(PAGE)?;
    let before = after_write(bridge)?;
    bridge.write16(0, &pattern(PAGE))?;
    let after = after_write(bridge)?;
    bridge.free_slots(PAGE)?;
    let freed = after_write(bridge)?;
    let words = |groups: &[(u16, Vec<u8>)]| {
        groups.iter().map(|(at, bytes)| format!("{at:04X} {bytes:02x?}")).collect::<Vec<_>>().join(", ")
    };
    let saw = format!("before {}; after {}; freed {}", words(&before), words(&after), words(&freed));
    let takes_a_slot = before[1] != after[1] && after[1] != freed[1];
    let counts = after[0].1.iter().any(|count| *count != 0) && freed[0].1.iter().all(|count| *count == 0);
    Ok((if takes_a_slot && counts { Answer::Yes } else { Answer::No }, saw))
}

/// The state that a WRITE(16) changes, by address, the counters first.
fn after_write<T: Transport>(bridge: &mut Bridge<T>) -> Result<Vec<(u16, Vec<u8>)>, CommandError> {
    let counters = bridge.variables()?.counters();
    let read = |(at, len): (u16, usize)| {
        let mut bytes = vec![0; len];
        bridge.xdata_read(XdataAddress::main(at), &mut bytes)?;
        Ok((at, bytes))
    };
    [(counters[0].0, counters.len())].into_iter().chain(AFTER_WRITE).map(read).collect()
}

fn window_pages<T: Transport>(bridge: &mut Bridge<T>) -> Result<ExperimentAnswer, CommandError> {
    const LEN: usize = 64;
    ready(bridge)?;
    let data = pattern(2 * PAGE);
    bridge.free_slots(data.len())?;
    bridge.write16(0, &data)?;
    let before = bridge.xdata_byte(XdataAddress::main(WINDOW_PAGE))?;
    let mut shown = [[0; LEN]; 2];
    for (page, shown) in (0..).zip(&mut shown) {
        bridge.xdata_write(XdataAddress::main(WINDOW_PAGE), before & 0xF8 | page)?;
        bridge.xdata_read(XdataAddress::SRAM_WINDOW, shown)?;
    }
    bridge.xdata_write(XdataAddress::main(WINDOW_PAGE), before)?;
    bridge.free_slots(data.len())?;
    let is_page = |shown: &[u8], page: usize| shown == &data[page * PAGE..][..LEN];
    let answer = match (is_page(&shown[0], 0), is_page(&shown[1], 1), is_page(&shown[1], 0)) {
        (true, true, _) => Answer::Yes,
        (true, false, true) => Answer::No,
        _ => Answer::Unclear,
    };
    Ok((answer, format!("page 0 {:02x?}, page 1 {:02x?}", &shown[0][..8], &shown[1][..8])))
}

/// Arms the DMA from the SRAM's start, runs `tell`, which may complete it, and reads the stream.
fn dma<T: Transport>(
    bridge: &mut Bridge<T>,
    tell: impl FnOnce(&mut Bridge<T>, Entry) -> Result<(), SramReadError>,
) -> ExperimentAnswer {
    let mut data = [0; SECTOR_LEN];
    let mut window = [0; 64];
    // The window tells whether the data is the SRAM's. If it can't be read, only the bytes can tell.
    let is_known = bridge.xdata_read(XdataAddress::SRAM_WINDOW, &mut window).is_ok();
    match bridge.read_sram_by_dma(0, &mut data, TIMEOUT, tell) {
        Ok(()) if is_known && data[..window.len()] == window => (Answer::Yes, "512 bytes, the SRAM's first".to_owned()),
        Ok(()) => (Answer::Unclear, format!("512 bytes, not the SRAM's first: {:02x?}", &data[..16])),
        Err(SramReadError::NoCompletion { .. }) => (Answer::No, format!("no byte within {TIMEOUT:?}")),
        Err(error @ SramReadError::Power { .. }) => (Answer::Hang, error.to_string()),
        Err(SramReadError::Command(error)) if unit_is_gone(bridge, &error) => (Answer::Hang, error.to_string()),
        Err(error) => (Answer::Unclear, error.to_string()),
    }
}

/// Writes the entry through the window by which the firmware reads the queue.
fn cpu_entry<T: Transport>(bridge: &mut Bridge<T>, entry: Entry) -> Result<(), SramReadError> {
    let index = (entry.to % QUEUE_LEN / ENTRY_LEN) as u8;
    let id = (ENTRY_ID..).zip(entry.bytes[12..].iter().copied());
    let writes = [(ENTRY_INDEX, index), (ENTRY_WINDOW_ON, 1)].into_iter().chain(id).chain([(ENTRY_WINDOW_ON, 0)]);
    Ok(bridge.xdata_write_all(writes.map(|(at, value)| (XdataAddress::main(at), value)))?)
}

fn tlp_entry<T: Transport>(bridge: &mut Bridge<T>, entry: Entry) -> Result<(), SramReadError> {
    let mut engine = VendorTlp::new(bridge);
    Ok(Pcie::new(&mut engine, &mut NoTime).memory_write(entry.to, &entry.bytes)?)
}

fn dma_drain<T: Transport>(bridge: &mut Bridge<T>) -> Result<ExperimentAnswer, CommandError> {
    let before = bridge.xdata_byte(XdataAddress::main(DRAIN))?;
    bridge.xdata_write(XdataAddress::main(DRAIN), before | DRAIN_ON)?;
    let (answer, saw) = dma(bridge, tlp_entry);
    let Err(error) = bridge.xdata_write(XdataAddress::main(DRAIN), before) else { return Ok((answer, saw)) };
    // A drain that was never in progress halts every endpoint, so it has to be off even after a recovery.
    bridge.recover()?;
    bridge.xdata_write(XdataAddress::main(DRAIN), before)?;
    Ok((Answer::Unclear, format!("{saw}; then {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_it_asks_what_it_sends_what_could_happen_and_what_every_answer_decides() {
        for (index, experiment) in Experiment::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(experiment).unwrap(), experiment.to_string());
            assert!(experiment.question().ends_with('?') && !experiment.sends().is_empty(), "{experiment:?}");
            assert!(!experiment.risk().is_empty() && !Experiment::ALL[..index].contains(&experiment));
            for answer in [Answer::Yes, Answer::No, Answer::Unclear, Answer::Hang, Answer::NotRun] {
                assert!(!experiment.decides(answer).is_empty());
            }
        }
        let finding = Experiment::DmaAlone.not_run("declined");
        assert_eq!((finding.answer, finding.decides), (Answer::NotRun, "nothing"));
    }
}
