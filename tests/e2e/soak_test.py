"""A daemon that works for a long time: PENSTOCK_SOAK_SECONDS (60). One job trains all the while and
saves often, others come, are watched, listed, paused, refused, exported and deleted. Memory and descriptors of
the daemon and of the long job's worker stay flat; the database grows by what calls leave, and has a bound. Figures
are printed."""

import os
import pathlib
import shutil
import sys
import threading
import time
import unittest

import grpc

import harness
from harness import Client, Daemon, cli, create, example_spec, job_pb2
from penstock.v1 import checkpoint_service_pb2, job_spec_pb2

SECONDS = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "60"))
SAMPLES = 24


def tearDownModule():
    harness.remove_stubs()


class Sample:
    def __init__(self, daemon, worker, calls):
        self.daemon_bytes, self.daemon_files = self.of(daemon.process.pid)
        self.worker_bytes, self.worker_files = self.of(worker)
        self.calls = calls
        self.database_bytes = sum(p.stat().st_size for p in daemon.state.glob("*.db*"))

    @staticmethod
    def of(pid):
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE"), len(os.listdir(f"/proc/{pid}/fd"))

    def text(self):
        return (f"daemon {self.daemon_bytes / 2**20:.1f} MiB {self.daemon_files} files; worker "
                f"{self.worker_bytes / 2**20:.1f} MiB {self.worker_files} files; database "
                f"{self.database_bytes / 2**10:.0f} KiB")


class SoakTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = Client(self.daemon.target)
        self.addCleanup(self.client.close)
        self.end = time.monotonic() + SECONDS
        self.jobs = 0

    def visit(self):
        """A job from its submit to its delete; the long one trains on."""
        self.jobs += 1
        if self.jobs % 3 == 0:
            spec = example_spec()
            spec.data.paths[0] = str(self.daemon.work / "gone.txt")
            with self.assertRaises(grpc.RpcError):
                create(self.client, spec)
        elif self.jobs % 3 == 1:
            job = create(self.client, example_spec(), request_id=f"soak-{self.jobs}")
            cli(self.daemon, "pause", job.name)
            cli(self.daemon, "cancel", job.name)
            self.client.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=job.name))
        else:
            out = self.daemon.work / "out"
            job = cli(self.daemon, "export", "steady", out, "--wait").stdout.strip()
            shutil.rmtree(out)
            self.client.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=job))

    def watch(self):
        """Comes and goes, as people who look at a dashboard do."""
        while time.monotonic() < self.end:
            client = Client(self.daemon.target)
            request = job_pb2.WatchJobsRequest(name="jobs/-", follow=True)
            try:
                for _ in client.jobs.WatchJobs(request, timeout=2):
                    pass
            except grpc.RpcError:
                pass
            client.jobs.ListJobs(job_pb2.ListJobsRequest())
            client.close()

    def test_nothing_grows(self):
        spec = example_spec(max_steps=10_000_000)
        spec.checkpoints.every_seconds = 1
        spec.schedule.kind = job_spec_pb2.SCHEDULE_KIND_CONSTANT
        create(self.client, spec, job_id="steady")
        self.client.wait_for_step("jobs/steady", 5)
        while not self.client.checkpoints.ListCheckpoints(
                checkpoint_service_pb2.ListCheckpointsRequest(parent="jobs/steady")).checkpoints:
            time.sleep(0.1)
        watcher = threading.Thread(target=self.watch)
        watcher.start()
        samples = []
        while time.monotonic() < self.end:
            next_sample = time.monotonic() + SECONDS / SAMPLES
            while time.monotonic() < next_sample:
                self.visit()
                time.sleep(0.2)
            samples.append(Sample(self.daemon, self.daemon.worker("steady"), self.jobs))
            print(samples[-1].text(), file=sys.stderr)
        watcher.join()
        # The first third is warming up: allocators and caches fill.
        warm = samples[len(samples) // 3:]
        half = len(warm) // 2
        for name, slack in (("daemon_bytes", 8 << 20), ("worker_bytes", 16 << 20),
                            ("daemon_files", 8), ("worker_files", 4)):
            early = max(getattr(s, name) for s in warm[:half])
            late = max(getattr(s, name) for s in warm[half:])
            self.assertLessEqual(late, early + slack, name)
        # Replies are kept for a week, 20000 of them at most, and the audit log for good.
        grown = warm[-1].database_bytes - warm[0].database_bytes
        self.assertLessEqual(grown, (1 << 20) + (16 << 10) * (warm[-1].calls - warm[0].calls))
        job = self.client.get("jobs/steady")
        self.assertEqual(job.attempt, 1, "the worker is the one of the beginning")
        print(f"{self.jobs} jobs came and went, step {job.progress.step}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
