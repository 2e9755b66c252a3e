//! Backups in folders.

use asm2464::Coded as _;
use asm2464::digest::to_hex;

use super::super::backup::tests::sample_backup;
use super::*;

/// The error code of a file that differs from what the manifest says.
const DAMAGED: &str = "asmpatch::backup::digest";

#[test]
fn a_backup_comes_back_from_its_folder_as_it_was_and_a_second_save_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("units").join("one");
    let backup = sample_backup();
    let saved = save(&backup, &folder).unwrap();
    assert_eq!((&saved.folder, saved.is_new), (&folder, true));
    assert_eq!(load(&folder).unwrap(), backup);
    assert_eq!(fs::read(folder.join("firmware.bin")).unwrap().len(), 98_016);
    let saved = save(&backup, &folder).unwrap();
    assert_eq!((&saved.folder, saved.is_new), (&folder, false));
    let names: Vec<_> = fs::read_dir(folder.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["one"], "no temporary file is left");
}

#[test]
fn units_with_one_serial_number_and_content_that_are_saved_at_once_share_one_backup() {
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("same");
        let all_are_there = std::sync::Barrier::new(8);
        let saved = std::thread::scope(|scope| {
            let save_one = || {
                all_are_there.wait();
                save(&sample_backup(), &folder)
            };
            let running: Vec<_> = (0..8).map(|_| scope.spawn(save_one)).collect();
            running.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<_>>()
        });
        assert!(saved.iter().all(|saved| saved.folder == folder));
        assert_eq!(saved.iter().filter(|saved| saved.is_new).count(), 1);
        assert_eq!(load(&folder).unwrap(), sample_backup());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing unfinished is left");
    }
}

#[test]
fn a_backup_knows_the_serial_numbers_that_its_unit_got_later_and_stays_the_same_backup() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let known = || describe(&folder).unwrap().later_serials;
    assert_eq!(known(), [""; 0]);
    for serial in ["LAB-07", "GPU dock 8", "LAB-07"] {
        note_later_serial(&folder, serial).unwrap();
    }
    assert_eq!(known(), ["LAB-07", "GPU dock 8"]);
    assert!(is_kept(&sample_backup(), &folder) && !save(&sample_backup(), &folder).unwrap().is_new);
    // A file with anything else says nothing, and the next note replaces it.
    let file = folder.join(LATER_SERIALS);
    let long = "LAB-07\n".repeat(MAX_LATER_SERIALS_LEN / 7 + 1);
    for bad in ["LAB-07\n\nLAB-08\n", "LAB-07\nGr\u{f6}\u{df}e\n", "LAB-07\n123456789012345678901\n", &long] {
        fs::write(&file, bad).unwrap();
        assert_eq!(known(), [""; 0], "{bad}");
    }
    fs::write(&file, [0xFF, 0xFE, 0x00]).unwrap();
    assert_eq!(known(), [""; 0]);
    note_later_serial(&folder, "LAB-09").unwrap();
    assert_eq!(known(), ["LAB-09"]);
}

#[cfg(unix)]
#[test]
fn later_serial_numbers_are_neither_read_nor_written_through_a_link() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let other = home.path().join("other");
    fs::write(&other, "LAB-07\n").unwrap();
    std::os::unix::fs::symlink(&other, folder.join(LATER_SERIALS)).unwrap();
    assert_eq!(describe(&folder).unwrap().later_serials, [""; 0]);
    assert_eq!(note_later_serial(&folder, "LAB-08").unwrap_err().code(), "asm2464::file::write");
    assert_eq!(fs::read(other).unwrap(), b"LAB-07\n");
}

