"""Checks that the dashboard and the alerts ask only for metrics that docs/metrics.md lists; that the daemon
exports exactly those is server_http_test's."""
import json
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/penstock.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/penstock.json"
LISTED = dict(re.findall(r"^\| `([a-z_]+)` \| (gauge|counter|histogram) \|",
                         (ROOT / "docs/metrics.md").read_text(), re.M))


def family_of(series):
    """A histogram's series have names of their own."""
    family = re.sub(r"_(bucket|sum|count)$", "", series)
    return family if LISTED.get(family) == "histogram" else series


def metrics_in(text):
    return {family_of(name) for name in re.findall(r"\b(?:penstock|process)_[a-z_]+\b", text)}


class MetricsTest(unittest.TestCase):
    def test_names_follow_the_conventions(self):
        self.assertGreater(len(LISTED), 40)
        for name, kind in LISTED.items():
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
            self.assertNotRegex(name, r"_(ms|milliseconds|mib|gib|percent)(_|$)")

    def test_the_dashboard_asks_for_what_there_is(self):
        dashboard = json.loads(DASHBOARD.read_text())
        expressions = [target["expr"] for panel in dashboard["panels"]
                       for target in panel.get("targets", [])]
        queries = [variable["query"] for variable in dashboard["templating"]["list"]]
        self.assertGreater(len(expressions), 20)
        used = metrics_in(" ".join(expressions + queries))
        self.assertGreater(len(used), 20)
        self.assertEqual(used - set(LISTED), set())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_the_alerts_ask_for_what_there_is(self):
        used = metrics_in(RULES.read_text())
        self.assertGreater(len(used), 8)
        self.assertEqual(used - set(LISTED), set())

    def test_rates_are_of_counters(self):
        text = RULES.read_text() + DASHBOARD.read_text()
        for name in re.findall(r"(?:rate|increase)\(([a-z_]+)", text):
            self.assertIn(LISTED[family_of(name)], ("counter", "histogram"), name)

    @unittest.skipUnless(shutil.which("promtool"), "promtool (Debian: prometheus) is not installed")
    def test_promtool_accepts_the_rules(self):
        subprocess.run(["promtool", "check", "rules", RULES], check=True)


if __name__ == "__main__":
    unittest.main()
