"""Checks packages as far as possible without building them. `.ci/packaging` runs these tests."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ["ASMPATCH_BIN"]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
# The manifests of the workspace's other crates.
OTHERS = sorted(manifest for house in ("crates", "model") for manifest in (ROOT / house).glob("*/Cargo.toml"))
# The keys that all crates share are in the workspace's table.
PACKAGE = CARGO["package"] | CARGO["workspace"]["package"]


def printed(*command: str | Path, **more: object) -> str:
    """Runs a command, which must succeed, and returns its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


class FolderTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-packaging-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Contents(FolderTest):
    """Contents of the packages."""

    def test_every_asset_of_the_deb_is_made_or_in_the_tree(self) -> None:
        printed(ROOT / "packaging/generate", BINARY, self.folder)
        for source, _target, mode in PACKAGE["metadata"]["deb"]["assets"]:
            if source == "target/release/asmpatch":
                continue
            made = source.startswith("target/package/")
            found = list(self.folder.glob(source.removeprefix("target/package/")) if made else ROOT.glob(source))
            self.assertTrue(found and all(file.stat().st_size for file in found), source)
            is_program = any(os.access(file, os.X_OK) for file in found)
            self.assertEqual(mode, "755" if is_program else "644", source)
        self.assertEqual((self.folder / "70-asmpatch.rules").read_text(), printed(BINARY, "udev"))
        pages = {file.stem for file in (self.folder / "man").iterdir()}
        self.assertLessEqual({"asmpatch", "asmpatch-flash", "asmpatch-reset"}, pages)

    def test_the_crate_has_every_file_that_its_code_and_tests_name(self) -> None:
        listed = printed("cargo", "package", "--package=asmpatch", "--list", "--locked", "--allow-dirty", cwd=ROOT)
        packed = set(listed.split("\n"))
        # The other crates have packages of their own.
        others = [str(manifest.parent.relative_to(ROOT)) + "/" for manifest in OTHERS]
        tracked = {
            file
            for file in printed("git", "ls-files", "-z", cwd=ROOT).split("\0")
            if file and not file.startswith(tuple(others))
        }
        below: dict[str, set[str]] = {}
        for file in tracked:
            for path in (file, *map(str, Path(file).parents)):
                below.setdefault(path, set()).add(file)
        named: set[str] = set()
        for source in (file for file in packed if file.endswith(".rs")):
            for text in re.findall(r'"((?:\.\./)*\w[^"\\\n*]+)', (ROOT / source).read_text()):
                for base in ("", os.path.dirname(source)):
                    named |= below.get(os.path.normpath(os.path.join(base, text)), set())
        self.assertEqual(named - packed, set())
        # At least the corpus, the transcripts, and the binary's embedded data.
        self.assertGreater(len(named), 300)

    def test_every_crate_has_its_readme_and_its_licences_texts(self) -> None:
        for crate in (manifest.parent for manifest in OTHERS):
            listed = printed("cargo", "package", "--list", "--locked", "--allow-dirty", cwd=crate).split("\n")
            self.assertLessEqual({"LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"}, set(listed), crate.name)

    def test_the_crate_that_drives_a_unit_has_few_dependencies(self) -> None:
        tree = ["tree", "--package=asm2464-host", "--edges=normal", "--target=x86_64-unknown-linux-gnu"]
        lines = printed("cargo", *tree, "--prefix=none", "--no-dedupe", "--locked", cwd=ROOT).splitlines()
        brought = {line.split()[0] for line in lines}
        self.assertLessEqual(len(brought), 30, sorted(brought))
        self.assertEqual(brought & {"miette", "serde_json", "toml"}, set())

    def test_the_crate_that_drives_a_unit_can_take_the_systems_libusb(self) -> None:
        tree = ["tree", "--package=asm2464-host", "--edges=features,normal", "--invert=libusb1-sys", "--locked"]
        self.assertIn('libusb1-sys feature "vendored"', printed("cargo", *tree, cwd=ROOT))
        self.assertNotIn("vendored", printed("cargo", *tree, "--no-default-features", cwd=ROOT))

    def test_the_licences_are_those_of_the_lock_file(self) -> None:
        now = printed(ROOT / "packaging/licences")
        kept = (ROOT / "THIRD-PARTY-LICENSES.md").read_text()
        self.assertTrue(now == kept, "run packaging/licences > THIRD-PARTY-LICENSES.md")
        self.assertIn("| libusb, in libusb1-sys | | LGPL-2.1-or-later |", now)
        self.assertIn("GNU LESSER GENERAL PUBLIC LICENSE", now)

    def test_binstall_fetches_archives_that_the_release_has(self) -> None:
        workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
        built = {entry["target"] for entry in workflow["jobs"]["build"]["strategy"]["matrix"]["include"]}
        binstall = PACKAGE["metadata"]["binstall"]
        for target in built | set(binstall["overrides"]):
            entry = binstall | binstall["overrides"].get(target, {})
            url = entry["pkg-url"].replace("{ target }", target)
            [archive] = re.findall(r"/releases/download/v\{ version \}/asmpatch-([\w-]+)\.(?:tar\.gz|zip)$", url)
            self.assertIn(archive, built)
            suffix = ".zip" if "windows" in archive else ".tar.gz"
            self.assertTrue(url.endswith(suffix) and entry["pkg-fmt"] == {".zip": "zip", ".tar.gz": "tgz"}[suffix], url)

    def test_the_documents_install_the_wheel_of_this_version(self) -> None:
        version = PACKAGE["version"]
        wheel = f"{PACKAGE['repository']}/releases/download/v{version}/asmpatch-{version}-py3-none-linux_x86_64.whl"
        self.assertIn(f"uv tool install {wheel}\n", (ROOT / "docs/packaging.md").read_text())

    def test_the_collection_has_the_packages_version(self) -> None:
        galaxy = yaml.safe_load((ROOT / "ansible/galaxy.yml").read_text())
        self.assertEqual(galaxy["version"], PACKAGE["version"])


