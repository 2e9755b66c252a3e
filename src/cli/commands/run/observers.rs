//! What watches a run: the events that are printed as they happen, and for firmware authors names, a profile and
//! coverage.

use std::path::{Path, PathBuf};

use asm2464::digest::to_hex;
use asm2464::firmware::{CodeAddress, Image};
use asm2464::scsi::{XdataAddress, XdataPage};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::chip::{UsbEvent, Watch, register_name};
use asm2464_chip::mcu::{AccessKind, Observer, Step, Trace, assembly};
use asm2464_chip::profile::{Coverage, Profile};
use asm2464_files::atomic;
use asm2464_host::bridge::{PipeError, TransferEnd};

use super::{EventKind, place, xdata};
use crate::cli::given::symbols::LoadedSymbols;
use crate::cli::given::user_files;
use crate::pcap::CapturedDevice;

/// The bit of bmRequestType and bEndpointAddress for data to the host.
const TO_HOST: u8 = 0x80;
/// How many bytes of a packet a line shows.
const SHOWN: usize = 32;
/// The longest line of the serial port, in bytes. A longer one continues on the next line.
const LONGEST_LINE: usize = 200;
/// Deepest indentation of calls.
const DEEPEST: usize = 40;

/// Prints registers, packets and serial text, and records the USB traffic.
pub(super) struct Events {
    usb: bool,
    registers: bool,
    uart: bool,
    line: Vec<u8>,
    wire: Option<CapturedDevice>,
    /// The running control transfer: its setup packet, and the data of a write.
    control: Option<([u8; 8], Vec<u8>)>,
}

impl Events {
    pub(super) fn new(kinds: &[EventKind], uart: bool, wire: Option<CapturedDevice>) -> Self {
        let has = |kind| kinds.contains(&kind);
        let (usb, registers) = (has(EventKind::Usb), has(EventKind::Registers));
        Self { usb, registers, uart, line: Vec::new(), wire, control: None }
    }

    /// Prints what the serial port has sent since the last line.
    fn show_line(&mut self) {
        errln!("uart  {}", String::from_utf8_lossy(&self.line).escape_debug());
        self.line.clear();
    }

    fn record(&mut self, event: UsbEvent<'_>) {
        let Some(wire) = &self.wire else { return };
        match event {
            UsbEvent::Setup { setup, data } => self.control = Some((setup, data.to_vec())),
            UsbEvent::ControlDone(read) => {
                if let Some((setup, written)) = self.control.take() {
                    let is_read = setup[0] & TO_HOST != 0;
                    wire.control(setup, if is_read { read } else { &written }, &TransferEnd::Completed);
                }
            }
            UsbEvent::ControlStall => {
                if let Some((setup, _)) = self.control.take() {
                    wire.control(setup, &[], &TransferEnd::Failed(PipeError::Stall));
                }
            }
            UsbEvent::Bulk { endpoint, packet, .. } => {
                let is_read = endpoint & TO_HOST != 0;
                let urb = wire.submit_bulk(endpoint, packet.len(), if is_read { &[] } else { packet });
                wire.complete(urb, &TransferEnd::Completed, packet.len(), if is_read { packet } else { &[] });
            }
            // usbmon has no events for these.
            UsbEvent::Suspend | UsbEvent::Resume => {}
        }
    }
}

impl Watch for Events {
    fn register(&mut self, kind: AccessKind, at: XdataAddress, value: u8, pc: u32) {
        if self.registers {
            let name = match at.page {
                XdataPage::Main => register_name(at.addr).unwrap_or("?"),
                XdataPage::Other => "?",
            };
            let arrow = if kind == AccessKind::Read { "->" } else { "<-" };
            errln!("register  {:<10} {:<8} {name:<20} {arrow} {value:02X}", place(pc), xdata(at));
        }
    }

    fn usb(&mut self, now: u64, event: UsbEvent<'_>) {
        self.record(event);
        if !self.usb {
            return;
        }
        match event {
            UsbEvent::Setup { setup, data } => errln!("usb  {now:>10}  SETUP {}  {}", hex(&setup), hex(data)),
            UsbEvent::ControlDone(data) => errln!("usb  {now:>10}  control done  {}", hex(data)),
            UsbEvent::ControlStall => errln!("usb  {now:>10}  control stall"),
            UsbEvent::Suspend => errln!("usb  {now:>10}  suspend"),
            UsbEvent::Resume => errln!("usb  {now:>10}  resume"),
            UsbEvent::Bulk { endpoint, stream, packet } => {
                errln!("usb  {now:>10}  {endpoint:02X} stream {stream}, {} bytes  {}", packet.len(), hex(packet));
            }
        }
    }

    fn uart(&mut self, byte: u8) {
        if !self.uart {
            return;
        }
        if byte != b'\n' {
            self.line.push(byte);
        }
        if byte == b'\n' || self.line.len() == LONGEST_LINE {
            self.show_line();
        }
    }
}

