"""`penstock run` under a real Slurm of one node: preempted, requeued, cancelled, over its time, started
twice. Run it by tools/test_slurm, which makes the namespaces that it needs.

Exits with 77, saying why, where no Slurm can run."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import slurm_cluster
from slurm_cluster import DEADLINE, Cluster

BIN = pathlib.Path(os.environ["PENSTOCK_BIN"])
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SCRIPTS = SOURCE / "deploy" / "slurm"
GPUS = 3  # as many jobs as are preempted together


def processes_of(directory, program=b""):
    """Pids of the processes whose command lines name the program and something in the directory."""
    pids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(program) and any(w.startswith(bytes(directory) + b"/") for w in words[1:]):
            pids.append(int(path.parent.name))
    return pids


class Watch(threading.Thread):
    """Counts the workers of a state directory, again and again, until it is left."""

    def __init__(self, state):
        super().__init__(daemon=True)
        self.state, self.most, self.seen, self.ended = state, 0, set(), threading.Event()

    def run(self):
        while not self.ended.wait(0.02):
            pids = processes_of(self.state, b"penstock-worker")
            self.most = max(self.most, len(pids))
            self.seen.update(pids)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(DEADLINE)


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="penstock-slurm-", dir="/tmp")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.path = pathlib.Path(cls.directory.name)
        os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
        cls.cluster = Cluster(gpus=GPUS)
        cls.addClassCleanup(cls.cluster.stop)
        cls.job = cls.write_job("job", steps=200)
        # What the others are compared with, undisturbed and outside Slurm.
        cls.whole = cls.path / "whole"
        result = subprocess.run(["penstock", "run", cls.job, "--state-dir", cls.whole],
                                capture_output=True, text=True, timeout=DEADLINE)
        assert result.returncode == 0, result

    @classmethod
    def write_job(cls, name, steps):
        folder = cls.path / "jobs"
        if not folder.exists():
            shutil.copytree(SOURCE / "examples" / "tiny_llama", folder)
        text = (SOURCE / "examples" / "tiny_llama" / "job.yaml").read_text()
        path = folder / f"{name}.yaml"
        assert "max_steps: 60\n" in text
        path.write_text(text.replace("max_steps: 60\n", f"max_steps: {steps}\n"))
        return path

    def tearDown(self):
        slurm_cluster.run("scancel", "--user=root")
        self.wait_for(lambda: slurm_cluster.run("squeue", "-h").stdout == "" and
                      not processes_of(self.path),
                      lambda: f"cancelled jobs have not ended; processes {processes_of(self.path)}")

    def submit(self, name, script, *arguments, options=(), gpus=1):
        """The job's id. It writes to `name`.out, and has its state in the directory `name`."""
        os.environ["PENSTOCK_STATE_DIR"] = str(self.path / name)
        os.environ["PENSTOCK_STATE_ROOT"] = str(self.path / name)
        return self.cluster.submit(script, *arguments, options=(
            f"--gres=gpu:{gpus}", "--cpus-per-task=1", "--mem=300", f"--chdir={self.path}",
            f"--output={self.path}/{name}.out", *options))

    def script(self, name, text):
        path = self.path / f"{name}.sbatch"
        path.write_text("#!/bin/bash\n#SBATCH --signal=B:TERM@120 --requeue --open-mode=append\n" + text)
        return path

    def output(self, name):
        return (self.path / f"{name}.out").read_text()

    def wait_for(self, condition, message):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() >= deadline:
                self.fail(f"{message()}\n{self.cluster.log_text()}")
            time.sleep(0.05)

    def wait_for_steps(self, state):
        self.wait_for(lambda: sum(p.stat().st_size for p in state.glob("jobs/*/metrics.seg")) > 2000,
                      lambda: f"no steps in {state}")

    def newest(self, state):
        [checkpoints] = state.glob("jobs/*/checkpoints")
        newest = max(checkpoints.glob("[0-9]*"), key=lambda p: int(p.name))
        return newest.name, {p.name: p.read_bytes() for p in newest.glob("*.safetensors")}

    def completed(self, job):
        self.cluster.undo_refused_launch(job)
        return self.cluster.show(job)["JobState"] == "COMPLETED"

    def assert_done(self, job, state, restarts):
        shown = self.cluster.wait_for_state(job, "COMPLETED")
        self.assertEqual(shown["ExitCode"], "0:0", "0 only when all is done")
        self.assertEqual(int(shown["Restarts"]), restarts)
        self.assertEqual(self.newest(state), self.newest(self.whole), "the bits of the undisturbed run")

    def test_bc42_preempted_jobs_are_requeued_resumed_and_end_with_the_same_bits(self):
        """Elements of an array that ask Slurm for it, and a job that leaves it to RequeueExit."""
        copies = [self.write_job(name, steps=200) for name in ("one", "two")]
        array = self.submit("array", SCRIPTS / "array.sbatch", *copies, options=("--array=1-2",))
        by_code = self.submit("by-code", self.script(
            "by-code", f"exec penstock run {self.job} --state-dir {self.path}/by-code --on-preempt exit"))
        jobs = {f"{array}_1": self.path / "array/one", f"{array}_2": self.path / "array/two",
                by_code: self.path / "by-code"}
        for state in jobs.values():
            self.wait_for_steps(state)
        high = self.submit("high", self.script("high", "exec sleep 1"), gpus=GPUS,
                           options=("--partition=high",))
        self.cluster.wait_for_state(high, "COMPLETED")
        for job in jobs:
            self.assertEqual(self.cluster.show(job)["JobState"], "PENDING", "it waits to go on")
        for state in jobs.values():
            self.assertTrue(list(state.glob("jobs/*/checkpoints/[0-9]*")), "it has saved")
        for job, state in jobs.items():
            self.assert_done(job, state, restarts=1)
        for name in ("array", "by-code"):
            self.assertIn("taking up jobs/run-", self.output(name))
            self.assertIn("--signal=B:TERM@", self.output(name), "the seconds that were measured")
        self.assertIn(f"Slurm job {array}_1 is queued again", self.output("array"))
        self.assertIn(f"Slurm job {array}_2 is queued again", self.output("array"))
        self.assertNotIn("queued again", self.output("by-code"))

        again = self.submit("by-code", self.script(
            "by-code", f"exec penstock run {self.job} --state-dir {self.path}/by-code"))
        self.assert_done(again, self.path / "by-code", restarts=0)

    def test_bc42_over_its_time_a_job_saves_and_is_requeued(self):
        state = self.path / "timed"
        job = self.submit("timed", SCRIPTS / "train.sbatch", self.write_job("timed", steps=100_000),
                          options=("--time=1", "--signal=B:TERM@58"))
        self.wait_for_steps(state)
        self.cluster.wait_for_state(job, "PENDING")
        # A slow machine may use up the first seconds before there is a step; then it is the second time.
        restarts = int(self.cluster.show(job)["Restarts"])
        self.assertGreaterEqual(restarts, 1)
        self.assertEqual(self.output("timed").count(f"Slurm job {job} is queued again"), restarts)
        self.assertTrue(list(state.glob("jobs/*/checkpoints/[0-9]*")))

    def test_bc42_requeued_by_hand_it_saves_and_goes_on(self):
        state = self.path / "by-hand"
        job = self.submit("by-hand", SCRIPTS / "train.sbatch", self.write_job("by-hand", steps=100_000))
        self.wait_for_steps(state)
        slurm_cluster.run("scontrol", "requeue", job)
        self.wait_for(lambda: not processes_of(state), lambda: f"it runs on: {self.output('by-hand')}")
        saved = int(self.newest(state)[0])
        self.assertGreater(saved, 0)
        self.wait_for(lambda: "taking up jobs/run-" in self.output("by-hand"),
                      lambda: f"it does not go on: {self.output('by-hand')}")
        self.assertEqual(self.cluster.show(job)["Restarts"], "1", "once, not by Slurm and by us")

    def test_scancel_saves_and_is_the_end(self):
        state = self.path / "cancelled"
        job = self.submit("cancelled", SCRIPTS / "train.sbatch",
                          self.write_job("cancelled", steps=100_000))
        self.wait_for_steps(state)
        slurm_cluster.run("scancel", job)
        self.wait_for(lambda: not processes_of(state), lambda: f"it runs on: {self.output('cancelled')}")
        self.assertIn("saves a checkpoint first", self.output("cancelled"))
        self.assertNotIn("queued again", self.output("cancelled"))
        self.assertGreater(int(self.newest(state)[0]), 0)
        self.cluster.wait_for_state(job, "CANCELLED")
        for _ in range(20):  # what is requeued is so at once
            shown = self.cluster.show(job)
            self.assertEqual((shown["JobState"], shown["Restarts"]), ("CANCELLED", "0"))
            time.sleep(0.1)

    def test_a_controller_killed_after_the_launch_never_gives_two_writers(self):
        """It has forgotten the launch, and launches again. The job itself it has saved: it would have
        forgotten that, too, if it were killed within the seconds for which it puts saving off. Whether it
        has saved the launch by then is chance, so what it finds is what it had saved before.

        If slurmd tells it in time what runs, Slurm kills that first; if not, slurmd refuses the launch."""
        state = self.path / "twice"
        with Watch(state) as watch:
            job = self.submit("twice", SCRIPTS / "train.sbatch", self.job, options=("--begin=now+15",))
            self.wait_for(lambda: bytes(state) + b".out" in self.cluster.saved_jobs(),
                          lambda: "slurmctld does not save the job")
            before = self.cluster.saved_jobs()
            self.wait_for(lambda: processes_of(state, b"penstock-worker"),
                          lambda: f"the job does not begin: {self.cluster.show(job)}")
            self.cluster.kill_slurmctld()
            slurm_cluster.JOBS.write_bytes(before)
            self.cluster.start_slurmctld()
            self.wait_for(lambda: self.completed(job), lambda: f"{job}: {self.cluster.show(job)}")
        self.assertEqual(watch.most, 1, "one worker at a time")
        self.assertEqual(self.newest(state), self.newest(self.whole))

    def test_two_runs_in_one_state_directory_are_one_writer(self):
        state = self.path / "shared"
        command = (f"exec penstock run {self.write_job('shared', steps=100_000)} "
                   f"--state-dir {state}")
        first = self.submit("first", self.script("first", command))
        self.wait_for_steps(state)
        inside = slurm_cluster.run("srun", "--overlap", f"--jobid={first}", "penstock", "--endpoint",
                                   state / "penstock.sock", "jobs")
        self.assertIn("running", inside.stdout, "who is in the allocation can look in")
        with Watch(state) as watch:
            second = self.submit("second", self.script("second", command))
            self.wait_for(lambda: self.cluster.show(second)["Restarts"] == "1",
                          lambda: f"it does not give way: {self.output('second')}")
            self.assertEqual(self.cluster.show(first)["JobState"], "RUNNING")
        self.assertEqual(watch.most, 1)
        self.assertIn("another `penstock run` is at work there", self.output("second"))

    def test_without_a_gpu_the_cpu_trains_and_a_job_for_a_gpu_says_why_not(self):
        """Slurm names fake GPUs in CUDA_VISIBLE_DEVICES, for which there is no driver."""
        job = self.submit("for-gpu", self.script(
            "for-gpu", f"echo visible: $CUDA_VISIBLE_DEVICES\nexec penstock run {self.job} "
                       f"--state-dir {self.path}/for-gpu --set device.kind=cuda"))
        shown = self.cluster.wait_for_state(job, "FAILED")
        self.assertEqual((shown["ExitCode"], shown["Restarts"]), ("1:0", "0"))
        self.assertRegex(self.output("for-gpu"), r"visible: \d")
        self.assertIn("DEVICE_UNAVAILABLE", self.output("for-gpu"))


if __name__ == "__main__":
    if why := slurm_cluster.missing():
        print(f"NOT RUN: the tests under a real Slurm: {why}")
        sys.exit(77)
    unittest.main(verbosity=2, failfast=True)  # what hung is told at once
