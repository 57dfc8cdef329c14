"""Changes a copy of the protos, one thing at a time, and sees what tools/check_api_compat.py says."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/check_api_compat.py"


class ApiCompatTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="penstock-api-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.protos = self.directory / "proto"
        shutil.copytree(ROOT / "proto/penstock/v1", self.protos / "penstock/v1")
        self.lock = self.directory / "lock.txt"
        self.check("--update")

    def check(self, *arguments, code=0):
        result = subprocess.run(
            [sys.executable, "-B", TOOL, "--proto-directory", self.protos, "--lock", self.lock, *arguments],
            capture_output=True, text=True)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout

    def change(self, file, pattern, replacement):
        path = self.protos / "penstock/v1" / file
        text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.S)
        self.assertEqual(count, 1, pattern)
        path.write_text(text)

    def broken(self, file, pattern, replacement):
        self.change(file, pattern, replacement)
        said = self.check(code=1)
        self.assertIn(said, self.check("--update", code=1), "no update hides it")
        shutil.copy(ROOT / "proto/penstock/v1" / file, self.protos / "penstock/v1" / file)
        return said

    def test_fields(self):
        field = r"int64 queue_position = 7;"
        self.assertIn("queue_position int64\n    is gone", self.broken("job.proto", field, ""))
        self.assertIn("has another number", self.broken("job.proto", field, "int64 queue_position = 70;"))
        self.assertIn("is now", self.broken("job.proto", field, "int32 queue_position = 7;"))
        self.assertIn("is now", self.broken("job.proto", field, "repeated int64 queue_position = 7;"))
        self.assertIn("is now", self.broken("job.proto", field, "int64 place = 7;"))
        self.assertIn("oneof kind", self.broken(
            "job.proto", r"oneof kind \{\s+// The resolved spec[^\n]*\n\s+JobSpec train = 2;",
            "JobSpec train = 2; oneof kind {"))

    def test_what_is_reserved_stays_so(self):
        self.broken("job.proto", r"  reserved 5;", "")
        self.broken("job.proto", r"reserved 5;", "bool plan_for_machine = 5;")

    def test_enums_and_calls(self):
        self.assertIn("is gone", self.broken("job.proto", r"JOB_STATE_PAUSED = 9;", ""))
        self.assertIn("is now", self.broken("job.proto", r"JOB_STATE_PAUSED = 9;", "JOB_STATE_PAUSED = 90;"))
        self.assertIn("is gone", self.broken("job.proto", r"rpc PauseJob[^;]*;", ""))
        self.assertIn("is now", self.broken("job.proto", r"(rpc PauseJob\(PauseJobRequest\) returns \()",
                                            r"\1stream "))

    def test_additions_pass_and_are_recorded(self):
        self.change("job.proto", r"string owner = 27;", "string owner = 27; string nickname = 1028;")
        self.assertIn("1 additions since", self.check())
        self.assertIn("1 additions", self.check("--update"))
        self.assertNotIn("additions", self.check())
        self.change("job.proto", r"string nickname = 1028;", "")
        self.check(code=1)

    def test_what_goes_by_decision_is_reserved(self):
        self.change("job.proto", r"string owner = 27;", "reserved 27; reserved \"owner\";")
        text, count = re.subn(r"message penstock.v1.Job field 27 .*\n", "message penstock.v1.Job reserved 27\n"
                              "message penstock.v1.Job reserved owner\n", self.lock.read_text())
        self.assertEqual(count, 1)
        self.lock.write_text(text)
        self.check()
        self.change("job.proto", r"reserved 27; reserved \"owner\";", "string owner = 27;")
        self.check(code=1)

    def test_the_lock_that_is_kept_holds_and_has_everything(self):
        result = subprocess.run([sys.executable, "-B", TOOL], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout)
        text = (ROOT / "proto/api_lock.txt").read_text()
        for line in ("exit 75 TryAgain", "command submit", "reason SPEC_INVALID",
                     "message penstock.v1.CreateJobRequest reserved 5",
                     "enum penstock.v1.JobState value 9 JOB_STATE_PAUSED"):
            self.assertIn("\n" + line + "\n", text)


if __name__ == "__main__":
    unittest.main()
