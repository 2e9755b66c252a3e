//! Lockstep: the recording drives the model. Its writes are applied, and each of its reads is compared with the model's
//! answer. The host does what the recording shows that it did.

use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Chip, RunEnd, Speed, register_name};
use asm2464_chip::mcu::{CodeSpace, MemoryFlash};

use super::host::Host;
use super::recording::{Access, Event, Recording, is_emulated};
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

/// A chip whose CPU is elsewhere, so that its registers are all that counts.
pub fn chip(speed: Speed) -> Chip<MemoryFlash> {
    Chip::power_on(CodeSpace::new(&counting()), MemoryFlash::erased(), speed)
}

/// Lets the time of an access pass.
pub fn pass(chip: &mut Chip<MemoryFlash>) {
    let ends = chip.now() + BETWEEN;
    loop {
        let left = ends.saturating_sub(chip.now());
        if left == 0 {
            break;
        }
        match chip.run(left) {
            RunEnd::Attention => {}
            // CC31.0.
            RunEnd::Reset => chip.reset(),
            _ => break,
        }
    }
}

/// Puts what the recording shows around a chip that powers on. Its link's events are the recording's from then on.
pub fn surround(chip: &mut Chip<MemoryFlash>, recording: &Recording) {
    chip.drive_link(0x9300, 0);
    for (register, value) in recording.board() {
        chip.poke(XdataAddress::main(register), &[value]);
    }
}

/// # Errors
/// The model can't replay the recording.
pub fn lockstep(recording: &Recording) -> Result<Found<'_>, String> {
    let mut chip = chip(recording.speed()?);
    let mut found = Found::new(recording, &[]);
    let mut host = Host::default();
    let mut acts = recording.acts();
    surround(&mut chip, recording);
    for (at, event) in recording.events.iter().enumerate() {
        while let Some(due) = acts.iter().position(|act| act.shows <= at) {
            host.acts(&mut chip, &acts.remove(due).request);
        }
        match *event {
            Event::Interrupt(number) => wait_for_interrupt(&mut chip, number),
            Event::Return => {}
            Event::Access(access) if is_emulated(access.addr) => {}
            Event::Access(access) => {
                pass(&mut chip);
                let place = XdataAddress::main(access.addr);
                if !access.is_read() {
                    chip.poke(place, &[access.value]);
                    host.exchanges(&mut chip);
                    continue;
                }
                let mut model = chip.peek(place);
                while let Some(early) = acts.iter().position(|act| recording.tells_of(act, at, model)) {
                    host.acts(&mut chip, &acts.remove(early).request);
                    pass(&mut chip);
                    model = chip.peek(place);
                }
                found.compare(Some(&access), Some(&Access { value: model, ..access }));
                // Registers that only hold what was written get silicon's value after the first difference.
                if model != access.value && register_name(access.addr).is_none() {
                    chip.poke(place, &[access.value]);
                }
            }
        }
    }
    Ok(found)
}

/// Lets time pass until the model interrupts, where the chip did.
fn wait_for_interrupt(chip: &mut Chip<MemoryFlash>, number: u8) {
    let sources: [(u16, u8); 2] =
        if number == 0 { [(0xC802, 0x05), (0xC806, 0x20)] } else { [(0xC806, 0x01), (0xC80A, 0xFF)] };
    let ends = chip.now() + PATIENCE;
    while chip.now() < ends && !sources.into_iter().any(|(addr, bits)| chip.peek(XdataAddress::main(addr)) & bits != 0)
    {
        pass(chip);
    }
}
