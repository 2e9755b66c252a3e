//! Tests of the chip with firmware of a few instructions: interrupts, idling, resets, watching.

use std::sync::{Arc, Mutex};

use asm2464::firmware::CodeAddress;
use asm2464::scsi::{XdataAddress, XdataPage};

use super::{
    Board, Chip, DATA_IN, DATA_OUT, PacketIn, PacketOut, RunEnd, Speed, SupplySensor, UsbEvent, Watch, register_name,
};
use crate::mcu::{AccessKind, CodeSpace, Observer, Step, Trace};
use crate::spi_flash::SpiFlash;

/// MOV DPTR,#addr; MOV A,#value; MOVX @DPTR,A
fn write(addr: u16, value: u8) -> Vec<u8> {
    let [high, low] = addr.to_be_bytes();
    vec![0x90, high, low, 0x74, value, 0xF0]
}

/// INT0's handler, and a main program that ends in `SJMP $`.
fn firmware(handler: &[Vec<u8>], main: &[Vec<u8>]) -> Chip {
    let mut body = vec![0x02, 0x01, 0xF4];
    body.extend(handler.concat());
    body.push(0x32);
    assert!(body.len() <= 0x1F4);
    body.resize(0x1F4, 0);
    // On the bus, with INT0's sources enabled.
    body.extend([write(0x92C2, 0x07), write(0xC800, 0x05)].concat());
    body.extend(main.concat());
    body.extend([0x80, 0xFE]);
    Chip::power_on(CodeSpace::from_body(&body), SpiFlash::erased(), Speed::Super)
}

