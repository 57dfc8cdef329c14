"""The Python client's wheel against a real daemon, and the programs of examples/python."""

import os
import subprocess
import sys
import threading
import unittest

import harness
from harness import DEADLINE, EXAMPLE, SOURCE, Daemon, cli, load_json

import penstock
from google.protobuf import json_format
from penstock.v1 import admin_service_pb2, job_pb2


def tearDownModule():
    harness.remove_stubs()


class PythonClientTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = penstock.Client.connect(str(self.daemon.socket), timeout=DEADLINE)
        self.addCleanup(self.client.close)

    def spec(self, **schedule):
        spec = penstock.job_spec(EXAMPLE / "job.yaml")
        for key, value in schedule.items():
            setattr(spec.schedule, key, value)
        return spec

    def test_life_of_a_job(self):
        job = self.client.submit(EXAMPLE / "job.yaml", job_id="by-program")
        ended = self.client.wait(job)
        self.assertEqual(ended.progress.step, 60)
        self.assertEqual([j.name for j in self.client.jobs([job_pb2.JOB_STATE_SUCCEEDED])],
                         ["jobs/by-program"])
        rows = self.client.metrics("by-program", frame=False)
        steps = [row for row in rows if row["outcome"] == "applied"]
        self.assertEqual([row["step"] for row in steps], list(range(1, 61)))
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        self.assertTrue(any(row["validation_loss"] for row in rows))
        self.assertIn("step 60/60", "\n".join(self.client.logs(job)))
        saved = self.client.checkpoints(job)
        self.assertEqual([c.step for c in saved], [50, 60])
        self.assertEqual(self.client.server_info().checkpoint_seconds,
                         max(c.write_seconds for c in saved))
        self.assertGreater(saved[0].write_seconds, 0)
        self.assertTrue(self.client.pin(saved[0].name).pinned)
        self.assertFalse(self.client.pin(saved[0].name, False).pinned)
        exported = self.client.wait(self.client.export(job, self.daemon.work / "out"))
        self.assertTrue((self.daemon.work / "out/model.safetensors").is_file(), exported)
        self.client.delete(job)
        with self.assertRaises(penstock.PenstockError) as raised:
            self.client.job(job)
        self.assertEqual(raised.exception.reason, "JOB_NOT_FOUND")
        self.assertIn("backend.cpu", self.client.server_info().capabilities)
        self.assertIn("cpu", [device.id for device in self.client.devices()])

    def test_a_sweep_is_submitted_found_and_cancelled(self):
        over = {"optimizer.learning_rate": [1e-4, 3e-4], "seed": [1, 2]}
        tried = self.client.submit_sweep(self.spec(max_steps=6), over, validate_only=True)
        self.assertEqual((tried.name, len(tried.jobs)), ("", 4))
        made = self.client.submit_sweep(self.spec(max_steps=6), over, sweep_id="rates")
        self.assertEqual(made.name, "sweeps/rates")
        self.assertEqual([job.name for job in made.jobs],
                         [f"jobs/rates-00{number}" for number in (1, 2, 3, 4)])
        for job in made.jobs:
            self.assertEqual(self.client.wait(job.name).progress.step, 6)
        found = list(self.client.jobs(sweep="rates"))
        self.assertEqual(sorted((job.train.optimizer.learning_rate, job.train.seed) for job in found),
                         [(1e-4, 1), (1e-4, 2), (3e-4, 1), (3e-4, 2)])
        # As a dict, and never finished.
        spec = {"job": json_format.MessageToDict(self.spec(max_steps=1000000),
                                                 preserving_proto_field_name=True),
                "axes": [{"field": "seed", "values": ["1", "2", "3"]}]}
        endless = self.client.submit_sweep(spec)
        names = [job.name for job in endless.jobs]
        self.assertEqual(self.client.cancel_sweep(endless.name), names)
        for name in names:
            self.assertEqual(self.client.wait(name, check=False).state, job_pb2.JOB_STATE_CANCELLED)
        with self.assertRaises(penstock.PenstockError) as raised:
            self.client.submit_sweep(self.spec(), {"optimizer.learning_rate": ["fast"]})
        self.assertEqual(raised.exception.reason, "SPEC_INVALID")
        self.assertIn("axes[0].values[0]", str(raised.exception))
        with self.assertRaises(penstock.PenstockError):
            penstock.sweep_spec(self.spec())

    def test_a_job_file_means_what_it_means_to_the_command_line(self):
        shown = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--validate-only", "-o", "json")
        by_cli = json_format.Parse(shown.stdout, job_pb2.Job()).train
        planned = self.client.plan(EXAMPLE / "job.yaml")
        self.assertEqual(planned.spec, by_cli)
        self.assertEqual(self.client.plan(by_cli).spec, by_cli, "what is resolved stays as it is")
        self.assertGreater(planned.plan.host_peak_bytes, 0)

    def test_refusals_name_the_field(self):
        spec = self.spec()
        spec.batch.tokens_per_step = 100
        with self.assertRaises(penstock.PenstockError) as raised:
            self.client.submit(spec)
        self.assertEqual(raised.exception.reason, "SPEC_INVALID")
        self.assertEqual([v.field for v in raised.exception.field_violations],
                         ["batch.tokens_per_step"])

    def test_pause_resume_cancel(self):
        job = self.client.submit(self.spec(max_steps=100_000))
        for message in self.client.follow(job, kinds=[job_pb2.WATCH_KIND_METRIC]):
            if message.metrics.step >= 3:
                break
        self.assertGreaterEqual(self.client.save_checkpoint(job), 3)
        self.client.pause(job)
        for message in self.client.follow(job, kinds=[job_pb2.WATCH_KIND_STATE], timeout=DEADLINE):
            if message.state_changed.job.state == job_pb2.JOB_STATE_PAUSED:
                break
        self.client.resume(job)
        self.client.cancel(job)
        self.assertEqual(self.client.wait(job, check=False).state, job_pb2.JOB_STATE_CANCELLED)
        with self.assertRaises(penstock.JobFailed):
            self.client.wait(job)

    def test_what_admins_do(self):
        made = self.client.create_token("ann", admin_service_pb2.ROLE_VIEWER, comment="a script")
        with penstock.Client.connect(str(self.daemon.socket), token=made.secret) as ann:
            self.assertEqual(ann.server_info().caller.user, "ann")
            with self.assertRaises(penstock.PenstockError) as raised:
                ann.drain()
            self.assertEqual(raised.exception.reason, "ROLE_INSUFFICIENT")
        self.client.drain("new disks")
        waiting = self.client.job(self.client.submit(self.spec(max_steps=100_000)))
        self.assertIn("new disks", waiting.state_message)
        self.client.undrain()
        for message in self.client.follow(waiting, kinds=[job_pb2.WATCH_KIND_METRIC]):
            if message.metrics.step >= 3:
                break
        names = {e["name"] for e in self.client.trace(waiting, timeout=DEADLINE)["traceEvents"]}
        self.assertIn("thread_name", names)
        self.assertEqual([token.name for token in self.client.tokens()], [made.token.name])
        self.assertTrue(self.client.revoke_token(made.token).HasField("revoke_time"))
        methods = [entry.method.rpartition("/")[2] for entry in self.client.audit_entries()]
        self.assertEqual(methods, ["CreateToken", "DrainServer", "CreateJob", "DrainServer",
                                   "RevokeToken"])
        self.assertEqual(len(list(self.client.audit_entries(after=3))), 2)
        self.client.cancel(waiting)

    def test_following_goes_on_over_a_killed_daemon(self):
        job = self.client.submit(self.spec(max_steps=300))
        steps, killed = [], False
        for message in self.client.follow(job):
            if message.HasField("metrics") and not message.metrics.HasField("evaluation"):
                steps.append(message.metrics.step)
            if len(steps) == 5 and not killed:
                killed = True
                self.daemon.kill()
                threading.Timer(0.5, self.daemon.start).start()
        self.assertTrue(killed)
        self.assertEqual(steps, list(range(1, 301)), "each step once")
        self.assertEqual(self.client.wait(job).state, job_pb2.JOB_STATE_SUCCEEDED)


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()

    def run_example(self, name, *arguments):
        result = subprocess.run(
            [sys.executable, "-B", SOURCE / "examples/python" / name, *arguments],
            env=dict(os.environ, PENSTOCK_ENDPOINT=str(self.daemon.socket)), text=True,
            capture_output=True, timeout=4 * DEADLINE)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_follow(self):
        shown = self.run_example("follow.py")
        self.assertIn("step 30: loss", shown)
        self.assertIn("evaluation after step 20", shown)
        self.assertIn("/checkpoints/20 saved", shown)
        self.assertTrue(shown.endswith("ended: JOB_STATE_SUCCEEDED\n"), shown)

    def test_sweep(self):
        out = self.daemon.work / "best"
        shown = self.run_example("sweep.py", out)
        self.assertIn(f"lies in {out}", shown)
        self.assertTrue((out / "model.safetensors").is_file())

    def test_go_on(self):
        shown = self.run_example("go_on.py")
        self.assertIn("went on to step 200", shown)
        self.assertEqual(len(load_json(cli(self.daemon, "jobs", "-o", "json"))["jobs"]), 1)
        self.assertIn("went on to step 200", self.run_example("go_on.py"), "the same job again")


if __name__ == "__main__":
    unittest.main()
