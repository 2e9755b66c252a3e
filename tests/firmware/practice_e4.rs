//! The E4 length extension on the practice image.
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use asm2464_chip::practice;

use crate::firmware::e4::Pair;

fn pair() -> Pair {
    Pair::new(&practice::image().to_file())
}

#[test]
fn every_length_of_one_byte_at_each_regions_edges_is_as_before() {
    pair().every_short_length_is_as_before();
}

#[test]
fn at_each_regions_edges_it_is_as_before_over_both_transports() {
    pair().the_regions_edges_are_as_before();
}

#[test]
fn a_wrong_mode_byte_is_refused_as_before() {
    pair().a_wrong_mode_is_refused_as_before();
}

#[test]
fn up_to_4096_bytes_come_right_in_one_command_packet_by_packet() {
    pair().long_reads_give_the_right_bytes();
}

#[test]
fn a_long_read_for_a_host_that_expects_no_data_reads_none() {
    pair().a_long_read_for_a_host_that_expects_no_data_reads_none();
}

#[test]
fn more_than_4096_bytes_are_refused_and_no_register_is_touched() {
    pair().more_than_the_buffer_holds_is_refused_with_no_register_touched();
}

#[test]
fn any_cdb_returns_and_writes_nothing_outside_the_declared_set() {
    pair().any_cdb_returns_and_writes_nothing_outside_the_declared_set();
}

#[test]
fn the_copy_takes_at_most_eight_instructions_a_byte() {
    pair().at_most_eight_instructions_a_byte();
}

#[test]
#[ignore = "needs SDCC"]
fn the_patch_files_bytes_are_what_the_assembler_makes_of_the_source() {
    for (patch, images) in [("e4-length-16", 2), ("read16-sram", 1)] {
        let assembled = assembled(patch);
        let library = asmpatch::embedded::patches().unwrap();
        let found = &library.get(patch).unwrap().images;
        assert_eq!(found.len(), images, "{patch}");
        for image in found {
            let mut written = BTreeMap::new();
            for hunk in &image.hunks {
                let at = hunk.at.code_address().unwrap();
                assert_ne!(at.bank(), asm2464::firmware::Bank::Bank0);
                written.extend(hunk.new.iter().enumerate().map(|(i, byte)| (at.addr() + i as u16, *byte)));
            }
            assert!(written == assembled, "{}: patches/{patch}.toml is not what {patch}.asm gives", image.name);
        }
    }
}

/// Assembles a patch's source with SDCC.
fn assembled(patch: &str) -> BTreeMap<u16, u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("patches").join(format!("{patch}.asm"));
    let dir = tempfile::tempdir().unwrap();
    let source = source.to_string_lossy();
    for (tool, args) in
        [("sdas8051", &["-o", "patch.rel", &*source][..]), ("sdld", &["-n", "-i", "patch.ihx", "patch.rel"])]
    {
        let output = Command::new(tool).current_dir(dir.path()).args(args).output().expect("Debian's package sdcc");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{tool}: {said}");
    }
    let hex = std::fs::read_to_string(dir.path().join("patch.ihx")).unwrap();
    let mut assembled = BTreeMap::new();
    for record in ihex::Reader::new(&hex) {
        if let ihex::Record::Data { offset, value } = record.unwrap() {
            assembled.extend(value.into_iter().enumerate().map(|(i, byte)| (offset + i as u16, byte)));
        }
    }
    assembled
}
