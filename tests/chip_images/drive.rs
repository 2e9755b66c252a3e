//! A unit with a drive, and checks that hold for every firmware with a driver for it.

use asm2464::firmware::Image;
use asm2464_chip::chip::{
    COMMAND_OUT, DATA_IN, DATA_OUT, Data, DeviceSpec, DriveSpec, Driver, Engine, Fabric, PacketIn, PacketOut, RunEnd,
    STATUS_IN, Speed,
};

use super::{pattern, powered_on};

/// Makes a unit with a drive on bus 2, behind a switch's port, where 240417 expects it.
pub fn with_drive(image: &Image, speed: Speed, drive: DriveSpec) -> Driver {
    let mut unit = powered_on(image, speed);
    let port = DeviceSpec { at: "0".to_owned(), vendor: 0x1B21, device: 0x2461, ..DeviceSpec::default() };
    let at = DeviceSpec {
        at: "0/0".to_owned(),
        vendor: 0x144D,
        device: 0xA80A,
        class: 0x01_08_02,
        engine: Engine::Nvme(drive),
        ..DeviceSpec::default()
    };
    *unit.chip.fabric_mut() = Fabric::of_devices(&[port, at]).unwrap();
    unit.enumerate().unwrap();
    unit
}

/// A drive without defects.
pub fn good(blocks: u64) -> DriveSpec {
    DriveSpec { blocks, ..DriveSpec::default() }
}

/// CDB of READ or WRITE (10) or (16).
pub fn transfer(opcode: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode];
    match opcode {
        0x28 | 0x2A => {
            cdb.push(0);
            cdb.extend((lba as u32).to_be_bytes());
            cdb.push(0);
            cdb.extend((blocks as u16).to_be_bytes());
            cdb.push(0);
        }
        _ => {
            cdb.push(0);
            cdb.extend(lba.to_be_bytes());
            cdb.extend(blocks.to_be_bytes());
            cdb.extend([0, 0]);
        }
    }
    cdb
}

const SIZES: [u32; 14] = [1, 2, 8, 9, 31, 32, 33, 64, 127, 128, 129, 300, 1024, 2048];

/// Writes and reads back over Bulk-Only.
pub fn round_trips_over_bulk_only(unit: &mut Driver) {
    for (round, blocks) in SIZES.into_iter().enumerate() {
        let lba = 1_000 * round as u64 + 7;
        let data = pattern(blocks as usize * 512, blocks);
        let (write, read) = if round % 2 == 0 { (0x2A, 0x88) } else { (0x8A, 0x28) };
        let wrote = unit.bulk_only(&transfer(write, lba, blocks), Data::Out(&data));
        let wrote = wrote.unwrap_or_else(|why| panic!("{blocks} {why:?} {:05X}", unit.chip.pc()));
        assert_eq!((wrote.status, wrote.residue), (0, 0), "{blocks}");
        let came = unit.bulk_only(&transfer(read, lba, blocks), Data::In(data.len()));
        let came = came.unwrap_or_else(|why| panic!("{blocks} {why:?} {:05X}", unit.chip.pc()));
        assert_eq!((came.status, came.residue), (0, 0), "{blocks}");
        assert!(came.data == data, "{blocks} {}", came.data.len());
    }
}

/// Writes and reads back over UAS, with tags from 2 on.
pub fn round_trips_over_uas(unit: &mut Driver) {
    for (round, blocks) in SIZES.into_iter().enumerate() {
        let lba = 1_000 * round as u64 + 7;
        let tag = round as u16 + 2;
        let data = pattern(blocks as usize * 512, blocks);
        let (write, read) = if round % 2 == 0 { (0x2A, 0x88) } else { (0x8A, 0x28) };
        let wrote = unit.uas(tag, &transfer(write, lba, blocks), &data);
        let wrote = wrote.unwrap_or_else(|why| panic!("{blocks} {why:?} {:05X}", unit.chip.pc()));
        assert_eq!(wrote.status[6], 0, "{blocks}");
        let came = unit.uas(tag, &transfer(read, lba, blocks), &[]);
        let came = came.unwrap_or_else(|why| panic!("{blocks} {why:?} {:05X}", unit.chip.pc()));
        assert_eq!(came.status[6], 0, "{blocks}");
        assert!(came.data == data, "{blocks} {}", came.data.len());
    }
}

