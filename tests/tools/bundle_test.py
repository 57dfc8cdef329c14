"""Bundles the built programs, moves the bundle and runs them there."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["PENSTOCK_BUILD"])
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PROGRAMS = ["penstock", "penstockd", "penstock-worker"]
OF_THE_MACHINE = re.compile(
    r"linux-vdso|/ld-linux|lib(c|m|dl|rt|pthread|resolv|cuda|cublasLt|cublas|cudnn[a-z_]*)\.so")


class BundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-bundle."))
        self.addCleanup(shutil.rmtree, self.folder)

    def bundle(self, *arguments):
        return self.run_with_nothing_set([SOURCE / "tools/bundle", *arguments],
                                         env={"PATH": os.environ["PATH"]})

    def run_with_nothing_set(self, command, env=None):
        return subprocess.run([str(word) for word in command], env=env or {},
                              capture_output=True, text=True)

    def test_programs_run_where_the_bundle_was_moved_to(self):
        made = self.bundle("--build", BUILD, self.folder / "made here", *PROGRAMS)
        self.assertEqual(made.returncode, 0, made.stderr)
        moved = self.folder / "elsewhere" / "moved"
        moved.parent.mkdir()
        (self.folder / "made here").rename(moved)
        for name in PROGRAMS:
            with self.subTest(program=name):
                program = moved / "bin" / name
                libraries = self.run_with_nothing_set([shutil.which("ldd"), program]).stdout
                own = [line for line in libraries.splitlines() if not OF_THE_MACHINE.search(line)]
                self.assertGreater(len(own), 10)
                for line in own:
                    self.assertRegex(line, rf"=> {re.escape(str(moved))}/bin/\.\./lib/")
        version = self.run_with_nothing_set([moved / "bin/penstock", "--version"])
        self.assertEqual(version.returncode, 0, version.stderr)
        project = (SOURCE / "CMakeLists.txt").read_text()
        self.assertIn(re.search(r"project\(penstock VERSION ([0-9.]+)", project)[1], version.stdout)

    def test_refuses_without_leaving_anything(self):
        taken = self.folder / "taken"
        taken.mkdir()
        out = self.folder / "out"
        foreign = self.folder / "build/bin"
        foreign.mkdir(parents=True)
        shutil.copy(shutil.which("true"), foreign / "penstock")
        for arguments, reason in [
            ((), "no OUT_DIR"),
            (("--fast", out), "unknown option --fast"),
            (("--build", BUILD, taken), "exists already"),
            (("--build", BUILD, out, "no-such-program"), "no-such-program is not a program"),
            (("--build", self.folder / "empty", out), "has none of"),
            (("--build", foreign.parent, out), "not linked with RPATH"),
        ]:
            with self.subTest(arguments=arguments):
                refused = self.bundle(*arguments)
                self.assertEqual(refused.returncode, 1)
                self.assertIn(reason, refused.stderr)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["build", "taken"])
        self.assertEqual(list(taken.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
