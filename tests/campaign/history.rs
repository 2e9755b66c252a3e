//! What happens in one history: worked out from the seed and the history's number alone.

use std::fmt;

use fastrand::Rng;

/// The bytes that a flash programs: two configuration blocks and the practice image.
const PROGRAMMED: u64 = 2 * 128 + 98_016;

/// What strikes: the classes that the campaign counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The unit loses its power once so many bytes are programmed.
    PowerLoss,
    /// The unit leaves the bus, at a command or at a moment.
    Unplug,
    /// A fault on the wire while the unit is written or read over Bulk-Only.
    BulkOnly(Kind),
    /// A fault on the wire while the unit is measured over UAS.
    Uas(Kind),
    /// kill -9.
    Kill,
    /// A signal, once.
    Once(Signal),
    /// A signal, and once more.
    Twice(Signal),
    /// Nobody reads the output any more.
    ClosedPipe,
    /// The terminal is gone.
    LostTerminal,
    /// The disk under the output is full.
    FullOutput,
    /// The disk under the files is full.
    FullFiles,
    /// Two of these in one process.
    TwoAtOnce,
}

/// A fault as bridge.toml names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Stall,
    StallStatus,
    ShortData,
    BadTag,
    PhaseError,
    Timeout,
    Disconnect,
}

impl Kind {
    /// Those that leave the unit on the bus.
    const STAYING: [Self; 6] =
        [Self::Stall, Self::StallStatus, Self::ShortData, Self::BadTag, Self::PhaseError, Self::Timeout];
    const ALL: [Self; 7] = [
        Self::Stall,
        Self::StallStatus,
        Self::ShortData,
        Self::BadTag,
        Self::PhaseError,
        Self::Timeout,
        Self::Disconnect,
    ];
}

/// A signal that asks a process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    Int,
    Term,
    Hup,
}

impl Signal {
    const ALL: [Self; 3] = [Self::Int, Self::Term, Self::Hup];
}

/// The unit at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The practice image under the maker's identity.
    Stock,
    /// The patched practice image under ADD1:0001.
    Patched,
    /// Configuration blocks alone: the boot loader.
    NoImage,
    /// Nothing: the boot loader.
    Erased,
    /// A stock flash, but open firmware runs.
    OpenFirmware,
}

impl Start {
    /// Whether the unit's flash can be read, so that it gives a backup.
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::Stock | Self::Patched)
    }
}

/// The image of a `flash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// The practice image as it is.
    Practice,
    /// With the default patches, and a receipt beside it.
    Patched,
}

/// Where a `flash` takes configuration blocks that the unit can't give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Config {
    /// Nowhere else.
    Own,
    /// `--config-from`, from the backup that was made beforehand.
    Earlier,
    /// `--serial`.
    Serial,
}

/// The first command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Flash { firmware: Firmware, config: Config, backup: bool },
    Restore { backup: bool },
    Backup { named: bool },
    Bench { uas: bool, path: &'static str },
    List,
}

impl Job {
    /// Whether it writes the unit.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Flash { .. } | Self::Restore { .. })
    }

    /// Whether it writes the unit and takes a backup first.
    pub const fn backs_up(self) -> bool {
        matches!(self, Self::Flash { backup: true, .. } | Self::Restore { backup: true })
    }
}

/// When a signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// So many microseconds after the process was started.
    Micros(u64),
    /// So many microseconds after so many lines of output.
    Lines(usize, u64),
}

/// What a process is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    Kill(Moment),
    Signal { signal: Signal, at: Moment, again_after_micros: Option<u64> },
}

/// Where a process's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// To the one who follows it.
    #[default]
    Read,
    /// To a pipe that is closed after so many lines.
    ClosedAfter(usize),
    /// To a full disk: stdout alone, or stderr too.
    Full { stderr_too: bool },
    /// To a terminal, which is gone after so many microseconds.
    Terminal { lost_after_micros: Option<u64> },
}

/// A fault on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireFault {
    pub kind: Kind,
    pub opcode: Option<u8>,
    pub nth: u64,
    pub times: u64,
}

/// Everything that goes wrong in one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trouble {
    pub power_loss_after: Option<u64>,
    pub unplug_after_micros: Option<u64>,
    pub back_after_ms: Option<u64>,
    pub faults: Vec<WireFault>,
    /// Whether the unit takes its time, so that moments fall into every step.
    pub is_slow: bool,
    pub blow: Option<Blow>,
    pub output: Output,
    /// The longest file that can be written, in blocks of 512 bytes.
    pub file_limit: Option<u64>,
}

