//! Lockstep: the recording drives the model. Its writes are applied, and each of its reads is compared with the model's
//! answer. The host does what the recording shows that it did.

use std::collections::BTreeSet;

use asmpatch::chip::{COMMAND_OUT, Chip, Speed, register_name};
use asmpatch::firmware::Image;
use asmpatch::mcu::{CodeSpace, MemoryFlash};
use asmpatch::scsi::XdataAddress;

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

pub fn lockstep(recording: &Recording) -> Found {
    let code = CodeSpace::new(&counting());
    let mut chip = Chip::power_on(code, MemoryFlash::erased(), Speed::Super);
    let mut found = Found::default();
    // Registers that only hold what was written get silicon's value after the first difference.
    let mut adopted = BTreeSet::new();
    for (at, event) in recording.events.iter().enumerate() {
        match *event {
            Event::Interrupt(number, _) => interrupt(&mut chip, number, recording.cause(at)),
            Event::Return => {}
            Event::Access(access) if is_emulated(access.addr) => {}
            Event::Access(access) => {
                chip.run(BETWEEN);
                let place = XdataAddress::main(access.addr);
                if !access.is_read() {
                    chip.poke(place, &[access.value]);
                    continue;
                }
                let model = chip.peek(place);
                found.read(access.addr, access.value, model, access.line);
                if model != access.value && register_name(access.addr).is_none() {
                    chip.poke(place, &[access.value]);
                    adopted.insert(access.addr);
                }
            }
        }
    }
    found
}

/// Lets the host do what caused the interrupt, and time pass until the model raises it.
fn interrupt(chip: &mut Chip<MemoryFlash>, number: u8, cause: Cause) {
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
    let sources = if number == 0 { [0xC802, 0xC806] } else { [0xC806, 0xC80A] };
    let mask = |addr: u16| if number == 0 && addr == 0xC806 { 0x20 } else { 0xFF };
    let ends = chip.now() + PATIENCE;
    while chip.now() < ends && !sources.into_iter().any(|addr| chip.peek(XdataAddress::main(addr)) & mask(addr) != 0) {
        chip.run(BETWEEN);
    }
}
