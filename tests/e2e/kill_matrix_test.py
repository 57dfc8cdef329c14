"""Kills at random moments and at every fault point: of the worker, the daemon, or both, while jobs
train, pause, resume and are exported. PENSTOCK_KILLS says how many; the figures are printed."""

import collections
import os
import random
import signal
import sys
import time
import unittest

import grpc

import harness
from durability_test import DurabilityTest, eventful_spec
from harness import cli, create, job_pb2
from penstock.v1 import checkpoint_service_pb2

KILLS = int(os.environ.get("PENSTOCK_KILLS", "30"))
SAVE_EVERY = 3
STEPS = 90
DAEMON_POINTS = ["store.before_commit", "store.after_commit", "start.attempt_stored",
                 "start.assignment_written", "start.worker_spawned", "report.checkpoint",
                 "report.outcome", "end.before_move"]
WORKER_POINTS = ["worker.locked", "worker.data", "worker.import", "worker.train", "worker.evaluate",
                 "worker.checkpoint", "worker.checkpoint_saved", "worker.export",
                 "worker.before_outcome", "worker.after_outcome"]
POINT_LIMIT = 4  # seconds: a point that nobody comes to within these is given up


def tearDownModule():
    harness.remove_stubs()


class KillMatrixTest(DurabilityTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(int(os.environ.get("PENSTOCK_SEED", "11")))
        self.figures = collections.Counter()
        self.acknowledged = []
        self.exports = []

    def spec(self, number):
        spec = eventful_spec(max_steps=STEPS)
        spec.checkpoints.every_steps = SAVE_EVERY
        spec.limits.max_attempts = 100
        spec.output.directory = str(self.daemon.work / f"model-{number}")
        return spec

    def submit(self, number):
        request = job_pb2.CreateJobRequest(spec=self.spec(number), job_id=f"killed-{number}",
                                           request_id=f"submit-{number}")
        while True:
            try:
                name = self.client.jobs.CreateJob(request, timeout=10).job.name
                self.acknowledged.append(name)
                return name
            except grpc.RpcError:
                self.revive()

    def revive(self):
        """The daemon, if it is down; it may die again at once at an armed point."""
        if not self.daemon.alive():
            self.daemon.process.wait()
            self.faults.clear()
            self.restart()

    def ended(self, name):
        try:
            return self.client.get(name).HasField("end_time")
        except grpc.RpcError:
            self.revive()
            return False

    def kill_workers(self):
        for pid in self.daemon.workers():
            try:
                os.kill(pid, signal.SIGKILL)
                self.figures["workers killed"] += 1
            except ProcessLookupError:
                pass

    def kill_daemon(self):
        self.daemon.kill()
        self.figures["daemons killed"] += 1

    def stir(self, name):
        """Something that moves states, so that there is more to tear than training."""
        choice = self.random.randrange(6)
        try:
            # Who waits because of the last kills need not: a pause ends that.
            waits = self.client.get(name).HasField("not_before")
            if choice == 0 or waits:
                self.client.jobs.PauseJob(job_pb2.PauseJobRequest(name=name), timeout=10)
                time.sleep(self.random.uniform(0, 0.3))
            elif choice == 1:
                listed = self.client.checkpoints.ListCheckpoints(
                    checkpoint_service_pb2.ListCheckpointsRequest(parent=name)).checkpoints
                number = len(self.exports)
                spec = job_pb2.ExportSpec(checkpoint=listed[-1].name,
                                          directory=str(self.daemon.work / f"export-{number}"))
                self.exports.append(self.client.checkpoints.ExportCheckpoint(
                    checkpoint_service_pb2.ExportCheckpointRequest(
                        spec=spec, request_id=f"export-{number}"), timeout=10).job.name)
            if self.client.get(name).state == job_pb2.JOB_STATE_PAUSED:
                self.client.jobs.ResumeJob(job_pb2.ResumeJobRequest(name=name), timeout=10)
        except (grpc.RpcError, IndexError):
            pass  # refused in this state, or the daemon is down: both are fine

    def strike(self):
        choice = self.random.choice(["worker", "daemon", "both", "daemon point", "worker point"])
        if choice.endswith("point"):
            point = self.random.choice(DAEMON_POINTS if choice[0] == "d" else WORKER_POINTS)
            self.faults.kill_at(point)
            deadline = time.monotonic() + POINT_LIMIT
            while not self.faults.killed(point) and time.monotonic() < deadline:
                time.sleep(0.02)
            if self.faults.killed(point):
                if choice[0] == "d":  # the file goes a moment before the daemon does
                    self.daemon.process.wait(timeout=harness.DEADLINE)
                self.figures["killed at a point"] += 1
                self.figures[f"at {point}"] += 1
            self.faults.clear()
        else:
            time.sleep(self.random.uniform(0, 1))
            if choice != "worker":
                self.kill_daemon()
            if choice != "daemon":
                self.kill_workers()
        self.revive()

    def kills(self):
        return (self.figures["workers killed"] + self.figures["daemons killed"] +
                self.figures["killed at a point"])

    def check_history(self, name):
        """Each event once and in order, each (attempt, step) once; work lost at most an interval, and
        what was trained while the last checkpoint was being written: a next one waits for it."""
        request = job_pb2.WatchJobsRequest(name=name, follow=True)
        sequence, seen, first, last = [], set(), {}, {}
        for message in self.client.jobs.WatchJobs(request, timeout=harness.DEADLINE):
            kind = message.WhichOneof("event")
            if kind in ("state_changed", "checkpoint_saved", "checkpoint_failed", "plan_missed"):
                sequence.append(getattr(message, kind).sequence)
            if kind == "metrics" and not message.metrics.HasField("evaluation"):
                step = (message.metrics.attempt, message.metrics.step)
                self.assertNotIn(step, seen, f"{name}: a step is reported twice")
                seen.add(step)
                first.setdefault(step[0], step[1])
                last[step[0]] = step[1]
        self.assertEqual(sequence, list(range(1, len(sequence) + 1)))
        attempts = sorted(first)
        lost = [last[a] - (first[b] - 1) for a, b in zip(attempts, attempts[1:])]
        self.figures["steps done twice, at most"] = max(
            [self.figures["steps done twice, at most"], *lost])
        self.assertLessEqual(max(lost, default=0), 2 * SAVE_EVERY)

    def test_nothing_is_lost(self):
        whole = self.run_whole(self.spec("whole"))
        number = 0
        while self.kills() < KILLS:
            name = self.submit(number)
            while self.kills() < KILLS and not self.ended(name):
                self.stir(name)
                self.strike()
            number += 1
        self.revive()
        for name in self.acknowledged:
            while self.client.get(name).state == job_pb2.JOB_STATE_PAUSING:
                time.sleep(0.05)
            if self.client.get(name).state == job_pb2.JOB_STATE_PAUSED:
                cli(self.daemon, "resume", name)
        model = (self.daemon.work / "model-whole" / "model.safetensors").read_bytes()
        files = sorted(p.name for p in (self.daemon.work / "model-whole").iterdir())
        for i, name in enumerate(self.acknowledged):
            self.assert_same_run(name, whole)
            self.assertEqual((self.daemon.work / f"model-{i}" / "model.safetensors").read_bytes(),
                             model)
            self.check_history(name)
        for i, name in enumerate(self.exports):
            end = self.client.wait(name)
            # An export is tried again when its worker dies, three times at most; its directory is
            # whole or not there, and there if it has succeeded.
            out = self.daemon.work / f"export-{i}"
            if end.state == job_pb2.JOB_STATE_SUCCEEDED or out.exists():
                self.assertEqual(sorted(p.name for p in out.iterdir()), files, end)
            self.figures[job_pb2.JobState.Name(end.state) + " exports"] += 1
        self.assertEqual([p.name for p in self.daemon.work.glob(".*")], [])
        self.figures["jobs, all with the bits of an undisturbed run"] = len(self.acknowledged)
        self.figures["kills"] = self.kills()
        print("\n".join(f"{count:6} {what}" for what, count in sorted(self.figures.items())),
              file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
