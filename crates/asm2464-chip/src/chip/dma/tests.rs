//! Transfers, slots and the drain, register by register.

use super::*;

fn setup(memory: &mut XdataMemory, control: u8, sectors: u16, stream: u16) {
    let page = memory.main_mut();
    page[usize::from(CONTROL)..][..4].copy_from_slice(&[control, 3, 0x81, 2]);
    page[usize::from(STREAM)..][..4].copy_from_slice(&[(stream >> 8) as u8, stream as u8, 2, 0]);
    page[usize::from(SECTORS)..][..2].copy_from_slice(&sectors.to_be_bytes());
}

#[test]
fn data_from_the_host_lands_in_its_slot_and_raises_an_event() {
    let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
    setup(&mut memory, 0x03, 2, 9);
    assert!(dma.write(START, 1, &memory, 0));
    assert!(!dma.wants_out(Some(8)) && dma.wants_out(Some(9)));
    assert_eq!(dma.read(BUSY, 0, &memory), 2);
    dma.out_came(Some(9), &[7; 600], &mut sram, 10);
    dma.out_came(Some(9), &[8; 600], &mut sram, 20);
    assert_eq!((sram.bytes()[0x4000], sram.bytes()[0x4000 + 1023], sram.bytes()[0x4000 + 1024]), (7, 8, 0));
    dma.advance(20 + EVENT_DELAY - 1);
    assert!(!dma.has_event());
    dma.advance(20 + EVENT_DELAY);
    assert_eq!((dma.read(EVENTS, 0, &memory), dma.read(DONE_OUT, 0, &memory)), (2, 3));
    assert!(dma.write(TAKE_OUT, 0xFF, &memory, 0) && !dma.has_event());
    assert_eq!(dma.read(DONE_OUT, 0, &memory), NO_QUEUE_SLOT);
}

#[test]
fn data_to_the_host_waits_for_its_completion_entry() {
    let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
    sram.load(0x4000, &[5; 1536]);
    setup(&mut memory, 0x02, 3, 4);
    dma.write(START, 1, &memory, 0);
    assert_eq!(dma.take_in(Some(4), 1024, &sram, 0), None);
    dma.release(2);
    assert_eq!(dma.take_in(Some(4), 1024, &sram, 0), None, "another slot's");
    dma.release(1);
    let lens = [(); 3].map(|()| dma.take_in(Some(4), 1024, &sram, 0).map(|packet| packet.len()));
    assert_eq!(lens, [Some(1024), Some(512), None]);
    dma.advance(EVENT_DELAY);
    assert_eq!((dma.read(EVENTS, 0, &memory), dma.read(DONE_IN, 0, &memory)), (1, 3));
}

#[test]
fn a_drain_drops_what_the_host_still_sends() {
    let (mut memory, mut sram, mut dma) = (XdataMemory::new(), Sram::new(), Dma::default());
    setup(&mut memory, 0x03, 0, 0);
    memory.main_mut()[usize::from(DRAIN)] = 0x02;
    memory.main_mut()[HOST_LENGTH + 1] = 0x02;
    dma.write(START, 1, &memory, 0);
    dma.out_came(None, &[9; 512], &mut sram, 0);
    dma.advance(EVENT_DELAY);
    assert_eq!((dma.read(DRAINED, 1, &memory), dma.has_event()), (1, true));
    assert!(sram.bytes().iter().all(|byte| *byte == 0));
    assert!(dma.write(DRAINED, 1, &memory, 0) && !dma.has_event());
}

#[test]
fn the_allocator_finds_free_slots_and_groups() {
    let (memory, mut dma) = (XdataMemory::new(), Dma::default());
    dma.write(TAKE, 0, &memory, 0);
    dma.write(TAKE, 5, &memory, 0);
    let free = |dma: &Dma| [FREE_1, FREE_2, 0xCE66, 0xCE67, FREE_16].map(|addr| dma.read(addr, 0, &memory));
    assert_eq!(dma.read(0xCE43, 0, &memory), 0x21);
    assert_eq!(free(&dma), [1, 1, 2, 1, 2]);
    dma.write(FREE, 0, &memory, 0);
    assert_eq!(free(&dma), [0, 0, 0, 1, 2]);
    for byte in 0..4 {
        dma.write(USED + byte, 0xFF, &memory, 0);
    }
    assert_eq!(free(&dma), [0x40, 0x3F, 0x1F, 0x0F, 0]);
    dma.write(TAKE, 0xFF, &memory, 0);
}

#[test]
fn however_many_are_started_few_are_kept() {
    let (mut memory, mut dma) = (XdataMemory::new(), Dma::default());
    for round in 0..10_000u16 {
        setup(&mut memory, 0x02 | (round & 1) as u8, 0xFFFF, round);
        dma.write(START, 0, &memory, 0);
    }
    assert!(dma.from_host.len() <= MOST && dma.to_host.len() <= MOST);
}
