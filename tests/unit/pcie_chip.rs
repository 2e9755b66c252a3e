//! PCIe devices behind a virtual unit, reached through the firmware on the chip model: the practice image, and the
//! vendor's and the open one if `ASMPATCH_VENDOR_IMAGE` and `ASMPATCH_OPEN_IMAGE` name them.

use asm2464::Bdf;
use asm2464::firmware::Image;
use asm2464::scsi::Lun;
use asm2464_host::bridge::{Bridge, Port, TransportKind};
use asm2464_host::pcie::{NoTime, Note, Pcie, PcieError, Scope, Survey, TlpEngine, VendorTlp};

use crate::unit::rig::{trained, unit};

/// A GPU of two functions behind two switches.
const TREE: &str = include_str!("../cli/pcie.in/tree/bridge.toml");

/// The unit over each transport.
fn bridges(scenario: &str, image: Option<&Image>) -> Vec<Bridge> {
    let bulk_only = unit(scenario, image).open().unwrap();
    let mut port = unit(scenario, image);
    port.open().unwrap();
    vec![bulk_only, port.open_over(Some(TransportKind::UasStreams)).unwrap()]
}

fn survey(engine: &mut dyn TlpEngine) -> Result<Survey, PcieError> {
    Pcie::new(engine, &mut NoTime).survey(Scope::USUAL)
}

/// Finds the tree, assigns addresses, and checks that memory holds what is written.
fn examine(engine: &mut dyn TlpEngine) {
    let mut patience = NoTime;
    let mut pcie = Pcie::new(engine, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL).unwrap();
    let places: Vec<_> = survey.functions.iter().map(|function| function.at.to_string()).collect();
    assert_eq!(places, ["00:00.0", "01:00.0", "02:00.0", "03:00.0", "04:00.0", "04:00.1"]);
    assert_eq!(survey.notes, []);
    assert_eq!(survey.functions[0].buses().unwrap().subordinate, 4);
    let gpu = survey.functions.iter().find(|function| function.at == Bdf::new(4, 0, 0)).unwrap();
    assert_eq!((gpu.vendor, gpu.device), (0x1002, 0x744C));
    assert_eq!(gpu.bars.iter().map(|bar| bar.size.unwrap()).collect::<Vec<_>>(), [16 << 30, 2 << 20, 1 << 20]);
    assert_eq!(gpu.capabilities.express().unwrap().link.to_string(), "16 GT/s x4");
    pcie.assign(&mut survey).unwrap();
    for (address, len) in [(0x8_0000_0000_u64, 4), (0xC_0000_0001, 3), (0x1000_0002, 131)] {
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + address as usize) as u8).collect();
        pcie.memory_write(address, &data).unwrap();
        let mut found = vec![0; len];
        pcie.memory_read(address, &mut found).unwrap();
        assert_eq!(found, data, "{address:#x}");
    }
    let nobody = pcie.memory_read(0x9000_0000, &mut [0; 4]).unwrap_err();
    assert!(nobody.to_string().contains("unsupported request"), "{nobody}");
    pcie.sram_write(0x10, b"for the GPU").unwrap();
    let mut found = [0; 11];
    pcie.sram_read(0x10, &mut found).unwrap();
    assert_eq!(&found, b"for the GPU");
    let again = pcie.survey(Scope::USUAL).unwrap();
    assert_eq!((again.changes, again.notes), (vec![], vec![]));
    pcie.hot_reset().unwrap();
    let after = pcie.survey(Scope::USUAL).unwrap();
    assert!(after.functions.len() == 6 && after.functions[4].bars.iter().all(|bar| !bar.is_assigned()));
}

#[test]
fn through_the_practice_image_the_tree_is_found_and_its_memory_holds_what_is_written() {
    for mut bridge in bridges(TREE, None) {
        examine(&mut VendorTlp::new(&mut bridge));
    }
}

#[test]
fn through_firmware_misbehaving_devices_are_reported_and_the_unit_goes_on() {
    let device = |answers: &str| format!("[[device]]\nat = \"0\"\nvendor = 1\ndevice = 1\nanswers = {answers}");
    let at = Bdf::new(1, 0, 0);
    let not_ready = Note::NotReady { at, attempts: 100 };
    let silent = Note::NoAnswer { at, answer: "no completion in time".to_owned() };
    for (answers, notes) in [
        ("{ retry = 1000000 }", vec![not_ready]),
        ("\"ones\"", vec![]),
        ("\"never\"", vec![silent]),
        ("{ retry = 3 }", vec![]),
    ] {
        let mut bridge = unit(&device(answers), None).open().unwrap();
        assert_eq!(survey(&mut VendorTlp::new(&mut bridge)).unwrap().notes, notes, "{answers}");
        assert!(bridge.inquiry().is_ok());
    }
    let mut bridge = unit("behind = \"nothing\"", None).open().unwrap();
    assert_eq!(survey(&mut VendorTlp::new(&mut bridge)), Err(PcieError::LinkDown { ltssm: 0 }));
    let mut bridge = unit(&format!("pcie-link-lost-after = 60\n{TREE}"), None).open().unwrap();
    let found = survey(&mut VendorTlp::new(&mut bridge)).unwrap();
    assert!(found.notes.contains(&Note::LinkWentDown), "{:?}", found.notes);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn through_the_vendors_firmware_it_is_the_same_stock_or_patched_initialised_or_not() {
    for image in [crate::chip_images::vendor(), crate::chip_images::patched()] {
        for (transport, is_initialised) in [(0, false), (1, false), (1, true)] {
            let mut bridge = trained(bridges(TREE, Some(&image)).remove(transport));
            if is_initialised {
                bridge.initialise().unwrap();
            }
            examine(&mut VendorTlp::new(&mut bridge));
            assert!(bridge.inquiry().is_ok());
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_vendors_firmware_trains_the_link_and_numbers_its_root_port_at_the_first_question_for_a_medium() {
    let mut bridge = unit(TREE, Some(&crate::chip_images::vendor())).open().unwrap();
    let header = |bridge: &mut Bridge, at| {
        let mut patience = NoTime;
        let found = Pcie::new(&mut VendorTlp::new(bridge), &mut patience).config_dwords(at, 0, 16);
        found.map(|header| (header[6] & 0xFF_FFFF, header[8]))
    };
    let before = survey(&mut VendorTlp::new(&mut bridge));
    assert_eq!(before, Err(PcieError::LinkDown { ltssm: 0 }), "only E4 and E5 work, and they train nothing");
    assert_eq!(bridge.read_capacity(Lun::ZERO), Ok(None));
    assert_eq!(header(&mut bridge, Bdf::ROOT), Ok((0x02_01_00, 0x00D0_00D0)), "with a window of 1 MiB");
    assert_eq!(header(&mut bridge, Bdf::new(1, 0, 0)), Ok((0x02_02_01, 0)), "and the bridge on bus 1");
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn through_open_firmware_it_is_the_same() {
    for speed in ["super", "high"] {
        let mut port = unit(&format!("speed = \"{speed}\"\n{TREE}"), Some(&crate::chip_images::open()));
        examine(&mut port.open_control().unwrap());
    }
}
