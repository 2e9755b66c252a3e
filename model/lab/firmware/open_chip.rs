//! Open firmware on the whole chip model, from the reset vector. `ASMPATCH_OPEN_IMAGE` names the image,
//! `ASMPATCH_OPEN_NEW_IMAGE` a newer one, and `ASMPATCH_OPEN_USB4_IMAGE` one that looks for a USB4 host first;
//! `ASMPATCH_OPEN_BUILDS` the folders of all of them.

use asm2464::Bdf;
use asm2464::firmware::{BridgeState, Image};
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{
    Board, DATA_IN, DATA_OUT, Driver, EarlyLanes, MemoryFunction, PacketOut, RunEnd, Speed, Unanswered,
};

use crate::chip_images::{new_open, open, open_builds, open_usb4, pattern, powered_on};

const GPU: Bdf = Bdf::new(1, 0, 0);
const CONFIG_READ_1: u8 = 0x05;
const CONFIG_WRITE_1: u8 = 0x45;
const MEMORY_READ: u8 = 0x20;
const MEMORY_WRITE: u8 = 0x60;
const BAR: u32 = 0x1000_0000;
/// The address of the GPU's configuration space in a request.
const GPU_CONFIG: u32 = 1 << 24;

fn unit(speed: Speed) -> Driver {
    unit_with(&open(), speed)
}

fn unit_with(image: &Image, speed: Speed) -> Driver {
    unit_on(image, Board::default(), speed)
}

fn unit_on(image: &Image, board: Board, speed: Speed) -> Driver {
    let mut unit = powered_on(image, speed);
    unit.chip.set_board(board);
    let gpu = MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x1_0000);
    unit.chip.fabric_mut().attach(GPU, gpu);
    unit.enumerate().unwrap();
    unit
}

/// F0: sends a TLP, or starts a stream of TLPs.
fn send_tlp(unit: &mut Driver, format: u8, mode: u8, addr: u32, value: u32) -> Result<(), Unanswered> {
    let mut data = Vec::new();
    data.extend(addr.to_le_bytes());
    data.extend([0; 4]);
    data.extend(value.to_le_bytes());
    unit.control([0x40, 0xF0, format, 0x0F, mode, 0, 12, 0], &data).map(drop)
}

/// F0: reads the completion: data, status, and 0 if one arrived.
fn completion(unit: &mut Driver) -> (u32, u8, u8) {
    let data = unit.control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0], &[]).unwrap();
    (u32::from_le_bytes([data[0], data[1], data[2], data[3]]), data[4] >> 5, data[7])
}

