//! The cells' rules, their time and their faults.

use proptest::prelude::*;

use super::*;

#[test]
fn a_program_clears_bits_and_only_an_erase_sets_them() {
    let mut flash = SpiFlash::erased();
    let at = FlashAddress(0x1234);
    flash.program(at, &[0xF0]).unwrap();
    flash.program(at, &[0x3F]).unwrap();
    assert_eq!(flash.get(at, 1), Some(&[0x30][..]));
    flash.erase_sector(at).unwrap();
    assert_eq!(flash.get(at, 1), Some(&[0xFF][..]));
}

#[test]
fn a_read_past_the_last_cell_goes_on_with_the_first_and_the_id_says_how_many_there_are() {
    let mut flash = SpiFlash::erased();
    flash.program(FlashAddress(0), &[1, 2]).unwrap();
    let mut read = [0; 4];
    flash.read(FlashAddress(FLASH_LEN as u32 - 2), &mut read);
    assert_eq!(read, [0xFF, 0xFF, 1, 2]);
    flash.read(FlashAddress(3 * FLASH_LEN as u32 + 1), &mut read);
    assert_eq!(read, [2, 0xFF, 0xFF, 0xFF]);
    assert_eq!(flash.jedec_id().capacity(), Some(FLASH_LEN));
    for len in [0x10_0000, DUMP_LEN, 0x100_0000] {
        assert_eq!(SpiFlash::holding(vec![0xFF; len], None).jedec_id().capacity(), Some(len));
    }
    flash.faults.jedec_id = Some(JedecId([0x12, 0x34, 0x40]));
    assert_eq!(flash.jedec_id().capacity(), None);
}

#[test]
fn an_erase_reaches_its_sector_and_nothing_else() {
    let mut flash = SpiFlash::erased();
    for at in [0x0FFF, 0x1000, 0x1FFF, 0x2000] {
        flash.program(FlashAddress(at), &[0]).unwrap();
    }
    flash.erase_sector(FlashAddress(0x1800)).unwrap();
    let cells = [0x0FFF, 0x1000, 0x1FFF, 0x2000].map(|at| flash.get(FlashAddress(at), 1).unwrap()[0]);
    assert_eq!(cells, [0, 0xFF, 0xFF, 0]);
}

#[test]
fn a_power_loss_keeps_what_was_programmed_before_it() {
    let mut flash = SpiFlash::erased();
    flash.power_left = Some(300);
    assert_eq!(flash.program(FlashAddress(0), &[0; 1024]), Err(FlashGone));
    let cells = flash.get(FlashAddress(0), 1024).unwrap();
    assert_eq!((cells[299], cells[300]), (0, 0xFF));
    assert_eq!(flash.erase_sector(FlashAddress(0)), Err(FlashGone));
}

#[test]
fn the_cells_say_how_long_they_took() {
    let mut flash = SpiFlash::erased();
    flash.erase_time = Duration::from_millis(30);
    flash.program_time = Duration::from_micros(400);
    flash.erase_sector(FlashAddress(0)).unwrap();
    flash.program(FlashAddress(0x80), &[0; 256]).unwrap();
    let now = Instant::now();
    assert_eq!(flash.take_busy(now), Duration::from_micros(30_800), "one sector, and two pages that the data touches");
    assert_eq!(flash.take_busy(now), Duration::ZERO);
}

