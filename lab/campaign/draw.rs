//! Draws a history from nothing but the seed and its number.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fastrand::Rng;

use crate::campaign::history::{
    Blow, Build, Class, Companion, Config, Defects, FAULTS, Firmware, History, Job, Moment, Output, Own, Past, Signal,
    Start, Trouble, WireFault,
};

/// Bytes that a flash programs: two configuration blocks and the practice image.
const PROGRAMMED: u64 = 2 * 128 + 98_016;
/// Possible file names of an image.
const IMAGE_NAMES: [&[u8]; 7] =
    [b"patched.bin", b"patched.bin", b"fw patched.bin", b"fw'1.bin", b"fw;ls.bin", b"-fw.bin", b"fw\xFF\n.bin"];

impl History {
    /// Makes history `number` of the campaign with this seed; `is_fix` if it shall be one of `doctor --fix`.
    pub fn new(seed: u64, number: u64, is_fix: bool) -> Self {
        // Neighbours must not resemble each other, and the generator mixes its seed only after several draws.
        let mut rng =
            Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
        for _ in 0..4 {
            rng.u64(..);
        }
        let rng = &mut rng;
        let class = if is_fix { writing_class(rng) } else { class(rng) };
        let (start, job) = if is_fix { fix(rng) } else { job(rng, class) };
        let json = rng.bool() && job != Job::Fix;
        let mut first = trouble(rng, class, job, matches!(start, Start::Open(_)));
        if job == Job::Fix {
            strike_later(rng, &mut first);
        }
        let recoveries = if job.writes() { [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][rng.usize(..10)] } else { 0 };
        let is_plain = job == Job::Flash { firmware: Firmware::Patched, config: Config::Own, backup: true };
        let has_companion = is_plain && first.is_of_the_unit() && rng.u8(..4) == 0;
        let companion = has_companion.then(|| pick(rng, &[Companion::Own, Companion::Same]));
        let during_recovery = (0..recoveries)
            .map(|_| {
                let class = writing_class(rng);
                trouble(rng, class, job, false)
            })
            .collect();
        Self {
            class,
            start,
            job,
            json: json && !matches!(first.output, Output::Terminal { .. }),
            first,
            during_recovery,
            answers_at_terminal: rng.u8(..4) == 0,
            goes_back: rng.bool(),
            unit_name: pick(rng, &["unit", "unit", "my unit", "it's", "$HOME", "ünit"]),
            image_name: OsStr::from_bytes(pick(rng, &IMAGE_NAMES)),
            backup_dir: pick(rng, &[None, None, Some("backups"), Some("my backups"), Some("-b")]),
            // `--fix` takes no folder.
            backup_dir_by_env: rng.bool() || job == Job::Fix,
            loads_code: rng.u8(..4) == 0,
            has_port_power: rng.u8(..4) == 0,
            companion,
            past: match job {
                Job::Fix => past_of_fix(rng, start),
                _ if job.writes() => past(rng),
                _ => Past::default(),
            },
            // Open firmware has no SSD driver.
            has_ssd: rng.u8(..4) == 0 && !has_open_firmware(start, job),
            is_high_speed: rng.u8(..8) == 0,
            defects: defects(rng),
        }
    }
}

fn has_open_firmware(start: Start, job: Job) -> bool {
    matches!(start, Start::Open(_)) || matches!(job, Job::Fix | Job::Flash { firmware: Firmware::Open(_), .. })
}

fn defects(rng: &mut Rng) -> Defects {
    Defects {
        bulk_out_lands: pick(rng, &[None, Some(64)]),
        stale_first_byte: pick(rng, &[None, Some(2), Some(3), Some(7)]),
        status_in_buffer: rng.bool(),
    }
}

fn past(rng: &mut Rng) -> Past {
    let owns = [None, None, None, Some(Own::AtPort), Some(Own::AtAnotherPort), Some(Own::WithFormerSerial)];
    Past { own: pick(rng, &owns), others: rng.u8(..4) == 0, damaged: rng.u8(..4) == 0, closed: rng.u8(..4) == 0 }
}

