//! Counts properties of the unit over the histories: how many histories have one, and in how many it mattered.

use std::fmt;

use crate::campaign::history::{Build, Companion, Firmware, History, Job, Own, Start};

/// A property of the unit that only some histories have.
pub struct Feature {
    pub name: &'static str,
    /// Whether the unit of a history has it.
    is_of: fn(&History) -> bool,
    /// Whether it mattered to what the commands of a history did.
    matters: fn(&Done) -> bool,
}

/// The newest open firmware, which only a variable gives.
pub const NEWEST_OPEN: &str = "newest open firmware";

const FEATURES: [Feature; 13] = [
    Feature { name: "480 Mbit/s", is_of: |history| history.is_high_speed, matters: |done| done.moved },
    Feature {
        name: "480 Mbit/s, with defects",
        is_of: |history| history.is_high_speed && !history.defects.is_none(),
        matters: |done| done.through_registers,
    },
    Feature {
        name: "CPU reset keeps the code",
        is_of: |history| !history.loads_code,
        matters: |done| done.judged_reset,
    },
    Feature {
        name: "CPU reset loads the code",
        is_of: |history| history.loads_code,
        matters: |done| done.judged_reset,
    },
    Feature {
        name: "equal serial numbers",
        is_of: |history| history.companion == Some(Companion::Same),
        matters: |done| done.wrote_companion,
    },
    Feature {
        name: "several backups",
        is_of: |history| history.past.own.is_some() && history.past.others,
        matters: |done| done.moved,
    },
    Feature { name: "a damaged backup", is_of: |history| history.past.damaged, matters: |done| done.moved },
    Feature { name: "a backup without rights to it", is_of: |history| history.past.closed, matters: |done| done.moved },
    Feature {
        name: "a backup of another port",
        is_of: |history| history.past.own == Some(Own::AtAnotherPort),
        matters: |done| done.moved,
    },
    Feature {
        name: "a former serial number",
        is_of: |history| history.past.own == Some(Own::WithFormerSerial),
        matters: |done| done.moved,
    },
    Feature { name: "config set serial=", is_of: |history| history.job == Job::SetSerial, matters: |done| done.moved },
    Feature { name: "doctor --fix", is_of: |history| history.job == Job::Fix, matters: |done| done.moved },
    Feature {
        name: NEWEST_OPEN,
        is_of: |history| {
            history.start == Start::Open(Build::Newest)
                || matches!(history.job, Job::Flash { firmware: Firmware::Open(Build::Newest), .. })
        },
        matters: |done| done.moved,
    },
];

/// The features that none of the first [`SOME`] histories of a seed has.
pub fn never_drawn(seed: u64) -> impl Iterator<Item = &'static str> {
    let drawn: Vec<History> = (0..SOME).map(|number| History::new(seed, number, false)).collect();
    FEATURES.iter().filter(move |feature| !drawn.iter().any(feature.is_of)).map(|feature| feature.name)
}

/// What a process of a history did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    /// A command wrote the unit or read it, and said that it succeeded.
    pub moved: bool,
    /// It did so through registers.
    pub through_registers: bool,
    /// A command reset the CPU and judged what runs.
    pub judged_reset: bool,
    /// A command wrote the companion as well.
    pub wrote_companion: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    histories: u64,
    mattered: u64,
    broken: u64,
}

/// Counts by feature.
#[derive(Debug, Default)]
pub struct Features([Counts; FEATURES.len()]);

/// If this many histories have a feature, it must matter in at least one of them. The rarest matters in one of twelve.
const ENOUGH: u64 = 60;
/// Every feature must occur among this many first histories of a seed.
const SOME: u64 = 2_000;

impl Features {
    /// Counts a history. `done` is what its processes did, or `None` if it is broken.
    pub fn add(&mut self, history: &History, done: Option<Done>) {
        for (feature, counts) in FEATURES.iter().zip(&mut self.0).filter(|(feature, _)| (feature.is_of)(history)) {
            counts.histories += 1;
            counts.mattered += u64::from(done.as_ref().is_some_and(feature.matters));
            counts.broken += u64::from(done.is_none());
        }
    }

    /// The features that at least [`ENOUGH`] histories had and that mattered in none.
    pub fn unreached(&self) -> impl Iterator<Item = &'static str> {
        let is_unreached = |counts: &Counts| counts.histories >= ENOUGH && counts.mattered == 0;
        FEATURES.iter().zip(&self.0).filter(move |(_, counts)| is_unreached(counts)).map(|(feature, _)| feature.name)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| the unit | histories | mattered | broken |\n|---|--:|--:|--:|")?;
        for (Feature { name, .. }, Counts { histories, mattered, broken }) in FEATURES.iter().zip(&self.0) {
            writeln!(f, "| {name} | {histories} | {mattered} | {broken} |")?;
        }
        Ok(())
    }
}
