//! Proof that a patch does what its effect says, in an image where it found its place by signature.
//!
//! Both images run on the chip model. Without anything behind the bridge the firmware refuses a WRITE(16), so the proof
//! first brings it to the point where it believes that a device is ready: by a GPU runtime's initialisation, or else by
//! the two variables of it that this takes. Their addresses differ from image to image, so each byte of RAM that a write
//! reads is tried.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use asm2464::firmware::{BridgeState, CodeAddress, Image};
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::scsi::runtime::INITIALISATION;
use asm2464::scsi::{BLOCK_LEN, Command, XdataAddress};
use asm2464_chip::chip::boot::{self, BootReport};
use asm2464_chip::chip::{Data, Driver, Ending, Outcome, ProofBudget, Unanswered};
use asm2464_chip::mcu::{MemoryFlash, Observer, Step};
use thiserror::Error;

use super::hunk::{Hunk, HunkAddress};
use super::instructions::LONGEST;

/// The alternates of the vendor's interface.
const BULK_ONLY: u8 = 0;
const UAS: u8 = 1;
/// The state of a device that is ready, as the firmware keeps it. Source: c:0x3F94 in 240417, c:0x3FE5 in 231204.
const READY: u8 = 4;
/// The sectors in a slot of the SRAM, as a GPU runtime sets them. Without them a write's data goes nowhere.
const SLOT_SECTORS: u8 = 0x20;
/// XDATA below this is RAM. Source: cyrozap's notes.
const RAM_END: u16 = 0x6000;
/// Instructions for an answer. 240417 takes 1,300 for an early one.
const ANSWER: u64 = 2_000_000;
/// Blocks of the test transfers.
const BLOCKS: u32 = 8;

/// What brings the firmware to the point where it takes a WRITE(16) without a device behind the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// A GPU runtime's initialisation.
    Runtime,
    /// These variables, found by execution. A GPU runtime's initialisation, which is made for 240417, has no effect.
    Variables {
        /// XDATA address of the state of the device, which is 4 for one that is ready.
        state: u16,
        /// XDATA address of the sectors in a slot of the SRAM, of which there are 0x20.
        sectors: u16,
    },
}

/// The proof of an early answer to writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyAnswer {
    /// What made the firmware take the write.
    pub readiness: Readiness,
    /// How many checks of the boot answer as before.
    pub checks: usize,
}

/// Reasons an effect is not proven.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotProven {
    /// The unpatched image does not do what a unit must.
    #[error("the unpatched image fails on the chip model: {0}")]
    Boot(String),
    /// The unpatched image is not the vendor's kind.
    #[error("the image is {0}, which takes no such patch")]
    NotVendor(BridgeState),
    /// The patched image behaves differently where it must not.
    #[error("the patched image {what} differently: {after}; before it was {before}")]
    Differs {
        /// What it does.
        what: String,
        /// The unpatched image's result.
        before: String,
        /// The patched image's result.
        after: String,
    },
    /// The signature's place is past the banks.
    #[error("there is no code at {0}")]
    NoCode(HunkAddress),
    /// No WRITE(16) reaches the code.
    #[error("no WRITE(16) reaches the code at {0} on the chip model")]
    NotReached(CodeAddress),
    /// The unpatched image answers the write.
    #[error("the unpatched image answers a WRITE(16) without the patch: {0}")]
    AnsweredBefore(String),
    /// The patched image does not answer the write, or loses its data.
    #[error("the patched image does not answer a WRITE(16) at once: {0}")]
    NotAnswered(String),
    /// Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(NotProven {
    Boot => CheckFailed "asmpatch::patch::not_proven",
    NotVendor => CheckFailed "asmpatch::patch::not_proven",
    Differs => CheckFailed "asmpatch::patch::not_proven",
    NoCode => CheckFailed "asmpatch::patch::not_proven",
    NotReached => CheckFailed "asmpatch::patch::not_proven",
    AnsweredBefore => CheckFailed "asmpatch::patch::not_proven",
    NotAnswered => CheckFailed "asmpatch::patch::not_proven",
    Interrupted(cause) => cause,
});

