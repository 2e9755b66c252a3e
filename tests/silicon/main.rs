//! Recordings of real chips judge the model. `ASMPATCH_SILICON_TRACES` names the folder with the recordings,
//! `ASMPATCH_VENDOR_IMAGE` and `ASMPATCH_VENDOR_231204_IMAGE` name images; a recording's image is found by its code.

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
use recording::Recording;

/// The images that there are.
fn images() -> Vec<(String, Image)> {
    ["ASMPATCH_VENDOR_231204_IMAGE", "ASMPATCH_VENDOR_IMAGE"]
        .into_iter()
        .filter_map(|variable| {
            let path = std::env::var_os(variable)?;
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Some((variable.to_owned(), Image::parse(&bytes).unwrap()))
        })
        .collect()
}

#[test]
#[ignore = "needs ASMPATCH_SILICON_TRACES"]
fn lockstep_finds_only_listed_divergences() {
    let mut wrong = Vec::new();
    for recording in Recording::all().iter().filter(|recording| recording.from_reset) {
        let (report, more) = table::judge("lockstep", &recording.name, &lockstep::lockstep(recording));
        println!("lockstep {report}");
        wrong.extend(more);
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
        let (report, more) = table::judge("free", &recording.name, &free::free(recording, image));
        println!("free ({name}) {report}");
        wrong.extend(more);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