/// Code at these addresses, zeros elsewhere in all banks.
fn banked(hunks: &[(&str, &[u8])]) -> Chip {
    let mut body = vec![0; 0x17ED6];
    for (at, bytes) in hunks {
        let at = at.parse::<CodeAddress>().unwrap().body_offset().0 as usize;
        body[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Chip::power_on(CodeSpace::from_body(&body), SpiFlash::erased(), Speed::Super)
}

/// MOV IE,#EA+EX0
const INTERRUPTS_ON: [u8; 3] = [0x75, 0xA8, 0x81];

fn xdata(chip: &Chip, addr: u16) -> u8 {
    chip.peek(XdataAddress::main(addr))
}

#[test]
fn a_cbw_raises_int0_and_is_seen_by_the_handler() {
    // The handler acknowledges, counts at 0x0100, and asks for the next.
    let count = vec![0x90, 0x01, 0x00, 0xE0, 0x04, 0xF0];
    let mut chip = firmware(&[write(0x90E2, 1), count, write(0x90E3, 2)], &[write(0x90E3, 2), INTERRUPTS_ON.to_vec()]);
    assert_eq!(chip.bulk_out(DATA_OUT, 0, b"too early"), PacketOut::Nak);
    while chip.run(10_000) == RunEnd::Attention {}
    let mut cbw = b"USBC".to_vec();
    cbw.resize(31, 7);
    for number in 1..=3 {
        assert_eq!(chip.bulk_out(DATA_OUT, 0, &cbw), PacketOut::Accepted);
        assert_eq!(chip.bulk_out(DATA_OUT, 0, &cbw), PacketOut::Nak, "one at a time");
        while chip.run(10_000) == RunEnd::Attention {}
        assert_eq!((xdata(&chip, 0x0100), xdata(&chip, 0x911B), xdata(&chip, 0x911A)), (number, b'U', 31));
    }
}

#[test]
fn with_interrupts_off_no_handler_runs_and_a_jump_to_itself_halts() {
    let mut chip = firmware(&[write(0x0100, 1)], &[write(0x90E3, 2)]);
    while chip.run(10_000) == RunEnd::Attention {}
    assert_eq!(chip.run(10_000), RunEnd::Halted, "a jump to itself with interrupts off ends the run");
    assert!(!chip.is_on_bus());
    assert_eq!(chip.bulk_out(DATA_OUT, 0, &[0; 31]), PacketOut::Nak);
    assert_eq!(xdata(&chip, 0x0100), 0);
}

#[test]
fn an_armed_packet_goes_to_the_host_and_raises_an_event() {
    let mut chip = firmware(
        &[write(0x9093, 8), write(0x0100, 0x5A)],
        &[write(0x8000, 0x42), write(0x9008, 3), write(0x9094, 2), INTERRUPTS_ON.to_vec()],
    );
    assert_eq!(chip.bulk_in(DATA_IN, 0), PacketIn::Nak);
    assert_eq!(chip.run(10_000), RunEnd::Attention);
    assert_eq!(chip.run(10_000), RunEnd::Parked);
    assert_eq!(chip.bulk_in(DATA_IN, 0), PacketIn::Packet(vec![0x42, 0, 0]));
    assert_eq!(chip.run(10_000), RunEnd::Parked);
    assert_eq!(xdata(&chip, 0x0100), 0x5A);
}

#[test]
fn a_wait_for_a_timer_costs_no_instructions() {
    // Timer 0 with the threshold 0xFFFF; JNB ACC.1 back to the read.
    let wait = vec![0x90, 0xCC, 0x11, 0xE0, 0x30, 0xE1, 0xFC];
    let main = [write(0xCC12, 0xFF), write(0xCC13, 0xFF), write(0xCC11, 1), wait, write(0x0100, 1)];
    let mut chip = firmware(&[], &main);
    assert_eq!(chip.run(1_000_000), RunEnd::Halted);
    assert_eq!(xdata(&chip, 0x0100), 1);
    assert!(chip.now() > 655_350 && chip.instructions() < 5_000, "{} {}", chip.now(), chip.instructions());
}

#[test]
fn a_loop_that_restores_what_it_writes_idles_and_one_that_counts_does_not() {
    // 1$: write 1, write 0 to 0x0100; SJMP 1$
    let mut toggling = [write(0x0100, 1), write(0x0100, 0)].concat();
    toggling.extend([0x80, 0xF2]);
    let mut chip = firmware(&[], &[toggling]);
    assert_eq!(chip.run(100_000), RunEnd::Parked);
    // 1$: DPTR = 0x0100; A = @DPTR; INC A; @DPTR = A; JNZ 1$; INC 30h; SJMP 1$
    let counting = vec![0x90, 0x01, 0x00, 0xE0, 0x04, 0xF0, 0x70, 0xF8, 0x05, 0x30, 0x80, 0xF4];
    let mut chip = firmware(&[], &[counting]);
    assert_eq!(chip.run(100_000), RunEnd::Budget);
    assert_eq!(chip.instructions(), 100_000);
}

/// Looks at each instruction, and so at each pass of a loop.
struct Looks(u64);

impl Observer for Looks {
    fn before(&mut self, _step: &Step<'_>) {
        self.0 += 1;
    }
}

#[test]
fn a_wait_that_counts_its_passes_takes_what_it_takes_one_pass_at_a_time() {
    // R4 to R7 = 0. 1$: A = timer 0; JB ACC.1, end; 32-bit INC of R7:R4, as SDCC has it; until it reaches 0x0C00.
    let wait = |bound: u8| {
        let clear = vec![0x7C, 0, 0x7D, 0, 0x7E, 0, 0x7F, 0];
        let poll = vec![0x90, 0xCC, 0x11, 0xE0, 0x20, 0xE1, 0x19];
        let count = vec![0x0C, 0xBC, 0, 9, 0x0D, 0xBD, 0, 5, 0x0E, 0xBE, 0, 1, 0x0F];
        let compare = vec![0xC3, 0xED, 0x94, bound, 0xEE, 0x94, 0, 0xEF, 0x94, 0, 0x40, 0xE0];
        [clear, poll, count, compare].concat()
    };
    // The timer ends the first wait, the count the second.
    let timer = [write(0xCC10, 0), write(0xCC12, 0xFF), write(0xCC13, 0xFF), write(0xCC11, 1)].concat();
    let main = [timer, wait(0xFF), write(0xCC11, 4), wait(12)];
    for budget in [37, 1_000, 50_021, u64::MAX] {
        let [mut chip, mut seen] = [firmware(&[], &main), firmware(&[], &main)];
        let mut looks = Looks(0);
        loop {
            let ends = [chip.run(budget), seen.run_observed(budget, &mut looks)];
            assert_eq!(ends[0], ends[1]);
            assert_eq!([chip.now(), chip.pc().into()], [seen.now(), seen.pc().into()]);
            assert!(chip.cpu().internal_ram == seen.cpu().internal_ram);
            assert_eq!((chip.work(), chip.instructions()), (seen.work(), seen.instructions()));
            if ends[0] == RunEnd::Halted {
                break;
            }
        }
        assert!(looks.0 > 200_000 && looks.0 == chip.instructions(), "{} {}", looks.0, chip.instructions());
    }
}

#[test]
fn a_run_ends_although_its_firmware_always_waits_for_timers() {
    // 1$: start timer 0, wait, clear; SJMP 1$
    let mut main = write(0xCC11, 1);
    main.extend([0x90, 0xCC, 0x11, 0xE0, 0x30, 0xE1, 0xFC]);
    main.extend(write(0xCC11, 6));
    main.extend([0x80, 0xEB]);
    let mut chip = firmware(&[], &[write(0xCC12, 0x40), main]);
    assert_eq!(chip.run(u64::MAX), RunEnd::Parked);
    let now = chip.now();
    assert_eq!(chip.run(u64::MAX), RunEnd::Parked);
    assert!(chip.now() > now, "it goes on in the next run");
}

/// MOV DPTR,#from; MOVX A,@DPTR; MOV DPTR,#to; MOVX @DPTR,A
fn copy(from: u16, to: u16) -> Vec<u8> {
    let ([high, low], [to_high, to_low]) = (from.to_be_bytes(), to.to_be_bytes());
    vec![0x90, high, low, 0xE0, 0x90, to_high, to_low, 0xF0]
}

#[test]
fn a_register_is_reached_by_its_second_addresses() {
    for (alias, at) in
        [(0xB344, 0xB244), (0xB5A0, 0xB4A0), (0xB6A0, 0xB4A0), (0xB7A0, 0xB4A0), (0xC7A0, 0xC6A0), (0xC9E0, 0xC8E0)]
    {
        let mut chip = firmware(&[], &[write(alias, 0x5A), copy(at, 0x0100), write(at, 0xA5), copy(alias, 0x0101)]);
        assert_eq!(chip.run(10_000), RunEnd::Halted);
        assert_eq!([0x0100, 0x0101, alias, at].map(|addr| xdata(&chip, addr)), [0x5A, 0xA5, 0xA5, 0xA5], "{alias:04X}");
        assert!(chip.unknown_registers().iter().all(|access| access.at != XdataAddress::main(alias)), "{alias:04X}");
    }
    // A modelled register: which page of the SRAM its window shows. And one whose reads are plain.
    let main = [write(0xC9D9, 3), write(0xF000, 0x77), write(0xB220, 0x11), copy(0xB320, 0x0100)];
    let mut chip = firmware(&[], &main);
    assert_eq!(chip.run(10_000), RunEnd::Halted);
    assert_eq!((chip.sram()[0x3000], xdata(&chip, 0x0100)), (0x77, 0x11));
    chip.poke(XdataAddress::main(0xC9D9), &[0]);
    assert_eq!([0xC8D9, 0xC9D9, 0xF000].map(|addr| xdata(&chip, addr)), [0, 0, 0]);
}

#[test]
fn a_loop_that_counts_in_a_second_address_does_not_idle() {
    // 1$: A = @0xC6A0; INC A; @0xC7A0 = A; CLR A; SJMP 1$
    let counting = vec![0x90, 0xC6, 0xA0, 0xE0, 0x04, 0x90, 0xC7, 0xA0, 0xF0, 0xE4, 0x80, 0xF4];
    let mut chip = firmware(&[], &[counting]);
    assert_eq!(chip.run(100_000), RunEnd::Budget);
}

#[test]
fn a_reset_stops_the_chip_until_it_is_restarted() {
    let mut chip = firmware(&[], &[write(0x0100, 9), write(0xCC31, 1), write(0x0100, 1)]);
    assert_eq!(chip.run(10_000), RunEnd::Reset);
    assert_eq!((chip.run(10_000), xdata(&chip, 0x0100)), (RunEnd::Reset, 9));
    assert!(!chip.is_on_bus());
    let code = chip.code().clone();
    let mut chip = chip.restart(code);
    assert_eq!(xdata(&chip, 0x0100), 0);
    assert_eq!(chip.run(10_000), RunEnd::Reset);
}

#[test]
fn a_reset_by_the_firmware_keeps_xdata_and_sets_registers_back() {
    // Counts its starts at 0x0100, and sets a register.
    let count = vec![0x90, 0x01, 0x00, 0xE0, 0x04, 0xF0];
    let mut chip = firmware(&[], &[count, write(0xE795, 0x55), write(0xC8AA, 0x9F), write(0xCC31, 1)]);
    for starts in 1..4 {
        assert_eq!(chip.run(10_000), RunEnd::Reset);
        assert_eq!([0x0100, 0xE795, 0xC8AA].map(|at| xdata(&chip, at)), [starts, 0x55, 0x9F]);
        chip.reset();
        assert_eq!([0x0100, 0xE795, 0xC8AA].map(|at| xdata(&chip, at)), [starts, 0x3B, 0]);
    }
}

#[test]
fn an_i2c_transfer_is_over_at_once_without_an_answer() {
    let transfer = [write(0xC875, 0xFF), write(0xC875, 0x01)];
    let mut chip = firmware(&[], &[transfer.concat(), INTERRUPTS_ON.to_vec()]);
    assert_eq!((chip.run(10_000), xdata(&chip, 0xC875)), (RunEnd::Parked, 0x40));
    chip.poke(XdataAddress::main(0xC875), &[0x40]);
    assert_eq!(xdata(&chip, 0xC875), 0);
}

#[test]
fn a_unit_that_leaves_the_bus_answers_nobody_while_its_cpu_goes_on() {
    let mut chip = firmware(&[], &[write(0x90E3, 2), write(0x92C2, 0x47), write(0x0100, 1), INTERRUPTS_ON.to_vec()]);
    while chip.run(10_000) == RunEnd::Attention {}
    assert_eq!((chip.is_on_bus(), xdata(&chip, 0x0100)), (false, 1));
    assert_eq!(chip.bulk_out(DATA_OUT, 0, &[0; 31]), PacketOut::Nak);
}

#[test]
fn a_packet_longer_than_the_link_carries_is_refused() {
    let mut chip = firmware(&[], &[write(0x9094, 0x10), INTERRUPTS_ON.to_vec()]);
    while chip.run(10_000) == RunEnd::Attention {}
    assert_eq!(chip.bulk_out(DATA_OUT, 0, &[0; 1025]), PacketOut::Stall);
    assert_eq!(chip.bulk_out(DATA_OUT, 0, &[0x11; 1024]), PacketOut::Accepted);
    assert_eq!((xdata(&chip, 0x7000), xdata(&chip, 0x910D), xdata(&chip, 0x9093)), (0x11, 4, 2));
}

#[test]
fn the_sram_is_seen_through_its_window() {
    let mut chip = firmware(&[], &[write(0xF003, 0xAA), write(0xC8D9, 7), write(0xF000, 0xBB)]);
    chip.run(10_000);
    assert_eq!((chip.sram()[3], chip.sram()[0x7000]), (0xAA, 0xBB));
    chip.sram_mut()[0x7001] = 0xCC;
    assert_eq!(xdata(&chip, 0xF001), 0xCC);
}

#[test]
fn an_unknown_register_is_listed_once_for_each_kind_of_access() {
    let read = vec![0x90, 0xEC, 0x55, 0xE0, 0xE0];
    let mut chip = firmware(&[], &[write(0xEC55, 1), write(0xEC55, 2), read, write(0x0100, 1), write(0xCC11, 0)]);
    chip.run(10_000);
    let list: Vec<_> = chip.unknown_registers().iter().map(|access| (access.at.addr, access.kind, access.pc)).collect();
    assert_eq!(list, [(0xEC55, AccessKind::Write, 0x205), (0xEC55, AccessKind::Read, 0x20F)]);
    assert_eq!(xdata(&chip, 0xEC55), 2, "it holds what was written");
}

#[derive(Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Watch for Seen {
    fn register(&mut self, kind: AccessKind, at: XdataAddress, value: u8, _pc: u32) {
        let name = register_name(at.addr).unwrap_or("?");
        self.0.lock().unwrap().push(format!("{kind:?} {name} {value:02X}"));
    }

    fn usb(&mut self, _now: u64, event: UsbEvent<'_>) {
        self.0.lock().unwrap().push(format!("{event:02X?}"));
    }

    fn uart(&mut self, byte: u8) {
        self.0.lock().unwrap().push(format!("uart {}", char::from(byte)));
    }
}

#[test]
fn a_watch_sees_registers_wire_and_serial_port() {
    let mut chip = firmware(&[], &[write(0x0100, 1), write(0xC001, b'h'), write(0x9094, 2), INTERRUPTS_ON.to_vec()]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    chip.set_watch(Some(Box::new(Seen(Arc::clone(&seen)))));
    while chip.run(10_000) == RunEnd::Attention {}
    chip.bulk_in(DATA_IN, 0);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "Write USB_POWER 07",
            "Write INT_ENABLES 05",
            "Write UART_DATA 68",
            "uart h",
            "Write BULK_ARM 02",
            "Bulk { endpoint: 81, stream: 00, packet: [] }"
        ]
    );
    assert_eq!(chip.take_uart(), b"h");
}

