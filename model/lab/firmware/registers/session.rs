//! A unit's life from power-on to its reset by E8, with all of its answers.

use asm2464::firmware::{BlockIndex, Image, Part, known_blocks};
use asm2464::scsi::{Command, INQUIRY_LEN, ResetMode, XdataAddress};
use asm2464_chip::chip::boot::powered_on;
use asm2464_chip::chip::{Data, Driver, RunEnd, Speed};
use asm2464_chip::mcu::AccessKind;

/// Number of bytes of each part that E2 reads.
const PROOF: u32 = 0x1000;
/// Address of the running firmware's version. Source: cyrozap's notes.
const VERSION: XdataAddress = XdataAddress::main(0x07F0);

#[derive(Debug)]
pub struct Session {
    /// What was asked, and the answer.
    answers: Vec<(&'static str, String)>,
    /// The flash's cells at the end.
    flash: Vec<u8>,
    /// The unmodelled registers that the firmware read.
    pub read: Vec<XdataAddress>,
}

impl Session {
    /// Runs a unit whose register powers on with this value.
    pub fn run(image: &Image, power_on: Option<(XdataAddress, u8)>) -> Self {
        let mut unit = powered_on(image, Speed::Super);
        if let Some((at, value)) = power_on {
            unit.chip.poke(at, &[value]);
        }
        let mut session = Self { answers: Vec::new(), flash: Vec::new(), read: Vec::new() };
        // The session ends at the first request without an answer.
        let _ = session.live(&mut unit, image);
        session.flash.clone_from(&unit.chip.flash().cells);
        let unknown = unit.chip.unknown_registers().iter();
        session.read = unknown.filter(|access| access.kind == AccessKind::Read).map(|access| access.at).collect();
        session
    }

    /// Whether the session ran to its end.
    pub fn is_whole(&self) -> bool {
        self.answers.last().is_some_and(|(what, answer)| *what == "E8" && answer == "Reset")
    }

    /// The first difference of another session.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        let mut answers = self.answers.iter().enumerate();
        let differs = answers.find(|(at, answer)| other.answers.get(*at) != Some(answer));
        differs.map(|(_, (what, _))| *what).or((self.flash != other.flash).then_some("the flash"))
    }

    fn note<T: std::fmt::Debug, E: std::fmt::Debug>(&mut self, what: &'static str, answer: Result<T, E>) -> Option<()> {
        let is_there = answer.is_ok();
        self.answers.push((what, format!("{answer:02x?}")));
        is_there.then_some(())
    }

    fn live(&mut self, unit: &mut Driver, image: &Image) -> Option<()> {
        self.note("boot", unit.enumerate())?;
        for (what, kind, index) in
            [("device", 1, 0), ("configuration", 2, 0), ("BOS", 15, 0), ("product", 3, 2), ("serial number", 3, 3)]
        {
            self.note(what, unit.descriptor(kind, index, 255))?;
        }
        let [first, second] = BlockIndex::ALL;
        let questions = |unit: &mut Driver, session: &mut Self| -> Option<()> {
            let e2 = |part| Command::FlashRead { part, len: PROOF };
            let questions = [
                ("INQUIRY", Command::Inquiry { len: INQUIRY_LEN }, INQUIRY_LEN.into()),
                ("E0", Command::ConfigRead(first), 0x80),
                ("E0", Command::ConfigRead(second), 0x80),
                ("E2", e2(Part::ALL[0]), PROOF as usize),
                ("E2", e2(Part::ALL[1]), PROOF as usize),
                ("E4", Command::XdataRead { from: VERSION, len: 6 }, 6),
            ];
            for (what, command, len) in questions {
                session.note(what, unit.command(command.cdb().as_slice(), Data::In(len)))?;
            }
            Some(())
        };
        questions(unit, self)?;
        for block in &known_blocks() {
            let cdb = Command::ConfigWrite(block.index()).cdb();
            self.note("E1", unit.command(cdb.as_slice(), Data::Out(block.bytes())))?;
        }
        let file = image.to_file();
        for part in Part::ALL {
            let bytes = part.of(&file);
            let cdb = Command::FlashWrite { part, len: bytes.len() as u32 }.cdb();
            self.note("E3", unit.command(cdb.as_slice(), Data::Out(bytes)))?;
        }
        questions(unit, self)?;
        self.note("UAS", unit.set_alternate(1))?;
        questions(unit, self)?;
        // The reset may come before the status.
        let _ = unit.command(Command::Reset(ResetMode::CpuReset).cdb().as_slice(), Data::None);
        let outcome = unit.settle();
        self.answers.push(("E8", format!("{outcome:?}")));
        (outcome == RunEnd::Reset).then_some(())
    }
}
