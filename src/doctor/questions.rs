//! Questions for both a unit and the chip model. They change nothing.

use std::fmt;
use std::time::Instant;

use asm2464::Bdf;
use asm2464::digest::to_hex;
use asm2464::firmware::{BridgeState, ConfigBlock, Image};
use asm2464::scsi::{Command, INQUIRY_LEN, XdataAddress};
use asm2464::sram::DMA_STATE;
use asm2464::tlp::LTSSM;
use asm2464_chip::chip::{Chip, Data, Driver, MemoryFunction, Speed};
use asm2464_chip::mcu::{CodeSpace, MemoryFlash};
use asm2464_host::bridge::open::OpenCommand;
use asm2464_host::bridge::{AnyTransport, Bridge, CommandError, DataPhase, OpenBridge};

use crate::unit::facts::{Exchange, Problem};

/// A question with a short answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Standard INQUIRY data.
    Inquiry,
    /// E4: a range of XDATA, by address and length.
    Xdata(u16, u8),
}

impl Question {
    /// The questions for a unit in this state: its identity, and registers that reading does not change.
    pub const fn of(state: BridgeState) -> &'static [Self] {
        const USB_SPEED: Question = Question::Xdata(0x9100, 1);
        const LINK: Question = Question::Xdata(LTSSM.addr, 1);
        const SRAM_DMA: Question = Question::Xdata(DMA_STATE.addr, 1);
        const PHY: Question = Question::Xdata(0xE712, 1);
        const VERSION: Question = Question::Xdata(XdataAddress::VERSION.addr, 6);
        const PART_REVISION: Question = Question::Xdata(0xC8FF, 1);
        // Registers of no known use whose power-on value changes what the vendor's firmware does: docs/chip.md.
        const E302: Question = Question::Xdata(0xE302, 1);
        const E402: Question = Question::Xdata(0xE402, 1);
        const E795: Question = Question::Xdata(0xE795, 1);
        match state {
            BridgeState::Vendor => {
                &[Question::Inquiry, VERSION, USB_SPEED, LINK, SRAM_DMA, PHY, PART_REVISION, E302, E402, E795]
            }
            BridgeState::OpenFirmware => &[USB_SPEED, LINK, SRAM_DMA, PHY, PART_REVISION, E302, E402, E795],
            BridgeState::BootLoader => &[],
        }
    }

    /// The question as a command to the vendor's firmware.
    fn command(self) -> (Command, usize) {
        match self {
            Self::Inquiry => (Command::Inquiry { len: INQUIRY_LEN }, INQUIRY_LEN.into()),
            Self::Xdata(at, len) => (Command::XdataRead { from: XdataAddress::main(at), len: len.into() }, len.into()),
        }
    }

    /// The question as a control request to open firmware; `None` if there is none.
    fn request(self) -> Option<(OpenCommand, usize)> {
        match self {
            Self::Inquiry => None,
            Self::Xdata(at, len) => {
                Some((OpenCommand::XdataRead { from: XdataAddress::main(at), len: len.into() }, len.into()))
            }
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inquiry => f.write_str("INQUIRY"),
            Self::Xdata(at, len) => write!(f, "E4 of {at:#06x}, {len} bytes"),
        }
    }
}

/// An answer's bytes in hexadecimal, or why there are none.
fn words(answer: Result<Vec<u8>, String>) -> String {
    answer.map_or_else(|why| format!("no answer: {why}"), |bytes| to_hex(&bytes, " "))
}

fn timed(question: Question, ask: impl FnOnce() -> Result<Vec<u8>, Problem>) -> Exchange {
    let begun = Instant::now();
    let unit = words(ask().map_err(|problem| problem.code));
    let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    Exchange { question: question.to_string(), unit, took_us, model: None }
}

/// Asks a unit that runs the vendor's firmware. Stops at the first question at which the wire fails.
pub(super) fn ask_vendor(bridge: &mut Bridge<AnyTransport>) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for question in Question::of(BridgeState::Vendor) {
        let (command, len) = question.command();
        let timeout = bridge.timeouts().short;
        let mut is_over = false;
        exchanges.push(timed(*question, || {
            let mut data = vec![0; len];
            let completion = bridge.execute(command, DataPhase::In(&mut data), timeout).map_err(|error| {
                is_over = true;
                Problem::from(CommandError::from(error))
            })?;
            data.truncate(completion.transferred);
            Ok(data)
        }));
        if is_over {
            break;
        }
    }
    exchanges
}

/// Asks a unit that runs open firmware.
pub(super) fn ask_open(bridge: &mut OpenBridge) -> Vec<Exchange> {
    let ask = |question: &Question| {
        let (command, len) = question.request()?;
        Some(timed(*question, || {
            let mut data = vec![0; len];
            bridge.request(command, &mut data).map_err(Problem::from)?;
            Ok(data)
        }))
    };
    Question::of(BridgeState::OpenFirmware).iter().filter_map(ask).collect()
}

/// Adds the answers of the same firmware on the chip model. The model's bridge has a device behind it, as the unit's
/// should.
pub(super) fn ask_model(exchanges: &mut [Exchange], image: &Image, blocks: &[ConfigBlock; 2], state: BridgeState) {
    let chip = Chip::power_on(CodeSpace::new(image), asm2464_chip::chip::boot::flash_with(blocks, image), Speed::Super);
    let mut driver = Driver::new(chip);
    let gpu = MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 1 << 20);
    driver.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu);
    let is_up = driver.enumerate().is_ok();
    for question in Question::of(state) {
        let text = question.to_string();
        let Some(exchange) = exchanges.iter_mut().find(|exchange| exchange.question == text) else { continue };
        let model =
            if is_up { model_answer(&mut driver, *question, state) } else { Err("it does not boot".to_owned()) };
        exchange.model = Some(words(model));
    }
}

fn model_answer(driver: &mut Driver<MemoryFlash>, question: Question, state: BridgeState) -> Result<Vec<u8>, String> {
    let unanswered = |why| format!("{why:?}");
    if state == BridgeState::OpenFirmware {
        let Some((command, _)) = question.request() else { return Err("it has no such request".to_owned()) };
        return driver.control(command.setup(), &[]).map_err(unanswered);
    }
    let (command, len) = question.command();
    driver.bulk_only(command.cdb().as_slice(), Data::In(len)).map(|reply| reply.data).map_err(unanswered)
}