#[test]
fn a_backup_is_named_by_the_digits_in_its_folders_name_or_by_more_of_them_or_by_its_content() {
    let home = tempfile::tempdir().unwrap();
    let digits = to_hex(&sample_backup().content_digest(), "");
    let found = |name: &str| {
        let folder = home.path().join(name);
        save(&sample_backup(), &folder).unwrap();
        describe(&folder).unwrap()
    };
    let named = found(&sample_backup().folder_name());
    assert_eq!(named.digits(), Some(&digits[..8]));
    let other = if digits.starts_with('0') { "1" } else { "0" };
    for backup in [&named, &found("renamed")] {
        for len in [1, 7, 8, 9, 64] {
            assert!(backup.has_digits(&digits[..len]), "{backup:?} {len}");
            assert!(!backup.has_digits(&format!("{other}{}", &digits[1..len])), "{backup:?} {len}");
        }
        assert!(!backup.has_digits(&format!("{}{}", &digits[..8], "x")), "{backup:?}");
    }
    // What the name says is enough: the rest is read only if more is asked for.
    fs::write(named.folder.join("part-1.bin"), "x").unwrap();
    assert!(named.has_digits(&digits[..8]) && !named.has_digits(&digits[..9]));
}

#[test]
fn a_backup_never_takes_the_place_of_something_else() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let changes: [fn(&mut Backup); 4] = [
        |other| other.blocks[0][40] ^= 1,
        |other| other.blocks[1][40] ^= 1,
        |other| other.parts[0][3000] ^= 1,
        |other| other.parts[1][3000] ^= 1,
    ];
    for change in changes {
        let mut other = sample_backup();
        change(&mut other);
        assert!(matches!(save(&other, &folder), Err(BackupFolderError::Exists { .. })));
        assert!(!is_kept(&other, &folder) && is_kept(&sample_backup(), &folder));
    }
    assert_eq!(load(&folder).unwrap(), sample_backup());
    let file = home.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(matches!(save(&sample_backup(), &file), Err(BackupFolderError::Exists { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_flipped_bit_in_any_file_is_found_before_anything_is_written_to_a_unit() {
    for name in ["config-0.bin", "config-1.bin", "firmware.bin", "part-1.bin", "part-2.bin"] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("one");
        save(&sample_backup(), &folder).unwrap();
        let path = folder.join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[77] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(load(&folder), Err(BackupFolderError::Unusable(why)) if why.code() == DAMAGED), "{name}");
        bytes.pop();
        fs::write(&path, &bytes).unwrap();
        assert!(
            matches!(load(&folder), Err(BackupFolderError::Unusable(why)) if why.code() == DAMAGED),
            "{name} short"
        );
        fs::remove_file(&path).unwrap();
        assert!(matches!(load(&folder), Err(BackupFolderError::NoBackup(_))), "{name} missing");
    }
}

#[test]
fn a_backup_whose_part_is_longer_than_the_flash_has_is_damaged() {
    for part in Part::ALL {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("one");
        let mut backup = sample_backup();
        backup.parts[usize::from(part == Part::Two)].resize(part.max_len() + 1, 0xFF);
        save(&backup, &folder).unwrap();
        assert!(matches!(load(&folder), Err(BackupFolderError::Unusable(why)) if why.code() == DAMAGED), "{part:?}");
    }
}

#[test]
fn room_for_a_backup_is_where_files_can_be_written_and_is_left_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(!has_room(&file) && !has_room(&file.join("folder")));
    assert!(has_room(&home.path().join("new")));
    assert_eq!(fs::read_dir(home.path().join("new")).unwrap().count(), 0);
}

#[test]
fn a_manifest_is_read_strictly() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let path = folder.join("backup.toml");
    let good = fs::read_to_string(&path).unwrap();
    let with = |text: String| {
        fs::write(&path, text).unwrap();
        load(&folder).unwrap_err()
    };
    let other = with(good.replace("format = 1", "format = 2\nsigned-by = \"me\""));
    assert_eq!(other.code(), "asmpatch::backup::format");
    assert!(other.to_string().ends_with("has format 2, expected 1"), "{other}");
    assert!(matches!(with(format!("colour = 1\n{good}")), BackupFolderError::NoBackup(_)));
    assert_eq!(with(good.replace("config-1.bin", "../../etc/passwd")).code(), "asmpatch::backup::files");
    assert!(matches!(with(String::new()), BackupFolderError::NoBackup(_)));
    assert!(matches!(load(home.path()), Err(BackupFolderError::NoBackup(_))));
}

