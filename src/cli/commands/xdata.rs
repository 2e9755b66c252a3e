//! The `asmpatch xdata` command: reads and writes XDATA on a unit, registers included.

use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::scsi::{XdataAddress, XdataPage};
use asm2464::{AnyFailure, Coded as _, Failure, Kind};
use asm2464_chip::chip::{register_name, registers, unaliased};
use asm2464_host::pcie::TlpEngine;
use serde::Serialize;

use crate::cli::commands::pcie;
use crate::cli::given::arguments::DeviceArgs;
use crate::cli::words::ask;
use crate::cli::words::errors::Exit;
use crate::cli::words::interrupt;
use crate::cli::words::print;
use crate::suggest;
use crate::unit::Purpose;

/// Read and write XDATA on a unit: the memory of the chip's CPU, and the chip's registers.
///
/// The CPU is an 8051. Works on the vendor's firmware, by the vendor commands E4 (read) and E5 (write), and on open
/// firmware, by control requests of the same numbers.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:\n  asmpatch xdata read 0xB450\n  asmpatch xdata write 0x5ff8 5a")]
pub enum XdataCommand {
    /// Read XDATA.
    ///
    /// A read of a register can have effects of its own, such as the end of an event.
    #[command(after_help = "Examples:\n  asmpatch xdata read PCIE_LINK_STATE\n  asmpatch xdata read 0x9000 256 --json")]
    Read {
        /// Address, such as 0xC450, or a register's name in docs/lab/chip.md.
        #[arg(value_parser = parse_address)]
        address: u16,

        /// Number of bytes, such as 64 or 0x40; not past the end of the page.
        #[arg(default_value = "1", value_parser = pcie::parse_len::<PAGE_LEN>)]
        len: usize,

        #[command(flatten)]
        options: XdataOptions,
    },
    /// Write XDATA, byte by byte, at once.
    ///
    /// Nothing tells whether a register takes a value. A wrong one can hang the unit until it loses power. A unit with an
    /// SSD is left alone: its firmware drives the SSD through the same registers. The flash controller's registers are
    /// refused: `flash` and `restore` write the flash, with a backup. Registers that restart the unit or switch power are
    /// named, and need your yes.
    #[command(after_help = "Examples:\n  asmpatch xdata write 0x5ff8 5a")]
    Write {
        /// Address, such as 0xC450, or a register's name in docs/lab/chip.md.
        #[arg(value_parser = parse_address)]
        address: u16,

        /// The bytes in hexadecimal, the one at ADDRESS first, such as 00ff10; at most 256.
        #[arg(value_parser = parse_bytes)]
        bytes: Box<[u8]>,

        /// Don't ask before writing registers that restart the unit or switch power.
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        options: XdataOptions,
    },
}

impl XdataCommand {
    /// Whether the command only shows something.
    pub const fn only_prints(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// Options of both actions.
#[derive(Debug, clap::Args)]
pub struct XdataOptions {
    /// Take the other page (0x51), with the settings of PHY and link.
    #[arg(long)]
    other_page: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Bytes of a page.
const PAGE_LEN: usize = 0x1_0000;
/// The most bytes that one command writes.
const WRITE_MAX: usize = 256;
/// The bytes that one E4 can read on every firmware and at every speed.
const PIECE: usize = 64;
/// Up to this many bytes are shown one a line, with the registers' names.
const LINES: usize = 16;

fn parse_address(text: &str) -> Result<u16, String> {
    if let Ok(address) = pcie::parse_number(text) {
        return u16::try_from(address).map_err(|_| "expected an address up to 0xFFFF".to_owned());
    }
    let mut named =
        registers().filter(|(_, register)| register.name.eq_ignore_ascii_case(text)).map(|(_, found)| found);
    match (named.next(), named.next()) {
        (Some(found), None) => Ok(found.first),
        (Some(_), Some(_)) => Err("several registers have this name: give an address".to_owned()),
        (None, _) => {
            let names = registers().map(|(_, register)| register.name);
            let meant = suggest::question(text, names);
            Err(format!("expected an address, such as 0xC450, or a register's name in `asmpatch help chip`{meant}"))
        }
    }
}

fn parse_bytes(text: &str) -> Result<Box<[u8]>, String> {
    let bytes = pcie::parse_bytes(text).ok().filter(|bytes| bytes.len() <= WRITE_MAX);
    bytes.ok_or_else(|| "expected 1 to 256 pairs of hexadecimal digits, as 00ff10".to_owned())
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, it is in its boot loader, a write would meet an SSD, or a request fails.
pub fn run(command: &XdataCommand) -> Result<Exit, AnyFailure> {
    interrupt::install();
    match command {
        XdataCommand::Read { address, len, options } => read(*address, *len, options),
        XdataCommand::Write { address, bytes, yes, options } => write(*address, bytes, *yes, options),
    }
}

/// Returns the address of the first byte, after checking that all are in its page.
fn place(address: u16, len: usize, options: &XdataOptions) -> Result<XdataAddress, Failure> {
    let page = if options.other_page { XdataPage::Other } else { XdataPage::Main };
    let from = XdataAddress { page, addr: address };
    if usize::from(address) + len > PAGE_LEN {
        let message = format!("{len} bytes from {from} go past 0xFFFF");
        return Err(Failure::new(Kind::Usage.code("asmpatch::xdata::past_end"), message));
    }
    Ok(from)
}

/// A register whose first byte was read or written.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RegisterJson {
    /// Its address.
    address: u16,
    /// Its name, as in docs/lab/chip.md.
    name: &'static str,
}

/// Bytes of XDATA that were read or written.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct XdataJson<'a> {
    /// The unit's port, as `--device` takes it.
    device: &'a str,
    /// The address of the first byte.
    address: u16,
    /// Whether it is in the other page (0x51).
    other_page: bool,
    /// The bytes in hexadecimal, as read or as written.
    bytes: String,
    /// The known registers among them.
    registers: Vec<RegisterJson>,
}

impl print::Document for XdataJson<'_> {
    const VERSION: u32 = 2;
}

impl<'a> XdataJson<'a> {
    fn of(device: &'a str, from: XdataAddress, bytes: &[u8]) -> Self {
        let addresses = (0..bytes.len()).map(|offset| from.plus(offset as u16));
        let registers = addresses.filter_map(|at| Some(RegisterJson { address: at.addr, name: name(at)? })).collect();
        let other_page = from.page == XdataPage::Other;
        Self { device, address: from.addr, other_page, bytes: to_hex(bytes, ""), registers }
    }
}

/// The name of a register at an address; none in the other page.
fn name(at: XdataAddress) -> Option<&'static str> {
    if at.page == XdataPage::Main { register_name(at.addr) } else { None }
}