#[test]
fn a_chip_can_go_to_another_thread() {
    fn goes<T: Send + std::fmt::Debug>(_: &T) {}
    let chip = firmware(&[], &[]);
    goes(&chip);
}

#[test]
fn sfr_0x96_selects_the_bank_that_is_fetched_from() {
    // MOV 96h,#1; LCALL 0x8000; MOV DPTR,#0100; MOV A,R7; MOVX @DPTR,A; the same with bank 0 and INC DPTR; SJMP $
    let common = [
        0x75, 0x96, 1, 0x12, 0x80, 0x00, 0x90, 0x01, 0x00, 0xEF, 0xF0, 0x75, 0x96, 0, 0x12, 0x80, 0x00, 0xA3, 0xEF,
        0xF0, 0x80, 0xFE,
    ];
    // MOV R7,#value; RET
    let mut chip =
        banked(&[("c:0x0000", &common), ("b0:0x8000", &[0x7F, 0xB0, 0x22]), ("b1:0x8000", &[0x7F, 0xB1, 0x22])]);
    assert_eq!(chip.run(100), RunEnd::Halted);
    assert_eq!([xdata(&chip, 0x0100), xdata(&chip, 0x0101)], [0xB1, 0xB0]);
}

#[test]
fn sfr_0x93_selects_the_xdata_page_that_movx_reaches() {
    // MOV DPTR,#1234; MOV 93h,#1; MOVX A,@DPTR; MOV 93h,#0; MOVX @DPTR,A; SJMP $
    let mut chip = banked(&[("c:0x0000", &[0x90, 0x12, 0x34, 0x75, 0x93, 1, 0xE0, 0x75, 0x93, 0, 0xF0, 0x80, 0xFE])]);
    chip.poke(XdataAddress { page: XdataPage::Other, addr: 0x1234 }, &[0x5A]);
    assert_eq!(chip.run(100), RunEnd::Halted);
    assert_eq!(chip.memory().main()[0x1234], 0x5A);
}