/// A command over UAS, and its progress.
struct InFlight {
    tag: u16,
    lba: u64,
    write: Option<Vec<u8>>,
    sent: usize,
    came: Vec<u8>,
    blocks: u32,
}

/// Sends `commands` over UAS, at most `most` at once, and moves data as soon as possible. Returns them with the data
/// that the reads returned.
fn all_at_once(unit: &mut Driver, commands: Vec<InFlight>, most: usize) -> Vec<InFlight> {
    let packet_len = if unit.chip.speed() == Speed::Super { 1024 } else { 512 };
    let (mut waiting, mut under_way, mut done) =
        (commands.into_iter().rev().collect::<Vec<_>>(), Vec::new(), Vec::new());
    while !(waiting.is_empty() && under_way.is_empty()) {
        let mut moved = false;
        if let Some(next) = waiting.last().filter(|_| under_way.len() < most) {
            let opcode = if next.write.is_some() { 0x8A } else { 0x88 };
            let mut iu = vec![1, 0];
            iu.extend(next.tag.to_be_bytes());
            iu.resize(16, 0);
            iu.extend(transfer(opcode, next.lba, next.blocks));
            iu.resize(32, 0);
            if unit.chip.bulk_out(COMMAND_OUT, 0, &iu) == PacketOut::Accepted {
                under_way.extend(waiting.pop());
                moved = true;
            }
        }
        let mut ended = None;
        for (index, command) in under_way.iter_mut().enumerate() {
            if let Some(data) = &command.write
                && command.sent < data.len()
            {
                let packet = &data[command.sent..data.len().min(command.sent + packet_len)];
                if unit.chip.bulk_out(DATA_OUT, command.tag, packet) == PacketOut::Accepted {
                    command.sent += packet.len();
                    moved = true;
                }
            }
            if let PacketIn::Packet(packet) = unit.chip.bulk_in(DATA_IN, command.tag) {
                command.came.extend(packet);
                moved = true;
            }
            if let PacketIn::Packet(status) = unit.chip.bulk_in(STATUS_IN, command.tag) {
                assert_eq!((status[0], status[6]), (3, 0), "{:04x} {status:02X?}", command.tag);
                ended = Some(index);
                break;
            }
        }
        moved |= ended.is_some();
        done.extend(ended.map(|index| under_way.remove(index)));
        let outcome = unit.chip.run(5_000);
        let tags: Vec<_> = under_way.iter().map(|command| (command.tag, command.sent, command.came.len())).collect();
        assert!(moved || outcome != RunEnd::Parked, "stuck at {:05X} {tags:?}", unit.chip.pc());
    }
    done
}

/// Runs up to 30 commands at once on a drive of 2^21 blocks and checks that their data don't mix.
pub fn keeps_commands_apart(unit: &mut Driver) {
    for most in [1, 2, 4, 30] {
        for seed in 0..4 {
            let command = |index: u32, is_write: bool| {
                let blocks = SIZES[((index * 7 + seed) % SIZES.len() as u32) as usize].min(300);
                let lba = u64::from(index) * 400;
                let write = is_write.then(|| pattern(blocks as usize * 512, index ^ seed << 8));
                InFlight { tag: index as u16 % 30 + 1, lba, write, sent: 0, came: Vec::new(), blocks }
            };
            all_at_once(unit, (0..30).map(|index| command(index, true)).collect(), most);
            let came = all_at_once(unit, (0..30).map(|index| command(index, false)).collect(), most);
            for read in came {
                let index = u32::from(read.tag) - 1;
                assert!(read.came == pattern(read.blocks as usize * 512, index ^ seed << 8), "{most} {index}");
            }
            // Mixed writes and reads of different blocks.
            let mixed = (0..30).map(|index| {
                let read = command(index, false);
                if index % 2 == 0 { read } else { InFlight { lba: read.lba + 100_000, ..command(index, true) } }
            });
            for read in all_at_once(unit, mixed.collect(), most).iter().filter(|command| command.write.is_none()) {
                let index = u32::from(read.tag) - 1;
                assert!(read.came == pattern(read.blocks as usize * 512, index ^ seed << 8), "{most} {index}");
            }
        }
    }
}