fn named(at: XdataAddress) -> String {
    name(at).map(|name| format!("  {name}")).unwrap_or_default()
}

fn read(address: u16, len: usize, options: &XdataOptions) -> Result<Exit, AnyFailure> {
    let from = place(address, len, options)?;
    let mut opened = options.device.open(Purpose::Xdata)?;
    let mut bytes = vec![0; len];
    let mut engine = opened.live.engine();
    // In pieces, so that Ctrl-C ends a long read. An open range, `0..`, would step past the page's last address and overflow.
    for (offset, piece) in (0..=u16::MAX).step_by(PIECE).zip(bytes.chunks_mut(PIECE)) {
        interrupt::install().check()?;
        engine.xdata_read(from.plus(offset), piece)?;
    }
    if options.json {
        print::json(&XdataJson::of(&opened.unit.info.location.to_string(), from, &bytes));
    } else {
        show(from, &bytes);
    }
    Ok(Exit::Done)
}

fn show(from: XdataAddress, bytes: &[u8]) {
    if bytes.len() > LINES {
        return print::out(pcie::show::dump(from.addr.into(), bytes));
    }
    for (offset, byte) in (0..).zip(bytes) {
        let at = from.plus(offset);
        outln!("{:#06x}  {byte:02x}{}", at.addr, named(at));
    }
}

/// Whether the last byte of a range is in a register that takes the unit off the bus.
fn leaves_at_the_end(from: XdataAddress, len: usize) -> bool {
    disruptions(from.plus((len - 1) as u16), 1).iter().any(|found| found.takes_off_the_bus)
}

fn write(address: u16, bytes: &[u8], yes: bool, options: &XdataOptions) -> Result<Exit, AnyFailure> {
    let from = place(address, bytes.len(), options)?;
    if reaches_flash(from, bytes.len()) {
        let (first, last) = FLASH_CONTROLLER;
        let message = format!(
            "the write at {from} reaches the flash controller ({first:#06X} to {last:#06X}), which can erase and change \
             the flash"
        );
        return Err(Failure::new(Kind::Refused.code("asmpatch::xdata::flash_controller"), message).into());
    }
    let disruptions = disruptions(from, bytes.len());
    for found in &disruptions {
        errln!("{:#06x}{}: {}", found.address, named(XdataAddress::main(found.address)), found.what);
    }
    if !disruptions.is_empty() && !yes {
        ask::confirm("write it?", interrupt::install())?;
    }
    let mut opened = options.device.open(Purpose::Xdata)?;
    let device = opened.unit.info.location.to_string();
    opened.live.spare_ssd(&device, Purpose::Xdata)?;
    let has_left = write_each(&mut *opened.live.engine(), from, bytes)?;
    if options.json {
        print::json(&XdataJson::of(&device, from, bytes));
        return Ok(Exit::Done);
    }
    let bytes = if let [_] = bytes { "1 byte".to_owned() } else { format!("{} bytes", bytes.len()) };
    outln!("{}: {bytes} written at {:#06x}{}", device.shown(), from.addr, named(from));
    if has_left {
        outln!("the unit left the bus, as this register makes it do: `asmpatch list` shows when it is back");
    }
    Ok(Exit::Done)
}

