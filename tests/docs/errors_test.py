"""Checks that docs/errors.md lists exactly the reasons that the headers declare."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = "".join((ROOT / name).read_text()
                  for name in ("engine/base/status.h", "server/reasons.h"))


class ErrorsTest(unittest.TestCase):
    def test_table_lists_every_reason_once(self):
        declared = re.findall(r'std::string_view k\w+ =\s+"([A-Z_]+)"', HEADERS)
        listed = re.findall(r"^\| ([A-Z_]+) \|", (ROOT / "docs/errors.md").read_text(), re.M)
        self.assertGreater(len(declared), 20)
        self.assertEqual(sorted(declared), sorted(listed))

    def test_reasons_are_short_enough_for_error_info(self):
        for reason in re.findall(r'"([A-Z_]+)"', HEADERS):
            self.assertLessEqual(len(reason), 63)


if __name__ == "__main__":
    unittest.main()