/// Proves that `patched` answers a WRITE(16) over UAS at once, that `stock` never does, and that all else which the boot
/// check asks, a READ(16) and a WRITE(16) over Bulk-Only end as before. `hunk` is the patch's place: the write must
/// execute it.
///
/// # Errors
/// [`NotProven`].
pub fn early_answer(
    stock: &Image,
    patched: &Image,
    hunk: &Hunk,
    budget: impl Fn() -> ProofBudget,
    interrupt: Interrupt<'static>,
) -> Result<EarlyAnswer, NotProven> {
    let before = boot::check_within(stock, &budget())?;
    if let Some((check, fault)) = before.failure() {
        return Err(NotProven::Boot(format!("{} over {}: {fault}", check.what, check.wire)));
    }
    match before.state() {
        Some(BridgeState::Vendor) => {}
        state => return Err(NotProven::NotVendor(state.unwrap_or(BridgeState::BootLoader))),
    }
    compare(&before, &boot::check_within(patched, &budget())?)?;

    let changed = hunk.range().zip(hunk.expect.iter().zip(&hunk.new)).filter(|(_, (old, new))| old != new);
    let changed: BTreeSet<usize> = changed.map(|(at, _)| at).collect();
    let readiness = ready(stock, patched, &changed, hunk, interrupt)?;
    for (what, alternate, transfer) in [
        ("ends READ(16) over UAS", UAS, Transfer::Read),
        ("ends READ(16) over Bulk-Only", BULK_ONLY, Transfer::Read),
        ("ends WRITE(16) over Bulk-Only", BULK_ONLY, Transfer::Write),
    ] {
        interrupt.check()?;
        let end =
            |image| Ok::<_, NotProven>(Attempt::of(image, alternate, transfer, &readiness.writes(), &changed)?.words());
        let (before, after) = (end(stock)?, end(patched)?);
        if before != after {
            return Err(NotProven::Differs { what: what.to_owned(), before, after });
        }
    }
    Ok(EarlyAnswer { readiness, checks: before.checks.len() })
}

/// The reports must agree in every check and its result. What an instruction costs may change.
fn compare(before: &BootReport, after: &BootReport) -> Result<(), NotProven> {
    let words = |report: &BootReport, at: usize| {
        let check = report.checks.get(at)?;
        let found = check.outcome.as_ref().map_or_else(ToString::to_string, Clone::clone);
        Some((format!("{} over {}", check.what, check.wire), if found.is_empty() { "ok".to_owned() } else { found }))
    };
    let most = before.checks.len().max(after.checks.len());
    let differing = (0..most).map(|at| (words(before, at), words(after, at))).find(|(before, after)| before != after);
    let Some((one, other)) = differing else { return Ok(()) };
    let none = || ("ends its checks".to_owned(), "no more checks".to_owned());
    let ((what, before), (_, after)) = (one.unwrap_or_else(none), other.unwrap_or_else(none));
    Err(NotProven::Differs { what, before, after })
}

/// Finds what makes the images take a WRITE(16) that executes the changed bytes, and shows that the unpatched one then
/// never answers it, and the patched one at once, with its data in the SRAM.
fn ready(
    stock: &Image,
    patched: &Image,
    changed: &BTreeSet<usize>,
    hunk: &Hunk,
    interrupt: Interrupt<'static>,
) -> Result<Readiness, NotProven> {
    let attempt = |image, writes: &[(u16, u8)]| {
        interrupt.check()?;
        Attempt::of(image, UAS, Transfer::Write, writes, changed)
    };
    let mut failure = hunk.at.code_address().map_or(NotProven::NoCode(hunk.at), NotProven::NotReached);
    // Proves the effect in one state, or returns what the patched image did there.
    let mut shows = |writes: &[(u16, u8)]| {
        let unanswered = attempt(stock, writes)?;
        if !unanswered.is_reached {
            return Ok((false, None));
        }
        if let Ok(answer) = unanswered.ended {
            failure = NotProven::AnsweredBefore(answer);
            return Ok((false, None));
        }
        let answered = attempt(patched, writes)?;
        let is_good = answered.ended.as_deref() == Ok(GOOD);
        if is_good && answered.is_whole {
            return Ok((true, None));
        }
        let lost = || "its data is not in the SRAM".to_owned();
        failure = NotProven::NotAnswered(if is_good { lost() } else { answered.words() });
        Ok::<_, NotProven>((false, is_good.then_some(answered.read)))
    };
    if shows(&Readiness::Runtime.writes())?.0 {
        return Ok(Readiness::Runtime);
    }
    // The bytes that the refused write read: the state of the device that it looked for is among them.
    for state in attempt(stock, &[])?.read {
        // Those that the answered write read: the slot's size is among them.
        let (_, Some(read)) = shows(&[(state, READY)])? else { continue };
        for sectors in read {
            let readiness = Readiness::Variables { state, sectors };
            if sectors != state && shows(&readiness.writes())?.0 {
                return Ok(readiness);
            }
        }
    }
    Err(failure)
}

