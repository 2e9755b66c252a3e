//! What a history is: the unit at the beginning, the commands, what goes wrong in them.

use std::ffi::OsStr;
use std::fmt;

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
    pub const STAYING: [Self; 6] =
        [Self::Stall, Self::StallStatus, Self::ShortData, Self::BadTag, Self::PhaseError, Self::Timeout];
    pub const ALL: [Self; 7] = [
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
    pub const ALL: [Self; 3] = [Self::Int, Self::Term, Self::Hup];
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
    /// The practice image's open sibling: it is read and written through registers.
    OpenFirmware,
}

impl Start {
    /// Whether the unit's flash can be read, so that it gives a backup.
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::Stock | Self::Patched | Self::OpenFirmware)
    }
}

/// The image of a `flash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// The practice image as it is.
    Practice,
    /// With the default patches, and a receipt beside it.
    Patched,
    /// Its open sibling.
    Open,
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
    Flash {
        firmware: Firmware,
        config: Config,
        backup: bool,
    },
    Restore {
        backup: bool,
    },
    /// `flash --dry-run`.
    DryRun,
    /// `reset`.
    Reset,
    Backup {
        named: bool,
    },
    Bench {
        uas: bool,
        path: &'static str,
    },
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
    pub image_name: &'static OsStr,
    /// Where backups go, where that is said, and whether the environment says it.
    pub backup_dir: Option<&'static str>,
    pub backup_dir_by_env: bool,
    /// Whether the unit's CPU reset keeps the code that runs.
    pub keeps_code: bool,
    /// Whether a second unit, with which nothing is wrong, is written at once with it.
    pub has_companion: bool,
    /// Whether an SSD sits behind the bridge.
    pub has_ssd: bool,
    pub is_high_speed: bool,
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
        let is_asked = matches!(
            (self.blow, self.output),
            (Some(Blow::Signal { again_after_micros: None, .. }), Output::Read)
                | (None, Output::Terminal { lost_after_micros: Some(_) })
        );
        is_asked && self.unit_is_well()
    }

    /// Whether everything that goes wrong is where the output goes.
    pub fn is_output_alone(&self) -> bool {
        let is_signal = matches!(self.output, Output::Terminal { lost_after_micros: Some(_) });
        self.blow.is_none() && !is_signal && self.unit_is_well()
    }

    /// Whether everything that goes wrong is the unit's own.
    pub fn is_of_the_unit(&self) -> bool {
        self.blow.is_none() && self.output == Output::Read && self.file_limit.is_none()
    }

    fn unit_is_well(&self) -> bool {
        let Self { power_loss_after, unplug_after_micros, faults, file_limit, .. } = self;
        power_loss_after.is_none() && unplug_after_micros.is_none() && faults.is_empty() && file_limit.is_none()
    }
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
