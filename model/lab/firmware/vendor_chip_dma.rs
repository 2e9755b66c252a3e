//! READ(16), WRITE(16) and PCIe requests of the vendor's image on the whole chip model. `ASMPATCH_VENDOR_IMAGE` names
//! the image.
use asm2464::Bdf;
use asm2464::firmware::Image;
use asm2464_chip::chip::{MemoryFunction, Speed, Unanswered};

use crate::chip_images::{cdb16, patched, pattern, powered_on, vendor};
use crate::firmware::chip_wire::{INQUIRY, Unit, Wire};

fn gpu() -> MemoryFunction {
    MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x1_0000)
}

/// A unit over UAS.
fn unit(image: &Image, is_gpu_there: bool) -> Unit {
    unit_on(Wire::Uas, image, is_gpu_there)
}

fn unit_on(wire: Wire, image: &Image, is_gpu_there: bool) -> Unit {
    let mut driver = powered_on(image, Speed::Super);
    if is_gpu_there {
        driver.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu());
    }
    Unit::started(driver, wire)
}

/// Does what the runtime does after each WRITE(16), so that the next one lands in slot 0.
fn clean_up(unit: &mut Unit, sectors: u32) {
    (0x0171..=0x0173).for_each(|at| unit.poke(at, 0xFF));
    unit.poke(0xCE6E, 0);
    unit.poke(0xCE6F, 0);
    if sectors > 32 {
        (0xCE40..=0xCE43).for_each(|at| unit.poke(at, 0));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write_is_refused_until_the_runtime_has_written_what_it_writes() {
    for is_gpu_there in [false, true] {
        let mut unit = unit(&patched(), is_gpu_there);
        assert!(!unit.write(&cdb16(0x8A, 0, 8), &pattern(4096, 1)).unwrap().good);
        unit.initialise();
        for sectors in [1, 8, 32, 128] {
            let data = pattern(sectors as usize * 512, sectors);
            assert!(unit.write(&cdb16(0x8A, 64, sectors), &data).unwrap().good, "{sectors}");
            unit.driver.settle();
            assert!(unit.driver.chip.sram()[..data.len()] == data[..], "the LBA has no effect: {sectors}");
            clean_up(&mut unit, sectors);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write_takes_the_next_slot_where_the_last_was_not_freed() {
    let mut unit = unit(&patched(), true);
    unit.initialise();
    for slot in 0..3 {
        let data = pattern(512, slot);
        assert!(unit.write(&cdb16(0x8A, 0, 1), &data).unwrap().good);
        unit.driver.settle();
        assert!(unit.driver.chip.sram()[slot as usize * 0x4000..][..512] == data[..], "{slot}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn without_the_status_patch_a_write_is_never_answered() {
    let mut unit = unit(&vendor(), true);
    unit.initialise();
    assert!(matches!(unit.write(&cdb16(0x8A, 0, 1), &[0; 512]), Err(Unanswered::Silent(_))));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_ends_when_the_pcie_side_writes_its_completion_entry() {
    let mut unit = unit(&patched(), true);
    unit.initialise();
    let (mut index, mut phase) = (0, 1);
    for round in 0..10 {
        for sectors in [1, 8, 32, 128] {
            let data = pattern(sectors as usize * 512, round * 7 + sectors);
            unit.write(&cdb16(0x8A, 0, sectors), &data).unwrap();
            unit.driver.settle();
            clean_up(&mut unit, sectors);
            // The early answer to the write leaves these set.
            (0x0517..=0x0519).for_each(|at| unit.poke(at, 0));
            unit.send(&cdb16(0x88, 0, sectors), 0);
            unit.driver.settle();
            let mut entry = [0; 16];
            entry[12..14].copy_from_slice(&[unit.peek(0xC429), unit.peek(0xC413) & 0x3F]);
            entry[14] = phase;
            unit.driver.chip.pcie_write(0x0082_8000 + 16 * index, &entry);
            index += 1;
            if index == 32 {
                (index, phase) = (0, phase ^ 1);
            }
            let reply = unit.driver.finish_uas(unit.tag, &[]).unwrap();
            assert!(reply.data == data && reply.status[6] == 0, "round {round}, {sectors} sectors");
            assert_eq!(unit.command(&[0xE4, 4, 0x50, 0x07, 0xF0, 0], 4).data, [0x24, 0x04, 0x17, 0x85]);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_that_nobody_completes_stops_all_commands_but_control_requests_free_the_unit() {
    let mut unit = unit(&patched(), true);
    unit.initialise();
    assert!(unit.attempt(&cdb16(0x88, 0, 1), 512).is_err());
    assert!(unit.attempt(&INQUIRY, 36).is_err());
    assert!(unit.driver.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]).is_ok());
    unit.driver.set_alternate(1).unwrap();
    assert_eq!(unit.command(&INQUIRY, 36).data.len(), 36);
    assert_eq!(unit.peek(0x054B), 0, "the initialisation is lost");
}

/// Sends a PCIe request as the GPU runtime does: by E5 and E4. Clears .2 of 0xB296 after the request.
fn request(unit: &mut Unit, format: u8, addr: u32, value: Option<u32>) -> Option<(u8, [u8; 2], u32)> {
    let mut writes = Vec::new();
    if let Some(value) = value {
        writes.extend((0xB220..).zip(value.to_be_bytes()));
    }
    writes.extend((0xB218..).zip(addr.to_be_bytes()));
    writes.extend((0xB21C..).zip([0; 4]));
    writes.extend([(0xB217, 0x0F), (0xB210, format), (0xB254, 0x0F), (0xB296, 0x04)]);
    for (at, value) in writes {
        unit.poke(at, value);
    }
    let mut read = |at: u16, len: u8| {
        let [high, low] = at.to_be_bytes();
        unit.command(&[0xE4, len, 0x50, high, low, 0], len.into()).data
    };
    let status = read(0xB296, 1)[0];
    if status == 0 {
        return None;
    }
    let completion = read(0xB22A, 2);
    let data = read(0xB220, 4);
    unit.poke(0xB296, status);
    Some((status, [completion[0], completion[1]], u32::from_be_bytes([data[0], data[1], data[2], data[3]])))
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_runtimes_pcie_requests_end() {
    let mut unit = unit(&patched(), true);
    let bus1 = 1 << 24;
    assert_eq!(request(&mut unit, 0x05, bus1, None), Some((2, [0, 4], 0x744C_1002)), "the GPU's IDs");
    assert_eq!(request(&mut unit, 0x05, bus1 | 1 << 19, None), Some((2, [0x20, 4], u32::MAX)), "no device there");
    assert_eq!(request(&mut unit, 0x45, bus1 | 0x10, Some(0x1000_0000)), Some((2, [0, 4], 0x1000_0000)));
    assert_eq!(request(&mut unit, 0x60, 0x1000_0040, Some(0xCAFE_F00D)), None, "a posted write has no completion");
    assert_eq!(request(&mut unit, 0x20, 0x1000_0040, None), Some((2, [0, 4], 0xCAFE_F00D)));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_a_write_starts_no_dma_without_an_ssd() {
    let mut unit = unit_on(Wire::BulkOnly, &patched(), true);
    unit.initialise();
    let data = pattern(4096, 3);
    let ask = |unit: &mut Unit| {
        assert!(unit.write(&cdb16(0x8A, 0, 8), &data).is_err());
        let came = unit.driver.chip.sram()[..4096] == data[..];
        assert!(unit.driver.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).is_ok(), "Bulk-Only reset");
        assert_eq!(unit.command(&INQUIRY, 36).data.len(), 36);
        came
    };
    assert!(!ask(&mut unit));
    unit.initialise();
    // Number of parts that may run at once. Only the start-up of an SSD sets it (b1:0x8AC2, 0x8C5E).
    unit.poke(0x0AFF, 0x20);
    assert!(ask(&mut unit), "with it the data comes, and the answer waits for the SSD");
}

/// Unproven on silicon. The vendor's code frees the slots at start-up. While C450.1 is set, it also frees them for
/// CLEAR_FEATURE(HALT) of 0x02 in the command's states 74 and 75 (b0:0xA99A, c:0x2A10-0x2B88), but the patched firmware
/// has left these states by then. Neither recordings nor code show whether the DMA's reset frees the slots, too.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn writes_without_data_use_up_the_sram_until_e5_frees_it() {
    for is_port_reset in [false, true] {
        let mut unit = unit(&patched(), true);
        unit.initialise();
        for round in 0..8 {
            unit.driver.send_command(40 + round, &cdb16(0x8A, 0, 128)).unwrap();
            unit.driver.settle();
            if is_port_reset {
                unit.driver.chip.bus_reset(Speed::Super);
                unit.driver.enumerate().unwrap();
            }
            unit.driver.set_alternate(1).unwrap();
        }
        assert_eq!([0xCE40, 0xCE41, 0xCE42, 0xCE43].map(|at| unit.peek(at)), [0xFF; 4]);
        let (write, data) = (cdb16(0x8A, 0, 1), pattern(512, 5));
        assert!(matches!(unit.write(&write, &data), Err(Unanswered::Silent(_))));
        unit.driver.set_alternate(1).unwrap();
        clean_up(&mut unit, 128);
        unit.initialise();
        assert!(unit.write(&write, &data).unwrap().good);
        unit.driver.settle();
        assert!(unit.driver.chip.sram()[..512] == data[..]);
    }
}
