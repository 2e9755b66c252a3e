//! Recordings of real chips judge the model. `ASMPATCH_SILICON_TRACES` names the folder with the recordings, and
//! `ASMPATCH_VENDOR_IMAGE`, `ASMPATCH_VENDOR_231204_IMAGE`, `ASMPATCH_OPEN_IMAGE`, `ASMPATCH_OPEN_NEW_IMAGE` and
//! `ASMPATCH_OPEN_USB4_IMAGE` name images. A recording's image is found by its code. Lockstep needs no image.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and each comparison prints its figures"
)]

mod free;
mod lockstep;
mod oracle;
mod recording;
mod table;

use asm2464::firmware::Image;
use asm2464_chip::chip::Speed;
use asm2464_chip::practice;
use recording::Recording;

/// The images that there are.
fn images() -> Vec<(String, Image)> {
    ["VENDOR_231204", "VENDOR", "OPEN", "OPEN_NEW", "OPEN_USB4"]
        .into_iter()
        .filter_map(|name| {
            let variable = format!("ASMPATCH_{name}_IMAGE");
            let path = std::env::var_os(&variable)?;
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Some((variable, Image::parse(&bytes).unwrap()))
        })
        .collect()
}

#[test]
#[ignore = "needs ASMPATCH_SILICON_TRACES"]
fn lockstep_finds_only_listed_divergences() {
    let mut wrong = Vec::new();
    for recording in Recording::all().iter().filter(|recording| recording.from_reset) {
        match lockstep::lockstep(recording) {
            Ok(found) => {
                let (report, more) = table::judge("lockstep", &recording.name, &found);
                println!("lockstep {report}");
                wrong.extend(more);
            }
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs ASMPATCH_SILICON_TRACES"]
fn with_silicons_answers_the_firmware_makes_silicons_accesses() {
    let images = images();
    let mut wrong = Vec::new();
    for recording in Recording::all().iter().filter(|recording| recording.from_reset) {
        let Some((name, image)) = recording.image(&images) else {
            println!("oracle {}: no image given has its code", recording.name);
            continue;
        };
        let followed = oracle::follow(recording, image);
        let different = followed.compared - followed.equal;
        println!(
            "oracle {} ({name}): {} compared, {} equal, {different} different",
            recording.name, followed.compared, followed.equal
        );
        if let Some((silicon, made)) = followed.left {
            wrong.push(format!("{}: silicon {silicon:02X?}, the firmware {made:02X?}", recording.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs ASMPATCH_SILICON_TRACES"]
fn firmware_on_the_model_makes_silicons_accesses_but_for_listed_divergences() {
    let images = images();
    let mut wrong = Vec::new();
    for recording in &Recording::all() {
        let Some((name, image)) = recording.image(&images) else {
            println!("free {}: no image given has its code", recording.name);
            continue;
        };
        match free::free(recording, image) {
            Ok(found) => {
                let (report, more) = table::judge("free", &recording.name, &found);
                println!("free ({name}) {report}");
                wrong.extend(more);
            }
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Recordings of the model itself. The table knows none of them, nor their images.
#[test]
fn a_recording_of_any_image_at_either_speed_is_replayed() {
    for (name, image) in [("practice", practice::image()), ("practice-open", practice::open_image())] {
        for speed in [Speed::Super, Speed::High] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("a.txt"), free::recorded(&image, speed)).unwrap();
            std::fs::write(folder.path().join("notes.txt"), "no access\n").unwrap();
            std::fs::write(folder.path().join("z.bin"), [0xFF, 0x00, 0xC3]).unwrap();
            let all = Recording::in_folder(folder.path());
            let [recording] = &all[..] else { panic!("{} recordings", all.len()) };
            assert_eq!(recording.speed(), Ok(speed), "{name}");
            // A request is recognised where the firmware reads all of its SETUP packet. Open firmware does not.
            let requests = if name == "practice" { 4 } else { 0 };
            assert!(recording.from_reset && recording.requests().len() >= requests, "{name} {speed:?}");
            let images = [(name.to_owned(), image.clone())];
            let (_, image) = recording.image(&images).expect("its code");
            assert!(recording.image(&[]).is_none());

            let followed = oracle::follow(recording, image);
            assert!(followed.left.is_none() && followed.equal > 100, "{name} {speed:?}: {:?}", followed.left);
            // The replay knows the requests of the recorded hosts, so what it compares here is not all that was recorded.
            assert!(free::free(recording, image).is_ok_and(|found| found.equal > 50), "{name} {speed:?}");
            // Lockstep sends no CBW, so what follows one differs.
            assert!(lockstep::lockstep(recording).is_ok_and(|found| found.equal > 50), "{name} {speed:?}");
        }
    }
}

#[test]
fn a_recording_that_the_model_cannot_replay_is_refused_with_its_reason() {
    let start = "Starting execution at PC=0x0000\n";
    let recording = Recording::parse("slow.txt", &format!("{start}[1] PC=0x0101 Read 0x9100 = 0x00"));
    let why = lockstep::lockstep(&recording).err().unwrap();
    assert!(why.contains("slow.txt: line 2: made at full speed"), "{why}");
    assert_eq!(free::free(&recording, &practice::image()).err(), Some(why));
    // A CBW that asks for 4 GiB, broken lines, and an interrupt that the model does not raise.
    let cbw = (0x911B..=0x9139).zip(b"USBC".iter().chain(&[0xFF; 27]));
    let cbw: String = cbw.map(|(addr, byte)| format!("[2] PC=0x0101 Read 0x{addr:04X} = 0x{byte:02X}\n")).collect();
    let text = format!(
        "{start}[1] Triggering interrupt: INT1\nPC=0xZZ Read\nPC=0x1 Read 0x9 = 0x100\n{cbw}\
                        [3] PC=0x0101 Write 0x90A1 = 0x01\n[4] PC=0x0101 Read 0x9300 = 0x5A"
    );
    let recording = Recording::parse("odd.txt", &text);
    assert!(recording.image(&[("practice".to_owned(), practice::image())]).is_none());
    let found = lockstep::lockstep(&recording).unwrap();
    let (_, wrong) = table::judge("lockstep", &recording.name, &found);
    assert!(wrong.iter().any(|line| line.contains("odd.txt: not listed: 9300 BUS_EVENTS: silicon 5A")), "{wrong:?}");
    assert!(free::free(&recording, &practice::image()).is_ok());
}