#[test]
fn a_backup_without_a_date_and_with_a_file_of_the_system_is_read() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let path = folder.join(MANIFEST);
    let dated = fs::read_to_string(&path).unwrap();
    let undated: String = dated.split_inclusive('\n').filter(|line| !line.starts_with("date = ")).collect();
    assert_ne!(undated, dated);
    fs::write(&path, undated).unwrap();
    for name in [".DS_Store", "Thumbs.db", "desktop.ini"] {
        fs::write(folder.join(name), "the system's").unwrap();
    }
    assert_eq!(load(&folder).unwrap(), sample_backup());
    assert!(describe(&folder).unwrap().written.is_some());
    // It is the same backup, so that saving it again changes nothing.
    assert!(!save(&sample_backup(), &folder).unwrap().is_new);
}

#[test]
fn a_backups_date_is_the_one_in_its_manifest_and_not_the_files() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    save(&sample_backup(), &folder).unwrap();
    let path = folder.join(MANIFEST);
    let mut lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    let date = lines.iter_mut().find(|line| line.starts_with("date = ")).unwrap();
    *date = "date = \"2026-02-03T04:05:06Z\"".to_owned();
    fs::write(&path, lines.join("\n")).unwrap();
    let written = describe(&folder).unwrap().written.unwrap();
    assert_eq!(humantime::format_rfc3339(written).to_string(), "2026-02-03T04:05:06Z");
}

#[test]
fn a_flash_without_firmware_is_backed_up_raw() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    let mut backup = sample_backup();
    backup.parts = Part::ALL.map(|part| vec![0xFF; part.max_len()]);
    save(&backup, &folder).unwrap();
    assert!(!folder.join("firmware.bin").exists());
    assert_eq!(load(&folder).unwrap(), backup);
}

#[test]
fn what_a_unit_says_of_itself_reads_back_as_it_was_and_stands_escaped_in_the_manifest() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("one");
    let mut backup = sample_backup();
    backup.unit.product = "dock\"\n[[file]]\u{202E}\u{9b}2J".into();
    save(&backup, &folder).unwrap();
    assert_eq!(load(&folder).unwrap(), backup);
    let text = fs::read_to_string(folder.join("backup.toml")).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !asm2464::escape::is_harmful(c)), "{text}");
}

#[cfg(unix)]
#[test]
fn a_backup_whose_files_do_not_end_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for name in ["backup.toml", "part-1.bin"] {
        let folder = home.path().join(name);
        save(&sample_backup(), &folder).unwrap();
        fs::remove_file(folder.join(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.join(name)).unwrap();
        assert!(matches!(load(&folder), Err(BackupFolderError::NoBackup(_))), "{name}");
    }
}