/// F2: arms the SRAM's DMA.
fn arm_dma(unit: &mut Driver, sectors: u16, is_in: bool) {
    let value = (sectors | u16::from(is_in) << 15).to_le_bytes();
    unit.control([0x40, 0xF2, value[0], value[1], 0, 1, 0, 0], &[]).unwrap();
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_boots_and_says_so_on_its_serial_port() {
    let mut unit = powered_on(&open(), Speed::Super);
    assert_eq!(unit.settle(), RunEnd::Parked);
    let instructions = unit.chip.instructions();
    assert!(instructions < 60_000, "{instructions}");
    let text = unit.chip.take_uart();
    assert!(text.trim_ascii_start().starts_with(b"[BOOT]"), "{}", String::from_utf8_lossy(&text));
}

/// It finds no USB4 partner, leaves a note in XDATA, resets the chip and comes up over USB 3.
#[test]
#[ignore = "needs ASMPATCH_OPEN_USB4_IMAGE"]
fn open_firmware_with_usb4_falls_back_to_usb_3() {
    let mut unit = powered_on(&open_usb4(), Speed::Super);
    assert_eq!(unit.boot(), Ok(()));
    let text = String::from_utf8_lossy(&unit.chip.take_uart()).into_owned();
    assert!(text.contains("[USB4 fallback]") && text.matches("[BOOT]").count() == 2, "{text}");
    unit.enumerate().unwrap();
    assert_eq!(unit.descriptor(1, 0, 18).unwrap()[8..12], [0x01, 0x38, 0x01, 0x00]);
    let report = asm2464_chip::chip::boot::check(&open_usb4());
    assert!(report.passes(), "{:?}", report.failure());
}

/// A build may lack what a GPU runtime needs, or wait for a card; that it can be replaced is proved of each.
#[test]
#[ignore = "needs ASMPATCH_OPEN_BUILDS"]
fn every_build_of_the_open_firmware_can_be_replaced_by_its_proof() {
    for path in open_builds() {
        let image = Image::parse(&std::fs::read(&path).unwrap()).unwrap();
        let report = asm2464_chip::chip::boot::check(&image);
        assert!(report.no_way_back().is_none(), "{}: {:?}", path.display(), report.no_way_back());
        assert_eq!(report.state(), Some(BridgeState::OpenFirmware), "{}", path.display());
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_enumerates_as_custom_firmware() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = unit(speed);
        let device = unit.descriptor(1, 0, 18).unwrap();
        assert_eq!(device[8..12], [0xD1, 0xAD, 0x01, 0x00]);
        let bos = unit.descriptor(15, 0, 255).unwrap();
        assert_eq!((bos[1], usize::from(bos[2])), (15, bos.len()));
        let configuration = unit.descriptor(2, 0, 255).unwrap();
        assert_eq!(usize::from(configuration[2]), configuration.len());
        let product = unit.descriptor(3, device[15], 255).unwrap();
        let text: Vec<u8> = product[2..].iter().copied().step_by(2).collect();
        assert_eq!(String::from_utf8_lossy(&text), "custom v0.1");
    }
}

/// Many transfers in flight hide the host's latency, but not the firmware's time.
#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_spends_some_fifty_instructions_on_each_dword_of_a_stream() {
    let mut unit = unit(Speed::Super);
    send_tlp(&mut unit, CONFIG_WRITE_1, 0, 1 << 24 | 0x10, BAR).unwrap();
    let data = pattern(16 * 1024, 5);
    let dwords = data.len() as u64 / 4;
    send_tlp(&mut unit, MEMORY_WRITE, 1, BAR, dwords as u32).unwrap();
    let before = unit.chip.instructions();
    unit.send(DATA_OUT, 0, &data).unwrap();
    unit.settle();
    let writes = (unit.chip.instructions() - before) / dwords;
    let before = unit.chip.instructions();
    send_tlp(&mut unit, MEMORY_READ, 2, BAR, dwords as u32).unwrap();
    let mut came = Vec::new();
    while came.len() < data.len() {
        came.extend(unit.receive(DATA_IN, 0).unwrap());
    }
    let reads = (unit.chip.instructions() - before) / dwords;
    assert!(came == data);
    assert_eq!((writes, reads), (42, 52));
}

/// Arms the DMA, resets the port before any data, enumerates, arms the DMA again and sends data. Returns whether the
/// data are complete in the SRAM, and whether the DMA is idle then.
fn data_after_a_reset(image: &Image) -> (bool, bool) {
    let mut unit = unit_with(image, Speed::Super);
    arm_dma(&mut unit, 4, false);
    unit.chip.bus_reset(Speed::Super);
    unit.enumerate().unwrap();
    arm_dma(&mut unit, 8, false);
    let data = pattern(4096, 3);
    unit.send(DATA_OUT, 0, &data).unwrap();
    (unit.chip.sram()[..4096] == data[..], unit.chip.peek(XdataAddress::main(0xC450)) == 0)
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_loses_the_first_sectors_where_an_armed_f2_survives_a_port_reset() {
    assert_eq!(data_after_a_reset(&open()), (false, false));
}

/// Its SET_CONFIGURATION resets the DMA if 0xC450 is not 0.
#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn new_open_firmware_ends_an_armed_f2_when_it_is_configured() {
    assert_eq!(data_after_a_reset(&new_open()), (true, true));
}

/// F3 switches 0xC656.5. When the GPU has power again, its BAR is empty.
#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE and ASMPATCH_OPEN_NEW_IMAGE"]
fn f3_of_every_open_firmware_switches_the_gpus_power_off_and_on() {
    for image in [open(), new_open()] {
        let mut unit = unit_with(&image, Speed::Super);
        let link = |unit: &Driver| unit.chip.peek(XdataAddress::main(0xB450));
        let bar = GPU_CONFIG + 0x10;
        send_tlp(&mut unit, CONFIG_WRITE_1, 0, bar, BAR).unwrap();
        send_tlp(&mut unit, CONFIG_READ_1, 0, bar, 0).unwrap();
        assert_eq!((completion(&mut unit).0 & !0xF, link(&unit)), (BAR, 0x78));
        unit.control([0x40, 0xF3, 0, 0, 0, 0, 0, 0], &[]).unwrap();
        assert_eq!(link(&unit), 0);
        unit.control([0x40, 0xF3, 1, 0, 0, 0, 0, 0], &[]).unwrap();
        assert_eq!(link(&unit), 0x78);
        send_tlp(&mut unit, CONFIG_READ_1, 0, bar, 0).unwrap();
        assert_eq!(completion(&mut unit).0 & !0xF, 0);
    }
}

