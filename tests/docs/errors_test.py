"""Checks that docs/errors.md lists exactly the reasons that engine/base/status.h declares."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ErrorsTest(unittest.TestCase):
    def test_table_lists_every_reason_once(self):
        header = (ROOT / "engine/base/status.h").read_text()
        declared = re.findall(r'std::string_view k\w+ =\s+"([A-Z_]+)"', header)
        listed = re.findall(r"^\| ([A-Z_]+) \|", (ROOT / "docs/errors.md").read_text(), re.M)
        self.assertGreater(len(declared), 20)
        self.assertEqual(sorted(declared), sorted(listed))

    def test_reasons_are_short_enough_for_error_info(self):
        header = (ROOT / "engine/base/status.h").read_text()
        for reason in re.findall(r'"([A-Z_]+)"', header):
            self.assertLessEqual(len(reason), 63)


if __name__ == "__main__":
    unittest.main()