/// One history.
#[derive(Debug, Clone)]
pub struct History {
    pub class: Class,
    pub start: Start,
    pub job: Job,
    /// Whether the commands print JSON, and the JSON is followed.
    pub json: bool,
    /// What goes wrong in the first command.
    pub first: Trouble,
    /// What goes wrong in the recovering commands, one after another; after them nothing does.
    pub during_recovery: Vec<Trouble>,
    /// Whether the recovering commands are run at a terminal, and their question is answered there.
    pub answers_at_terminal: bool,
    /// Whether to go back where that is offered.
    pub goes_back: bool,
    /// The unit's folder and the image's name.
    pub unit_name: &'static str,
    pub image_name: &'static str,
    /// Where backups go, where that is said.
    pub backup_dir: Option<&'static str>,
    /// Whether an SSD sits behind the bridge.
    pub has_ssd: bool,
    pub is_high_speed: bool,
}

impl History {
    /// The history of this number in the campaign of this seed.
    pub fn new(seed: u64, number: u64) -> Self {
        // Neighbours must not resemble each other: the generator mixes its seed only as it goes on.
        let mut rng =
            Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
        for _ in 0..4 {
            rng.u64(..);
        }
        let rng = &mut rng;
        let class = class(rng);
        let (start, job) = job(rng, class);
        let json = rng.bool();
        let first = trouble(rng, class, job);
        let recoveries = if job.writes() { [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][rng.usize(..10)] } else { 0 };
        let during_recovery = (0..recoveries)
            .map(|_| {
                let class = writing_class(rng);
                trouble(rng, class, job)
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
            image_name: pick(
                rng,
                &["patched.bin", "patched.bin", "fw patched.bin", "fw'1.bin", "fw;ls.bin", "-fw.bin"],
            ),
            backup_dir: pick(rng, &[None, None, Some("backups"), Some("my backups"), Some("-b")]),
            has_ssd: rng.u8(..4) == 0,
            is_high_speed: rng.u8(..8) == 0,
        }
    }
}

impl History {
    /// A recovering command in which nothing goes wrong.
    pub fn calm(&self) -> Trouble {
        let is_at_terminal = self.answers_at_terminal && !self.json && self.job.writes();
        let output = if is_at_terminal { Output::Terminal { lost_after_micros: None } } else { Output::Read };
        Trouble { output, ..Trouble::default() }
    }
}

impl Trouble {
    /// Whether everything that goes wrong is that the process is asked to stop, once.
    pub fn is_one_signal(&self) -> bool {
        let is_asked = match (self.blow, self.output) {
            (Some(Blow::Signal { again_after_micros: None, .. }), Output::Read) => true,
            (None, Output::Terminal { lost_after_micros: Some(_) }) => true,
            _ => false,
        };
        is_asked && self.unit_is_well()
    }

    /// Whether everything that goes wrong is where the output goes.
    pub fn is_output_alone(&self) -> bool {
        let is_signal = matches!(self.output, Output::Terminal { .. });
        self.blow.is_none() && !is_signal && self.unit_is_well()
    }