class Cross(FolderTest):
    """`.ci/cross` when tools are missing."""

    def test_a_target_without_a_std_is_named_and_stops_no_other(self) -> None:
        (self.folder / "rust").mkdir()
        (self.folder / "rust/done").touch()
        targets = ["aarch64-apple-darwin", "x86_64-unknown-linux-musl"]
        env = os.environ | {"ASMPATCH_CROSS": str(self.folder)}
        done = subprocess.run([ROOT / ".ci/cross", *targets], env=env, capture_output=True, text=True)
        last = done.stdout.splitlines()[-1].split("; ")
        self.assertEqual(done.returncode, 1)
        for target, said in zip(targets, last, strict=True):
            self.assertTrue(said.startswith(f"{target} FAILED (std is missing"), said)

    def test_an_unknown_target_is_refused_before_anything_runs(self) -> None:
        done = subprocess.run([ROOT / ".ci/cross", "m68k-apple-macos"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("aarch64-unknown-linux-gnu", done.stderr)


class Reset(FolderTest):
    """The service at boot, with a fake sysfs and a fake asmpatch."""

    def run_on(self, units: dict[str, tuple[str, str, str]], status: int) -> tuple[int, list[str]]:
        for port, (vendor, product, speed) in units.items():
            unit = self.folder / "devices" / port
            unit.mkdir(parents=True)
            for name, value in (("idVendor", vendor), ("idProduct", product), ("speed", speed)):
                (unit / name).write_text(f"{value}\n")
        # A USB interface has none of the three files.
        (self.folder / "devices/3-1:1.0").mkdir()
        program = self.folder / "asmpatch"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = udev ] && exec {BINARY} udev\necho "$*" >>{self.folder}/calls\nexit {status}\n'
        )
        program.chmod(0o755)
        env = os.environ | {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "ASMPATCH_SYSFS": str(self.folder / "devices"),
        }
        done = subprocess.run([ROOT / "packaging/asmpatch-reset-slow"], env=env, capture_output=True, text=True)
        calls = self.folder / "calls"
        return done.returncode, calls.read_text().splitlines() if calls.exists() else []

    UNITS = {
        "3-1": ("174c", "2464", "480"),
        "3-2": ("add1", "0001", "480"),
        "4-1": ("add1", "0001", "10000"),
        "3-3": ("046d", "c31c", "480"),
    }

    def test_bridges_at_480_mbit_s_are_restarted_and_nothing_else(self) -> None:
        self.assertEqual(self.run_on(self.UNITS, 0), (0, ["reset --device 3-1", "reset --device 3-2"]))

    def test_a_unit_that_asmpatch_leaves_alone_is_no_failure(self) -> None:
        self.assertEqual(self.run_on(self.UNITS, 5)[0], 0)

    def test_a_failed_restart_fails_the_service_and_stops_no_other(self) -> None:
        status, calls = self.run_on(self.UNITS, 4)
        self.assertEqual((status, len(calls)), (1, 2))

    def test_a_machine_without_a_bridge_has_nothing_to_do(self) -> None:
        self.assertEqual(self.run_on({"3-3": ("046d", "c31c", "480")}, 4), (0, []))

    def test_systemd_accepts_the_unit(self) -> None:
        text = (ROOT / "packaging/asmpatch-reset.service").read_text()
        unit = self.folder / "asmpatch-reset.service"
        unit.write_text(text.replace("/usr/libexec/asmpatch", str(ROOT / "packaging")))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Flake(unittest.TestCase):
    """flake.nix, evaluated against tests/packaging/flake.nix."""

    @classmethod
    def setUpClass(cls) -> None:
        command = [
            "nix-instantiate",
            "--eval",
            "--strict",
            "--json",
            "--option",
            "build-users-group",
            "",
            "tests/packaging/flake.nix",
        ]
        cls.found = json.loads(printed(*command, cwd=ROOT))

    def test_the_package_agrees_with_the_manifest(self) -> None:
        found = self.found
        self.assertEqual(
            [found["pname"], found["version"], found["homepage"]],
            [PACKAGE[key] for key in ("name", "version", "repository")],
        )
        self.assertTrue(found["lockFile"])
        for path in re.findall(r"packaging/[\w-]+", found["postInstall"]):
            self.assertTrue(os.access(ROOT / path, os.X_OK), path)
        self.assertIn("aarch64-linux", found["systems"])

    def test_the_module_does_nothing_until_it_is_enabled(self) -> None:
        self.assertEqual(self.found["off"], {})

    def test_the_module_brings_the_udev_rule_and_the_service_only_on_request(self) -> None:
        package = ["/nix/store/asmpatch"]
        self.assertEqual(
            self.found["on"],
            {"services": {"udev": {"packages": package}}, "systemd": {"services": {"asmpatch-reset": {}}}},
        )
        self.assertEqual(self.found["reset"]["wantedBy"], ["multi-user.target"])

    def test_the_modules_service_agrees_with_the_systemd_unit(self) -> None:
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        # A repeated key is a list, of which the parser keeps only the last value.
        unit.read(ROOT / "packaging/asmpatch-reset.service")
        service = {
            key: str(value).replace("True", "yes")
            for key, value in self.found["reset"]["serviceConfig"].items()
            if not isinstance(value, list)
        }
        service["ExecStart"] = service["ExecStart"].replace("/nix/store/asmpatch", "/usr")
        self.assertEqual(service, {key: value for key, value in unit["Service"].items() if key != "DeviceAllow"})
        devices = re.findall(
            "^DeviceAllow=(.*)$", (ROOT / "packaging/asmpatch-reset.service").read_text(), re.MULTILINE
        )
        self.assertEqual(self.found["reset"]["serviceConfig"]["DeviceAllow"], devices)


if __name__ == "__main__":
    unittest.main()
