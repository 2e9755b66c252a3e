//! A history: the unit at the beginning, the commands, and the faults that strike them.

use std::ffi::OsStr;
use std::fmt;

use rustix::process::Signal as Number;

/// The classes of faults that the campaign counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The unit loses its power after some number of programmed bytes.
    PowerLoss,
    /// The unit leaves the bus, at a command or at a point in time.
    Unplug,
    /// A fault on the wire while the unit is written or read over Bulk-Only.
    BulkOnly(&'static str),
    /// A fault on the wire while the unit is measured over UAS.
    Uas(&'static str),
    /// kill -9.
    Kill,
    /// A signal, once.
    Once(Signal),
    /// A signal, twice.
    Twice(Signal),
    /// A signal that does not ask the process to stop.
    Ignored,
    /// The reader of the output closes the pipe.
    ClosedPipe,
    /// The terminal closes.
    LostTerminal,
    /// The disk under the output is full.
    FullOutput,
    /// The disk under the files is full.
    FullFiles,
    /// Two of these in one process.
    TwoAtOnce,
}

/// The wire faults of bridge.toml. The last one takes the unit off the bus.
pub const FAULTS: [&str; 7] =
    ["stall", "stall-status", "short-data", "bad-tag", "phase-error", "timeout", "disconnect"];

/// A signal: its name and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub &'static str, pub i32);

impl Signal {
    /// The signals that ask a process to stop.
    pub const STOPPING: [Self; 4] = [
        Self("SIGINT", Number::INT.as_raw()),
        Self("SIGTERM", Number::TERM.as_raw()),
        Self("SIGHUP", Number::HUP.as_raw()),
        Self("SIGQUIT", Number::QUIT.as_raw()),
    ];
    /// Others, which end a process unless they are caught.
    pub const IGNORED: [Self; 9] = [
        Self("SIGUSR1", Number::USR1.as_raw()),
        Self("SIGUSR2", Number::USR2.as_raw()),
        Self("SIGALRM", Number::ALARM.as_raw()),
        Self("SIGVTALRM", Number::VTALARM.as_raw()),
        Self("SIGPROF", Number::PROF.as_raw()),
        Self("SIGXCPU", Number::XCPU.as_raw()),
        Self("SIGXFSZ", Number::XFSZ.as_raw()),
        Self("SIGIO", Number::IO.as_raw()),
        Self("SIGPWR", Number::POWER.as_raw()),
    ];
}

/// The unit at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The practice image under the maker's identity.
    Stock,
    /// The patched practice image under ADD1:0001.
    Patched,
    /// Only configuration blocks: the boot loader starts.
    NoImage,
    /// Nothing: the boot loader starts.
    Erased,
    /// Open firmware, which is read and written through registers.
    Open(Build),
}

impl Start {
    /// Whether the unit's flash can be read, and so backed up.
    pub const fn is_readable(self) -> bool {
        matches!(self, Self::Stock | Self::Patched | Self::Open(_))
    }
}

/// The image of a `flash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// The unpatched practice image.
    Practice,
    /// The practice image with the default patches, and a receipt beside it.
    Patched,
    /// Open firmware.
    Open(Build),
}

/// A build of open firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The open variant of the practice image.
    Practice,
    /// The newest one.
    Newest,
}

/// Where `flash` gets configuration blocks that the unit can't give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Config {
    /// Nowhere: it uses the unit's own.
    Own,
    /// `--config-from` with the backup made beforehand.
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
    /// `config set serial=`.
    SetSerial,
    /// `doctor --fix` on a terminal, which agrees to everything.
    Fix,
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
    /// Whether the command writes the unit.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Flash { .. } | Self::Restore { .. } | Self::SetSerial | Self::Fix)
    }

    /// Whether the command writes the unit after a backup.
    pub const fn backs_up(self) -> bool {
        matches!(self, Self::Flash { backup: true, .. } | Self::Restore { backup: true } | Self::SetSerial | Self::Fix)
    }
}

/// The backups that are in the default folder before the first command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Past {
    /// The unit's own, with the stock firmware.
    pub own: Option<Own>,
    /// Whether another dock has one, too.
    pub others: bool,
    /// Whether there is one that is damaged.
    pub damaged: bool,
    /// Whether there is one that is closed to whoever runs the commands.
    pub closed: bool,
}

/// How the unit's own backup agrees with the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// In its port and its identity.
    AtPort,
    /// In its identity: the unit was at another port.
    AtAnotherPort,
    /// In its port and its USB4 ID: the unit had another serial number.
    WithFormerSerial,
}

/// When a signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This many microseconds after the start of the process.
    Micros(u64),
    /// After this many lines of output and then this many microseconds.
    Lines(usize, u64),
}

/// A signal that strikes a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    Kill(Moment),
    Signal { signal: Signal, at: Moment, again_after_micros: Option<u64> },
}

/// Where a process's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// To the campaign, which reads it.
    #[default]
    Read,
    /// To a pipe that closes after this many lines.
    ClosedAfter(usize),
    /// To a full disk: stdout only, or stderr as well.
    Full { stderr_too: bool },
    /// To a terminal, which may close after this many microseconds.
    Terminal { lost_after_micros: Option<u64> },
}

