"""Installs the wheel into an empty environment without a compiler. `.ci/packaging` and `.ci/cross` run these tests."""

from __future__ import annotations

import email
import os
import subprocess
import tempfile
import tomllib
import unittest
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEEL = Path(os.environ["ASMPATCH_WHEEL"])
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
PACKAGE = CARGO["package"] | CARGO["workspace"]["package"]
NAME = f"asmpatch-{PACKAGE['version']}"
LICENCES = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.md"]


class Wheel(unittest.TestCase):
    def test_it_holds_the_program_and_its_licences_and_no_source(self) -> None:
        with zipfile.ZipFile(WHEEL) as wheel:
            names = set(wheel.namelist())
            notes = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
            self.assertEqual(names - notes, {f"{NAME}.data/scripts/asmpatch"})
            for licence in LICENCES:
                text = wheel.read(f"{NAME}.dist-info/licenses/{licence}")
                self.assertEqual(text, (ROOT / licence).read_bytes(), licence)
            for name in notes:
                self.assertNotIn(str(ROOT).encode(), wheel.read(name), name)

    def test_its_metadata_agree_with_the_manifest(self) -> None:
        with zipfile.ZipFile(WHEEL) as wheel:
            found = email.message_from_bytes(wheel.read(f"{NAME}.dist-info/METADATA"))
        self.assertEqual(
            [found["Name"], found["Version"], found["Summary"], found["License-Expression"]],
            [PACKAGE["name"], PACKAGE["version"], PACKAGE["description"], PACKAGE["license"]],
        )
        self.assertIn(PACKAGE["repository"], " ".join(found.get_all("Project-URL", [])))
        self.assertIsNone(found["Requires-Dist"])
        text = found.get_payload(decode=True).decode()
        self.assertEqual(text.rstrip(), (ROOT / "README.md").read_text().rstrip())

    def test_installing_it_is_the_whole_installation(self) -> None:
        with tempfile.TemporaryDirectory(prefix="asmpatch-wheel-") as folder:
            venv.create(folder, with_pip=True)
            # No compiler, no cargo: only the environment's own programs.
            env = {"PATH": f"{folder}/bin", "HOME": folder}

            def run(*command: str | Path) -> str:
                done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout

            run(f"{folder}/bin/pip", "install", "--no-index", "--quiet", "--disable-pip-version-check", WHEEL)
            self.assertEqual(run(f"{folder}/bin/asmpatch", "--version").split()[:2], ["asmpatch", PACKAGE["version"]])
            self.assertIn("read back", run(f"{folder}/bin/asmpatch", "demo"))


if __name__ == "__main__":
    unittest.main()
