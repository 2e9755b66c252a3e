"""Tests which backup the module chooses for a unit in its boot loader."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path

MODULE = Path(__file__).resolve().parents[2] / "ansible/plugins/modules/flash.py"
specification = importlib.util.spec_from_file_location("flash", MODULE)
flash = importlib.util.module_from_spec(specification)
specification.loader.exec_module(flash)


class OwnBackup(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-backups-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def backup(
        self,
        name: str,
        age: int,
        serial: str = "MINE",
        device: str = "3-1",
        identity: bytes = b"mine",
        whole: bool = True,
    ) -> str:
        path = Path(self.folder, f"asmpatch-backup-{name}")
        path.mkdir()
        (path / "backup.toml").write_text(f'format = 1\n\n[unit]\ndevice = "{device}"\nserial = "{serial}"\n')
        (path / "config-1.bin").write_bytes(identity)
        if whole:
            (path / "firmware.bin").write_bytes(b"image")
        os.utime(path / "backup.toml", (1_000_000 - age, 1_000_000 - age))
        return str(path)

    def found(self, shown: str = "MINE", asked: str | None = None, device: str = "3-1") -> str | None:
        return flash.own_backup(self.folder, device, shown, asked)

    def test_the_newest_with_the_units_serial_number_is_taken_whatever_its_port(self) -> None:
        self.backup("old", 20)
        new = self.backup("new", 10, device="4-1")
        self.backup("others", 0, serial="OTHER", identity=b"other")
        self.assertEqual(self.found(), new)

    def test_one_without_a_whole_image_was_made_of_a_half_written_unit(self) -> None:
        whole = self.backup("whole", 20)
        self.backup("half", 10, whole=False)
        self.assertEqual(self.found(), whole)

    def test_two_units_under_one_serial_number_are_left_to_the_user(self) -> None:
        self.backup("one", 20)
        self.backup("two", 10, identity=b"another's")
        self.assertIsNone(self.found())

    def test_a_number_that_was_just_given_is_found_by_the_port(self) -> None:
        before = self.backup("before", 10, serial="FACTORY")
        self.assertEqual(self.found("NEW", "NEW"), before)
        self.assertIsNone(self.found("NEW", "NEW", device="9-9"))
        self.assertIsNone(self.found("NEW", None))
        self.assertIsNone(self.found("NEW", "OTHER"))

    def test_without_a_serial_number_or_a_folder_there_is_none(self) -> None:
        self.backup("empty", 10, serial="")
        self.assertIsNone(self.found(""))
        self.assertIsNone(flash.own_backup(self.folder + "/missing", "3-1", "MINE", None))


if __name__ == "__main__":
    unittest.main()
