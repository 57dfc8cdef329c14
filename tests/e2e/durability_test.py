"""Jobs that are paused, preempted, told to stop in any phase, and killed: each ends as if nothing had
happened to it."""

import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import EXAMPLE, Client, Daemon, Faults, cli, create, example_spec, job_pb2
from penstock.v1 import admin_service_pb2, job_spec_pb2


def tearDownModule():
    harness.remove_stubs()


def eventful_spec(**changes):
    """With evaluation, accumulation and more than one pass over the data."""
    spec = example_spec(**changes)
    spec.evaluation.validation_fraction = 0.1
    spec.evaluation.every_steps = 7
    spec.limits.max_attempts = 50
    return spec


class DurabilityTest(unittest.TestCase):
    """A daemon whose fault points work."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.faults = Faults(self.daemon)
        self.daemon.start(*self.faults.flags)
        self.client = Client(self.daemon.target)
        self.addCleanup(lambda: self.client.close())

    def restart(self):
        self.daemon.start()
        self.client.close()
        self.client = Client(self.daemon.target)

    def run_whole(self, spec, job_id="whole"):
        end = self.client.wait(create(self.client, spec, job_id=job_id).name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        return end.name

    def assert_same_run(self, name, whole):
        end = self.client.wait(name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        # Manifests name the job's spec too, and not all of these export to one place.
        tensors = harness.final_files(self.client, name, "*.safetensors")
        self.assertTrue(tensors)
        self.assertEqual(tensors, harness.final_files(self.client, whole, "*.safetensors"))
        self.assertEqual(harness.losses(self.client, name), harness.losses(self.client, whole))
        return end


class PauseTest(DurabilityTest):
    def test_a_paused_job_holds_nothing_and_goes_on_with_the_same_bits(self):
        spec = eventful_spec(max_steps=60)
        whole = self.run_whole(spec)
        job = create(self.client, spec, job_id="paused").name
        for step in (1, 20, 41):
            self.client.wait_for_step(job, step)
            result = cli(self.daemon, "pause", "paused", "--wait")
            self.assertIn("paused", result.stdout)
            paused = self.client.get(job)
            self.assertEqual(paused.state, job_pb2.JOB_STATE_PAUSED, paused)
            self.assertIn("jobs/paused", cli(self.daemon, "jobs", "--state", "paused").stdout)
            self.assertEqual(self.daemon.workers(), [])
            devices = self.client.admin.ListDevices(admin_service_pb2.ListDevicesRequest()).devices
            self.assertEqual([d.job for d in devices], [""] * len(devices))
            if step == 20:
                self.daemon.kill()
                self.restart()
                self.assertEqual(self.client.get(job).state, job_pb2.JOB_STATE_PAUSED)
            cli(self.daemon, "resume", "paused")
        self.assertEqual(self.assert_same_run(job, whole).attempt, 4)

    def test_a_job_makes_way_for_one_of_higher_priority_and_loses_no_bit(self):
        spec = eventful_spec(max_steps=60)
        whole = self.run_whole(spec)
        spec.queue.priority = job_spec_pb2.PRIORITY_LOW
        low = create(self.client, spec, job_id="lowly").name
        self.client.wait_for_step(low, 5)
        urgent = example_spec(max_steps=3)
        urgent.queue.priority = job_spec_pb2.PRIORITY_HIGH
        end = self.client.wait(create(self.client, urgent, job_id="urgent").name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        waiting = self.client.get(low)
        self.assertEqual(waiting.state, job_pb2.JOB_STATE_QUEUED)
        self.assertEqual(waiting.state_reason, job_pb2.STATE_REASON_PREEMPTED)
        self.assertEqual(waiting.preemptions, 1)
        self.assertIn("jobs/urgent", waiting.state_message)
        # Its pause is half a minute; who takes it into their own hands need not wait.
        cli(self.daemon, "pause", "lowly")
        cli(self.daemon, "resume", "lowly")
        self.assert_same_run(low, whole)


class RollBackTest(DurabilityTest):
    def test_after_a_loss_spike_a_job_goes_on_without_the_data(self):
        data = self.daemon.work / "rows.jsonl"
        rows = [[97 + i % 2 for i in range(16)] for _ in range(1600)]
        for row in (337, 637, 937, 1237):
            rows[row] = [200 + i * row % 53 for i in range(16)]
        data.write_text("".join(f"{row}\n" for row in rows))
        spec = example_spec()
        spec.data.Clear()
        spec.data.format = job_spec_pb2.DATA_FORMAT_TOKEN_IDS_JSONL
        spec.data.paths.append(str(data))
        spec.batch.sequence_length = 16
        spec.batch.tokens_per_step = 64
        spec.batch.micro_batch_tokens = 64
        spec.optimizer.learning_rate = 1e-2
        spec.schedule.Clear()
        spec.schedule.kind = job_spec_pb2.SCHEDULE_KIND_CONSTANT
        spec.schedule.epochs = 1
        spec.checkpoints.every_steps = 20
        spec.loss_spikes.response = job_spec_pb2.SPIKE_RESPONSE_ROLL_BACK
        end = self.client.wait(create(self.client, spec, job_id="spiky").name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertGreater(end.attempt, 1)
        self.assertEqual(end.progress.step, 400)
        history = self.client.jobs.WatchJobs(job_pb2.WatchJobsRequest(
            name=end.name, kinds=[job_pb2.WATCH_KIND_STATE]), timeout=harness.DEADLINE)
        reasons = [event.state_changed.job.state_reason for event in history
                   if event.HasField("state_changed")]
        self.assertIn(job_pb2.STATE_REASON_LOSS_SPIKE, reasons)
        points = self.client.jobs.ListJobMetrics(
            job_pb2.ListJobMetricsRequest(name=end.name)).points
        self.assertEqual([p.step for p in points], list(range(1, 401)))
        self.assertLess(max(p.loss_z_score for p in points), 6)


class TerminateTest(DurabilityTest):
    """SIGTERM to the daemon while the worker is in each phase; the next daemon goes on."""

    def stop_at(self, point, make_job):
        """The name of a job that was stopped there and waits for its second attempt."""
        self.faults.hold_at(point)
        name = make_job()
        self.faults.wait_until_held(point)
        self.daemon.process.terminate()
        deadline = time.monotonic() + harness.DEADLINE
        # The API answers until the job has stopped.
        while "asks to stop" not in cli(self.daemon, "logs", name).stdout:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual(self.client.get(name).state, job_pb2.JOB_STATE_YIELDING)
        self.faults.release(point)
        self.assertEqual(self.daemon.process.wait(timeout=harness.DEADLINE), 75)
        self.assertEqual(self.daemon.workers(), [], "the job has stopped, not been left")
        self.restart()
        return name

    def test_in_every_phase_of_a_training_job(self):
        spec = eventful_spec(max_steps=24)
        spec.checkpoints.every_steps = 10
        whole = self.run_whole(spec)
        for number, point in enumerate(("worker.data", "worker.import", "worker.train",
                                        "worker.evaluate", "worker.checkpoint", "worker.export")):
            with self.subTest(point=point):
                one = job_spec_pb2.JobSpec()
                one.CopyFrom(spec)
                one.output.directory = str(self.daemon.work / f"out{number}")
                name = self.stop_at(
                    point, lambda: create(self.client, one, job_id=f"phase-{number}").name)
                end = self.assert_same_run(name, whole)
                self.assertEqual(end.attempt, 2)
                self.assertTrue((self.daemon.work / f"out{number}/model.safetensors").is_file())
                self.assertEqual(list(self.daemon.work.glob(".*")), [], "nothing half made is left")

    def test_an_export_begins_again(self):
        self.run_whole(example_spec(max_steps=2))
        out = self.daemon.work / "out"
        name = self.stop_at("worker.export",
                            lambda: cli(self.daemon, "export", "whole", out).stdout.strip())
        end = self.client.wait(name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(end.attempt, 2)
        self.assertTrue((out / "model.safetensors").is_file())

    def test_an_export_whose_worker_dies_is_made_again(self):
        self.run_whole(example_spec(max_steps=2))
        for point in ("worker.export", "worker.before_outcome"):
            with self.subTest(point=point):
                out = self.daemon.work / f"out-{point}"
                self.faults.kill_at(point)
                end = self.client.wait(cli(self.daemon, "export", "whole", out).stdout.strip())
                self.assertTrue(self.faults.killed(point))
                self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
                self.assertEqual(end.attempt, 2)
                self.assertTrue((out / "model.safetensors").is_file())

    def test_within_a_step_the_step_is_finished_first(self):
        spec = eventful_spec(max_steps=6)
        spec.batch.tokens_per_step = 16384
        spec.batch.micro_batch_tokens = 64
        whole = self.run_whole(spec)
        name = create(self.client, spec, job_id="midway").name
        self.client.wait_for_step(name, 1)
        self.assertEqual(self.daemon.terminate(), 75)
        self.restart()
        self.assertEqual(self.assert_same_run(name, whole).attempt, 2)


class RunAgainTest(unittest.TestCase):
    """`penstock run` in one state directory until it is done, as a batch scheduler requeues it."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="penstock-run-test-", dir="/tmp")
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)

    def start(self, state, *arguments):
        return subprocess.Popen(
            [harness.BIN / "penstock", "run", EXAMPLE / "job.yaml", "--state-dir", state, "--set",
             "schedule.max_steps=800", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        _, stderr = process.communicate(timeout=harness.DEADLINE)
        return process.returncode, stderr

    def processes_of(self, state):
        """Command lines that name the directory: daemons and workers."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if bytes(state) + b"/" in words:
                found.append(words)
        return found

    def newest(self, state):
        [job] = state.glob("jobs/*/checkpoints")
        newest = max(job.glob("[0-9]*"), key=lambda p: int(p.name))
        return {p.name: p.read_bytes() for p in newest.glob("*.safetensors")}

    def wait_for_steps(self, state, process):
        deadline = time.monotonic() + harness.DEADLINE
        before = sum(p.stat().st_size for p in state.glob("jobs/*/metrics.seg"))
        while sum(p.stat().st_size for p in state.glob("jobs/*/metrics.seg")) < before + 1000:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll(), "ended early")
            time.sleep(0.02)

    def test_sigterm_and_again_until_it_is_done(self):
        whole, state = self.path / "whole", self.path / "state"
        self.assertEqual(self.finish(self.start(whole))[0], 0)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            process = self.start(state)
            self.wait_for_steps(state, process)
            process.send_signal(number)
            code, stderr = self.finish(process)
            if number == signal.SIGTERM:
                self.assertEqual(code, 75, stderr)
                self.assertIn("saves a checkpoint first", stderr)
            else:
                # Its daemon has lost its parent, has the job save, and ends.
                deadline = time.monotonic() + harness.DEADLINE
                while self.processes_of(state):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
        code, stderr = self.finish(self.start(state))
        self.assertEqual(code, 0, stderr)
        self.assertIn("taking up", stderr)
        self.assertEqual(self.newest(state), self.newest(whole))
        self.assertEqual(self.finish(self.start(state))[0], 0, "done is done")

    def test_another_job_file_is_refused_while_one_is_unfinished(self):
        state = self.path / "state"
        process = self.start(state)
        self.wait_for_steps(state, process)
        process.terminate()
        self.assertEqual(self.finish(process)[0], 75)
        code, stderr = self.finish(self.start(state, "--set", "seed=8"))
        self.assertEqual(code, 1, stderr)
        self.assertIn("another job file", stderr)
        process = self.start(state)
        self.wait_for_steps(state, process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process)[0], 10)
        self.assertEqual(self.finish(self.start(state))[0], 0, "a cancelled job is taken up too")


if __name__ == "__main__":
    unittest.main(verbosity=2)
