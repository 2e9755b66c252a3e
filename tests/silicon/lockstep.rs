//! Lockstep: the recording drives the model. Its writes are applied, and each of its reads is compared with the model's
//! answer. The host does what the recording shows that it did.

use std::collections::BTreeSet;

use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{COMMAND_OUT, Chip, STATUS_IN, register_name};
use asm2464_chip::mcu::{CodeSpace, MemoryFlash};

use super::recording::{Cause, Event, Recording, is_emulated};
use super::table::Found;

/// Instructions between two accesses: an access took the rig about 1 ms. TIMER0 with 199 counts of 5 us had expired at
/// the next access three times out of four (enumerate-231204, from line 129 on).
const BETWEEN: u64 = 50_000;
/// Instructions that the model may take to interrupt, where the chip did.
const PATIENCE: u64 = 100_000_000;

/// A body that only counts DPTR up, so that time passes and no register is touched.
fn counting() -> Image {
    let mut body = vec![0; 0x1_7ED6];
    body[..3].copy_from_slice(&[0xA3, 0x80, 0xFD]);
    Image::from_body(body).unwrap()
}

/// # Errors
/// The model can't replay the recording.
pub fn lockstep(recording: &Recording) -> Result<Found, String> {
    let code = CodeSpace::new(&counting());
    let mut chip = Chip::power_on(code, MemoryFlash::erased(), recording.speed()?);
    let mut found = Found::default();
    let mut host = Host::default();
    // Registers that only hold what was written get silicon's value after the first difference.
    let mut adopted = BTreeSet::new();
    for (at, event) in recording.events.iter().enumerate() {
        match *event {
            Event::Interrupt(number, _) => {
                let cause = if host.has_come > at { Cause::Other } else { recording.cause(at) };
                host.acts(&mut chip, cause);
                wait_for_interrupt(&mut chip, number);
            }
            Event::Return => {}
            Event::Access(access) if is_emulated(access.addr) => {}
            Event::Access(access) => {
                chip.run(BETWEEN);
                let place = XdataAddress::main(access.addr);
                if !access.is_read() {
                    chip.poke(place, &[access.value]);
                    if let 0x90A1..=0x90C0 = access.addr {
                        chip.bulk_in(STATUS_IN, 0);
                    }
                    continue;
                }
                let mut model = chip.peek(place);
                if access.addr == 0xC802 && access.value & !model & 0x05 != 0 {
                    host.comes_early(&mut chip, recording, at);
                    model = chip.peek(place);
                }
                found.read(access.addr, access.value, model, access.line);
                if model != access.value && register_name(access.addr).is_none() {
                    chip.poke(place, &[access.value]);
                    adopted.insert(access.addr);
                }
            }
        }
    }
    Ok(found)
}

/// Accesses after a read of 0xC802 within which the firmware asks what has come.
const SOON: usize = 60;

#[derive(Default)]
struct Host {
    /// What caused the interrupts up to this event has been done.
    has_come: usize,
}

impl Host {
    fn acts(&mut self, chip: &mut Chip<MemoryFlash>, cause: Cause) {
        match cause {
            Cause::Setup(setup) => {
                let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
                chip.take_control_reply();
                chip.begin_control(setup, &vec![0; if setup[0] & 0x80 == 0 { len } else { 0 }]);
            }
            Cause::Command { tag, opcode } => {
                let [high, low] = tag.to_be_bytes();
                let mut unit = [0; 32];
                unit[..4].copy_from_slice(&[0x01, 0, high, low]);
                unit[16] = opcode;
                chip.bulk_out(COMMAND_OUT, 0, &unit);
            }
            Cause::Other => {}
        }
    }

    /// The firmware saw in 0xC802 that something had come, before it took the interrupt or in the same one.
    fn comes_early(&mut self, chip: &mut Chip<MemoryFlash>, recording: &Recording, at: usize) {
        let soon = &recording.events[at..recording.events.len().min(at + SOON)];
        let next = soon.iter().position(|event| matches!(event, Event::Interrupt(..))).map_or(at, |offset| at + offset);
        let cause = match recording.cause(at) {
            Cause::Other => recording.cause(next),
            cause => cause,
        };
        self.has_come = next + 1;
        self.acts(chip, cause);
        chip.run(BETWEEN);
    }
}

/// Lets time pass until the model interrupts, where the chip did.
fn wait_for_interrupt(chip: &mut Chip<MemoryFlash>, number: u8) {
    let sources: [(u16, u8); 2] =
        if number == 0 { [(0xC802, 0x05), (0xC806, 0x20)] } else { [(0xC806, 0x01), (0xC80A, 0xFF)] };
    let ends = chip.now() + PATIENCE;
    while chip.now() < ends && !sources.into_iter().any(|(addr, bits)| chip.peek(XdataAddress::main(addr)) & bits != 0)
    {
        chip.run(BETWEEN);
    }
}
