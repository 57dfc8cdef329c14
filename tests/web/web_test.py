"""The web page in a real Chromium, of a real daemon with real jobs. tools/test_web runs it; it leaves
screenshots in PENSTOCK_SHOTS, for people to look at.

Also a check that no job's name, label, log line or data becomes markup.
"""

import base64
import http.client
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SHOTS = pathlib.Path(os.environ["PENSTOCK_SHOTS"])
sys.path.insert(0, str(SOURCE / "tests/e2e"))

import harness  # noqa: E402
from harness import Client, Daemon, create, example_spec  # noqa: E402
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HOSTILE = '"><img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


def tearDownModule():
    harness.remove_stubs()


class WebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        SHOTS.mkdir(parents=True, exist_ok=True)
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.start("--http-listen", "127.0.0.1:0")
        cls.client = Client(cls.daemon.target)
        cls.addClassCleanup(cls.client.close)
        cls.url = json.loads((cls.daemon.state / "endpoint.json").read_text())["http_address"]
        cls.submit_jobs()
        cls.profile = tempfile.mkdtemp(prefix="penstock-chromium-")
        cls.addClassCleanup(shutil.rmtree, cls.profile, ignore_errors=True)
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         f"--user-data-dir={cls.profile}", "--hide-scrollbars",
                         # The page must need nothing from anywhere else.
                         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        cls.addClassCleanup(cls.browser.quit)

    @classmethod
    def submit_jobs(cls):
        """One that has ended, a hostile one that runs, one that failed, one that waits."""
        spec = example_spec(max_steps=120)
        spec.display_name = "a run that ended"
        spec.evaluation.validation_fraction = 0.1
        spec.evaluation.every_steps = 20
        spec.checkpoints.every_steps = 40
        cls.ended = create(cls.client, spec, job_id="ended-job")
        cls.client.wait(cls.ended.name)
        spec = example_spec(max_steps=200000)
        spec.display_name = HOSTILE
        spec.labels["note"] = "<script>document.title"
        spec.evaluation.validation_fraction = 0.1
        spec.evaluation.every_steps = 50
        spec.checkpoints.every_steps = 100
        text = pathlib.Path(cls.daemon.work / "hostile.txt")
        text.write_text(f"{HOSTILE}\n\n" + "\n\n".join(f"{HOSTILE} number {i}" for i in range(200)))
        spec.data.paths[:] = [str(text)]
        cls.running = create(cls.client, spec, job_id="hostile-job")
        cls.client.wait_for_step(cls.running.name, 120)
        spec = example_spec(max_steps=50)
        spec.display_name = "next in line"
        cls.queued = create(cls.client, spec, job_id="waiting-job")

    def setUp(self):
        self.browser.get_log("browser")

    def open(self, address, width="desktop", theme="light"):
        # New headless windows have a least width, an emulated device has none.
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": WIDTHS[width][0], "height": WIDTHS[width][1], "deviceScaleFactor": 1,
            "mobile": width == "phone"})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})
        self.browser.get("about:blank")
        self.browser.get(self.url + address)
        self.until(lambda b: b.execute_script(
            "return document.documentElement.dataset.ready") == "yes")

    def until(self, condition):
        return WebDriverWait(self.browser, 30).until(condition)

    def text(self, selector="main"):
        return self.browser.find_element(By.CSS_SELECTOR, selector).text

    def shoot(self, name):
        height = self.browser.execute_script("return document.documentElement.scrollHeight")
        shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", {
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "scale": 1, "height": min(height, 4000),
                     "width": self.browser.execute_script("return innerWidth")}})
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def assert_harmless(self):
        self.assertNotEqual(self.browser.title, "owned")
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "main img, main script"), [])
        complaints = [entry["message"] for entry in self.browser.get_log("browser")
                      if entry["level"] == "SEVERE" or "Content Security" in entry["message"]]
        self.assertEqual(complaints, [])

    def assert_fits(self):
        self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"),
                             self.browser.execute_script("return innerWidth"))

    def test_queue(self):
        for width in WIDTHS:
            for theme in ("light", "dark"):
                self.open("/", width, theme)
                text = self.text()
                for expected in ("a run that ended", "SUCCEEDED", HOSTILE, "RUNNING", "next in line",
                                 "QUEUED", "1. in the queue", "Host memory reserved"):
                    self.assertIn(expected, text)
                self.assert_fits()
                self.shoot(f"queue-{width}-{theme}")
                self.assert_harmless()

    def test_a_job_that_runs_is_live(self):
        for width, theme in (("desktop", "light"), ("phone", "dark")):
            self.open(f"/#/{self.running.name}", width, theme)
            self.until(lambda _: "for a checkpoint" in self.text() or "compute lane waited" in self.text())
            self.assertIn(HOSTILE, self.text("h1"))
            step = "return document.querySelector('.head ~ div .message')?.textContent"
            before = self.browser.execute_script(step)
            self.until(lambda b: b.execute_script(step) != before)
            self.assert_fits()
            self.assert_harmless()
            self.shoot(f"running-{width}-{theme}")

    def test_a_job_that_ended_has_curves_checkpoints_log_and_plan(self):
        for width, theme in (("desktop", "light"), ("desktop", "dark"), ("phone", "light")):
            self.open(f"/#/{self.ended.name}", width, theme)
            self.until(lambda _: "step 120 of 120" in self.text())
            text = self.text()
            for expected in ("Validation loss", "Lanes of the last step", "compute", "Runs as",
                             "Checkpoints", "120", "Log"):
                self.assertIn(expected, text)
            drawn = self.browser.execute_script(
                "return [...document.querySelectorAll('canvas')].map((c) => {"
                " const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                " return data.some((value) => value !== 0); })")
            self.assertEqual(drawn, [True] * 4)
            self.assert_fits()
            self.assert_harmless()
            self.shoot(f"ended-{width}-{theme}")

    def test_data_samples_are_text_with_what_is_learned_coloured(self):
        self.open(f"/#/{self.running.name}")
        self.until(lambda b: b.find_elements(By.CSS_SELECTOR, "main button"))
        self.browser.find_element(By.CSS_SELECTOR, "main button").click()
        self.until(lambda b: b.find_elements(By.CSS_SELECTOR, ".sample .learned"))
        self.assertIn("onerror", self.text(".sample"))
        self.assert_harmless()
        self.shoot("samples-desktop-light")

    def test_a_daemon_that_has_gone_is_said_and_found_again(self):
        self.open("/")
        self.browser.execute_cdp_cmd("Network.enable", {})
        self.browser.execute_cdp_cmd("Network.emulateNetworkConditions", {
            "offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
        self.until(lambda _: "does not answer" in self.text("#trouble"))
        self.browser.execute_cdp_cmd("Network.emulateNetworkConditions", {
            "offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
        self.until(lambda b: not b.find_element(By.ID, "trouble").is_displayed())

    def test_a_name_that_leads_here_is_refused(self):
        """What a browser sends for a site that has its name resolve to this machine."""
        port = int(self.url.rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/api/jobs", headers={"Host": f"evil.example:{port}"})
        reply = connection.getresponse()
        self.assertEqual(reply.status, 421)
        self.assertNotIn(b"hostile-job", reply.read())
        connection.close()


if __name__ == "__main__":
    unittest.main()
