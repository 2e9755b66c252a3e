//! READ(16), WRITE(16) and PCIe requests of the vendor's image on the whole chip model. `ASMPATCH_VENDOR_IMAGE` names
//! the image.
use asm2464::Bdf;
use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464::scsi::runtime::INITIALISATION;
use asm2464_chip::chip::{Data, Driver, MemoryFunction, Speed, Unanswered};
use asm2464_chip::mcu::MemoryFlash;

use crate::chip_images::{cdb16, patched, powered_on, vendor};

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];

fn gpu() -> Box<MemoryFunction> {
    Box::new(MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x1_0000))
}

struct Uas {
    unit: Driver<MemoryFlash>,
    tag: u16,
}

impl Uas {
    fn new(image: &Image, is_gpu_there: bool) -> Self {
        let mut unit = powered_on(image, Speed::Super);
        if is_gpu_there {
            unit.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu());
        }
        unit.enumerate().unwrap();
        unit.set_alternate(1).unwrap();
        let mut uas = Self { unit, tag: 0 };
        uas.command(&INQUIRY, &[]).unwrap();
        uas
    }

    /// Sends a command. Returns the data and the SCSI status.
    fn command(&mut self, cdb: &[u8], out: &[u8]) -> Result<(Vec<u8>, u8), Unanswered> {
        self.tag = self.tag % 30 + 1;
        let reply = self.unit.uas(self.tag, cdb, out)?;
        assert_eq!(reply.status[..4], [3, 0, 0, self.tag as u8]);
        Ok((reply.data, reply.status[6]))
    }

    fn write_xdata(&mut self, addr: u16, value: u8) {
        let [high, low] = addr.to_be_bytes();
        assert_eq!(self.command(&[0xE5, value, 0x50, high, low, 0], &[]).unwrap().1, 0);
    }

    fn initialise(&mut self) {
        for (addr, value) in INITIALISATION {
            self.write_xdata(addr, value);
        }
    }

    /// Does what the runtime does after each WRITE(16), so that the next one lands in slot 0.
    fn clean_up(&mut self, sectors: u32) {
        for offset in 0..3 {
            self.write_xdata(0x0171 + offset, 0xFF);
        }
        self.write_xdata(0xCE6E, 0);
        self.write_xdata(0xCE6F, 0);
        if sectors > 32 {
            for offset in 0..4 {
                self.write_xdata(0xCE40 + offset, 0);
            }
        }
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 5 + at / 512 * 3 + seed) % 253) as u8).collect()
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write_is_refused_until_the_runtime_has_written_what_it_writes() {
    for is_gpu_there in [false, true] {
        let mut uas = Uas::new(&patched(), is_gpu_there);
        assert_eq!(uas.command(&cdb16(0x8A, 0, 8), &pattern(4096, 1)).unwrap().1, 2);
        uas.initialise();
        for sectors in [1, 8, 32, 128] {
            let data = pattern(sectors as usize * 512, sectors as usize);
            assert_eq!(uas.command(&cdb16(0x8A, 64, sectors), &data).unwrap().1, 0, "{sectors}");
            uas.unit.settle();
            assert!(uas.unit.chip.sram()[..data.len()] == data[..], "the LBA has no effect: {sectors}");
            uas.clean_up(sectors);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write_takes_the_next_slot_where_the_last_was_not_freed() {
    let mut uas = Uas::new(&patched(), true);
    uas.initialise();
    for slot in 0..3 {
        let data = pattern(512, slot);
        assert_eq!(uas.command(&cdb16(0x8A, 0, 1), &data).unwrap().1, 0);
        uas.unit.settle();
        assert!(uas.unit.chip.sram()[slot * 0x4000..][..512] == data[..], "{slot}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn without_the_status_patch_a_write_is_never_answered() {
    let mut uas = Uas::new(&vendor(), true);
    uas.initialise();
    assert!(matches!(uas.command(&cdb16(0x8A, 0, 1), &[0; 512]), Err(Unanswered::Silent(_))));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_ends_when_the_pcie_side_writes_its_completion_entry() {
    let mut uas = Uas::new(&patched(), true);
    uas.initialise();
    let (mut index, mut phase) = (0, 1);
    for round in 0..10 {
        for sectors in [1, 8, 32, 128] {
            let data = pattern(sectors as usize * 512, round * 7 + sectors as usize);
            uas.command(&cdb16(0x8A, 0, sectors), &data).unwrap();
            uas.unit.settle();
            uas.clean_up(sectors);
            // The early answer to the write leaves these set.
            for offset in 0..3 {
                uas.write_xdata(0x0517 + offset, 0);
            }
            uas.tag = uas.tag % 30 + 1;
            uas.unit.send_command(uas.tag, &cdb16(0x88, 0, sectors)).unwrap();
            uas.unit.settle();
            let byte = |unit: &Driver<MemoryFlash>, addr| unit.chip.peek(XdataAddress::main(addr));
            let id = [byte(&uas.unit, 0xC429), byte(&uas.unit, 0xC413) & 0x3F];
            let mut entry = [0; 16];
            entry[12..14].copy_from_slice(&id);
            entry[14] = phase;
            uas.unit.chip.pcie_write(0x0082_8000 + 16 * index, &entry);
            index += 1;
            if index == 32 {
                (index, phase) = (0, phase ^ 1);
            }
            let reply = uas.unit.finish_uas(uas.tag, &[]).unwrap();
            assert!(reply.data == data && reply.status[6] == 0, "round {round}, {sectors} sectors");
            assert_eq!(uas.command(&[0xE4, 4, 0x50, 0x07, 0xF0, 0], &[]).unwrap().0, [0x24, 0x04, 0x17, 0x85]);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_that_nobody_completes_stops_all_commands_but_control_requests_free_the_unit() {
    let mut uas = Uas::new(&patched(), true);
    uas.initialise();
    assert!(uas.command(&cdb16(0x88, 0, 1), &[]).is_err());
    assert!(uas.command(&INQUIRY, &[]).is_err());
    assert!(uas.unit.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]).is_ok());
    uas.unit.set_alternate(1).unwrap();
    assert_eq!(uas.command(&INQUIRY, &[]).unwrap().0.len(), 36);
    assert_eq!(uas.unit.chip.peek(XdataAddress::main(0x054B)), 0, "the initialisation is lost");
}

/// Sends a PCIe request as the GPU runtime does: by E5 and E4. Clears .2 of 0xB296 after the request.
fn request(uas: &mut Uas, format: u8, addr: u32, value: Option<u32>) -> Option<(u8, [u8; 2], u32)> {
    let mut writes = Vec::new();
    if let Some(value) = value {
        writes.extend((0xB220..).zip(value.to_be_bytes()));
    }
    writes.extend((0xB218..).zip(addr.to_be_bytes()));
    writes.extend((0xB21C..).zip([0; 4]));
    writes.extend([(0xB217, 0x0F), (0xB210, format), (0xB254, 0x0F), (0xB296, 0x04)]);
    for (at, value) in writes {
        uas.write_xdata(at, value);
    }
    let mut read = |at: u16, len: u8| {
        let [high, low] = at.to_be_bytes();
        uas.command(&[0xE4, len, 0x50, high, low, 0], &[]).unwrap().0
    };
    let status = read(0xB296, 1)[0];
    if status == 0 {
        return None;
    }
    let completion = read(0xB22A, 2);
    let data = read(0xB220, 4);
    uas.write_xdata(0xB296, status);
    Some((status, [completion[0], completion[1]], u32::from_be_bytes([data[0], data[1], data[2], data[3]])))
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_runtimes_pcie_requests_end() {
    let mut uas = Uas::new(&patched(), true);
    let bus1 = 1 << 24;
    assert_eq!(request(&mut uas, 0x05, bus1, None), Some((2, [0, 4], 0x744C_1002)), "the GPU's IDs");
    assert_eq!(request(&mut uas, 0x05, bus1 | 1 << 19, None), Some((2, [0x20, 4], u32::MAX)), "no device there");
    assert_eq!(request(&mut uas, 0x45, bus1 | 0x10, Some(0x1000_0000)), Some((2, [0, 4], 0x1000_0000)));
    assert_eq!(request(&mut uas, 0x60, 0x1000_0040, Some(0xCAFE_F00D)), None, "a posted write has no completion");
    assert_eq!(request(&mut uas, 0x20, 0x1000_0040, None), Some((2, [0, 4], 0xCAFE_F00D)));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_a_write_starts_no_dma_without_an_ssd() {
    let mut unit = powered_on(&patched(), Speed::Super);
    unit.chip.fabric_mut().attach(Bdf::new(1, 0, 0), gpu());
    unit.enumerate().unwrap();
    unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
    let write = |unit: &mut Driver<MemoryFlash>, addr: u16, value| {
        let [high, low] = addr.to_be_bytes();
        assert_eq!(unit.bulk_only(&[0xE5, value, 0x50, high, low, 0], Data::None).unwrap().status, 0);
    };
    for (addr, value) in INITIALISATION {
        write(&mut unit, addr, value);
    }
    let data = pattern(4096, 3);
    let ask = |unit: &mut Driver<MemoryFlash>| {
        assert!(unit.bulk_only(&cdb16(0x8A, 0, 8), Data::Out(&data)).is_err());
        let came = unit.chip.sram()[..4096] == data[..];
        assert!(unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]).is_ok(), "Bulk-Only reset");
        assert_eq!(unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data.len(), 36);
        came
    };
    assert!(!ask(&mut unit));
    for (addr, value) in INITIALISATION {
        write(&mut unit, addr, value);
    }
    // Number of parts that may run at once. Only the start-up of an SSD sets it (b1:0x8AC2, 0x8C5E).
    write(&mut unit, 0x0AFF, 0x20);
    assert!(ask(&mut unit), "with it the data comes, and the answer waits for the SSD");
}

/// Unproven on silicon. The vendor's code frees the slots at start-up and, while C450.1 is set, for CLEAR_FEATURE(HALT) of
/// 0x02 where the command's state is 74 or 75 (b0:0xA99A, c:0x2A10-0x2B88), which the patched firmware has left by then.
/// Neither recordings nor code tell whether the DMA's reset frees them, too.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn writes_without_data_use_up_the_sram_until_e5_frees_it() {
    for is_port_reset in [false, true] {
        let mut uas = Uas::new(&patched(), true);
        uas.initialise();
        for round in 0..8 {
            uas.unit.send_command(40 + round, &cdb16(0x8A, 0, 128)).unwrap();
            uas.unit.settle();
            if is_port_reset {
                uas.unit.chip.bus_reset(Speed::Super);
                uas.unit.enumerate().unwrap();
            }
            uas.unit.set_alternate(1).unwrap();
        }
        assert_eq!([0xCE40, 0xCE41, 0xCE42, 0xCE43].map(|at| uas.unit.chip.peek(XdataAddress::main(at))), [0xFF; 4]);
        let (write, data) = (cdb16(0x8A, 0, 1), pattern(512, 5));
        assert!(matches!(uas.command(&write, &data), Err(Unanswered::Silent(_))));
        uas.unit.set_alternate(1).unwrap();
        uas.clean_up(128);
        uas.initialise();
        assert_eq!(uas.command(&write, &data).unwrap().1, 0);
        uas.unit.settle();
        assert!(uas.unit.chip.sram()[..512] == data[..]);
    }
}
