"""Installs the Debian package into a root with only Debian's essential packages. `.ci/packaging` runs these tests."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

DEB = Path(os.environ["ASMPATCH_DEB"])
# A tar archive of the clean root. Unpacking it and working in it needs root.
CLEAN = Path(os.environ["ASMPATCH_CLEAN_ROOT"])
INSTALLED = "install ok installed"


class RootTest(unittest.TestCase):
    """A clean root for each class, with helpers that work in it."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-root-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        subprocess.run(["tar", "-C", cls.root, "-xf", CLEAN], check=True)
        cls.before = cls.files()

    @classmethod
    def files(cls) -> set[str]:
        """Lists every name in the root except dpkg's own database."""
        names = (str(path.relative_to(cls.root)) for path in cls.root.rglob("*"))
        return {name for name in names if not name.startswith(("var/lib/dpkg/", "var/log/", "tmp/"))}

    @classmethod
    def run_inside(cls, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the root with a clean environment."""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}
        return subprocess.run(["chroot", cls.root, *command], env=env, capture_output=True, text=True)

    @classmethod
    def dpkg(cls, option: str, package: Path | str) -> subprocess.CompletedProcess[str]:
        """Runs dpkg in the root on a copy of the package file."""
        if isinstance(package, Path):
            (cls.root / "tmp/package.deb").write_bytes(package.read_bytes())
            package = "/tmp/package.deb"
        return cls.run_inside("dpkg", option, package)

    def status(self) -> str:
        return self.run_inside("dpkg-query", "-W", "-f", "${Status}", "asmpatch").stdout

    def assert_whole(self) -> None:
        """Checks that dpkg reports the package as installed, every file unchanged, and nothing to repair."""
        self.assertEqual(self.status(), INSTALLED)
        for option in ("--verify", "--audit"):
            done = self.run_inside("dpkg", option)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


class Installed(RootTest):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.done = cls.dpkg("-i", DEB)

    def test_it_installs_without_another_package(self) -> None:
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assert_whole()
        depends = subprocess.run(["dpkg-deb", "-f", DEB, "Depends"], check=True, capture_output=True, text=True).stdout
        self.assertRegex(depends, r"^libc6 \(>= 2\.\d+\)", "the binary's own libraries")

    def test_its_files_are_there_and_belong_to_root(self) -> None:
        for name, mode in {
            "usr/bin/asmpatch": 0o755,
            "usr/libexec/asmpatch/asmpatch-reset-slow": 0o755,
            "usr/lib/systemd/system/asmpatch-reset.service": 0o644,
            "usr/lib/udev/rules.d/70-asmpatch.rules": 0o644,
            "usr/share/bash-completion/completions/asmpatch": 0o644,
            "usr/share/zsh/vendor-completions/_asmpatch": 0o644,
            "usr/share/fish/vendor_completions.d/asmpatch.fish": 0o644,
            "usr/share/doc/asmpatch/THIRD-PARTY-LICENSES.md": 0o644,
            "usr/share/doc/asmpatch/copyright": 0o644,
            "usr/share/doc/asmpatch/docs/recovery.md": 0o644,
            "usr/share/doc/asmpatch/docs/README.md": 0o644,
        }.items():
            found = (self.root / name).stat()
            self.assertEqual((stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid), (mode, 0, 0), name)
            self.assertGreater(found.st_size, 0, name)

    def test_the_demo_runs_there(self) -> None:
        demo = self.run_inside("asmpatch", "demo")
        self.assertEqual(demo.returncode, 0, demo.stderr)
        self.assertIn("read back", demo.stdout)

    def test_the_program_prints_the_pages_for_users_as_the_package_has_them(self) -> None:
        pages = sorted((self.root / "usr/share/doc/asmpatch/docs").rglob("*.md"))
        self.assertGreater(len(pages), 20)
        known = []
        for page in pages:
            printed = self.run_inside("asmpatch", "help", page.name, "--all")
            # The pages for developers are in the package alone.
            if printed.returncode == 0:
                self.assertEqual(printed.stdout, page.read_text(), page.name)
                known.append(page.stem)
        self.assertLess({"README", "doctor", "errors", "formats", "recovery"}, set(known))

    def test_man_shows_each_page_without_a_warning(self) -> None:
        pages = sorted((self.root / "usr/share/man/man1").glob("asmpatch*.1.gz"))
        names = {page.name.removesuffix(".1.gz") for page in pages}
        self.assertLessEqual({"asmpatch", "asmpatch-flash", "asmpatch-reset", "asmpatch-config-set"}, names)
        for page in pages:
            shown = subprocess.run(
                ["man", "--warnings", "-E", "UTF-8", "-l", page],
                env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
                capture_output=True,
                text=True,
            )
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), page.name)
            self.assertIn(page.name.removesuffix(".1.gz"), shown.stdout)

    def test_the_service_is_there_and_disabled(self) -> None:
        asked = ["systemctl", f"--root={self.root}", "is-enabled", "asmpatch-reset.service"]
        self.assertEqual(subprocess.run(asked, capture_output=True, text=True).stdout, "disabled\n")

    def test_the_services_program_runs_on_a_machine_without_usb(self) -> None:
        done = self.run_inside("/usr/libexec/asmpatch/asmpatch-reset-slow")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Lifecycle(RootTest):
    def assert_untouched(self) -> None:
        self.assertEqual(self.files() ^ self.before, set())

    def test_a_half_installed_package_is_repaired_by_installing_it_and_removed_without_a_trace(self) -> None:
        # An incomplete download: dpkg undoes what it has unpacked.
        cut = self.root / "tmp/cut.deb"
        cut.write_bytes(DEB.read_bytes()[:-1_000_000])
        self.assertNotEqual(self.dpkg("-i", cut).returncode, 0)
        self.assert_untouched()

        # A dpkg that dies half-way: the limit on file size is smaller than the binary.
        (self.root / "tmp/package.deb").write_bytes(DEB.read_bytes())
        killed = self.run_inside("sh", "-c", "ulimit -f 2048; dpkg -i /tmp/package.deb")
        self.assertNotEqual(killed.returncode, 0)
        self.assertEqual(self.status(), "install reinstreq half-installed")
        self.assertFalse((self.root / "usr/bin/asmpatch").exists())
        self.assertIn("must be reinstalled", self.run_inside("dpkg", "--audit").stdout)

        # Installing repairs it, and installing it again changes nothing.
        for _ in range(2):
            done = self.dpkg("-i", DEB)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assert_whole()
        self.assertEqual(self.run_inside("asmpatch", "--version").returncode, 0)
        self.assertEqual([name for name in self.files() if name.endswith(".dpkg-new")], [])

        removed = self.dpkg("-r", "asmpatch")
        self.assertEqual((removed.returncode, removed.stderr), (0, ""))
        self.assert_untouched()


if __name__ == "__main__":
    unittest.main()