impl Readiness {
    /// The writes that bring the firmware there: XDATA addresses and values.
    pub fn writes(self) -> Vec<(u16, u8)> {
        match self {
            Self::Runtime => INITIALISATION.to_vec(),
            Self::Variables { state, sectors } => vec![(state, READY), (sectors, SLOT_SECTORS)],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Read,
    Write,
}

const GOOD: &str = "GOOD";

/// One READ(16) or WRITE(16) on a newly booted chip.
struct Attempt {
    /// How it was answered; why not.
    ended: Result<String, String>,
    /// Whether the changed bytes were executed.
    is_reached: bool,
    /// Whether the SRAM holds the data of a write.
    is_whole: bool,
    /// The bytes of RAM that the firmware read.
    read: BTreeSet<u16>,
}

impl Attempt {
    fn of(
        image: &Image,
        alternate: u8,
        transfer: Transfer,
        writes: &[(u16, u8)],
        changed: &BTreeSet<usize>,
    ) -> Result<Self, NotProven> {
        let mut unit: Driver<MemoryFlash> =
            boot::booted(image, alternate).map_err(|fault| NotProven::Boot(fault.to_string()))?;
        for (at, value) in writes {
            unit.chip.poke(XdataAddress::main(*at), &[*value]);
        }
        let eyes = Rc::new(RefCell::new(Eyes { changed: changed.clone(), is_reached: false, read: BTreeSet::new() }));
        let seen = Rc::clone(&eyes);
        unit.set_runner(move |chip, most| chip.run_observed(most, &mut *seen.borrow_mut()));
        unit.set_budget(ANSWER);
        let data: Vec<u8> = (0..BLOCKS as usize * BLOCK_LEN).map(|at| (at % 251) as u8 ^ 0x5A).collect();
        let (cdb, moves) = match transfer {
            Transfer::Write => (Command::Write16 { lba: 0, blocks: BLOCKS }.cdb(), Data::Out(&data)),
            Transfer::Read => (Command::Read16 { lba: 0, blocks: BLOCKS }.cdb(), Data::In(data.len())),
        };
        let ended = match unit.command(cdb.as_slice(), moves) {
            Ok(answer) => Ok(match answer.ending {
                Ending::Good => GOOD.to_owned(),
                Ending::Check(Some(sense)) => format!("CHECK CONDITION {sense}"),
                Ending::Check(None) => "CHECK CONDITION without sense".to_owned(),
                Ending::Other(status) => format!("status {status:02x?}"),
            }),
            Err(Unanswered::Silent(Outcome::Parked)) => Err("no answer: the firmware waits".to_owned()),
            Err(Unanswered::Silent(outcome)) => Err(format!("no answer: {outcome:?}")),
            Err(Unanswered::Halted(endpoint)) => Err(format!("endpoint {endpoint:#04x} is halted")),
            Err(Unanswered::Stall) => Err("a stalled request".to_owned()),
        };
        let settled = ended.is_ok() && unit.settle() == Outcome::Parked;
        let is_whole = settled && unit.chip.sram().get(..data.len()) == Some(&data);
        drop(unit);
        let Eyes { is_reached, read, .. } = eyes.take();
        Ok(Self { ended, is_reached, is_whole, read })
    }

    fn words(&self) -> String {
        self.ended.clone().unwrap_or_else(|why| why)
    }
}

/// Sees whether the changed bytes are executed, and which bytes of RAM are read.
#[derive(Default)]
struct Eyes {
    changed: BTreeSet<usize>,
    is_reached: bool,
    read: BTreeSet<u16>,
}

impl Observer for Eyes {
    fn before(&mut self, step: &Step<'_>) {
        /// MOVX A,@DPTR.
        const READ: u8 = 0xE0;
        let start = step.at.body_offset().0 as usize;
        let is_near = self.changed.range(start..start + LONGEST).next().is_some();
        if is_near && self.changed.range(start..start + step.instruction().len()).next().is_some() {
            self.is_reached = true;
        }
        if step.opcode == READ && step.dptr() < RAM_END {
            self.read.insert(step.dptr());
        }
    }
}