    fn unit_is_well(&self) -> bool {
        let Self { power_loss_after, unplug_after_micros, faults, file_limit, .. } = self;
        power_loss_after.is_none() && unplug_after_micros.is_none() && faults.is_empty() && file_limit.is_none()
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn class(rng: &mut Rng) -> Class {
    if rng.u8(..100) < 8 { Class::Uas(pick(rng, &Kind::ALL)) } else { writing_class(rng) }
}

fn writing_class(rng: &mut Rng) -> Class {
    match rng.u8(..100) {
        0..16 => Class::PowerLoss,
        16..30 => Class::Unplug,
        30..50 => Class::BulkOnly(pick(rng, &Kind::STAYING)),
        50..60 => Class::Kill,
        60..70 => Class::Once(pick(rng, &Signal::ALL)),
        70..79 => Class::Twice(pick(rng, &Signal::ALL)),
        79..84 => Class::ClosedPipe,
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
    match rng.u8(..100) {
        0..8 if reads => (pick(rng, &[Start::Stock, Start::Patched]), Job::Backup { named: rng.bool() }),
        8..10 if reads => (pick(rng, &[Start::Stock, Start::NoImage]), Job::List),
        10..12 if reads => (Start::Patched, Job::Bench { uas: false, path: "e4-255" }),
        0..56 => (Start::Stock, flash(Firmware::Patched, Own, true)),
        56..62 => (Start::Stock, flash(Firmware::Patched, Own, false)),
        62..68 => (Start::Patched, flash(Firmware::Practice, Own, true)),
        68..82 => (Start::Patched, Job::Restore { backup: true }),
        82..87 => (pick(rng, &[Start::NoImage, Start::Erased]), Job::Restore { backup: false }),
        87..95 => (
            pick(rng, &[Start::NoImage, Start::Erased]),
            flash(Firmware::Patched, pick(rng, &[Own, Earlier, Serial]), false),
        ),
        _ => (Start::OpenFirmware, flash(Firmware::Patched, pick(rng, &[Own, Earlier]), false)),
    }
}

fn trouble(rng: &mut Rng, class: Class, job: Job) -> Trouble {
    let mut trouble = Trouble::default();
    add(rng, &mut trouble, class, job);
    trouble
}

fn add(rng: &mut Rng, trouble: &mut Trouble, class: Class, job: Job) {
    match class {
        Class::PowerLoss => {
            trouble.power_loss_after = Some(rng.u64(..=PROGRAMMED));
            trouble.back_after_ms = back(rng);
        }
        Class::Unplug => {
            trouble.back_after_ms = back(rng);
            if rng.bool() {
                trouble.is_slow = true;
                trouble.unplug_after_micros = Some(rng.u64(..90_000));
            } else {
                trouble.faults.push(fault(rng, Kind::Disconnect, None, job));
            }
        }
        Class::BulkOnly(kind) | Class::Uas(kind) => {
            let opcode = opcode(rng, job);
            trouble.faults.push(fault(rng, kind, opcode, job));
            trouble.back_after_ms = back(rng);
        }
        Class::Kill => {
            trouble.is_slow = rng.u8(..8) != 0;
            trouble.blow = Some(Blow::Kill(moment(rng, trouble.is_slow)));
        }
        Class::Once(signal) => {
            trouble.is_slow = rng.u8(..8) != 0;
            let at = moment(rng, trouble.is_slow);
            trouble.blow = Some(Blow::Signal { signal, at, again_after_micros: None });
        }
        Class::Twice(signal) => {
            trouble.is_slow = rng.u8(..8) != 0;
            let at = moment(rng, trouble.is_slow);
            trouble.blow = Some(Blow::Signal { signal, at, again_after_micros: Some(rng.u64(..25_000)) });
        }
        Class::ClosedPipe => trouble.output = Output::ClosedAfter(rng.usize(..24)),
        Class::LostTerminal => {
            trouble.is_slow = true;
            trouble.output = Output::Terminal { lost_after_micros: Some(rng.u64(..110_000)) };
        }
        Class::FullOutput => trouble.output = Output::Full { stderr_too: rng.bool() },
        Class::FullFiles => trouble.file_limit = Some(rng.u64(..260)),
        Class::TwoAtOnce => {
            for _ in 0..2 {
                let mut class = writing_class(rng);
                while class == Class::TwoAtOnce {
                    class = writing_class(rng);
                }
                add(rng, trouble, class, job);
            }
        }
    }
}

fn back(rng: &mut Rng) -> Option<u64> {
    (rng.u8(..3) == 0).then(|| rng.u64(..40))
}

fn moment(rng: &mut Rng, is_slow: bool) -> Moment {
    if is_slow && rng.u8(..3) == 0 {
        Moment::Lines(rng.usize(1..22), rng.u64(..12_000))
    } else {
        Moment::Micros(rng.u64(..if is_slow { 95_000 } else { 25_000 }))
    }
}

fn opcode(rng: &mut Rng, job: Job) -> Option<u8> {
    match job {
        Job::Flash { .. } | Job::Restore { .. } => pick(
            rng,
            &[Some(0xE0), Some(0xE1), Some(0xE1), Some(0xE2), Some(0xE3), Some(0xE3), Some(0xE4), Some(0xE8), None],
        ),
        Job::Backup { .. } => pick(rng, &[Some(0xE0), Some(0xE2), Some(0xE4), None]),
        Job::Bench { .. } => pick(
            rng,
            &[Some(0xE4), Some(0xE4), Some(0xE6), Some(0x8A), Some(0x88), Some(0x9E), Some(0x25), Some(0x12), None],
        ),
        Job::List => pick(rng, &[Some(0xE4), None]),
    }
}

fn fault(rng: &mut Rng, kind: Kind, opcode: Option<u8>, job: Job) -> WireFault {
    let most = if opcode.is_some() {
        5
    } else if job.writes() {
        26
    } else {
        12
    };
    WireFault { kind, opcode, nth: rng.u64(1..=most), times: pick(rng, &[1, 1, 2, 3, 4, 99]) }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerLoss => f.write_str("power loss at a byte"),
            Self::Unplug => f.write_str("unplugged"),
            Self::BulkOnly(kind) => write!(f, "{kind}, Bulk-Only"),
            Self::Uas(kind) => write!(f, "{kind}, UAS"),
            Self::Kill => f.write_str("kill -9"),
            Self::Once(signal) => write!(f, "{signal}, once"),
            Self::Twice(signal) => write!(f, "{signal}, twice"),
            Self::ClosedPipe => f.write_str("closed pipe"),
            Self::LostTerminal => f.write_str("lost terminal"),
            Self::FullOutput => f.write_str("full disk, output"),
            Self::FullFiles => f.write_str("full disk, files"),
            Self::TwoAtOnce => f.write_str("two at once"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stall => "stall",
            Self::StallStatus => "stall-status",
            Self::ShortData => "short-data",
            Self::BadTag => "bad-tag",
            Self::PhaseError => "phase-error",
            Self::Timeout => "timeout",
            Self::Disconnect => "disconnect",
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int => "SIGINT",
            Self::Term => "SIGTERM",
            Self::Hup => "SIGHUP",
        })
    }
}
