//! What gives a unit in its boot loader its firmware again: its backups, or else the images for a new board.

use asm2464_files::user::User;
use asm2464_host::bridge::UnitInfo;

use crate::cli::given::arguments::BackupPlace;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::worded_step::WordedStep;
use crate::fetch::{DEFAULT_IMAGE, OPEN_IMAGE};
use crate::flash::backup_folder::Filed;
use crate::flash::fitting::fitting;
use crate::flash::needs::without_backup;
use crate::flash::offers::offers;
use crate::flash::recovery::{Act, ImageRef, NextStep, Why};
use crate::image::Images;

/// What gives a unit in its boot loader its firmware again.
pub(in crate::cli) struct Recovery {
    /// The steps with its backups, in the order in which to try them.
    pub from_backups: Vec<WordedStep>,
    /// Why there are none, if so; and the steps for a new board, unless it is certain that one of the others is right.
    pub otherwise: Vec<WordedStep>,
}

impl Recovery {
    /// Looks for the backups of a unit in its boot loader where `flash` and `backup` put them. `connected` are the units
    /// of this host.
    pub(in crate::cli) fn of(
        unit: &UnitInfo,
        connected: &[UnitInfo],
        images: &Images,
        invocation: &Invocation,
    ) -> Self {
        let invocation = &invocation.at(&unit.location);
        let places = BackupPlace::default().places([&unit.location]);
        let Filed { backups, unread } = places.search();
        let fitting = fitting(unit, &[None, None], None, &backups, connected);
        let steps = offers(&fitting, None, &unit.location, images);
        let mut otherwise = Vec::new();
        if steps.is_empty() {
            let elsewhere = "If its backups are elsewhere, set ASMPATCH_BACKUP_DIR to their folder and run this again";
            otherwise.push(WordedStep::hands(format!("no backup in {} fits this unit. {elsewhere}", places.shown())));
            // A user can't look into root's folder.
            if User::current().is_some_and(|user| !user.is_root()) {
                let purpose = "if you flashed with sudo, its backup is root's: run `sudo asmpatch doctor`";
                otherwise.push(WordedStep::hands(purpose).instead());
            }
        }
        let to_read = unread.iter().map(|unread| WordedStep::of(&NextStep::make_readable(unread), invocation));
        otherwise.extend(to_read.map(WordedStep::instead));
        if !steps.iter().any(NextStep::is_sure) {
            let (why, permissions) = without_backup(unit, &fitting, &unread);
            for (why, id) in [(why, OPEN_IMAGE), (Why::OrOtherImage, DEFAULT_IMAGE)] {
                let image = ImageRef::Known(id.to_owned());
                let permissions = permissions.clone();
                let step = NextStep::new(why, Act::Flash { image, permissions, blocks_from: None, backs_up: false });
                otherwise.push(WordedStep::of(&step, invocation).instead());
            }
        }
        Self { from_backups: WordedStep::each(&steps, invocation), otherwise }
    }
}