#[test]
fn movx_at_ri_takes_its_high_byte_from_p2() {
    // MOV P2,#20; MOV R0,#34; MOVX A,@R0; MOV DPTR,#0100; MOVX @DPTR,A; SJMP $
    let mut chip = banked(&[("c:0x0000", &[0x75, 0xA0, 0x20, 0x78, 0x34, 0xE2, 0x90, 0x01, 0x00, 0xF0, 0x80, 0xFE])]);
    chip.poke(XdataAddress::main(0x2034), &[0x77]);
    assert_eq!(chip.run(100), RunEnd::Halted);
    assert_eq!(xdata(&chip, 0x0100), 0x77);
}

#[test]
fn a_poke_acts_like_the_cpus_writes_and_wraps_at_the_end_of_the_page() {
    let mut chip = firmware(&[], &[]);
    chip.poke(XdataAddress::main(0xFFFF), &[1, 2]);
    assert_eq!((chip.sram()[0xFFF], xdata(&chip, 0x0000)), (1, 2));
}

#[test]
fn a_trace_keeps_the_last_instructions_with_the_registers_before_them() {
    // MOV A,#11; INC A; INC A; SJMP $
    let mut chip = banked(&[("c:0x0000", &[0x74, 0x11, 0x04, 0x04, 0x80, 0xFE])]);
    let mut trace = Trace::last(2);
    assert_eq!(chip.run_observed(100, &mut trace), RunEnd::Halted);
    let lines: Vec<_> = trace.lines().map(|line| (line.number, line.a)).collect();
    assert_eq!(lines, [(2, 0x12), (3, 0x13)]);
    let line = trace.lines().next().unwrap().to_string();
    assert!(line.contains("c:0x0003") && line.contains("inc a "), "{line}");
}