#[test]
fn a_folder_of_backups_is_listed_with_what_can_not_be_read_and_without_what_is_none() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    assert_eq!(filed(&at("not there")).unwrap(), Filed::default());
    let backup = sample_backup();
    for name in ["whole", "damaged block", "another format", "lost block"] {
        save(&backup, &at(name)).unwrap();
    }
    fs::write(at("damaged block").join(CONFIG[0]), [0xFF; CONFIG_BLOCK_LEN]).unwrap();
    fs::remove_file(at("lost block").join(CONFIG[1])).unwrap();
    fs::write(at("another format").join(MANIFEST), "format = 2\n").unwrap();
    fs::write(at("a file"), "x").unwrap();
    for none in ["a folder", "lost+found", ".asmpatch-backup-aB3dE6"] {
        fs::create_dir(at(none)).unwrap();
    }
    fs::write(at(".asmpatch-backup-aB3dE6").join(MANIFEST), "half").unwrap();
    let Filed { backups, unread } = filed(home.path()).unwrap();
    assert_eq!(backups.len(), 1, "{backups:?}");
    assert_eq!((&backups[0].folder, &backups[0].unit, backups[0].blocks), (&at("whole"), &backup.unit, backup.blocks));
    assert!(backups[0].written.is_some());
    let unread: Vec<_> = unread
        .iter()
        .map(|unread| (unread.folder.clone(), unread.failure().code(), unread.failure().kind(), unread.lacks_rights))
        .collect();
    let expected = [
        (at("another format"), "asmpatch::backup::format", Kind::BadInput, false),
        (at("damaged block"), DAMAGED, Kind::BadInput, false),
        (at("lost block"), "asmpatch::backup::io", Kind::BadInput, false),
    ];
    assert_eq!(unread, expected);
    // A folder that can't be read may hold backups, so that is an error.
    assert!(matches!(filed(&at("a file")), Err(BackupFolderError::NoBackup(_))));
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_may_be_a_backup_and_one_to_a_file_is_none() {
    let home = tempfile::tempdir().unwrap();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    std::os::unix::fs::symlink(home.path().join("unplugged"), disk.join("moved")).unwrap();
    fs::write(home.path().join("file"), "x").unwrap();
    std::os::unix::fs::symlink(home.path().join("file"), disk.join("linked")).unwrap();
    let unread = filed(&disk).unwrap().unread;
    assert_eq!(unread.iter().map(|unread| &unread.folder).collect::<Vec<_>>(), [&disk.join("moved")]);
}

#[test]
fn places_are_searched_each_once_and_beside_them_only_a_backups_name_counts_without_a_backup() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    save(&sample_backup(), &at("kept/one")).unwrap();
    save(&sample_backup(), &at("work/two")).unwrap();
    for name in ["work/old", "work/asmpatch-backup-A-0123abcd", "kept/old"] {
        save(&sample_backup(), &at(name)).unwrap();
        fs::write(at(name).join(MANIFEST), "x").unwrap();
    }
    fs::write(at("no folder"), "x").unwrap();
    let folders = vec![at("kept"), at("kept"), at("no folder"), at("missing")];
    let places = BackupPlaces { folders, beside: vec![at("kept"), at("work")] };
    let Filed { backups, unread } = places.search();
    assert_eq!(backups.iter().map(|backup| &backup.folder).collect::<Vec<_>>(), [&at("kept/one"), &at("work/two")]);
    let unread: Vec<_> = unread.iter().map(|unread| (unread.folder.clone(), unread.kind)).collect();
    let expected = [
        (at("kept/old"), UnreadKind::Backup),
        (at("no folder"), UnreadKind::Folder),
        (at("work/asmpatch-backup-A-0123abcd"), UnreadKind::Backup),
    ];
    assert_eq!(unread, expected);
}

#[test]
fn the_number_in_a_backups_name_is_known_even_if_nothing_in_it_can_be_read() {
    let home = tempfile::tempdir().unwrap();
    for (name, expected) in [
        ("asmpatch-backup-RACK-0001-2a2dba9b", &["RACK-0001"][..]),
        ("asmpatch-backup-RACK-0001-2a2dba9b-2", &["RACK-0001"]),
        ("asmpatch-backup-R-1-at-3-1.2-2a2dba9b", &["R-1-at-3-1.2", "R-1"]),
        ("asmpatch-backup-RACK-0001", &[]),
        ("before", &[]),
    ] {
        let folder = home.path().join(name);
        save(&sample_backup(), &folder).unwrap();
        fs::write(folder.join(MANIFEST), "x").unwrap();
        let found = filed(home.path()).unwrap().unread;
        assert_eq!(found[0].serials_in_name(), expected, "{name}");
        fs::remove_dir_all(folder).unwrap();
    }
}
