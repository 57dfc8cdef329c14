"""The tests that docs/complaints.md names exist, and every complaint and case has one."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(\w+)\.(\w+)`")


def tests_there_are():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cc"):
        names |= set(re.findall(r"TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text()))
    for path in (ROOT / "tests").rglob("*_test.py"):
        suite = None
        for line in path.read_text().splitlines():
            if found := re.match(r"class (\w+)", line):
                suite = found[1]
            elif found := re.match(r"    def (test\w*)", line):
                names.add((suite, found[1]))
    return names


class ComplaintsTest(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "docs/complaints.md").read_text()

    def test_what_is_named_exists(self):
        named = set(NAMED.findall(self.text)) - {("Job", "progress")}
        self.assertGreater(len(named), 60)
        self.assertEqual(named - tests_there_are(), set())

    def test_every_complaint_and_case_has_a_test(self):
        rows = {cells[1].strip(): cells[-2] for line in self.text.splitlines()
                if len(cells := line.split("|")) > 4}
        wanted = [str(n) for n in range(1, 20)] + [f"BC-{n}" for n in (42, 45, 46, 48, 50, 56)]
        for row in wanted:
            self.assertRegex(rows.get(row, ""), NAMED, row)


if __name__ == "__main__":
    unittest.main()
