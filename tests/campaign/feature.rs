//! Counts properties of the unit over the histories: how many histories have one, and in how many it mattered.

use std::collections::BTreeMap;
use std::fmt;

use crate::campaign::history::{Build, Companion, Firmware, History, Job, Start};

/// A property of the unit that only some histories have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Its link is at 480 Mbit/s. Mattered: a command wrote the unit or read it.
    HighSpeed,
    /// At 480 Mbit/s it has defects of chips. Mattered: a command wrote or read the flash through registers.
    HighSpeedDefects,
    /// A CPU reset keeps the code. Mattered: a command reset the CPU and judged what runs.
    KeepsCode,
    /// A CPU reset loads the code from the flash. Mattered: the same.
    LoadsCode,
    /// Another unit has its serial number. Mattered: one command wrote both.
    EqualSerials,
    /// It runs the newest open firmware, or is flashed with it. Mattered: a command wrote the unit or read it.
    NewestOpen,
}

impl Feature {
    const ALL: [Self; 6] = [
        Self::HighSpeed,
        Self::HighSpeedDefects,
        Self::KeepsCode,
        Self::LoadsCode,
        Self::EqualSerials,
        Self::NewestOpen,
    ];

    /// Whether the unit of a history has it.
    pub fn is_of(self, history: &History) -> bool {
        let is_newest = history.start == Start::Open(Build::Newest)
            || matches!(history.job, Job::Flash { firmware: Firmware::Open(Build::Newest), .. });
        match self {
            Self::HighSpeed => history.is_high_speed,
            Self::HighSpeedDefects => history.is_high_speed && !history.defects.is_none(),
            Self::KeepsCode => !history.loads_code,
            Self::LoadsCode => history.loads_code,
            Self::EqualSerials => history.companion == Some(Companion::Same),
            Self::NewestOpen => is_newest,
        }
    }

    /// The features that none of the first [`SOME`] histories of a seed has.
    pub fn never_drawn(seed: u64) -> Vec<Self> {
        let mut missing = Self::ALL.to_vec();
        for number in 0..SOME {
            let history = History::new(seed, number);
            missing.retain(|feature| !feature.is_of(&history));
        }
        missing
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HighSpeed => "480 Mbit/s",
            Self::HighSpeedDefects => "480 Mbit/s, with defects",
            Self::KeepsCode => "CPU reset keeps the code",
            Self::LoadsCode => "CPU reset loads the code",
            Self::EqualSerials => "equal serial numbers",
            Self::NewestOpen => "newest open firmware",
        })
    }
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

impl Done {
    fn matters_to(self, feature: Feature) -> bool {
        match feature {
            Feature::HighSpeed | Feature::NewestOpen => self.moved,
            Feature::HighSpeedDefects => self.through_registers,
            Feature::KeepsCode | Feature::LoadsCode => self.judged_reset,
            Feature::EqualSerials => self.wrote_companion,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    histories: u64,
    mattered: u64,
    broken: u64,
}

/// Counts by feature.
#[derive(Debug, Default)]
pub struct Features(BTreeMap<Feature, Counts>);

/// If this many histories have a feature, it must matter in at least one of them.
const ENOUGH: u64 = 30;
/// Every feature must occur among this many first histories of a seed.
const SOME: u64 = 2_000;

impl Features {
    /// Counts a history. `done` is what its processes did, or `None` if it is broken.
    pub fn add(&mut self, history: &History, done: Option<Done>) {
        for feature in Feature::ALL.into_iter().filter(|feature| feature.is_of(history)) {
            let counts = self.0.entry(feature).or_default();
            counts.histories += 1;
            counts.mattered += u64::from(done.is_some_and(|done| done.matters_to(feature)));
            counts.broken += u64::from(done.is_none());
        }
    }

    /// The features that at least [`ENOUGH`] histories had and that mattered in none.
    pub fn unreached(&self) -> impl Iterator<Item = Feature> {
        self.0
            .iter()
            .filter(|(_, counts)| counts.histories >= ENOUGH && counts.mattered == 0)
            .map(|(feature, _)| *feature)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| the unit | histories | mattered | broken |\n|---|--:|--:|--:|")?;
        for (feature, Counts { histories, mattered, broken }) in &self.0 {
            writeln!(f, "| {feature} | {histories} | {mattered} | {broken} |")?;
        }
        Ok(())
    }
}