/// Writes one byte at a time: after a register that takes the unit off the bus, nothing more is written. Returns whether
/// the last one did.
fn write_each(unit: &mut dyn TlpEngine, from: XdataAddress, bytes: &[u8]) -> Result<bool, AnyFailure> {
    for (offset, byte) in (0..).zip(bytes) {
        match unit.xdata_write(&[(from.plus(offset), *byte)]) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Gone && leaves_at_the_end(from, bytes.len()) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The flash controller's registers. Commands that are written there erase and change the flash. Source: openpilot's
/// flasher; b0:0xBE02, 0xBE70; cyrozap's notes for the first ones.
const FLASH_CONTROLLER: (u16, u16) = (0xC89F, 0xC8AF);

/// A register that takes the unit off the bus, or power from what is behind it.
struct Disruption {
    /// Its address.
    address: u16,
    /// Whether the unit may leave the bus instead of answering.
    takes_off_the_bus: bool,
    /// What a write to it can do.
    what: &'static str,
}

const LEAVES_THE_BUS: &str = "takes the unit off the bus while 0x92C2.6 and 0x91C0.1 are both set";
const PCIE_POWER: &str = "switches the power of what is behind the bridge";

/// Sources: c:0x458A for 0xCC31; b0:0xD916, E8 in mode 0x51, for the others; open firmware's F3 for 0xC656 and 0xC659.
const DISRUPTIONS: [Disruption; 5] = [
    Disruption { address: 0x91C0, takes_off_the_bus: true, what: LEAVES_THE_BUS },
    Disruption { address: 0x92C2, takes_off_the_bus: true, what: LEAVES_THE_BUS },
    Disruption { address: 0xC656, takes_off_the_bus: false, what: PCIE_POWER },
    Disruption { address: 0xC659, takes_off_the_bus: false, what: PCIE_POWER },
    Disruption {
        address: 0xCC31,
        takes_off_the_bus: true,
        what: "bit 0 restarts the CPU: the unit leaves the bus without an answer; `asmpatch reset` does the same, and \
               waits until it is back",
    },
];

/// Whether a range has a register of the flash controller, at any of its addresses.
fn reaches_flash(from: XdataAddress, len: usize) -> bool {
    let (first, last) = FLASH_CONTROLLER;
    registers_in(from, len).any(|address| (first..=last).contains(&address))
}

/// The registers in a range that disrupt the unit.
fn disruptions(from: XdataAddress, len: usize) -> Vec<&'static Disruption> {
    let is_there = |disruption: &&Disruption| registers_in(from, len).any(|address| address == disruption.address);
    DISRUPTIONS.iter().filter(is_there).collect()
}

/// Returns the addresses in a range, with aliases resolved: none in the other page, which lacks these registers.
fn registers_in(from: XdataAddress, len: usize) -> impl Iterator<Item = u16> {
    let is_main = from.page == XdataPage::Main;
    (from.addr..=u16::MAX).take(if is_main { len } else { 0 }).map(unaliased)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_number_of_16_bits_or_a_registers_name() {
        assert_eq!((parse_address("0xC450"), parse_address("16")), (Ok(0xC450), Ok(16)));
        assert_eq!(parse_address("ep0_events"), Ok(0x9091));
        assert!(parse_address("0x10000").is_err() && parse_address("NOTHING").is_err() && parse_address("-1").is_err());
    }

    #[test]
    fn bytes_are_bounded() {
        assert!(parse_bytes("").is_err() && parse_bytes("0").is_err() && parse_bytes(&"00".repeat(257)).is_err());
        assert_eq!(parse_bytes("5aFF"), Ok([0x5A, 0xFF].into()));
    }

    #[test]
    fn a_range_that_merely_overlaps_the_flash_controller_reaches_it_at_either_of_its_addresses() {
        for page in [0xC800_u16, 0xC900] {
            let at = |offset| XdataAddress::main(page + offset);
            assert!(reaches_flash(at(0x9E), 2) && reaches_flash(at(0xAF), 1) && reaches_flash(at(0x00), 256));
            assert!(!reaches_flash(at(0x9E), 1) && !reaches_flash(at(0xB0), 80));
        }
        assert!(!reaches_flash(XdataAddress { page: XdataPage::Other, addr: 0xC8A9 }, 1));
        assert!(!reaches_flash(XdataAddress::main(0xFFFF), 1));
    }

    #[test]
    fn a_range_names_each_register_in_it_that_disrupts_the_unit() {
        let named = |addr, len| {
            disruptions(XdataAddress::main(addr), len).iter().map(|found| found.address).collect::<Vec<_>>()
        };
        assert_eq!(named(0xC650, 10), [0xC656, 0xC659]);
        assert_eq!((named(0xC759, 1), named(0xCC30, 2)), (vec![0xC659], vec![0xCC31]));
        assert_eq!((named(0xCC30, 1), named(0x5FF8, 16)), (vec![], vec![]));
    }
}
