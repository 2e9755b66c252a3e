//! Unknown power-on values must not matter. Hundreds of registers are plain memory in the model, and their power-on
//! values are unknown. Each one that the firmware reads gets 00, FF and every single bit at power-on: the unit must
//! boot, answer and take a flash as before. docs/lab/chip.md lists the registers whose value changes an answer.

#![allow(clippy::print_stdout, reason = "the nightly run prints its figures")]

mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use asm2464::firmware::Image;
use asm2464::scsi::{Command, XdataAddress, XdataPage};
use asm2464_chip::practice;
use asmpatch::doctor::QUESTIONS;

use self::session::Session;
use crate::chip_images;

/// Number of runs at the same time.
const THREADS: usize = 2;
const VALUES: [u8; 10] = [0x00, 0xFF, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80];
const DOCUMENT: &str = include_str!("../../../../docs/lab/chip.md");
/// Its section with the table.
const SECTION: &str = "## Registers whose power-on value matters";

fn name(at: XdataAddress) -> String {
    let page = if at.page == XdataPage::Main { "" } else { "1:" };
    format!("{page}{:04X}", at.addr)
}

/// The registers of the document's table.
fn listed() -> BTreeSet<String> {
    let section = DOCUMENT.split_once(SECTION).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or("");
    let rows = section.lines().filter_map(|row| row.strip_prefix("| ")?.split_once(" |"));
    rows.map(|(register, _)| register.to_owned())
        .filter(|register| !matches!(&**register, "register" | "---"))
        .collect()
}

/// Finds the values that change an answer, with the first answer that differs. Also returns the number of registers and
/// of runs.
fn matters(image: &Image) -> (BTreeMap<String, Vec<String>>, usize, usize) {
    let expected = Session::run(image, None);
    assert!(expected.is_whole(), "{expected:?}");
    let cases: Vec<(XdataAddress, u8)> =
        expected.read.iter().flat_map(|at| VALUES.into_iter().map(|value| (*at, value))).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::<String, Vec<String>>::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((at, value)) = cases.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let session = Session::run(image, Some((at, value)));
                    if let Some(what) = expected.difference(&session) {
                        let text = format!("{value:02X}: {what}");
                        found.lock().unwrap().entry(name(at)).or_default().push(text);
                    }
                }
            });
        }
    });
    (found.into_inner().unwrap(), expected.read.len(), cases.len())
}

fn judge(images: &[(&str, Image)]) {
    let mut all = BTreeSet::new();
    for (which, image) in images {
        let (found, registers, runs) = matters(image);
        println!("{which}: {registers} registers, {runs} runs, {} registers matter", found.len());
        for (register, values) in &found {
            println!("  {register}: {}", values.join("; "));
        }
        all.extend(found.into_keys());
    }
    assert_eq!(all, listed(), "docs/lab/chip.md lists other registers");
}

#[test]
fn the_document_has_a_row_for_every_register() {
    for (_, register) in asm2464_chip::chip::registers() {
        let name = register.name.trim_end_matches(|last: char| last.is_ascii_digit());
        assert!(DOCUMENT.contains(name), "{}", register.name);
    }
}

#[test]
fn a_report_reads_every_register_whose_value_matters() {
    let asked = QUESTIONS.into_iter().filter_map(|question| match question {
        Command::XdataRead { from, len: 1 } => Some(format!("{:04X}", from.addr)),
        _ => None,
    });
    let missing: Vec<_> = listed().difference(&asked.collect()).cloned().collect();
    assert!(!listed().is_empty() && missing.is_empty(), "{missing:?}");
}

#[test]
fn no_register_that_the_practice_image_reads_matters() {
    let (found, registers, runs) = matters(&practice::image());
    println!("{registers} registers, {runs} runs");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE, and takes minutes: .ci/nightly runs it"]
fn nightly_the_registers_whose_value_matters_are_those_that_the_document_lists() {
    let old = chip_images::vendor_231204();
    judge(&[("240417", chip_images::vendor()), ("231204", old)]);
}