/// C0's fifth byte is 1 while GPIO 1 is low.
#[test]
#[ignore = "needs ASMPATCH_OPEN_NEW_IMAGE"]
fn new_open_firmware_reports_zeros_for_its_supply_while_the_fault_line_is_quiet() {
    let mut unit = unit_with(&new_open(), Speed::Super);
    for (gpios, supply) in [(0x02, [0, 0, 0, 0, 0]), (0xFD, [0, 0, 0, 0, 1])] {
        let at = XdataAddress::main(0xC650);
        if gpios != 0x02 {
            unit.chip.poke(at, &[gpios]);
        }
        assert_eq!(
            (unit.chip.peek(at), unit.control([0xC0, 0xC0, 0, 0, 0, 0, 5, 0], &[]).unwrap()),
            (gpios, supply.into())
        );
    }
}

fn pcie_state(unit: &mut Driver) -> u8 {
    unit.settle();
    unit.chip.peek(XdataAddress::main(0xB450))
}

/// Open firmware c5e2090 turns the lanes on before it trains the link, ed4e39b after that, 821f218 seconds after it.
#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE, ASMPATCH_OPEN_NEW_IMAGE and ASMPATCH_OPEN_USB4_IMAGE"]
fn the_pcie_link_trains_with_every_open_firmware_except_the_old_one_where_early_lanes_stick() {
    for (early_lanes, old) in [(EarlyLanes::Train, 0x78), (EarlyLanes::Stick, 0x4C)] {
        let board = Board { early_lanes, ..Board::default() };
        for (image, state) in [(open(), old), (new_open(), 0x78), (open_usb4(), 0x78)] {
            let mut unit = unit_on(&image, board, Speed::Super);
            assert_eq!(pcie_state(&mut unit), state, "{early_lanes:?}");
            send_tlp(&mut unit, CONFIG_READ_1, 0, 1 << 24, 0).unwrap();
            let (data, status, _) = completion(&mut unit);
            assert_eq!((data == 0x744C_1002, status), (state == 0x78, u8::from(state != 0x78)), "{early_lanes:?}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_survives_a_request_that_it_does_not_know_and_a_reset() {
    let mut unit = unit(Speed::Super);
    let unknown = unit.control([0xC0, 0x77, 0, 0, 0, 0, 8, 0], &[]);
    assert!(unknown.is_err(), "{unknown:?}");
    unit.chip.bus_reset(Speed::Super);
    unit.enumerate().unwrap();
    assert_eq!(unit.control([0xC0, 0xE4, 0x00, 0xF0, 0, 0, 4, 0], &[]).unwrap().len(), 4);
}

/// So nobody can learn by sending it whether a build has F4, which restarts the build quiet1 at SuperSpeed.
#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE, ASMPATCH_OPEN_NEW_IMAGE and ASMPATCH_OPEN_USB4_IMAGE"]
fn builds_without_f4_acknowledge_it_and_do_nothing() {
    for image in [open(), new_open(), open_usb4()] {
        let mut unit = unit_with(&image, Speed::High);
        let registers = |unit: &mut Driver| unit.control([0xC0, 0xE4, 0x30, 0xCC, 0, 0, 2, 0], &[]).unwrap();
        let before = registers(&mut unit);
        assert!(unit.control([0x40, 0xF4, 1, 0, 0, 0, 0, 0], &[]).unwrap().is_empty());
        assert_eq!(registers(&mut unit), before);
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn open_firmware_keeps_its_memory_and_a_pending_transfer_over_a_suspend() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = unit(speed);
        unit.control([0x40, 0xE5, 0x00, 0x30, 0xAB, 0, 0, 0], &[]).unwrap();
        let data = pattern(4096, 3);
        arm_dma(&mut unit, 8, false);
        unit.send(DATA_OUT, 0, &data[..1024]).unwrap();
        unit.chip.suspend();
        for _ in 0..3 {
            assert_eq!(unit.settle(), RunEnd::Parked, "{speed:?}");
            assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, &data[1024..1536]), PacketOut::Nak);
            assert_eq!(unit.chip.control([0xC0, 0xE4, 0x00, 0x30, 0, 0, 1, 0], &[], 1_000_000), None);
        }
        unit.chip.resume();
        assert_eq!(unit.settle(), RunEnd::Parked);
        unit.send(DATA_OUT, 0, &data[1024..]).unwrap();
        assert!(unit.chip.sram()[..4096] == data[..]);
        assert_eq!(unit.control([0xC0, 0xE4, 0x00, 0x30, 0, 0, 1, 0], &[]).unwrap(), [0xAB]);
    }
}