/// Firmware that stops has often not ended its last line.
impl Drop for Events {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.show_line();
        }
    }
}

/// Observes each instruction: keeps the last ones, shows calls, measures, and stops at addresses.
pub(super) struct InstructionObserver {
    pub(super) trace: Trace,
    /// The current depth of calls; `None` if calls are not shown.
    pub(super) calls: Option<usize>,
    pub(super) until: Vec<CodeAddress>,
    pub(super) hit: Option<CodeAddress>,
    pub(super) symbols: LoadedSymbols,
    /// `None` if no profile is wanted.
    pub(super) profile: Option<Profile>,
    /// `None` if no coverage is wanted.
    pub(super) coverage: Option<Coverage>,
}

impl InstructionObserver {
    /// Whether there is anything to observe.
    pub(super) fn is_needed(&self) -> bool {
        let Self { trace, calls, until, profile, coverage, .. } = self;
        trace.is_on() || calls.is_some() || !until.is_empty() || profile.is_some() || coverage.is_some()
    }

    /// Prints a call or a return.
    fn call(&mut self, step: &Step<'_>) {
        const LCALL: u8 = 0x12;
        const RET: u8 = 0x22;
        const RETI: u8 = 0x32;
        let Some(depth) = self.calls.as_mut() else { return };
        let indent = 2 * (*depth).min(DEEPEST);
        match step.opcode {
            // ACALL's opcode: three bits of the target address, then 10001.
            opcode if opcode == LCALL || opcode & 0x1F == 0x11 => {
                let instruction = step.instruction();
                let note = self.symbols.note(step.at, &instruction);
                errln!("call  {:indent$}{} {}{note}", "", step.at, assembly(&instruction));
                *depth += 1;
            }
            RET | RETI => *depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}

impl Observer for InstructionObserver {
    fn before(&mut self, step: &Step<'_>) {
        self.trace.before(step);
        self.call(step);
        if let Some(profile) = &mut self.profile {
            profile.before(step);
        }
        if let Some(coverage) = &mut self.coverage {
            coverage.before(step);
        }
        if self.until.contains(&step.at) {
            self.hit = Some(step.at);
        }
    }

    fn wants_to_stop(&self) -> bool {
        self.hit.is_some()
    }
}

fn hex(bytes: &[u8]) -> String {
    let shown = to_hex(&bytes[..bytes.len().min(SHOWN)], " ");
    if bytes.len() > SHOWN { shown + " ..." } else { shown }
}

/// The options for firmware authors.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "For firmware authors")]
pub struct AuthorArgs {
    /// Take names and source lines from SDCC's NAME.map or NAME.cdb, or from an ELF; may be given more than once.
    #[arg(long, value_name = "FILE")]
    symbols: Vec<PathBuf>,

    /// Write a profile by function into this file: folded stacks, which flamegraph.pl and inferno take, in clock
    /// cycles.
    #[arg(long, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,

    /// Write line coverage into this file: an lcov tracefile. Needs a --symbols with lines.
    #[arg(long, value_name = "FILE", requires = "symbols")]
    pub(super) coverage: Option<PathBuf>,

    /// Replace these files if they exist.
    #[arg(long)]
    force: bool,
}

impl AuthorArgs {
    /// Reads the symbols, and checks that every result can be written.
    pub(super) fn symbols(&self, image_path: &Path, image: &Image) -> Result<LoadedSymbols, AnyFailure> {
        let outputs: Vec<&PathBuf> = [&self.profile, &self.coverage].into_iter().flatten().collect();
        for (index, path) in outputs.iter().enumerate() {
            if outputs[..index].contains(path) {
                let label = Kind::Usage.code("asmpatch::run::same_output");
                return Err(Failure::new(label, format!("{} is named for two results", path.display())).into());
            }
            for input in self.symbols.iter().map(PathBuf::as_path).chain([image_path]) {
                user_files::check_output(path, Some(input), self.force)?;
            }
        }
        let names = LoadedSymbols::read(&self.symbols, image)?;
        if self.coverage.is_some() && names.names.lines().next().is_none() {
            let label = Kind::BadInput.code("asmpatch::run::no_lines");
            return Err(Failure::new(label, "no file of --symbols has source lines").into());
        }
        Ok(names)
    }

    /// Writes what was measured. Returns the files' names.
    pub(super) fn write(&self, observer: &InstructionObserver) -> Result<Vec<String>, AnyFailure> {
        let mut texts = Vec::new();
        if let (Some(path), Some(profile)) = (&self.profile, &observer.profile) {
            texts.push((path.as_path(), profile.folded()));
        }
        if let (Some(path), Some(coverage)) = (&self.coverage, &observer.coverage) {
            let LoadedSymbols { names, folder, .. } = &observer.symbols;
            texts.push((path.as_path(), coverage.lcov(names, folder)));
        }
        let files: Vec<(&Path, &[u8])> = texts.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
        atomic::write_all(&files)?;
        Ok(files.iter().map(|(path, _)| path.display().to_string()).collect())
    }
}
