//! UAS: commands in flight, task management, tags and slots.

use super::*;

on_both_images! {
    uas_commands_end_in_a_sense_iu
    uas_commands_that_wait_are_answered_in_order_each_on_its_stream
    a_command_that_finds_no_slot_is_answered_with_task_set_full
    task_management_is_answered_with_a_response_iu
}

fn uas_commands_end_in_a_sense_iu(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_uas(image, speed);
        let reply = unit.uas(1, &INQUIRY, &[]).unwrap();
        assert!(is_inquiry(&reply.data) && is_good(&reply, 1), "{reply:02X?}");
        assert_eq!(sense(&unit.uas(2, &[0; 6], &[]).unwrap()), [2, 0x3A, 0]);
        assert_eq!(unit.uas(3, &READ_VERSION, &[]).unwrap().data, image.version().0);
        assert!(is_good(&unit.uas(4, &[0xE5, 0x5A, 0x50, 0xF0, 0x01, 0], &[]).unwrap(), 4));
        assert_eq!(unit.uas(5, &[0xE4, 4, 0x50, 0xF0, 0x00, 0], &[]).unwrap().data, [0, 0x5A, 0, 0]);
        assert_eq!(sense(&unit.uas(6, &[0xE4, 4, 0x33, 0xF0, 0x00, 0], &[]).unwrap()), [5, 0x24, 0]);
        unit.set_alternate(0).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    }
}

fn uas_commands_that_wait_are_answered_in_order_each_on_its_stream(image: &Image) {
    let mut unit = on_uas(image, Speed::Super);
    for tag in 1..=32 {
        unit.send_command(tag, &[0xE4, tag as u8, 0x50, 0x07, 0xF0, 0]).unwrap();
    }
    for tag in 1..=32 {
        let reply = unit.finish_uas(tag, &[]).unwrap();
        assert_eq!(reply.data.len(), usize::from(tag));
        assert!(is_good(&reply, tag as u8));
    }
}

fn a_command_that_finds_no_slot_is_answered_with_task_set_full(image: &Image) {
    let mut unit = on_uas(image, Speed::Super);
    for tag in 1..=33 {
        unit.send_command(tag, &READ_VERSION).unwrap();
        unit.settle();
    }
    let full = unit.finish_uas(33, &[]).unwrap();
    assert_eq!((full.status[0], full.status[3], full.status[6]), (0x03, 33, 0x28));
    for tag in 1..=32 {
        assert_eq!(unit.finish_uas(tag, &[]).unwrap().data, image.version().0);
    }
    assert_eq!(unit.uas(33, &READ_VERSION, &[]).unwrap().data, image.version().0);
}

fn task_management_is_answered_with_a_response_iu(image: &Image) {
    let mut unit = on_uas(image, Speed::Super);
    let mut ask = |id: u8, function: u8, lun: u8| {
        let mut task = [0; 16];
        task[..8].copy_from_slice(&[id, 0, 0, 9, function, 0, 0, 2]);
        task[9] = lun;
        unit.send(COMMAND_OUT, 0, &task).unwrap();
        let status = unit.finish_uas(9, &[]).unwrap().status;
        assert_eq!((status.len(), &status[..4]), (8, &[0x04, 0, 0, 9][..]));
        status[7]
    };
    for function in [0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80] {
        assert_eq!(ask(5, function, 0), 0x00, "{function:02X}");
    }
    assert_eq!(ask(5, 0x20, 0), 0x04, "not supported");
    assert_eq!(ask(5, 0x81, 0), 0x08, "succeeded");
    assert_eq!(ask(5, 0x08, 1), 0x09, "no such LUN");
    assert_eq!(ask(7, 0, 0), 0x02, "an invalid IU");
}

#[test]
fn in_the_practice_image_a_tag_that_is_in_use_is_refused_and_the_older_command_goes_on() {
    let mut unit = on_uas(&stock(), Speed::Super);
    unit.send_command(5, &READ_VERSION).unwrap();
    unit.send_command(5, &INQUIRY).unwrap();
    let first = unit.finish_uas(5, &[]).unwrap();
    assert_eq!((first.status[0], first.status[7]), (0x04, 0x0A), "overlapped tag");
    let mut data = first.data;
    let second = unit.finish_uas(5, &[]).unwrap();
    data.extend(second.data.clone());
    assert!(is_good(&second, 5) && data == stock().version().0);
}

#[test]
fn the_practice_image_has_no_other_logical_unit() {
    let mut unit = on_uas(&stock(), Speed::Super);
    let ask = |unit: &mut Driver, cdb: &[u8]| {
        let mut command = vec![0x01, 0, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        command.extend(cdb);
        command.resize(32, 0);
        unit.send(COMMAND_OUT, 0, &command).unwrap();
        unit.finish_uas(4, &[]).unwrap()
    };
    assert_eq!(sense(&ask(&mut unit, &READ_VERSION)), [5, 0x25, 0]);
    assert_eq!(sense(&ask(&mut unit, &cdb16(0x8A, 0, 1))), [5, 0x25, 0]);
    assert_eq!(ask(&mut unit, &INQUIRY).data[0], 0x7F);
}