#[test]
fn the_superspeed_link_goes_from_disabled_over_polling_to_u0_and_to_u3_while_suspended() {
    let mut chip = firmware(&[], &[INTERRUPTS_ON.to_vec()]);
    assert_eq!(xdata(&chip, 0x92F7), 0x40, "off the bus");
    chip.run(6);
    assert_eq!(xdata(&chip, 0x92F7), 0x70);
    while chip.run(1_000_000) == RunEnd::Attention {}
    assert_eq!(xdata(&chip, 0x92F7), 0x00);
    chip.suspend();
    assert_eq!(xdata(&chip, 0x92F7), 0x30);
    chip.resume();
    assert_eq!(xdata(&chip, 0x92F7), 0x00);
    chip.bus_reset(Speed::High);
    assert_eq!(xdata(&chip, 0x92F7), 0x40, "there is no SuperSpeed link");
}

#[test]
fn a_fault_of_the_supply_holds_gpio_1_low() {
    for fault in [false, true] {
        let mut chip = banked(&[]);
        let supply = Some(SupplySensor { voltage_mv: 12_000, current_ma: 0, fault });
        chip.set_board(Board { supply, ..Board::default() });
        assert_eq!(xdata(&chip, 0xC650) & 0x02 == 0, fault);
    }
}