/// A fault on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireFault {
    pub kind: &'static str,
    pub opcode: Option<u8>,
    pub nth: u64,
    pub times: u64,
}

/// All faults in one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trouble {
    /// Number of programmed bytes after which the unit loses its power.
    pub power_loss_after: Option<u64>,
    pub unplug_after_micros: Option<u64>,
    pub back_after_ms: Option<u64>,
    pub faults: Vec<WireFault>,
    /// Whether the unit is slow, so that points in time fall into every step.
    pub is_slow: bool,
    pub blow: Option<Blow>,
    pub output: Output,
    /// Maximum size of a file, in blocks of 512 bytes.
    pub file_limit: Option<u64>,
}

/// A second unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Companion {
    /// It has its own serial number.
    Own,
    /// It has the first unit's serial number and, if that is stock, its content.
    Same,
}

/// One history.
#[derive(Debug, Clone)]
pub struct History {
    pub class: Class,
    pub start: Start,
    pub job: Job,
    /// Whether the commands print JSON, which the campaign then follows.
    pub json: bool,
    /// Faults of the first command.
    pub first: Trouble,
    /// Faults of the recovering commands, in order. Further commands have none.
    pub during_recovery: Vec<Trouble>,
    /// Whether the recovering commands run at a terminal that answers their question.
    pub answers_at_terminal: bool,
    /// Whether to choose the way back if a message offers it.
    pub goes_back: bool,
    /// The unit's folder and the image's name.
    pub unit_name: &'static str,
    pub image_name: &'static OsStr,
    /// The backup folder, if one is named, and whether the environment names it.
    pub backup_dir: Option<&'static str>,
    pub backup_dir_by_env: bool,
    /// Whether the unit's CPU reset loads the code from flash.
    pub loads_code: bool,
    /// Whether the unit's hub can switch its power.
    pub has_port_power: bool,
    /// The backups that are there before.
    pub past: Past,
    /// A second unit without faults that is written at the same time.
    pub companion: Option<Companion>,
    /// Whether an SSD is behind the bridge.
    pub has_ssd: bool,
    pub is_high_speed: bool,
    /// Defects that the flash and its buffer have at high speed.
    pub defects: Defects,
}

/// Defects of the flash and its buffer that are known from units at 480 Mbit/s. asmpatch works in spite of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Defects {
    /// Number of bytes of a bulk packet that reach the buffer.
    pub bulk_out_lands: Option<u64>,
    /// After each command whose number is a multiple of this, the CPU still sees the buffer's old first byte.
    pub stale_first_byte: Option<u64>,
    /// Whether the flash's status overwrites the buffer.
    pub status_in_buffer: bool,
}

impl Defects {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl History {
    /// The status with which the first command ends if nothing strikes it.
    pub fn status(&self) -> i32 {
        // No reset makes a link faster, and `reset` says that it didn't help.
        if self.job == Job::Reset && self.is_high_speed { 4 } else { 0 }
    }

    /// Whether the first command may be refused for an identity that would be lost: that of a unit whose own blocks can't
    /// be read, which its boot loader shows, or which backups of the past may have.
    pub fn may_be_refused(&self) -> bool {
        let takes_none = matches!(self.job, Job::Flash { config: Config::Own | Config::Serial, .. });
        takes_none && !self.start.is_readable() && (self.start == Start::NoImage || self.past != Past::default())
    }

    /// The conditions of a recovering command without faults.
    pub fn calm(&self) -> Trouble {
        let is_at_terminal = self.answers_at_terminal && !self.json && self.job.writes();
        let output = if is_at_terminal { Output::Terminal { lost_after_micros: None } } else { Output::Read };
        Trouble { output, ..Trouble::default() }
    }
}

impl Trouble {
    /// Whether the only fault is one signal. A terminal that closes sends SIGHUP.
    pub fn is_one_signal(&self) -> bool {
        let is_asked = matches!(
            (self.blow, self.output),
            (
                Some(Blow::Signal { again_after_micros: None, .. }),
                Output::Read | Output::Terminal { lost_after_micros: None }
            ) | (None, Output::Terminal { lost_after_micros: Some(_) })
        );
        is_asked && self.unit_is_well()
    }

    /// Whether the only fault is lost output.
    pub fn is_output_alone(&self) -> bool {
        let is_signal = matches!(self.output, Output::Terminal { lost_after_micros: Some(_) });
        self.blow.is_none() && !is_signal && self.unit_is_well()
    }

    /// Whether all faults are the unit's.
    pub fn is_of_the_unit(&self) -> bool {
        self.blow.is_none() && self.output == Output::Read && self.file_limit.is_none()
    }

    /// Whether neither the unit nor the disk under the files has a fault.
    pub fn unit_is_well(&self) -> bool {
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
            Self::Once(signal) => write!(f, "{}, once", signal.0),
            Self::Twice(signal) => write!(f, "{}, twice", signal.0),
            Self::Ignored => f.write_str("a signal that is ignored"),
            Self::ClosedPipe => f.write_str("closed pipe"),
            Self::LostTerminal => f.write_str("lost terminal"),
            Self::FullOutput => f.write_str("full disk, output"),
            Self::FullFiles => f.write_str("full disk, files"),
            Self::TwoAtOnce => f.write_str("two at once"),
        }
    }
}