#[test]
fn a_power_cut_takes_back_what_was_not_finished_by_then() {
    let mut flash = SpiFlash::erased();
    flash.program(FlashAddress(0x40), &[0x12; 0x300]).unwrap();
    let before = flash.get(FlashAddress(0), 0x400).unwrap().to_vec();
    let [sector, page] = [Duration::from_millis(30), Duration::from_millis(1)];
    flash.erase_time = Duration::from_millis(30);
    flash.program_time = Duration::from_micros(1000);
    for (finished, elapsed) in [(None, sector / 2), (Some(0), sector + page / 2), (Some(2), sector + page * 5 / 2)] {
        let now = Instant::now();
        flash.erase_sector(FlashAddress(0)).unwrap();
        flash.program(FlashAddress(0), &[0x34; 0x400]).unwrap();
        assert_eq!(flash.take_busy(now), sector + page * 4);
        flash.cut_power(now + elapsed).unwrap();
        let expected = finished.map_or(before.clone(), |pages: usize| {
            let mut cells = vec![0xFF; 0x400];
            cells[..pages * NOR_PAGE_LEN].fill(0x34);
            cells
        });
        assert!(flash.get(FlashAddress(0), 0x400).unwrap() == expected, "{finished:?} pages");
        (flash.erase_time, flash.program_time) = (Duration::ZERO, Duration::ZERO);
        flash.erase_sector(FlashAddress(0)).unwrap();
        flash.program(FlashAddress(0), &before).unwrap();
        flash.erase_time = Duration::from_millis(30);
        flash.program_time = Duration::from_micros(1000);
    }
}

#[test]
fn an_operation_begun_while_the_cells_are_busy_ends_last_and_is_undone_first() {
    let mut flash = SpiFlash::erased();
    let sector = Duration::from_millis(30);
    flash.erase_time = Duration::from_millis(30);
    flash.program_time = Duration::from_micros(30_000);
    let now = Instant::now();
    flash.program(FlashAddress(0), &[0x12]).unwrap();
    assert_eq!(flash.take_busy(now), sector);
    flash.erase_sector(FlashAddress(0)).unwrap();
    assert_eq!(flash.take_busy(now + sector / 2), sector * 3 / 2);
    flash.cut_power(now + sector * 5 / 4).unwrap();
    assert_eq!(flash.get(FlashAddress(0), 1), Some(&[0x12][..]));
}

#[test]
fn a_power_cut_changes_nothing_that_was_finished() {
    let mut flash = SpiFlash::erased();
    flash.erase_time = Duration::from_millis(30);
    flash.program_time = Duration::from_micros(0);
    flash.program(FlashAddress(0), &[0]).unwrap();
    flash.erase_sector(FlashAddress(0)).unwrap();
    let now = Instant::now();
    let takes = flash.take_busy(now);
    flash.cut_power(now + takes).unwrap();
    assert_eq!(flash.get(FlashAddress(0), 1), Some(&[0xFF][..]));
}

#[derive(Debug, Clone)]
enum Step {
    Erase(u32),
    Program(u32, Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let address = 0u32..0x4800;
    prop_oneof![
        address.clone().prop_map(Step::Erase),
        (address, proptest::collection::vec(any::<u8>(), 0..700)).prop_map(|(at, data)| Step::Program(at, data)),
    ]
}

proptest! {
    #[test]
    fn the_cells_follow_the_rules_of_nor_whatever_is_done(steps in proptest::collection::vec(step(), 0..20)) {
        let mut flash = SpiFlash::erased();
        let mut model = vec![0xFFu8; FLASH_LEN];
        for step in steps {
            match step {
                Step::Erase(at) => {
                    flash.erase_sector(FlashAddress(at)).unwrap();
                    let start = at as usize & !(SECTOR_LEN - 1);
                    model[start..start + SECTOR_LEN].fill(0xFF);
                }
                Step::Program(at, data) => {
                    flash.program(FlashAddress(at), &data).unwrap();
                    model[at as usize..].iter_mut().zip(&data).for_each(|(cell, byte)| *cell &= byte);
                }
            }
        }
        prop_assert!(flash.get(FlashAddress(0), FLASH_LEN).unwrap() == model);
    }

    #[test]
    fn an_address_past_the_end_is_an_error_and_changes_nothing(at in FLASH_LEN as u32 - 4.., len in 5usize..40) {
        let mut flash = SpiFlash::erased();
        let outside = flash.program(FlashAddress(at), &vec![0; len]) == Err(FlashGone);
        prop_assert!(outside);
        prop_assert!(flash.get(FlashAddress(0), FLASH_LEN).unwrap().iter().all(|cell| *cell == 0xFF));
    }
}
