//! Tests the model against recordings of real chips. `ASMPATCH_SILICON_TRACES` names the folder with the recordings,
//! and `ASMPATCH_VENDOR_IMAGE`, `ASMPATCH_VENDOR_231204_IMAGE`, `ASMPATCH_OPEN_IMAGE`, `ASMPATCH_OPEN_NEW_IMAGE` and
//! `ASMPATCH_OPEN_USB4_IMAGE` name images. A recording's image is recognised by its code. Lockstep needs no image.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and each comparison prints its figures"
)]

mod free;
mod host;
mod lockstep;
mod oracle;
mod recording;
mod rig;
mod table;

use asm2464::firmware::Image;
use asm2464::scsi::bot::{CBW_LEN, CBW_SIGNATURE};
use asm2464_chip::chip::Speed;
use asm2464_chip::practice;
use recording::{Access, Act, CDB_LEN, Recording, Request};
use rig::Setting;

/// The images that the environment names, each with its variable.
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

/// All recordings that can be read. Adds the reasons for the others to `wrong`.
fn recordings(wrong: &mut Vec<String>) -> Vec<Recording> {
    Recording::all().into_iter().filter_map(|recording| recording.map_err(|why| wrong.push(why)).ok()).collect()
}

#[test]
#[ignore = "needs ASMPATCH_SILICON_TRACES"]
fn lockstep_finds_only_listed_divergences() {
    let mut wrong = Vec::new();
    for recording in recordings(&mut wrong).iter().filter(|recording| recording.from_reset) {
        match lockstep::lockstep(recording) {
            Ok(found) => {
                let (report, more) = table::judge("lockstep", &found);
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
    for recording in recordings(&mut wrong).iter().filter(|recording| recording.from_reset) {
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
    for recording in &recordings(&mut wrong) {
        let Some((name, image)) = recording.image(&images) else {
            println!("free {}: no image given has its code", recording.name);
            continue;
        };
        wrong.extend(freely(name, recording, image));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Replays a recording freely. Returns what is wrong with the firmware's accesses.
fn freely(name: &str, recording: &Recording, image: &Image) -> Vec<String> {
    match free::free(recording, image) {
        Ok(found) => {
            let (report, wrong) = table::judge("free", &found);
            println!("free ({name}) {report}");
            wrong
        }
        Err(why) => vec![why],
    }
}

fn control(setup: [u8; 8]) -> Request {
    let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
    Request::Setup(setup, if setup[0] & 0x80 == 0 { (1..=len as u8).collect() } else { Vec::new() })
}

fn bulk_only(tag: u8, len: u32, is_in: bool, cdb: &[u8]) -> Request {
    let mut cbw = [0; CBW_LEN];
    cbw[..4].copy_from_slice(&CBW_SIGNATURE);
    cbw[4] = tag;
    cbw[8..12].copy_from_slice(&len.to_le_bytes());
    cbw[12] = if is_in { 0x80 } else { 0 };
    cbw[14] = cdb.len() as u8;
    cbw[15..15 + cdb.len()].copy_from_slice(cdb);
    Request::cbw(cbw)
}

fn is_open(name: &str) -> bool {
    name.to_lowercase().contains("open")
}

/// The requests of a host to a unit with this image: enumeration, and then open firmware's own control requests, or
/// commands over UAS and Bulk-Only.
fn host(name: &str) -> Vec<Request> {
    let descriptor = |kind, index, len| control([0x80, 6, index, kind, 0, 0, len, 0]);
    let test_unit_ready = |tag| Request::Command { tag, cdb: [0; CDB_LEN] };
    let mut requests = vec![
        descriptor(1, 0, 8),
        control([0x00, 5, 7, 0, 0, 0, 0, 0]),
        descriptor(1, 0, 18),
        descriptor(0x0F, 0, 5),
        descriptor(2, 0, 9),
        descriptor(2, 0, 255),
        descriptor(3, 0, 4),
        control([0x00, 9, 1, 0, 0, 0, 0, 0]),
        control([0x80, 0, 0, 0, 0, 0, 2, 0]),
    ];
    requests.extend(if is_open(name) {
        vec![
            control([0x40, 0xE5, 0xF0, 0x5F, 0xA7, 0, 0, 0]),
            control([0xC0, 0xE4, 0xF0, 0x5F, 0, 0, 1, 0]),
            control([0x40, 0xF0, 0x04, 0x0F, 0, 0, 12, 0]),
            control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0]),
            control([0xC0, 0xC0, 0, 0, 0, 0, 5, 0]),
        ]
    } else {
        vec![
            control([0x01, 0x0B, 1, 0, 0, 0, 0, 0]),
            test_unit_ready(1),
            test_unit_ready(2),
            test_unit_ready(3),
            test_unit_ready(4),
            test_unit_ready(5),
            control([0x01, 0x0B, 0, 0, 0, 0, 0, 0]),
            bulk_only(6, 2, true, &[0xE4, 2, 0x50, 0x07, 0xF0, 0]),
            bulk_only(7, 0, false, &[0xE5, 0xA7, 0x50, 0x5F, 0xF0, 0]),
        ]
    });
    // The practice image would wait forever for the rig's flash, which is always busy.
    if name.contains("VENDOR") {
        requests.push(bulk_only(8, 128, false, &[0xE1, 0x50, 0, 0, 0, 0]));
    }
    requests
}

const SPEEDS: [Speed; 2] = [Speed::Super, Speed::High];

/// A host that waits for each answer, one whose next UAS command comes before the firmware has acknowledged the status,
/// and one that has three UAS commands in progress. Open firmware has no UAS.
fn hosts(name: &str, speed: Speed) -> Vec<Setting<'static>> {
    let patient = Setting::patient(speed);
    let hasty = Setting { rest: 8, ..patient };
    if is_open(name) { vec![patient] } else { vec![patient, hasty, Setting { rest: 0, queue: 3, ..patient }] }
}

/// Records this image on the rig with the model as its chip, and replays the recording. Returns what is wrong with it.
fn replayed(name: &str, image: &Image, setting: Setting<'_>, host: &[Request]) -> Vec<String> {
    let Setting { speed, rest, queue, .. } = setting;
    let folder = tempfile::tempdir().unwrap();
    let (text, unanswered) = rig::record(image, setting, host);
    let what = format!("{name}-{speed:?}-{rest}-{queue}.txt");
    std::fs::write(folder.path().join(&what), text).unwrap();
    std::fs::write(folder.path().join("notes.md"), "`PC=0x1234 Read` is how a line begins.\n").unwrap();
    std::fs::write(folder.path().join("z.bin"), [0xFF, 0x00, 0xC3]).unwrap();
    let all = Recording::in_folder(folder.path());
    let [Ok(recording)] = &all[..] else { panic!("{} recordings", all.len()) };
    let mut wrong = Vec::new();
    let seen = recording.acts().iter().filter(|act| act.request.is_hosts()).count();
    let sent = host.iter().filter(|request| request.is_hosts()).count();
    let accesses = recording.accesses().count();
    println!("{what}: {accesses} accesses, {seen} of {sent} requests, unanswered {unanswered:02X?}");
    // Older open firmware lacks two of the requests.
    if seen != sent || unanswered.len() > 2 {
        wrong.push(format!("{what}: of {sent} requests {seen} were seen, unanswered {unanswered:02X?}"));
    }
    if recording.speed() != Ok(speed) {
        wrong.push(format!("{what}: taken for {:?}", recording.speed()));
    }
    let found = lockstep::lockstep(recording).unwrap();
    let (report, more) = table::judge("lockstep", &found);
    println!("lockstep {report}");
    wrong.extend(more);
    if found.different() > 0 {
        wrong.push(format!("lockstep {what}: {} reads differ", found.different()));
    }
    let followed = oracle::follow(recording, image);
    if let Some((silicon, made)) = followed.left {
        wrong.push(format!("oracle {what}: recorded {silicon:02X?}, the firmware {made:02X?}"));
    }
    // TIMER5's control is the rig's memory, so the acknowledgement that was written last reads as "expired", and this
    // firmware acts on it.
    if name.contains("USB4") {
        return wrong;
    }
    wrong.extend(freely(name, recording, image));
    wrong
}

/// Replays the requests of each host. Returns what is wrong with the replays.
fn replayed_of_hosts(name: &str, image: &Image, speed: Speed) -> Vec<String> {
    hosts(name, speed).into_iter().flat_map(|setting| replayed(name, image, setting, &host(name))).collect()
}

/// Replays recordings of the model itself. The table has no counts for them, and no images.
#[test]
fn a_recording_of_any_image_at_either_speed_is_replayed() {
    at_either_speed(&[
        ("practice".to_owned(), practice::image()),
        ("practice-open".to_owned(), practice::open_image()),
    ]);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and the like"]
fn a_recording_of_each_firmware_at_either_speed_is_replayed() {
    at_either_speed(&images());
}

fn at_either_speed(images: &[(String, Image)]) {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let both = SPEEDS.map(|speed| {
            let with = move |(name, image): &(String, Image)| replayed_of_hosts(name, image, speed);
            scope.spawn(move || images.iter().flat_map(with).collect::<Vec<_>>())
        });
        both.into_iter().flat_map(|replays| replays.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// C6DB is 01. The link comes up twice before it resets the port, has two lanes, resets the port again while the host
/// enumerates the unit, and has errors while commands are in progress. The host's port offers more power later.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_VENDOR_231204_IMAGE"]
fn a_recording_of_another_board_and_link_is_replayed() {
    let link = |register, bits| Request::Link { register, bits };
    let outside = |register, value| Request::Outside { register, value };
    let (mut wrong, images) = (Vec::new(), images());
    for (name, image) in images.iter().filter(|(name, _)| name.contains("VENDOR")) {
        let mut host = host(name);
        for (before, event) in
            [(14, link(0x9300, 0x08)), (12, link(0x9300, 0x08)), (4, outside(0xE302, 0x6C)), (1, link(0x9301, 0x80))]
        {
            host.insert(before, event);
        }
        let up = [(0x9301, 0x40), (0x9300, 0x0A), (0x9301, 0x40), (0x9301, 0x80)];
        let up = up.map(|(register, bits)| link(register, bits)).into_iter().chain([outside(0x92F8, 0x34)]);
        host.splice(0..0, up);
        for speed in SPEEDS {
            let setting = Setting { board: &[(0xC6DB, 0x01), (0xE302, 0x5C)], ..Setting::patient(speed) };
            wrong.extend(replayed(name, image, setting, &host));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rig took interrupts one after the other, each after one more instruction, with any IE and on XDATA's main page.
#[test]
fn the_oracle_takes_interrupts_where_the_rig_took_them() {
    let mut body = vec![0; 0x1_7ED6];
    for (at, code) in [
        (0x00, &[0x02, 0x00, 0x30, 0x02, 0x00, 0x50][..]),
        (0x13, &[0x02, 0x00, 0x60]),
        // 9000 is read and written, read on the other page, and read again.
        (0x30, &[0x90, 0x90, 0x00, 0xE0, 0xF0, 0x75, 0x93, 0x01, 0xE0, 0x75, 0x93, 0x00, 0xE0]),
        // INT0 reads C802, INT1 C806.
        (0x50, &[0xC0, 0xE0, 0x90, 0xC8, 0x02, 0xE0, 0x90, 0x90, 0x00, 0xD0, 0xE0, 0x32]),
        (0x60, &[0xC0, 0xE0, 0x90, 0xC8, 0x06, 0xE0, 0x90, 0x90, 0x00, 0xD0, 0xE0, 0x32]),
    ] {
        body[at..at + code.len()].copy_from_slice(code);
    }
    let text = "\
        [4] PC=0x0034 Read 0x9000 = 0x00\n\
        [6] [EMU] Triggering interrupt: INT0\n\
        [6] PC=0x0035 Write 0x9000 = 0x00\n\
        [14] PC=0x0056 Read 0xC802 = 0x01\n\
        [22] [EMU] RETI - sending INT_ACK mask=0x01\n\
        [24] [EMU] Triggering interrupt: INT1\n\
        [32] PC=0x0066 Read 0xC806 = 0x01\n\
        [34] [EMU] Triggering interrupt: INT0\n\
        [46] PC=0x0056 Read 0xC802 = 0x01\n\
        [54] [EMU] RETI - sending INT_ACK mask=0x04\n\
        [56] PC=0x003D Read 0x9000 = 0x00\n";
    let recording = Recording::parse("rig.txt", text).unwrap();
    let interrupts: Vec<_> = recording.accesses().map(|access| access.interrupt).collect();
    assert_eq!(interrupts, [0, 0, 1, 2, 3, 0]);
    let followed = oracle::follow(&recording, &Image::from_body(body).unwrap());
    assert_eq!((followed.equal, followed.left), (6, None));
}

#[test]
fn lockstep_goes_on_after_the_firmware_has_reset_the_chip() {
    let writes = ["0xCC31 = 0x01", "0xCC10 = 0x00", "0xCC13 = 0x01", "0xCC11 = 0x01"];
    let writes: String = writes.iter().map(|write| format!("[1] PC=0x0101 Write {write}\n")).collect();
    let recording = Recording::parse("a.txt", &format!("{writes}[1] PC=0x0101 Read 0xCC11 = 0x02")).unwrap();
    assert_eq!(lockstep::lockstep(&recording).unwrap().different(), 0, "a timer of a reset chip ends");
}

#[test]
fn no_row_of_the_table_is_so_wide_that_it_hides_a_fault() {
    assert_eq!(table::wide_rows(), Vec::<String>::new());
}

#[test]
fn a_damaged_recording_is_refused_with_its_file_and_line() {
    let start = "Starting execution at PC=0x0000\n";
    let good = "[  26371] PC=0x527B Read  0xCC32 = 0x01  REG_CPU\n";
    for (damaged, line) in [
        ("", 1),
        ("\u{feff}\u{0}\u{fffd}", 1),
        ("Proxy stats: {'read_count': 0}\n", 1),
        ("[  26375] PC=0x5280 Write 0xCC32 = 0x0", 3),
        ("[  26375] PC=0x5280 Write 0xCC32 =", 3),
        ("[  26375] PC=0x5280 Write 0xCC", 3),
        ("[  26375] PC=0x5280 Wri", 3),
        ("[  26375] PC=0x52", 3),
        ("[  26375] PC=0x5280", 3),
        ("[  26375] PC=0xZZZZ Read  0xCC32 = 0x01\n", 3),
        ("[  26375] PC=0x5280 Read  0xCC32 = 0x101\n", 3),
        ("[  26375] PC=0x5280 Read  0xCC32   0x01\n", 3),
    ] {
        let text = if line == 1 { damaged.to_owned() } else { format!("{start}{good}{damaged}") };
        let why = Recording::parse("cut.txt", &text).err().unwrap_or_else(|| panic!("{damaged:?} was taken"));
        assert!(why.starts_with(&format!("cut.txt: line {line}: ")), "{why}");
    }
}

#[test]
fn a_folders_damaged_recordings_are_reported_and_its_other_files_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let access = "[1] PC=0x527B Read  0xCC32 = 0x01\n";
    let cut = format!("{access}[2] PC=0x5280 Wri");
    for (name, text) in [("a.trace", access), ("b.trace", &cut), ("c.txt", ""), ("d", "no"), ("e.md", "PC=0x1234 Read")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let found = Recording::in_folder(folder.path()).into_iter().map(|found| found.map(|recording| recording.name));
    let found: Vec<_> =
        found.map(|found| found.unwrap_or_else(|why| why[..why.find(": ").unwrap()].to_owned())).collect();
    assert_eq!(found, ["a.trace", "b.trace", "c.txt", "d"]);
}

#[test]
fn line_ends_and_the_rigs_other_output_change_nothing() {
    let lines = [
        "Starting execution at PC=0x0000",
        "[  26371] PC=0x527B Read  0xCC32 = 0x01  REG_CPU",
        "[PROXY] >>> INTERRUPT mask=0x01 (INT0) - 1 pending",
        "[  26372] [UART] [1 sec time out]",
        "36513:[  26380] PC=0x5280 Write 0xCC32 = 0x01",
        "[  26390] [DMA] a line of an unknown kind, at PC=0x5280",
        "[  26391] PC=0x5280",
        "[  26392] PC=0x5280 Poll  0xCC32",
        "Interrupted at PC=0x0FEB",
    ];
    for end in ["\n", "\r\n"] {
        let recording = Recording::parse("a.txt", &lines.join(end)).unwrap();
        let accesses = recording.accesses();
        let found: Vec<_> = accesses.map(|access| (access.pc, access.addr, access.value, access.line)).collect();
        assert_eq!(found, [(0x527A, 0xCC32, 1, 2), (0x527F, 0xCC32, 1, 5)]);
        assert!(recording.from_reset && recording.image(&[]).is_none());
    }
}

#[test]
fn a_recording_that_the_model_cannot_replay_is_refused_with_its_reason() {
    let start = "Starting execution at PC=0x0000\n";
    let recording = Recording::parse("slow.txt", &format!("{start}[1] PC=0x0101 Read 0x9100 = 0x00")).unwrap();
    let why = lockstep::lockstep(&recording).err().unwrap();
    assert!(why.contains("slow.txt: line 2: made at full speed"), "{why}");
    assert_eq!(free::free(&recording, &practice::image()).err(), Some(why));
    // A CBW that asks for 4 GiB, and an interrupt that the model does not raise.
    let cbw = (0x911B..=0x9139).zip(b"USBC".iter().chain(&[0xFF; 27]));
    let cbw: String = cbw.map(|(addr, byte)| format!("[2] PC=0x0101 Read 0x{addr:04X} = 0x{byte:02X}\n")).collect();
    let text = format!(
        "{start}[1] Triggering interrupt: INT1\n[2] PC=0x0101 Read 0x90E2 = 0x01\n{cbw}\
         [3] PC=0x0101 Write 0x90A1 = 0x01\n[4] PC=0x0101 Read 0x9091 = 0x5A"
    );
    let recording = Recording::parse("odd.txt", &text).unwrap();
    assert_eq!(recording.acts().len(), 1);
    assert!(recording.image(&[("practice".to_owned(), practice::image())]).is_none());
    let found = lockstep::lockstep(&recording).unwrap();
    let (_, wrong) = table::judge("lockstep", &found);
    assert!(
        wrong.iter().any(|line| line.contains("odd.txt: not listed: 9091 ") && line.contains("silicon 5A")),
        "{wrong:?}"
    );
    assert!(free::free(&recording, &practice::image()).is_ok());
}

fn seen(lines: &[&str]) -> Vec<Act> {
    let lines: String = lines.iter().map(|line| format!("[1] PC=0x0101 {line}\n")).collect();
    Recording::parse("a.txt", &lines).unwrap().acts()
}

#[test]
fn a_control_request_is_recognised_however_few_bytes_of_it_the_firmware_reads() {
    // SET_CONFIGURATION, by a firmware that needs only two bytes, after a round of its polling loop without an event.
    let acts = seen(&[
        "Read 0x9101 = 0x02",
        "Read 0x9101 = 0x00",
        "Read 0x9101 = 0x02",
        "Read 0x9091 = 0x01",
        "Write 0x9091 = 0x01",
        "Read 0x9105 = 0x09",
        "Read 0x9106 = 0x01",
        "Read 0x9091 = 0x10",
        "Write 0x9091 = 0x10",
    ]);
    assert_eq!(acts, [Act { shows: 2, seen: 3, request: Request::Setup([0, 9, 1, 0, 0, 0, 0, 0], Vec::new()) }]);
    // A read whose length the firmware does not look at, then a write of three bytes of which it reads two.
    let acts = seen(&[
        "Read 0x9091 = 0x01",
        "Read 0x9104 = 0xC0",
        "Write 0x9091 = 0x01",
        "Read 0x9091 = 0x08",
        "Write 0x9003 = 0x00",
        "Write 0x9004 = 0x05",
        "Write 0x9092 = 0x04",
        "Write 0x9091 = 0x08",
        "Write 0x9091 = 0x10",
        "Read 0x9091 = 0x01",
        "Read 0x9104 = 0x40",
        "Write 0x9091 = 0x01",
        "Read 0x9091 = 0x02",
        "Write 0x9092 = 0x02",
        "Read 0x9E00 = 0xA1",
        "Read 0x9E02 = 0xA3",
    ]);
    let read = Request::Setup([0xC0, 0, 0, 0, 0, 0, 5, 0], Vec::new());
    let write = Request::Setup([0x40, 0, 0, 0, 0, 0, 3, 0], vec![0xA1, 0, 0xA3]);
    assert_eq!(acts, [Act { shows: 0, seen: 0, request: read }, Act { shows: 9, seen: 9, request: write }]);
}

#[test]
fn a_uas_command_has_the_cdb_that_the_recording_shows_or_else_what_the_rig_answered() {
    let acts = seen(&[
        "Read 0xC471 = 0x01",
        "Read 0xC47A = 0x01",
        "Read 0xCEB2 = 0x00",
        "Read 0xCEB3 = 0x05",
        "Read 0xD030 = 0x12",
        "Read 0xD034 = 0x24",
        "Write 0xC47A = 0xFF",
        "Read 0xC471 = 0x01",
        "Read 0xC4EE = 0x00",
        "Read 0xC4EF = 0x06",
    ]);
    let mut inquiry = [0; CDB_LEN];
    (inquiry[0], inquiry[4]) = (0x12, 0x24);
    let first = Request::Command { tag: 5, cdb: inquiry };
    let second = Request::Command { tag: 6, cdb: [0; CDB_LEN] };
    assert_eq!(acts, [Act { shows: 0, seen: 0, request: first }, Act { shows: 7, seen: 7, request: second }]);
}

#[test]
fn each_of_two_commands_that_wait_together_has_its_slots_tag() {
    let acts = seen(&[
        "Read 0xC471 = 0x01",
        "Read 0xC47A = 0x00",
        "Write 0xC47A = 0xFF",
        "Read 0xC471 = 0x01",
        "Write 0xC4ED = 0x00",
        "Read 0xC4EE = 0x00",
        "Read 0xC4EF = 0x05",
        "Read 0xC47A = 0x01",
        "Write 0xC47A = 0xFF",
        "Write 0xC4ED = 0x01",
        "Read 0xC4EE = 0x00",
        "Read 0xC4EF = 0x06",
    ]);
    let command = |tag| Request::Command { tag, cdb: [0; CDB_LEN] };
    assert_eq!(acts, [Act { shows: 0, seen: 0, request: command(5) }, Act { shows: 3, seen: 3, request: command(6) }]);
}

#[test]
fn a_command_came_before_the_firmware_freed_a_lower_slot() {
    let acts = seen(&[
        "Read 0x9096 = 0x01",
        "Write 0x9096 = 0x01",
        "Read 0xC802 = 0x04",
        "Read 0xC471 = 0x01",
        "Read 0xC47A = 0x01",
        "Write 0xC47A = 0xFF",
        "Read 0x9096 = 0x02",
        "Write 0x9096 = 0x02",
        "Read 0xC471 = 0x01",
        "Read 0xC47A = 0x00",
    ]);
    assert_eq!(acts.iter().map(|act| (act.shows, act.seen)).collect::<Vec<_>>(), [(1, 3), (8, 8)]);
}

/// A status, a command and a SETUP wait together. The firmware takes the SETUP in the interrupt after the command.
#[test]
fn lockstep_sends_each_request_when_its_own_bit_is_up() {
    let mut lines = vec![
        "Write 0x92C2 = 0x07",
        "Write 0x9000 = 0x01",
        "Read 0xC802 = 0x05",
        "Read 0x9101 = 0x02",
        "Read 0xC471 = 0x01",
        "Read 0xC47A = 0x00",
        "Write 0xC47A = 0xFF",
    ];
    lines.extend(["Read 0xC650 = 0x02"; 80]);
    lines.extend(["Read 0xC802 = 0x01", "Read 0x9101 = 0x02", "Read 0x9091 = 0x01", "Write 0x9091 = 0x01"]);
    let lines: String = lines.iter().map(|line| format!("PC=0x0101 {line}\n")).collect();
    let recording = Recording::parse("a.txt", &lines).unwrap();
    let found = lockstep::lockstep(&recording).unwrap();
    assert_eq!(table::judge("lockstep", &found).1, [""; 0]);
    assert_eq!(found.different(), 0);
}

#[test]
fn the_ends_of_requests_show_the_speed_if_the_firmware_does_not_read_it() {
    let speed = |lines: &[&str]| {
        let lines: String = lines.iter().map(|line| format!("[1] PC=0x0101 {line}\n")).collect();
        Recording::parse("a.txt", &lines).unwrap().speed()
    };
    assert_eq!(speed(&["Read 0x9091 = 0x01", "Read 0x9091 = 0x08", "Read 0x9091 = 0x10"]), Ok(Speed::Super));
    assert_eq!(speed(&["Read 0x9091 = 0x01", "Read 0x9091 = 0x08", "Read 0x9091 = 0x02"]), Ok(Speed::High));
    assert_eq!(speed(&["Read 0x9091 = 0x02", "Read 0x9091 = 0x10"]), Ok(Speed::Super), "a write's data");
    assert_eq!(speed(&["Read 0x9091 = 0x02", "Read 0x9100 = 0x82"]), Ok(Speed::Super), "it reads it");
}

/// The table's rows, against a recording that has no counts.
#[test]
fn a_row_excuses_only_what_its_reason_covers() {
    let wrong = |test: &str, lines: &[&str], differences: &[(usize, u8)]| {
        let lines: String = lines.iter().zip(1..).map(|(line, cycle)| format!("[{cycle}] {line}\n")).collect();
        let recording = Recording::parse("a.txt", &lines).unwrap();
        let mut found = table::Found::new(&recording, &[]);
        for access in recording.accesses() {
            let model = differences.iter().find(|(line, _)| *line == access.line);
            let model = model.map_or(*access, |(_, value)| Access { value: *value, ..*access });
            found.compare(Some(access), Some(&model));
        }
        table::judge(test, &found).1
    };
    let interrupt = "[EMU] Triggering interrupt: INT0";
    let end = "[EMU] RETI";
    // An error of the link, by what the interrupt shows.
    let lost = [interrupt, "PC=0x0101 Read 0x9101 = 0x10", "PC=0x0101 Read 0x9300 = 0x08", end];
    assert_eq!(wrong("lockstep", &lost, &[(2, 0x00)]), [""; 0]);
    let other = [interrupt, "PC=0x0101 Read 0x9101 = 0x10", "PC=0x0101 Read 0x9300 = 0x04", end];
    let [why] = &wrong("lockstep", &other, &[(2, 0x00)])[..] else { panic!("excused") };
    assert_eq!(why, "a.txt: not listed: 9101 USB_EVENTS: silicon 10, model 00, 1 times from line 2");
    let outside = ["PC=0x0101 Read 0x9101 = 0x10", interrupt, "PC=0x0101 Read 0x9300 = 0x08", end];
    assert_eq!(wrong("lockstep", &outside, &[(1, 0x00)]).len(), 1);
    // A cause that is not known, because the recording ends.
    assert_eq!(wrong("lockstep", &other[..2], &[(2, 0x00)]), [""; 0]);
    // A timer may be read too early now and then.
    let mut polls = vec!["PC=0x0101 Read 0xCC11 = 0x01"; 8];
    assert_eq!(wrong("lockstep", &polls, &[(1, 0x02), (2, 0x02)]), [""; 0]);
    polls.truncate(7);
    let [why] = &wrong("lockstep", &polls, &[(1, 0x02), (2, 0x02)])[..] else { panic!("excused") };
    assert_eq!(why, "a.txt: CC11, silicon 01, model 02: happens 2 times of 7, more than 25 %");
    // The next request, before the interrupt's end.
    let early = [interrupt, "PC=0x0101 Read 0xC802 = 0x01", end, interrupt];
    assert_eq!(wrong("free", &early, &[(2, 0x00)]), [""; 0]);
    assert_eq!(wrong("free", &early[..3], &[(2, 0x00)]).len(), 1);
    // A command that came within an interrupt.
    let within = [interrupt, "PC=0x0101 Read 0xC802 = 0x01", "PC=0x0101 Read 0xC471 = 0x01", end];
    assert_eq!(wrong("free", &within, &[(2, 0x05)]), [""; 0]);
    // A link that trains until the port's reset, and not after it.
    let up = ["PC=0x0101 Read 0x92F7 = 0x00", "PC=0x0101 Read 0x9301 = 0x80", "PC=0x0101 Read 0x92F7 = 0x00"];
    assert_eq!(wrong("free", &up, &[(1, 0x70)]), [""; 0]);
    assert_eq!(wrong("free", &up, &[(3, 0x70)]).len(), 1);
}
