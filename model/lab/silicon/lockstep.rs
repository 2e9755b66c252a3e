//! Lockstep: the recording drives the model. Its writes are applied, and each of its reads is compared with the model's
//! answer. The host makes the requests that the recording shows.

use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Chip, RunEnd, Speed, register_name};
use asm2464_chip::mcu::CodeSpace;
use asm2464_chip::practice;
use asm2464_chip::spi_flash::SpiFlash;

use super::host::Host;
use super::recording::{Access, Event, Recording, is_emulated};
use super::table::Found;

/// Instructions between two accesses: an access took the rig about 1 ms. TIMER0 with 199 counts of 5 us had expired at
/// the next access three times out of four (enumerate-231204, from line 129 on).
const BETWEEN: u64 = 50_000;
/// Maximum number of instructions until the model raises an interrupt that the chip raised.
const PATIENCE: u64 = 100_000_000;

/// A chip whose own CPU executes nothing, because the CPU that makes the accesses is elsewhere.
pub fn chip(speed: Speed) -> Chip {
    Chip::power_on(CodeSpace::new(&practice::image()), SpiFlash::erased(), speed)
}

/// Lets the time of an access pass.
pub fn pass(chip: &mut Chip) {
    let ends = chip.now() + BETWEEN;
    // CC31.0 was set.
    while chip.pass_until(ends) == RunEnd::Reset {
        chip.reset();
    }
}

/// Sets the surroundings of a chip at power-on as the recording shows them. From then on its link's events come from
/// the recording.
pub fn surround(chip: &mut Chip, recording: &Recording) {
    chip.drive_link(0x9300, 0);
    for (register, value) in recording.board() {
        chip.poke(XdataAddress::main(register), &[value]);
    }
}

/// Applies the recording's writes to the model, and compares the answers to its reads.
///
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
                while let Some(early) = acts.iter().position(|act| recording.shows_early(act, at, model)) {
                    host.acts(&mut chip, &acts.remove(early).request);
                    pass(&mut chip);
                    model = chip.peek(place);
                }
                found.compare(Some(&access), Some(&Access { value: model, ..access }));
                // After a difference, an unmodelled register gets silicon's value, so that it does not differ again.
                if model != access.value && register_name(access.addr).is_none() {
                    chip.poke(place, &[access.value]);
                }
            }
        }
    }
    Ok(found)
}

/// Lets time pass until the model raises the interrupt that the chip raised.
fn wait_for_interrupt(chip: &mut Chip, number: u8) {
    let sources: [(u16, u8); 2] =
        if number == 0 { [(0xC802, 0x05), (0xC806, 0x20)] } else { [(0xC806, 0x01), (0xC80A, 0xFF)] };
    let ends = chip.now() + PATIENCE;
    while chip.now() < ends && !sources.into_iter().any(|(addr, bits)| chip.peek(XdataAddress::main(addr)) & bits != 0)
    {
        pass(chip);
    }
}