fn build(rng: &mut Rng) -> Build {
    pick(rng, &[Build::Practice, Build::Newest])
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn class(rng: &mut Rng) -> Class {
    if rng.u8(..100) < 8 { Class::Uas(pick(rng, &FAULTS)) } else { writing_class(rng) }
}

fn writing_class(rng: &mut Rng) -> Class {
    match rng.u8(..100) {
        0..16 => Class::PowerLoss,
        16..30 => Class::Unplug,
        30..50 => Class::BulkOnly(pick(rng, &FAULTS[..6])),
        50..60 => Class::Kill,
        60..69 => Class::Once(pick(rng, &Signal::STOPPING)),
        69..77 => Class::Twice(pick(rng, &Signal::STOPPING)),
        77..80 => Class::Ignored,
        80..84 => Class::ClosedPipe,
        84..88 => Class::LostTerminal,
        88..91 => Class::FullOutput,
        91..94 => Class::FullFiles,
        _ => Class::TwoAtOnce,
    }
}

fn job(rng: &mut Rng, class: Class) -> (Start, Job) {
    use Config::{Earlier, Own, Serial};
    if let Class::Uas(_) = class {
        let path = pick(rng, &["write16", "read16", "e4-255", "e4-4096"]);
        return (pick(rng, &[Start::Stock, Start::Patched, Start::Patched]), Job::Bench { uas: true, path });
    }
    let flash = |firmware, config, backup| Job::Flash { firmware, config, backup };
    let reads = !matches!(class, Class::PowerLoss);
    let open = Start::Open(build(rng));
    let open_image = Firmware::Open(build(rng));
    match rng.u8(..100) {
        0..8 if reads => (pick(rng, &[Start::Stock, Start::Patched, open]), Job::Backup { named: rng.bool() }),
        8..10 if reads => (pick(rng, &[Start::Stock, Start::NoImage, open]), Job::List),
        10..12 if reads => (Start::Patched, Job::Bench { uas: false, path: "e4-255" }),
        12..14 if reads => (Start::Stock, Job::DryRun),
        14..16 if reads => (pick(rng, &[Start::Stock, Start::Patched, open]), Job::Reset),
        // The unit already holds the image.
        16..18 => (Start::Patched, flash(Firmware::Patched, Own, true)),
        42..46 => (pick(rng, &[Start::Stock, Start::Patched, open]), Job::SetSerial),
        39..42 => fix(rng),
        0..39 => (Start::Stock, flash(Firmware::Patched, Own, true)),
        46..50 => (Start::Stock, flash(Firmware::Patched, Own, false)),
        50..55 => (Start::Patched, flash(Firmware::Practice, Own, true)),
        55..68 => (Start::Patched, Job::Restore { backup: true }),
        68..73 => (pick(rng, &[Start::NoImage, Start::Erased]), Job::Restore { backup: false }),
        73..80 => (
            pick(rng, &[Start::NoImage, Start::Erased]),
            flash(Firmware::Patched, pick(rng, &[Own, Earlier, Serial]), false),
        ),
        80..86 => (pick(rng, &[Start::Stock, Start::Patched]), flash(open_image, Own, true)),
        86..89 => (Start::NoImage, flash(open_image, pick(rng, &[Own, Earlier, Serial]), false)),
        89..92 => (open, Job::Restore { backup: rng.bool() }),
        _ => {
            let firmware = pick(rng, &[Firmware::Patched, Firmware::Patched, Firmware::Practice, open_image]);
            (open, flash(firmware, pick(rng, &[Own, Own, Earlier]), true))
        }
    }
}

/// A unit that `doctor --fix` leads to a runtime, or at least to its own firmware.
fn fix(rng: &mut Rng) -> (Start, Job) {
    let open = Start::Open(build(rng));
    (pick(rng, &[Start::Stock, Start::Stock, Start::NoImage, Start::Erased, open]), Job::Fix)
}

/// Strikes at any point of a command that examines, asks and writes, which takes seconds.
fn strike_later(rng: &mut Rng, trouble: &mut Trouble) {
    if let Output::Terminal { lost_after_micros: Some(lost) } = &mut trouble.output {
        *lost = rng.u64(..4_000_000);
    }
    if let Some(Blow::Kill(at) | Blow::Signal { at, .. }) = &mut trouble.blow {
        *at = Moment::Lines(rng.usize(1..60), rng.u64(..300_000));
    }
}

/// Whoever agrees to everything agrees to another dock's backup, too, so there is none. A unit without firmware has its
/// own.
fn past_of_fix(rng: &mut Rng, start: Start) -> Past {
    let past = Past { others: false, ..past(rng) };
    let needs_own = !start.is_readable() && past.own.is_none();
    Past { own: if needs_own { Some(Own::AtPort) } else { past.own }, ..past }
}

/// Duration of a write on a slow unit, in microseconds: by commands, or through registers.
const fn microseconds(is_open: bool) -> u64 {
    if is_open { 900_000 } else { 95_000 }
}

fn trouble(rng: &mut Rng, class: Class, job: Job, is_open: bool) -> Trouble {
    let mut trouble = Trouble::default();
    add(rng, &mut trouble, class, job, is_open);
    trouble
}

fn add(rng: &mut Rng, trouble: &mut Trouble, class: Class, job: Job, is_open: bool) {
    match class {
        Class::PowerLoss => {
            trouble.power_loss_after = Some(rng.u64(..=PROGRAMMED));
            trouble.back_after_ms = back(rng);
        }
        Class::Unplug => {
            trouble.back_after_ms = back(rng);
            if rng.bool() {
                trouble.is_slow = true;
                trouble.unplug_after_micros = Some(rng.u64(..microseconds(is_open)));
            } else {
                trouble.faults.push(fault(rng, "disconnect", None, job, is_open));
            }
        }
        Class::BulkOnly(kind) | Class::Uas(kind) => {
            let opcode = if is_open { pick(rng, &[Some(0xE4), Some(0xE5), None]) } else { opcode(rng, job) };
            trouble.faults.push(fault(rng, kind, opcode, job, is_open));
            trouble.back_after_ms = back(rng);
        }
        Class::Kill => {
            trouble.is_slow = rng.u8(..8) != 0;
            trouble.blow = Some(Blow::Kill(moment(rng, trouble.is_slow, is_open)));
        }
        Class::Once(signal) => {
            trouble.is_slow = rng.u8(..8) != 0;
            let at = moment(rng, trouble.is_slow, is_open);
            trouble.blow = Some(Blow::Signal { signal, at, again_after_micros: None });
        }
        Class::Ignored => {
            trouble.is_slow = rng.u8(..8) != 0;
            let (signal, at) = (pick(rng, &Signal::IGNORED), moment(rng, trouble.is_slow, is_open));
            let again_after_micros = rng.bool().then(|| rng.u64(..25_000));
            trouble.blow = Some(Blow::Signal { signal, at, again_after_micros });
        }
        Class::Twice(signal) => {
            trouble.is_slow = rng.u8(..8) != 0;
            let at = moment(rng, trouble.is_slow, is_open);
            trouble.blow = Some(Blow::Signal { signal, at, again_after_micros: Some(rng.u64(..25_000)) });
        }
        Class::ClosedPipe => trouble.output = Output::ClosedAfter(rng.usize(..24)),
        Class::LostTerminal => {
            trouble.is_slow = true;
            trouble.output = Output::Terminal { lost_after_micros: Some(rng.u64(..microseconds(is_open) + 15_000)) };
        }
        Class::FullOutput => trouble.output = Output::Full { stderr_too: rng.bool() },
        Class::FullFiles => trouble.file_limit = Some(rng.u64(..260)),
        Class::TwoAtOnce => {
            for _ in 0..2 {
                let mut class = writing_class(rng);
                while class == Class::TwoAtOnce {
                    class = writing_class(rng);
                }
                add(rng, trouble, class, job, is_open);
            }
        }
    }
}

fn back(rng: &mut Rng) -> Option<u64> {
    (rng.u8(..3) == 0).then(|| rng.u64(..40))
}

fn moment(rng: &mut Rng, is_slow: bool, is_open: bool) -> Moment {
    if is_slow && rng.u8(..3) == 0 {
        Moment::Lines(rng.usize(1..22), rng.u64(..12_000))
    } else {
        Moment::Micros(rng.u64(..if is_slow || is_open { microseconds(is_open) } else { 25_000 }))
    }
}

fn opcode(rng: &mut Rng, job: Job) -> Option<u8> {
    match job {
        Job::Flash { .. } | Job::Restore { .. } | Job::SetSerial | Job::Fix => pick(
            rng,
            &[Some(0xE0), Some(0xE1), Some(0xE1), Some(0xE2), Some(0xE3), Some(0xE3), Some(0xE4), Some(0xE8), None],
        ),
        Job::Backup { .. } => pick(rng, &[Some(0xE0), Some(0xE2), Some(0xE4), None]),
        Job::Bench { .. } => pick(
            rng,
            &[Some(0xE4), Some(0xE4), Some(0xE6), Some(0x8A), Some(0x88), Some(0x9E), Some(0x25), Some(0x12), None],
        ),
        Job::DryRun | Job::Reset => pick(rng, &[Some(0xE0), Some(0xE2), Some(0xE4), Some(0xE8), None]),
        Job::List => pick(rng, &[Some(0xE4), None]),
    }
}

fn fault(rng: &mut Rng, kind: &'static str, opcode: Option<u8>, job: Job, is_open: bool) -> WireFault {
    // Every register access is a request.
    let most = if is_open {
        30_000
    } else if opcode.is_some() {
        5
    } else if job.writes() {
        26
    } else {
        12
    };
    WireFault { kind, opcode, nth: rng.u64(1..=most), times: pick(rng, &[1, 1, 2, 3, 4, 99]) }
}
