"""What a real daemon says of a real job over HTTP and in its metric files, the latter read by a reader
that shares no code with the writer."""

import json
import os
import re
import signal
import struct
import unittest
import urllib.error
import urllib.request

import harness
from harness import Client, Daemon, create, example_spec, job_pb2

CRC_TABLE = []
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    CRC_TABLE.append(crc)


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """(number, value) of each field of a message: ints, bytes, or raw 4 or 8 bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = {1: 8, 2: None, 5: 4}[kind]
        size = varint() if size is None else size
        yield number, data[at:at + size]
        at += size


def read_events(path):
    """Events as dictionaries; every checksum is checked, and nothing may be left over."""
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        (length, length_crc) = struct.unpack_from("<QI", data, at)
        assert length_crc == masked_crc32c(data[at:at + 8])
        body = data[at + 12:at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked_crc32c(body)
        at += 16 + length
        event = {"step": 0, "scalars": {}, "start": False, "version": None}
        for number, value in fields(body):
            if number == 2:
                event["step"] = value
            elif number == 3:
                event["version"] = value
            elif number == 5:
                for _, item in fields(value):
                    parts = dict(fields(item))
                    event["scalars"][parts[1].decode()] = struct.unpack("<f", parts[2])[0]
            elif number == 7:
                event["start"] = dict(fields(value)) == {1: 1}
        events.append(event)
    return events


def tensorboard_series(folder):
    """{tag: {step: value}} as TensorBoard makes it: files in the order of their names, and a session
    start forgets what is at its step or later."""
    series = {}
    for path in sorted(folder.iterdir()):
        head, *events = read_events(path)
        assert head["version"] == b"brain.Event:2"
        for event in events:
            if event["start"]:
                for values in series.values():
                    for step in [step for step in values if step >= event["step"]]:
                        del values[step]
            for tag, value in event["scalars"].items():
                series.setdefault(tag, {})[event["step"]] = value
    return series


class MetricsTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start("--http-listen", "127.0.0.1:0")
        self.client = Client(self.daemon.target)
        self.addCleanup(self.client.close)
        endpoint = json.loads((self.daemon.state / "endpoint.json").read_text())
        self.url = endpoint["http_address"]

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=harness.DEADLINE) as reply:
            return reply.read().decode()

    def test_a_job_that_was_killed_reads_as_one_run(self):
        spec = example_spec(max_steps=60)
        spec.checkpoints.every_steps = 10
        spec.evaluation.validation_fraction = 0.1
        spec.evaluation.every_steps = 20
        job = create(self.client, spec, job_id="seen-job")
        self.client.wait_for_step(job.name, 25)
        os.kill(self.daemon.worker("seen-job"), signal.SIGKILL)
        self.assertEqual(self.client.wait(job.name).state, job_pb2.JOB_STATE_SUCCEEDED)
        page = self.get("/metrics")
        self.assertEqual(self.daemon.terminate(), 0)

        folder = self.daemon.state / job.name
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if "evaluation" not in line]
        newest = {int(line["step"]): line for line in steps}
        self.assertEqual(sorted(newest), list(range(1, 61)))
        self.assertEqual({line["attempt"] for line in lines}, {1, 2})

        series = tensorboard_series(folder / "tensorboard")
        self.assertEqual(len(list((folder / "tensorboard").iterdir())), 2)
        losses = series["train/loss"]
        self.assertEqual(sorted(losses), list(range(1, 61)))
        for step, loss in losses.items():
            self.assertAlmostEqual(loss, newest[step]["loss"], places=5)
        self.assertEqual(sorted(series["validation/loss"]), [20, 40, 60])
        self.assertIn("lane_busy_seconds/compute", series)

        found = re.search(r'penstock_job_steps_total{name="jobs/seen-job",outcome="applied"} (\d+)',
                          page)
        self.assertEqual(int(found.group(1)), len(steps), "steps that were trained twice count twice")
        value = re.search(r'penstock_job_loss{name="jobs/seen-job"} (\S+)', page).group(1)
        self.assertEqual(float(value), newest[60]["loss"])

    def test_the_api_has_what_the_page_shows(self):
        job = create(self.client, example_spec(max_steps=20), job_id="shown-job")
        self.client.wait(job.name)
        shown = json.loads(self.get("/api/jobs/shown-job"))["job"]
        self.assertEqual(shown["state"], "JOB_STATE_SUCCEEDED")
        self.assertGreater(int(shown["plan"]["hostPeakBytes"]), 0)
        points = json.loads(self.get("/api/jobs/shown-job/metrics"))["points"]
        self.assertEqual(len([p for p in points if "evaluation" not in p]), 20)
        self.assertIn("compute", points[-1].get("laneBusySeconds", points[0]["laneBusySeconds"]))
        data = json.loads(self.get("/api/jobs/shown-job/data?examples=2"))
        self.assertEqual(len(data["examples"]), 2)
        self.assertTrue(json.loads(self.get("/api/jobs/shown-job/log"))["lines"])
        with self.assertRaises(urllib.error.HTTPError) as raised:
            self.get("/api/jobs/nobody-here")
        self.assertEqual(json.loads(raised.exception.read())["details"][0]["reason"], "JOB_NOT_FOUND")

    def test_an_address_that_others_reach_is_refused(self):
        self.daemon.terminate()
        with self.assertRaises(AssertionError) as raised:
            self.daemon.start("--http-listen", "0.0.0.0:0")
        self.assertIn("TLS and authentication", str(raised.exception))
        self.assertEqual(self.daemon.process.wait(), 78)


def tearDownModule():
    harness.remove_stubs()


if __name__ == "__main__":
    unittest.main()