#[test]
fn a_driven_link_comes_up_by_the_events_that_it_is_given_and_no_others() {
    let mut chip = firmware(&[], &[INTERRUPTS_ON.to_vec()]);
    chip.drive_link(0x9300, 0);
    while chip.run(1_000_000) == RunEnd::Attention {}
    chip.begin_control([0x80, 6, 0, 1, 0, 0, 18, 0], &[]);
    assert_eq!([0x92F7, 0x9300, 0x9301].map(|addr| xdata(&chip, addr)), [0x70, 0, 0]);
    chip.drive_link(0x9301, 0x40);
    assert_eq!([0x92F7, 0x9301].map(|addr| xdata(&chip, addr)), [0x70, 0x40]);
    chip.drive_link(0x9301, 0x80);
    assert_eq!([0x92F7, 0x9301].map(|addr| xdata(&chip, addr)), [0x00, 0xC0]);

    // One read of a record may show the first step's event and the last one's together.
    let mut chip = firmware(&[], &[INTERRUPTS_ON.to_vec()]);
    chip.drive_link(0x9300, 0);
    while chip.run(1_000_000) == RunEnd::Attention {}
    assert_eq!(xdata(&chip, 0x92F7), 0x70);
    chip.drive_link(0x9301, 0xC0);
    assert_eq!([0x92F7, 0x9301].map(|addr| xdata(&chip, addr)), [0x00, 0xC0]);
}

#[test]
fn a_link_that_is_up_shows_what_it_has_negotiated() {
    for (negotiated, shown) in [(None, 0x24), (Some(0x34), 0x34)] {
        let mut chip = firmware(&[], &[INTERRUPTS_ON.to_vec()]);
        if let Some(bits) = negotiated {
            chip.drive_link(0x92F8, bits);
        }
        assert_eq!(xdata(&chip, 0x92F8), 0x34, "it is not up");
        chip.drive_link(0x9301, 0x40);
        assert_eq!(xdata(&chip, 0x92F8), shown);
    }
}

#[test]
fn a_driven_link_raises_none_of_its_own_events_after_a_reset_of_the_chip_either() {
    let mut chip = firmware(&[], &[INTERRUPTS_ON.to_vec()]);
    chip.drive_link(0x9300, 0);
    while chip.run(1_000_000) == RunEnd::Attention {}
    chip.reset();
    while chip.run(100_000_000) == RunEnd::Attention {}
    assert_eq!([0x92F7, 0x9300, 0x9301].map(|addr| xdata(&chip, addr)), [0x70, 0, 0]);
}
