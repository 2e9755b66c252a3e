//! Counts of histories by class.

use std::collections::BTreeMap;
use std::fmt;

use crate::campaign::feature::Features;
use crate::campaign::history::{Class, History};
use crate::campaign::play::{By, Ending, Tale};

/// Counts of one class.
#[derive(Debug, Default, Clone)]
struct Counts {
    histories: u64,
    broken: u64,
    in_recovery_too: u64,
    by: [u64; 4],
    endings: [u64; 3],
    processes: usize,
    backups: usize,
    most: usize,
}

/// Counts by class.
#[derive(Debug, Default)]
pub struct Tally {
    classes: BTreeMap<Class, Counts>,
    /// Counts by property of the unit.
    pub features: Features,
}

impl Tally {
    /// Counts a history. `tale` is its result, or `None` if it is broken.
    pub fn add(&mut self, history: &History, tale: Option<&Tale>) {
        self.features.add(history, tale.map(|tale| tale.done));
        let counts = self.classes.entry(history.class).or_default();
        counts.histories += 1;
        counts.in_recovery_too += u64::from(!history.during_recovery.is_empty());
        let Some(tale) = tale else {
            counts.broken += 1;
            return;
        };
        let by = match tale.by {
            By::Itself => 0,
            By::Again => 1,
            By::Printed => 2,
            By::Documented => 3,
        };
        let ending = match tale.ending {
            Ending::AsAsked => 0,
            Ending::AsBefore => 1,
            Ending::Read => 2,
        };
        counts.by[by] += 1;
        counts.endings[ending] += 1;
        counts.processes += tale.processes;
        counts.backups += tale.backups;
        counts.most = counts.most.max(tale.processes);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| class | histories | in recovery too | by itself | run again | printed commands | docs/recovery.md | as \
             asked | as before | read only | processes | most | backups | broken |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        let mut all = Counts::default();
        for (class, counts) in &self.classes {
            row(f, &class.to_string(), counts)?;
            all.histories += counts.histories;
            all.broken += counts.broken;
            all.in_recovery_too += counts.in_recovery_too;
            all.by.iter_mut().zip(counts.by).for_each(|(sum, count)| *sum += count);
            all.endings.iter_mut().zip(counts.endings).for_each(|(sum, count)| *sum += count);
            all.processes += counts.processes;
            all.backups += counts.backups;
            all.most = all.most.max(counts.most);
        }
        row(f, "all", &all)?;
        write!(f, "\n{}", self.features)
    }
}

fn row(f: &mut fmt::Formatter<'_>, class: &str, counts: &Counts) -> fmt::Result {
    let Counts { histories, broken, in_recovery_too, by, endings, processes, backups, most } = counts;
    let [itself, again, printed, documented] = by;
    let [asked, before, read] = endings;
    writeln!(
        f,
        "| {class} | {histories} | {in_recovery_too} | {itself} | {again} | {printed} | {documented} | {asked} | \
         {before} | {read} | {processes} | {most} | {backups} | {broken} |"
    )
}
