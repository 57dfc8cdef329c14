"""penstockd, penstock-worker and penstock as a user meets them: over gRPC from another process with
stubs made here, and by the command line."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

import harness
from harness import (EXAMPLE, Client, Daemon, LossyProxy, cli, create, error_of, example_spec, job_pb2,
                     load_json)
from penstock.v1 import (admin_service_pb2, checkpoint_service_pb2, checkpoint_service_pb2_grpc,
                         job_pb2_grpc, job_spec_pb2, transfer_service_pb2,
                         transfer_service_pb2_grpc)


def tearDownModule():
    harness.remove_stubs()


class DaemonTest(harness.DaemonTest):
    def refused(self, spec):
        with self.assertRaises(grpc.RpcError) as raised:
            create(self.client, spec)
        return error_of(raised.exception)


class TrainingTest(DaemonTest):
    def test_job_trains_reports_checkpoints_and_exports(self):
        spec = example_spec(max_steps=40)
        spec.evaluation.validation_fraction = 0.1
        spec.evaluation.every_steps = 20
        spec.checkpoints.every_steps = 15
        spec.output.directory = str(self.daemon.work / "exported")
        job = create(self.client, spec, job_id="tiny-job", request_id="r1")
        self.assertEqual(job.name, "jobs/tiny-job")
        self.assertGreater(job.plan.host_peak_bytes, 0)
        self.assertEqual(job.train.checkpoints.keep_last, 2, "the resolved spec")

        states, steps, sequence, saved, evaluations, caught_up = [], [], [], [], [], 0
        request = job_pb2.WatchJobsRequest(name=job.name, follow=True)
        end = None
        for message in self.client.jobs.WatchJobs(request, timeout=harness.DEADLINE):
            kind = message.WhichOneof("event")
            if kind == "state_changed":
                states.append(message.state_changed.job.state)
                sequence.append(message.state_changed.sequence)
            elif kind == "checkpoint_saved":
                saved.append(message.checkpoint_saved.checkpoint.step)
                sequence.append(message.checkpoint_saved.sequence)
            elif kind == "metrics" and message.metrics.HasField("evaluation"):
                evaluations.append(message.metrics)
            elif kind == "metrics":
                steps.append(message.metrics)
            elif kind == "caught_up":
                caught_up += 1
            elif kind == "end":
                end = message.end.job
        self.assertIsNotNone(end, "a stream ends with End")
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(states[-1], job_pb2.JOB_STATE_SUCCEEDED)
        self.assertEqual(sequence, sorted(set(sequence)))
        self.assertEqual(caught_up, 1)
        self.assertEqual([m.step for m in steps], list(range(1, 41)), "each step once, in order")
        self.assertLess(steps[-1].loss, steps[0].loss - 1)
        self.assertEqual([m.step for m in evaluations], [20, 40])
        self.assertEqual(saved, [15, 30, 40], "by interval, and the last step")

        listed = self.client.checkpoints.ListCheckpoints(
            checkpoint_service_pb2.ListCheckpointsRequest(parent=job.name)).checkpoints
        self.assertEqual([c.step for c in listed], [30, 40], "keep_last 2")
        self.assertTrue(pathlib.Path(listed[-1].directory).is_dir())
        self.assertIn(spec.output.directory, list(end.artifacts))
        self.assertTrue((self.daemon.work / "exported" / "model.safetensors").is_file())
        self.assertTrue((self.daemon.work / "exported" / "config.json").is_file())

        thinned = self.client.jobs.ListJobMetrics(
            job_pb2.ListJobMetricsRequest(name=job.name, first_step=11, last_step=20)).points
        self.assertEqual([p.step for p in thinned if not p.HasField("evaluation")],
                         list(range(11, 21)))

        export = self.client.checkpoints.ExportCheckpoint(
            checkpoint_service_pb2.ExportCheckpointRequest(spec=job_pb2.ExportSpec(
                checkpoint=listed[-1].name, directory=str(self.daemon.work / "again")))).job
        ended = self.client.wait(export.name)
        self.assertEqual(ended.state, job_pb2.JOB_STATE_SUCCEEDED, ended)
        first = (self.daemon.work / "exported" / "model.safetensors").read_bytes()
        self.assertEqual((self.daemon.work / "again" / "model.safetensors").read_bytes(), first)

    def test_exported_model_continues_where_its_loss_was(self):
        spec = example_spec(max_steps=40)
        spec.output.directory = str(self.daemon.work / "exported")
        first = self.client.wait(create(self.client, spec).name)
        self.assertEqual(first.state, job_pb2.JOB_STATE_SUCCEEDED, first)
        again = example_spec(max_steps=1)
        again.model.directory = spec.output.directory
        again.data.tokenizer.kind = job_spec_pb2.TOKENIZER_KIND_BYTES
        second = self.client.wait(create(self.client, again).name)
        self.assertEqual(second.state, job_pb2.JOB_STATE_SUCCEEDED, second)
        self.assertLess(abs(second.progress.loss - first.progress.loss), 1.0)

    def test_a_job_that_gets_no_better_ends_early_and_says_why(self):
        spec = example_spec(max_steps=1000)
        spec.optimizer.learning_rate = 0
        spec.evaluation.validation_fraction = 0.1
        spec.evaluation.every_steps = 5
        spec.evaluation.early_stopping_patience = 2
        spec.output.directory = str(self.daemon.work / "early")
        end = self.client.wait(create(self.client, spec).name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(end.state_reason, job_pb2.STATE_REASON_EARLY_STOPPING)
        self.assertIn("after step 5", end.state_message)
        self.assertEqual(end.progress.step, 15)
        self.assertTrue((self.daemon.work / "early" / "model.safetensors").exists())
        shown = cli(self.daemon, "show", end.name).stdout
        self.assertIn("stopped early", shown)

    def test_same_seed_gives_the_same_losses(self):
        losses = []
        for _ in range(2):
            job = create(self.client, example_spec(max_steps=8))
            self.client.wait(job.name)
            points = self.client.jobs.ListJobMetrics(
                job_pb2.ListJobMetricsRequest(name=job.name)).points
            losses.append([p.loss for p in points])
        self.assertEqual(len(losses[0]), 8)
        self.assertEqual(losses[0], losses[1])

    def test_state_precision_is_a_choice_that_survives_a_kill(self):
        loss = {}
        for state in ("FLOAT32", "BFLOAT16", "INT8_BLOCKS"):
            with self.subTest(state=state):
                spec = example_spec(max_steps=60)
                # With the example's 3e-3 the loss rises for a while, and what a rounding changes
                # grows.
                spec.optimizer.learning_rate = 1e-3
                spec.checkpoints.every_steps = 10
                spec.precision.optimizer_state = job_spec_pb2.StateType.Value(f"STATE_TYPE_{state}")
                whole = self.client.wait(create(self.client, spec).name)
                self.assertEqual(whole.state, job_pb2.JOB_STATE_SUCCEEDED, whole)
                job_id = state.lower().replace("_", "-")
                killed = create(self.client, spec, job_id=job_id)
                self.client.wait_for_step(killed.name, 12)
                os.kill(self.daemon.worker(job_id), signal.SIGKILL)
                end = self.client.wait(killed.name)
                self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
                self.assertEqual(end.attempt, 2)
                files = harness.final_files(self.client, killed.name)
                self.assertEqual(files, harness.final_files(self.client, whole.name))
                self.assertEqual(json.loads(files["manifest.json"])["optimizer_state"],
                                 state.lower())
                self.assertEqual("v_scales-00001.safetensors" in files, state == "INT8_BLOCKS")
                loss[state] = whole.progress.loss
        self.assertLess(abs(loss["BFLOAT16"] - loss["FLOAT32"]), 0.02)
        self.assertLess(abs(loss["INT8_BLOCKS"] - loss["FLOAT32"]), 0.05)
        # Codes of one type are not those of another: a job that starts from them has to keep it.
        spec.start_checkpoint = "jobs/bfloat16/checkpoints/60"
        spec.schedule.max_steps = 70
        _, info, message = self.refused(spec)
        self.assertEqual(info.reason, "CHECKPOINT_MISMATCH", message)
        for expected in ("BFLOAT16", "INT8_BLOCKS", "precision.optimizer_state"):
            self.assertIn(expected, message)
        spec.precision.optimizer_state = job_spec_pb2.STATE_TYPE_BFLOAT16
        spec.output.directory = str(self.daemon.work / "exported")
        end = self.client.wait(create(self.client, spec).name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertTrue((self.daemon.work / "exported" / "model.safetensors").is_file())

    def test_server_says_what_it_is(self):
        info = self.client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())
        self.assertIn("backend.cpu", info.capabilities)
        devices = self.client.admin.ListDevices(admin_service_pb2.ListDevicesRequest()).devices
        self.assertIn("cpu", [d.id for d in devices])


class CrashTest(DaemonTest):
    def test_killed_daemon_adopts_the_worker_and_loses_no_metric(self):
        job = create(self.client, example_spec(max_steps=400), job_id="survivor")
        self.client.wait_for_step(job.name, 5)
        worker = self.daemon.worker("survivor")
        self.daemon.kill()
        self.restart()
        self.assertEqual(self.daemon.worker("survivor"), worker, "the same process goes on")
        end = self.client.wait(job.name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(end.attempt, 1)
        points = self.client.jobs.ListJobMetrics(
            job_pb2.ListJobMetricsRequest(name=job.name, max_points=10000)).points
        self.assertEqual([p.step for p in points], list(range(1, 401)))

    def test_killed_worker_is_reported_and_the_next_job_runs(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            with self.subTest(signal=number.name):
                job_id = "victim-" + number.name.lower()
                spec = example_spec(max_steps=100000)
                spec.limits.max_attempts = 1
                job = create(self.client, spec, job_id=job_id)
                self.client.wait_for_step(job.name, 2)
                os.kill(self.daemon.worker(job_id), number)
                end = self.client.wait(job.name)
                self.assertEqual(end.state, job_pb2.JOB_STATE_FAILED)
                self.assertEqual(end.failure_class, job_pb2.FAILURE_CLASS_SERVER)
                self.assertIn(number.name, end.error.message)
                self.assertTrue(end.last_log_lines)
        after = self.client.wait(create(self.client, example_spec(max_steps=2)).name)
        self.assertEqual(after.state, job_pb2.JOB_STATE_SUCCEEDED, after)

    def wait_for_checkpoint_after(self, name, attempt):
        """Waits until an attempt after `attempt` has saved, or the job has ended; its number."""
        deadline = time.monotonic() + harness.DEADLINE
        while time.monotonic() < deadline:
            job = self.client.get(name)
            saved = self.client.checkpoints.ListCheckpoints(
                checkpoint_service_pb2.ListCheckpointsRequest(parent=name)).checkpoints
            if job.HasField("end_time") or (
                    job.attempt > attempt and any(c.attempt == job.attempt for c in saved)):
                return job.attempt
            time.sleep(0.05)
        raise AssertionError(f"{name} did not save: {self.client.get(name)}")

    def test_killed_at_random_moments_a_run_ends_as_if_it_had_not_been(self):
        spec = example_spec(max_steps=400)
        spec.checkpoints.every_steps = 3
        spec.limits.max_attempts = 100
        whole = self.client.wait(create(self.client, spec, job_id="whole").name)
        self.assertEqual(whole.state, job_pb2.JOB_STATE_SUCCEEDED, whole)
        job = create(self.client, spec, job_id="killed")
        moments = random.Random(5)
        kills = attempt = 0
        while kills < 12:
            # The pauses between attempts double with every death since the last new checkpoint.
            if kills % 3 != 0:
                attempt = self.wait_for_checkpoint_after(job.name, attempt)
            time.sleep(moments.uniform(0.05, 0.6))
            if self.client.get(job.name).HasField("end_time"):
                break
            if kills % 4 == 3:
                self.daemon.kill()
            for pid in self.daemon.workers():
                try:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
            if not self.daemon.alive():
                self.restart()
        end = self.client.wait(job.name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertGreater(end.attempt, 1)
        print(f"{kills} kills, {end.attempt} attempts", file=sys.stderr)
        self.assertEqual(harness.final_files(self.client, job.name), harness.final_files(self.client, whole.name))
        self.assertEqual(harness.losses(self.client, job.name),
                         harness.losses(self.client, whole.name))

    def test_sigterm_to_a_worker_saves_its_step_and_the_job_goes_on(self):
        spec = example_spec(max_steps=150)
        spec.limits.max_attempts = 1
        whole = self.client.wait(create(self.client, spec, job_id="undisturbed").name)
        job = create(self.client, spec, job_id="told-to-stop")
        self.client.wait_for_step(job.name, 5)
        os.kill(self.daemon.worker("told-to-stop"), signal.SIGTERM)
        end = self.client.wait(job.name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(end.attempt, 2)
        self.assertEqual(end.progress.real_tokens, whole.progress.real_tokens)
        self.assertEqual(harness.final_files(self.client, job.name), harness.final_files(self.client, whole.name))

    def test_cancel_saves_the_last_finished_step(self):
        job = create(self.client, example_spec(max_steps=100000), job_id="stopped")
        self.client.wait_for_step(job.name, 3)
        self.client.jobs.CancelJob(job_pb2.CancelJobRequest(name=job.name))
        end = self.client.wait(job.name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_CANCELLED, end)
        listed = self.client.checkpoints.ListCheckpoints(
            checkpoint_service_pb2.ListCheckpointsRequest(parent=job.name)).checkpoints
        self.assertEqual([c.step for c in listed], [end.progress.step])
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.jobs.CancelJob(job_pb2.CancelJobRequest(name=job.name))
        self.assertEqual(error_of(raised.exception)[1].reason, "JOB_STATE_CONFLICT")
        self.client.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=job.name))
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.get(job.name)
        self.assertEqual(error_of(raised.exception)[1].reason, "JOB_NOT_FOUND")


class LostReplyTest(DaemonTest):
    """Requests that arrived but whose replies did not: one effect each, however often retried."""

    def setUp(self):
        super().setUp()
        self.proxy = LossyProxy(self.daemon.directory / "p.sock", self.daemon.socket)
        self.addCleanup(self.proxy.close)

    def call_twice(self, call):
        """Once with the reply lost, then again; returns the second reply."""
        client = Client(f"unix:{self.proxy.path}")
        client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest(), timeout=30)
        before = self.proxy.lost
        self.proxy.losing = True
        with self.assertRaises(grpc.RpcError):
            call(client)
        self.proxy.losing = False
        self.assertGreater(self.proxy.lost, before, "the proxy took a reply")
        client.close()
        client = Client(f"unix:{self.proxy.path}")
        self.addCleanup(client.close)
        return call(client)

    def jobs(self):
        return self.client.jobs.ListJobs(job_pb2.ListJobsRequest()).jobs

    def audited(self):
        """What has had an effect, in order."""
        entries = self.client.admin.ListAuditEntries(
            admin_service_pb2.ListAuditEntriesRequest(page_size=1000)).entries
        return [entry.method.rpartition("/")[2] for entry in entries]

    def once(self, service, request):
        """The reply to a call whose first reply was lost, and which had its effect once."""
        name = type(request).__name__.removesuffix("Request")
        request.request_id = f"{name}-{len(self.tried)}"
        self.tried.append(name)
        before = self.audited()
        stub = {"jobs": job_pb2_grpc.JobServiceStub,
                "checkpoints": checkpoint_service_pb2_grpc.CheckpointServiceStub,
                "transfers": transfer_service_pb2_grpc.TransferServiceStub}[service]
        reply = self.call_twice(lambda c: getattr(stub(c.channel), name)(request, timeout=30))
        self.assertEqual(self.audited(), before + [name])
        return reply

    def wait_for_state(self, name, state):
        deadline = time.monotonic() + harness.DEADLINE
        while self.client.get(name).state != state:
            self.assertLess(time.monotonic(), deadline, self.client.get(name))
            time.sleep(0.05)

    def checkpoint_of(self, name):
        deadline = time.monotonic() + harness.DEADLINE
        while True:
            saved = self.client.checkpoints.ListCheckpoints(
                checkpoint_service_pb2.ListCheckpointsRequest(parent=name)).checkpoints
            if saved:
                return saved[-1].name
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_each_mutating_call_has_one_effect(self):
        self.tried = []
        job = self.once("jobs", job_pb2.CreateJobRequest(spec=example_spec(max_steps=100_000))).job
        self.assertEqual([j.name for j in self.jobs()], [job.name])
        self.client.wait_for_step(job.name, 3)
        self.once("checkpoints", checkpoint_service_pb2.SaveCheckpointRequest(parent=job.name))
        checkpoint = self.checkpoint_of(job.name)
        self.once("checkpoints",
                  checkpoint_service_pb2.PinCheckpointRequest(name=checkpoint, pinned=True))
        self.once("jobs", job_pb2.PauseJobRequest(name=job.name))
        self.wait_for_state(job.name, job_pb2.JOB_STATE_PAUSED)
        self.once("jobs", job_pb2.ResumeJobRequest(name=job.name))
        self.wait_for_state(job.name, job_pb2.JOB_STATE_RUNNING)
        self.once("jobs", job_pb2.CancelJobRequest(name=job.name))
        ended = self.client.wait(job.name)
        self.assertEqual((ended.state, ended.attempt), (job_pb2.JOB_STATE_CANCELLED, 2))

        exported = self.once("checkpoints", checkpoint_service_pb2.ExportCheckpointRequest(
            spec=job_pb2.ExportSpec(checkpoint=checkpoint,
                                    directory=str(self.daemon.work / "out")))).job
        self.assertEqual(self.client.wait(exported.name).state, job_pb2.JOB_STATE_SUCCEEDED)
        self.assertEqual(len(self.jobs()), 2)
        self.client.checkpoints.PinCheckpoint(
            checkpoint_service_pb2.PinCheckpointRequest(name=checkpoint, pinned=False))
        self.once("checkpoints", checkpoint_service_pb2.DeleteCheckpointRequest(name=checkpoint))
        self.once("jobs", job_pb2.DeleteJobRequest(name=exported.name))
        self.assertEqual([j.name for j in self.jobs()], [job.name])

        upload = self.once("transfers", transfer_service_pb2.CreateUploadRequest(
            files=[transfer_service_pb2.FileEntry(
                path="empty", bytes=0, sha256=hashlib.sha256(b"").hexdigest())])).upload.name
        self.once("transfers", transfer_service_pb2.FinishUploadRequest(name=upload))
        self.once("transfers", transfer_service_pb2.DeleteUploadRequest(name=upload))

        sweep = self.once("jobs", job_pb2.CreateSweepRequest(spec=job_spec_pb2.SweepSpec(
            job=example_spec(max_steps=100_000),
            axes=[job_spec_pb2.SweepAxis(field="seed", values=["1", "2"])])))
        names = [one.name for one in sweep.jobs]
        self.assertEqual([j.name for j in self.jobs()], names[::-1] + [job.name])
        ended = self.once("jobs", job_pb2.CancelSweepRequest(name=sweep.name))
        self.assertEqual(list(ended.jobs), names, "the first reply again")
        for name in names:
            self.assertEqual(self.client.wait(name).state, job_pb2.JOB_STATE_CANCELLED)

        with_id = {method.name for file in (job_pb2, checkpoint_service_pb2, transfer_service_pb2,
                                            admin_service_pb2)
                   for service in file.DESCRIPTOR.services_by_name.values()
                   for method in service.methods
                   if "request_id" in method.input_type.fields_by_name}
        self.assertEqual(set(self.tried), with_id)

    def test_same_id_with_other_content_is_refused_also_after_a_restart(self):
        request = job_pb2.CreateJobRequest(spec=example_spec(max_steps=3), request_id="same")
        name = self.client.jobs.CreateJob(request).job.name
        for _ in range(2):
            self.assertEqual(self.client.jobs.CreateJob(request).job.name, name)
            other = job_pb2.CreateJobRequest(spec=example_spec(max_steps=4), request_id="same")
            with self.assertRaises(grpc.RpcError) as raised:
                self.client.jobs.CreateJob(other)
            code, info, _ = error_of(raised.exception)
            self.assertEqual(code, grpc.StatusCode.ALREADY_EXISTS)
            self.assertEqual(info.reason, "REQUEST_ID_REUSED")
            self.daemon.kill()
            self.restart()
        self.assertEqual([j.name for j in self.jobs()], [name])

    def test_concurrent_calls_with_one_id_make_one_job(self):
        request = job_pb2.CreateJobRequest(spec=example_spec(max_steps=2), request_id="race")
        names = []

        def call():
            client = Client(self.daemon.target)
            names.append(client.jobs.CreateJob(request, timeout=60).job.name)
            client.close()

        threads = [threading.Thread(target=call) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(names), 10)
        self.assertEqual(len(set(names)), 1)

    def test_command_line_retries_without_a_second_job(self):
        self.proxy.losing = True
        timer = threading.Timer(0.5, lambda: setattr(self.proxy, "losing", False))
        timer.start()
        self.addCleanup(timer.cancel)
        result = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--set", "schedule.max_steps=2",
                     "--set", "schedule.warmup_steps=0", check=False, endpoint=self.proxy.path)
        # Unlucky timing may use up the tries; the job is there once or not at all.
        self.assertIn(result.returncode, (0, 3), result)
        self.assertLessEqual(len(self.jobs()), 1)
        if result.returncode == 0:
            self.assertEqual([j.name for j in self.jobs()], [result.stdout.strip()])


class BadInputTest(DaemonTest):
    """Each refusal comes at submit, names key or file, what was found and what was expected, leaves
    nothing behind, and the daemon lives on."""

    def model(self, **files):
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.daemon.work))
        for name, data in files.items():
            path = directory / name.replace("_json", ".json").replace("_safetensors",
                                                                      ".safetensors")
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return directory

    def check(self, spec, reasons, *words):
        spec.output.directory = str(self.daemon.work / "never")
        code, info, message = self.refused(spec)
        self.assertIn(info.reason, reasons, message)
        for word in words:
            self.assertIn(word, message)
        self.assertNotIn("exception", message.lower())
        self.assertFalse(pathlib.Path(spec.output.directory).exists(), "no half-made output")
        self.assertEqual(list(self.daemon.work.glob(".*")), [], "nothing temporary left")
        self.assertTrue(self.daemon.alive())
        return code

    def test_models(self):
        config = (EXAMPLE / "config.json").read_text()
        lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 99\n"
        header = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999]}}'
        crafted = struct.pack("<Q", len(header)) + header + b"\0" * 16
        rows = [
            (str(self.daemon.work / "none"), ("MODEL_INVALID",), ["none"]),
            (self.model(), ("MODEL_INVALID",), ["config.json"]),
            (self.model(config_json="{"), ("MODEL_INVALID",), ["config.json"]),
            (self.model(config_json=lfs), ("MODEL_INVALID",), ["config.json"]),
            (self.model(config_json=config.replace('"llama"', '"mamba"')), ("MODEL_UNSUPPORTED",),
             ["mamba", "llama", "qwen2"]),
            (self.model(config_json=config.replace('"num_attention_heads": 4',
                                                   '"num_attention_heads": -4')),
             ("MODEL_INVALID",), ["num_attention_heads"]),
            (self.model(config_json=config), ("MODEL_INVALID",), ["safetensors"]),
            (self.model(config_json=config, model_safetensors=lfs), ("MODEL_INVALID",),
             ["model.safetensors"]),
            (self.model(config_json=config, model_safetensors=b"\xff" * 7), ("MODEL_INVALID",),
             ["model.safetensors"]),
            (self.model(config_json=config, model_safetensors=struct.pack("<Q", 2**63) + b"{}"),
             ("MODEL_INVALID",), ["model.safetensors"]),
            (self.model(config_json=config, model_safetensors=crafted), ("MODEL_INVALID",),
             ["model.safetensors"]),
        ]
        for directory, reasons, words in rows:
            with self.subTest(directory=directory, words=words):
                spec = example_spec()
                spec.model.directory = str(directory)
                self.check(spec, reasons, *words)
        after = self.client.wait(create(self.client, example_spec(max_steps=2)).name)
        self.assertEqual(after.state, job_pb2.JOB_STATE_SUCCEEDED, after)

    def test_paths(self):
        link = self.daemon.work / "link"
        link.symlink_to("/etc")
        for path in ("/etc/passwd", str(self.daemon.work / "../../etc/passwd"),
                     str(link / "passwd")):
            with self.subTest(path=path):
                spec = example_spec()
                spec.data.paths[0] = path
                self.check(spec, ("PATH_NOT_ALLOWED",), "data.paths[0]")
        missing, present = example_spec(), example_spec()
        missing.data.paths[0] = "/etc/no-such-file"
        present.data.paths[0] = "/etc/passwd"
        self.assertEqual(self.refused(missing)[2].replace("no-such-file", "X"),
                         self.refused(present)[2].replace("passwd", "X"),
                         "a refusal does not tell what exists outside")

    def test_data(self):
        empty = self.daemon.work / "empty.txt"
        empty.write_text("")
        os.mkfifo(self.daemon.work / "fifo")
        for path, words in ((empty, ["empty.txt"]), (self.daemon.work / "fifo", ["fifo"]),
                            (self.daemon.work / "none.txt", ["none.txt"]),
                            (self.daemon.work, [str(self.daemon.work)])):
            with self.subTest(path=path):
                spec = example_spec()
                spec.data.paths[0] = str(path)
                self.check(spec, ("DATA_INVALID",), *words)

    def test_memory(self):
        spec = example_spec()
        spec.limits.host_memory_bytes = 1 << 20
        spec.output.directory = str(self.daemon.work / "never")
        code, info, message = self.refused(spec)
        self.assertEqual(info.reason, "HOST_MEMORY_INSUFFICIENT", message)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertGreater(int(info.metadata["needed_bytes"]), 1 << 20)
        self.assertIn("usable_bytes", info.metadata)
        self.assertIn("limit_source", info.metadata)

    def test_spec(self):
        spec = example_spec()
        spec.batch.tokens_per_step = 500
        self.check(spec, ("SPEC_INVALID",), "batch.tokens_per_step", "500", "64")
        spec = example_spec()
        spec.device.kind = job_spec_pb2.DEVICE_CHOICE_CPU
        spec.precision.compute = job_spec_pb2.COMPUTE_TYPE_BFLOAT16
        self.check(spec, ("FEATURE_UNSUPPORTED",), "precision.compute", "float32")

    def test_device(self):
        spec = example_spec()
        spec.device.kind = job_spec_pb2.DEVICE_CHOICE_CUDA
        spec.device.uuid = "GPU-00000000"
        # With a GPU the UUID is unknown, without one there is none to name.
        self.check(spec, ("SPEC_INVALID", "DEVICE_UNAVAILABLE"), "device.")

    def test_job_files(self):
        job = (EXAMPLE / "job.yaml").read_text()
        paths = ["--set", f"model.random.config_path={EXAMPLE}/config.json",
                 "--set", f"data.paths=[{EXAMPLE}/text.txt]"]
        for good in ("3e-3", "3.0e-3", "'3e-3'", "3E-03", ".003"):
            path = self.daemon.work / "job.yaml"
            path.write_text(job.replace("3e-3", good))
            with self.subTest(learning_rate=good):
                result = cli(self.daemon, "submit", path, "-o", "json", "--validate-only", *paths)
                self.assertEqual(load_json(result)["train"]["optimizer"]["learningRate"], 0.003)
        rows = [("learning_rate: 3e-3", f"learning_rate: {bad}", "optimizer.learning_rate")
                for bad in ("3,0e-3", "nan", ".inf", "1_000", "010", "-1e-5", "1e5")]
        rows += [("max_steps: 60", "max_steps: 1_000", "schedule.max_steps"),
                 ("max_steps: 60", "max_steps: 010", "schedule.max_steps"),
                 ("sequence_length: 64", "sequence_lenght: 64", 'did you mean "sequence_length"'),
                 ("seed: 7", "seed: 7\nseed: 8", "twice")]
        for old, new, says in rows:
            path = self.daemon.work / "bad.yaml"
            path.write_text(job.replace(old, new))
            with self.subTest(text=new):
                result = cli(self.daemon, "submit", path, *paths, check=False)
                self.assertEqual(result.returncode, 78, result)
                self.assertIn(says, result.stderr)
                self.assertEqual(result.stdout, "")
        self.assertEqual(len(self.client.jobs.ListJobs(job_pb2.ListJobsRequest()).jobs), 0)


class PlanTest(DaemonTest):
    """`penstock plan` and `penstock calibrate` against the real planner."""

    PATHS = ["--set", f"model.random.config_path={EXAMPLE}/config.json",
             "--set", f"data.paths=[{EXAMPLE}/text.txt]"]

    def plan(self, *options, **keywords):
        return cli(self.daemon, "plan", EXAMPLE / "job.yaml", *self.PATHS, *options, **keywords)

    def test_program_timeline_and_the_whole_job(self):
        page = self.plan("--explain").stdout
        for expected in ("Whole job", "kWh", "resume: ", "first step: ", "Bound by"):
            self.assertIn(expected, page)
        program = self.plan("--program").stdout
        self.assertTrue(program.startswith("program blocks="), program[:200])
        self.assertIn("forward_block", program)
        trace_file = self.daemon.work / "trace.json"
        self.plan("--trace", trace_file)
        events = json.loads(trace_file.read_text())["traceEvents"]
        names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(names, {"copy_in", "compute", "copy_out", "host"})
        self.assertEqual(sum(e["ph"] == "X" for e in events), program.count("\n%"))

    def test_micro_batches_are_chosen_and_state_types_planned(self):
        chosen = load_json(self.plan("--set", "batch.micro_batch_tokens=0", "-o", "json"))
        self.assertIn("estimate", chosen["plan"])
        spec = example_spec()
        spec.batch.micro_batch_tokens = 0
        job = create(self.client, spec, validate_only=True)
        self.assertGreater(job.train.batch.micro_batch_tokens, 0)
        self.assertEqual(512 % job.train.batch.micro_batch_tokens, 0)
        planned = self.plan("--set", "precision.optimizer_state=bfloat16", "--moments-on-storage")
        self.assertIn("a plan only", planned.stderr)
        planned = self.plan("--set", "precision.optimizer_state=bfloat16")
        self.assertNotIn("a plan only", planned.stderr, "jobs run so")

    def test_machines_and_profiles(self):
        unknown = self.plan("--machine", "h300", check=False)
        self.assertNotEqual(unknown.returncode, 0)
        self.assertIn("h200-1.5tb", unknown.stderr)
        self.assertIn("h200-1.5tb (from datasheets)", self.plan("--machine", "h200-1.5tb").stdout)
        self.assertIn("cpu (estimate)", self.plan().stdout)
        no_profile = self.daemon.work / "no_profile.json"
        no_profile.write_text("{}")
        refused = self.plan("--machine", no_profile, check=False)
        self.assertIn("PROFILE_INVALID", refused.stderr)

        profile = cli(self.daemon, "--timeout", "150", "calibrate", "cpu", "--profile").stdout
        # A CPU is measured with all its threads; the example asks for one.
        every_thread = ("--set", "limits.compute_threads=0")
        self.assertIn("cpu (measured here)", self.plan(*every_thread).stdout)
        # As of another machine: named and not used.
        stored = self.daemon.state / "profiles" / "cpu.json"
        other = json.loads(profile)
        other["identity"] = "another machine"
        stored.write_text(json.dumps(other))
        stale = self.plan(*every_thread)
        self.assertIn("another machine", stale.stderr)
        self.assertIn("cpu (estimate)", stale.stdout)


class CommandLineTest(DaemonTest):
    def test_lists_say_what_they_leave_out(self):
        names = [self.client.wait(create(self.client, example_spec(max_steps=6)).name).name for _ in range(2)]
        listed = cli(self.daemon, "jobs", "--limit", "1")
        self.assertIn("--limit", listed.stderr)
        self.assertEqual(len(listed.stdout.splitlines()), 2)
        self.assertIn("nextPageToken", load_json(cli(self.daemon, "-o", "json", "jobs", "--limit", "1")))
        self.assertEqual(cli(self.daemon, "jobs").stderr, "")
        self.assertIn("2 of 6 points", cli(self.daemon, "metrics", names[0], "--max-points", "2").stderr)
        for arguments, steps in [([], [1, 2, 3, 4, 5, 6]), (["--first", "2", "--last", "4"], [2, 3, 4])]:
            metrics = cli(self.daemon, "-o", "json", "metrics", names[0], *arguments)
            self.assertEqual([int(point["step"]) for point in load_json(metrics)["points"]], steps)
            self.assertEqual(metrics.stderr, "")

    def test_a_daemon_that_does_not_answer_in_time_is_no_bug(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            late = cli(self.daemon, "--timeout", "1", "jobs", check=False)
        finally:
            self.daemon.process.send_signal(signal.SIGCONT)
        # Whether the connection still came about is the kernel's choice.
        self.assertIn(late.returncode, (3, 124), late)
        if late.returncode == 124:
            self.assertIn("CALL_TIMED_OUT", late.stderr)
            self.assertIn("--timeout", late.stderr)

    def test_checkpoints_by_hand(self):
        cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--job-id", "by-hand", "--set",
            "schedule.max_steps=100000", "--set", "evaluation.validation_fraction=0.1", "--set",
            "evaluation.every_steps=5", "--set", "evaluation.max_tokens=64", "--set",
            "checkpoints.every_steps=0")
        client = Client(self.daemon.target)
        self.addCleanup(client.close)
        client.wait_for_step("jobs/by-hand", 2)
        first = cli(self.daemon, "checkpoint", "by-hand").stdout.strip()
        self.assertRegex(first, r"^jobs/by-hand/checkpoints/\d+$")
        self.assertEqual(cli(self.daemon, "pin", first).stdout, f"{first} pinned\n")
        saved = [first]
        for _ in range(3):
            step = int(saved[-1].rpartition("/")[2])
            client.wait_for_step("jobs/by-hand", step + 1)
            saved.append(cli(self.daemon, "checkpoint", "by-hand").stdout.strip())
        self.assertEqual(len(set(saved)), 4, saved)
        listed = load_json(cli(self.daemon, "checkpoints", "by-hand", "-o", "json"))["checkpoints"]
        self.assertEqual([c["name"] for c in listed], [first] + saved[-2:], "the pinned and two")
        self.assertIn("Pinned:", cli(self.daemon, "show", first).stdout)
        refused = cli(self.daemon, "delete", first, check=False)
        self.assertIn("CHECKPOINT_IN_USE", refused.stderr)
        self.assertEqual(cli(self.daemon, "unpin", first).stdout, f"{first} unpinned\n")
        self.assertEqual(cli(self.daemon, "delete", first).stdout, f"{first} deleted\n")
        self.assertEqual(cli(self.daemon, "show", first, check=False).returncode, 4)
        self.assertIn("asked for", cli(self.daemon, "checkpoint", "by-hand", "--no-wait").stdout)
        cli(self.daemon, "cancel", "by-hand", "--wait")
        refused = cli(self.daemon, "checkpoint", "by-hand", check=False)
        self.assertIn("JOB_STATE_CONFLICT", refused.stderr)

    def test_cancelled_job_is_resumed_and_forked(self):
        whole, out = self.daemon.work / "whole", self.daemon.work / "out"
        job = [EXAMPLE / "job.yaml", "--set", "schedule.max_steps=150", "--set",
               "checkpoints.every_steps=10", "--set", "checkpoints.keep_last=20"]
        cli(self.daemon, "submit", *job, "--wait", "--set", f"output.directory={whole}")
        cli(self.daemon, "submit", *job, "--job-id", "stopped", "--set", f"output.directory={out}")
        client = Client(self.daemon.target)
        self.addCleanup(client.close)
        client.wait_for_step("jobs/stopped", 31)
        cli(self.daemon, "cancel", "stopped", "--wait")
        self.assertFalse(out.exists())
        cli(self.daemon, "resume", "stopped", "--checkpoint", "20", "--wait")
        self.assertEqual((out / "model.safetensors").read_bytes(),
                         (whole / "model.safetensors").read_bytes())
        self.assertIn("goes on after step 20", cli(self.daemon, "logs", "stopped").stdout)
        self.assertIn("JOB_STATE_CONFLICT", cli(self.daemon, "resume", "stopped", check=False).stderr)
        fork = cli(self.daemon, "fork", "stopped/checkpoints/30", "--job-id", "forked", "--wait",
                   "--set", "optimizer.learning_rate=1e-4", "--set", "schedule.max_steps=40")
        self.assertEqual(fork.stdout, "jobs/forked\n")
        self.assertIn("optimizer.learning_rate: 0.003 -> 0.0001", fork.stderr)
        points = load_json(cli(self.daemon, "metrics", "forked", "-o", "json"))["points"]
        self.assertEqual(min(int(p["step"]) for p in points), 31)
        self.assertEqual(max(int(p["step"]) for p in points), 40)

    def test_life_of_a_job(self):
        out = self.daemon.work / "out"
        result = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--job-id", "by-hand", "--follow",
                     "--set", "schedule.max_steps=20")
        self.assertEqual(result.stdout, "jobs/by-hand\n")
        self.assertIn("jobs/by-hand succeeded", result.stderr)
        self.assertNotIn("\x1b", result.stderr, "no terminal, no escape sequences")
        self.assertEqual(len(load_json(cli(self.daemon, "jobs", "-o", "json"))["jobs"]), 1)
        self.assertEqual(load_json(cli(self.daemon, "show", "by-hand", "-o", "json"))["state"],
                         "JOB_STATE_SUCCEEDED")
        self.assertIn("learning_rate: 0.003", cli(self.daemon, "show", "by-hand").stdout)
        points = load_json(cli(self.daemon, "metrics", "by-hand", "-o", "json"))["points"]
        self.assertEqual(len([p for p in points if "evaluation" not in p]), 20)
        self.assertIn("step 20/20", cli(self.daemon, "logs", "by-hand").stdout)
        self.assertIn("step 20 ", cli(self.daemon, "watch", "by-hand").stdout)
        self.assertIn("jobs/by-hand/checkpoints/20", cli(self.daemon, "checkpoints", "by-hand").stdout)
        cli(self.daemon, "export", "by-hand", out, "--wait")
        self.assertTrue((out / "model.safetensors").is_file())
        self.assertIn("cpu", cli(self.daemon, "info").stdout)
        self.assertIn("by-hand", cli(self.daemon, "completion", "--jobs").stdout)
        cli(self.daemon, "delete", "by-hand")
        self.assertEqual(cli(self.daemon, "show", "by-hand", check=False).returncode, 4)
        self.assertTrue((out / "model.safetensors").is_file(), "an export outlives its job")

    def test_a_sweep_over_a_grid(self):
        out = self.daemon.work / "swept"
        arguments = ["sweep", "submit", EXAMPLE / "job.yaml", "--sweep-id", "rates", "--set",
                     "schedule.max_steps=6", "--set", f"output.directory={out}",
                     "--over", "optimizer.learning_rate=1e-4,3e-4", "--over", "seed=1,2"]
        tried = cli(self.daemon, *arguments, "--validate-only")
        self.assertEqual(len(tried.stdout.splitlines()), 5)
        self.assertEqual(cli(self.daemon, "jobs", "-o", "json").stdout.strip(), "{}")
        made = cli(self.daemon, *arguments)
        self.assertIn("sweeps/rates: 4 jobs", made.stderr)
        lines = [line.split() for line in made.stdout.splitlines()]
        self.assertEqual(lines[0][:3], ["NAME", "optimizer.learning_rate", "seed"])
        self.assertEqual(lines[3][:3], ["jobs/rates-003", "3e-4", "1"])
        for number in (1, 2, 3, 4):
            ended = self.client.wait(f"jobs/rates-00{number}")
            self.assertEqual(ended.state, job_pb2.JOB_STATE_SUCCEEDED, ended.error)
            self.assertTrue((self.daemon.work / f"swept-00{number}/model.safetensors").is_file())
        listed = load_json(cli(self.daemon, "jobs", "--sweep", "rates", "-o", "json"))["jobs"]
        self.assertEqual(len(listed), 4)
        losses = {job["progress"]["loss"] for job in listed}
        self.assertEqual(len(losses), 4, "each has its own seed and rate")
        shown = cli(self.daemon, "show", "rates-003").stdout
        self.assertRegex(shown, r"(?m)^Swept: +optimizer.learning_rate=3e-4$")
        self.assertEqual(cli(self.daemon, *arguments, check=False).returncode, 1, "it is there")

    def test_a_sweep_file(self):
        sweep = self.daemon.work / "sweep.yaml"
        sweep.write_text("job:\n" + "".join(
            f"  {line}\n" for line in (EXAMPLE / "job.yaml").read_text().splitlines()) +
            "axes:\n- field: seed\n  values: [1, 2]\n- field: data.paths\n"
            f"  values: ['[{EXAMPLE}/text.txt]']\n")
        for name in ("config.json", "text.txt"):
            shutil.copy(EXAMPLE / name, self.daemon.work)
        cli(self.daemon, "sweep", "submit", sweep, "--sweep-id", "filed", "--set",
            "schedule.max_steps=100000")
        self.client.wait_for_step("jobs/filed-001", 1)
        cancelled = cli(self.daemon, "sweep", "cancel", "filed").stdout
        self.assertEqual(cancelled, "jobs/filed-001\njobs/filed-002\n")
        for number in (1, 2):
            self.assertEqual(self.client.wait(f"jobs/filed-00{number}").state,
                             job_pb2.JOB_STATE_CANCELLED)
        wrong = cli(self.daemon, "sweep", "submit", EXAMPLE / "job.yaml", "--over", "seed=1,x",
                    check=False)
        self.assertIn("axes[0].values[1]", wrong.stderr)
        self.assertEqual(wrong.returncode, 78)
        self.assertEqual(cli(self.daemon, "sweep", "cancel", "nothing", check=False).returncode, 4)

    def test_resolved_spec_is_a_job_file(self):
        shown = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--validate-only", "-o", "yaml")
        lines = shown.stdout.splitlines()
        start = lines.index("train:") + 1
        train = []
        for line in lines[start:]:
            if not line.startswith("  "):
                break
            train.append(line[2:])
        path = self.daemon.work / "resolved.yaml"
        path.write_text("\n".join(train) + "\n")
        again = cli(self.daemon, "submit", path, "--validate-only", "-o", "yaml")
        self.assertEqual(again.stdout, shown.stdout)

    def test_exit_codes(self):
        self.assertEqual(cli(self.daemon, "show", "no-such-job", check=False).returncode, 4)
        self.assertEqual(cli(self.daemon, "frobnicate", check=False).returncode, 2)
        self.assertEqual(cli(self.daemon, "submit", "/no/such/file", check=False).returncode, 2)
        self.assertEqual(cli(self.daemon, "--help", check=False).returncode, 0)
        self.assertEqual(
            cli(self.daemon, "jobs", check=False,
                endpoint=str(self.daemon.directory / "nobody")).returncode, 3)
        error = cli(self.daemon, "show", "no-such-job", "-o", "json", check=False).stderr
        self.assertIn('"reason": "JOB_NOT_FOUND"', error)
        self.assertEqual(
            cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--set", "limits.host_memory_bytes=9",
                check=False).returncode, 6)
        name = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "-q", "--set",
                   "schedule.max_steps=100000").stdout.strip()
        self.client.wait_for_step(name, 1)
        cli(self.daemon, "cancel", name, "--wait")
        self.assertEqual(cli(self.daemon, "watch", name, check=False).returncode, 10)

    def test_ctrl_c_leaves_the_job_running(self):
        process = subprocess.Popen(
            [harness.BIN / "penstock", "--endpoint", self.daemon.socket, "submit",
             EXAMPLE / "job.yaml", "--follow", "--set", "schedule.max_steps=100000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        name = process.stdout.readline().strip()
        self.client.wait_for_step(name, 2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=harness.DEADLINE)
        self.assertEqual(process.returncode, 130)
        self.assertIn(f"penstock watch {name}", stderr)
        self.assertEqual(self.client.get(name).state, job_pb2.JOB_STATE_RUNNING)

    def test_following_survives_a_restart_of_the_daemon(self):
        process = subprocess.Popen(
            [harness.BIN / "penstock", "--endpoint", self.daemon.socket, "watch"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        follower = subprocess.Popen(
            [harness.BIN / "penstock", "--endpoint", self.daemon.socket, "submit",
             EXAMPLE / "job.yaml", "--follow", "--set", "schedule.max_steps=300"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        name = follower.stdout.readline().strip()
        self.client.wait_for_step(name, 3)
        self.daemon.kill()
        self.restart()
        _, stderr = follower.communicate(timeout=harness.DEADLINE)
        self.assertEqual(follower.returncode, 0, stderr)
        self.assertIn("succeeded", stderr)
        self.assertIsNone(process.poll(), "watching all jobs goes on too")


class InstructionTest(DaemonTest):
    """Instruction tuning of a model directory that has a tokenizer and a chat template."""

    TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

    def setUp(self):
        super().setUp()
        golden = json.loads((harness.SOURCE / "tests/testdata/tokenizers/qwen.json").read_text())
        config = json.loads((EXAMPLE / "config.json").read_text())
        config["vocab_size"] = 392  # more than the tokenizer's 384 ids: padded, as models are
        spec = example_spec(max_steps=1)
        spec.model.random.config_json = json.dumps(config)
        self.model = self.daemon.work / "model"
        spec.output.directory = str(self.model)
        self.client.wait(create(self.client, spec).name)
        (self.model / "tokenizer.json").write_text(json.dumps(golden["tokenizer"]))
        self.write_config(self.TEMPLATE)

    def write_config(self, template):
        (self.model / "tokenizer_config.json").write_text(json.dumps(
            {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "chat_template": template}))

    def write(self, name, rows):
        path = self.daemon.work / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def spec(self, *paths):
        spec = example_spec(max_steps=30)
        spec.model.directory = str(self.model)
        spec.data.Clear()
        spec.data.paths.extend(str(path) for path in paths)
        spec.batch.sequence_length = 128
        return spec

    def inspect(self, spec, examples=1):
        return self.client.jobs.InspectData(
            job_pb2.InspectDataRequest(spec=spec, examples=examples), timeout=harness.DEADLINE)

    def test_a_file_in_any_format_trains_on_its_answers(self):
        rows = {
            "alpaca": {"instruction": "Say hello.", "input": "", "output": "Hello."},
            "sharegpt": {"conversations": [{"from": "human", "value": "Say hello."},
                                           {"from": "gpt", "value": "Hello."}]},
            "messages": {"messages": [{"role": "user", "content": "Say hello."},
                                      {"role": "assistant", "content": "Hello."}]},
        }
        seen = []
        for name, row in rows.items():
            data = self.inspect(self.spec(self.write(name + ".jsonl", [row] * 8)))
            self.assertEqual(data.documents, 8)
            segments = [(s.learned, s.text) for s in data.examples[0].segments]
            self.assertEqual(segments, [
                (False, "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"),
                (True, "Hello.<|im_end|>\n")], "the end of the turn is learned, though it is PAD")
            self.assertIn(name, " ".join(n.text for notes in data.notes for n in notes.first))
            seen.append([list(s.ids) for s in data.examples[0].segments])
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])

        spec = self.spec(self.daemon.work / "messages.jsonl")
        spec.output.directory = str(self.daemon.work / "tuned")
        ended = self.client.wait(create(self.client, spec).name)
        self.assertEqual(ended.state, job_pb2.JOB_STATE_SUCCEEDED, ended)
        self.assertEqual(ended.train.type, job_spec_pb2.JOB_TYPE_SFT)
        points = self.client.jobs.ListJobMetrics(
            job_pb2.ListJobMetricsRequest(name=ended.name)).points
        self.assertLess(points[-1].loss, points[0].loss / 2)
        self.assertEqual((self.daemon.work / "tuned" / "tokenizer.json").read_bytes(),
                         (self.model / "tokenizer.json").read_bytes(), "it travels along")
        self.assertEqual((self.daemon.work / "tuned" / "tokenizer_config.json").read_bytes(),
                         (self.model / "tokenizer_config.json").read_bytes())

    def test_the_template_of_the_training_is_exported(self):
        spec = self.spec(self.write("rows.jsonl", [{"instruction": "q", "output": "a"}] * 4))
        spec.data.chat.builtin = "chatml"
        spec.schedule.max_steps = 1
        spec.output.directory = str(self.daemon.work / "tuned")
        self.client.wait(create(self.client, spec).name)
        tuned = self.daemon.work / "tuned"
        template = (tuned / "chat_template.jinja").read_text()
        self.assertIn("<|im_start|>", template)
        self.assertNotEqual(template, self.TEMPLATE)
        config = json.loads((tuned / "tokenizer_config.json").read_text())
        self.assertEqual(config["chat_template"], template)
        self.assertEqual(config["eos_token"], "<|im_end|>")

    def test_rows_are_left_out_only_as_the_job_says_and_named(self):
        good = {"instruction": "q", "output": "a"}
        path = self.write("rows.jsonl", [good, {"instruction": "q"}, good,
                                         {"instruction": "q", "output": "long " * 200}])
        with self.assertRaises(grpc.RpcError) as raised:
            self.inspect(self.spec(path))
        _, info, message = error_of(raised.exception)
        self.assertEqual(info.reason, "DATA_INVALID")
        self.assertIn("rows.jsonl:2", message)
        spec = self.spec(path)
        spec.data.on_bad_row = job_spec_pb2.BAD_ROW_POLICY_SKIP
        data = self.inspect(spec)
        self.assertEqual(data.documents, 2)
        found = {notes.kind: [n.location for n in notes.first] for notes in data.notes}
        self.assertEqual(found[job_pb2.DATA_NOTE_KIND_BAD_ROW], [f"{path}:2:1"])
        self.assertEqual(found[job_pb2.DATA_NOTE_KIND_TOO_LONG], [f"{path}:4:1"])

    def test_what_cannot_be_tuned_is_refused_at_submit(self):
        path = self.write("rows.jsonl", [{"instruction": "q", "output": "a"}])
        spec = self.spec(path)
        spec.data.format = job_spec_pb2.DATA_FORMAT_ALPACA
        self.write_config("{% for m in messages %}{{ m.content }}{% endfor")
        _, info, message = self.refused(spec)
        self.assertEqual(info.reason, "DATA_INVALID")
        self.assertIn("line 1", message)
        self.write_config(None)
        _, info, message = self.refused(spec)
        self.assertIn("chatml", message, "the built-in ones are named")
        spec.data.chat.builtin = "chatml"
        self.inspect(spec)
        golden = json.loads((self.model / "tokenizer.json").read_text())
        golden["added_tokens"] += [dict(golden["added_tokens"][0], id=i, content=f"<|other {i}|>")
                                   for i in range(384, 393)]
        (self.model / "tokenizer.json").write_text(json.dumps(golden))
        _, info, message = self.refused(spec)
        self.assertEqual(info.reason, "MODEL_INVALID")
        self.assertIn("392 rows", message)

    def test_the_daemon_does_not_notice_a_template_without_end(self):
        path = self.write("rows.jsonl", [{"instruction": "q", "output": "a"}])
        pid = self.daemon.process.pid
        for template, words in (
                ("{% for i in range(1000000000) %}{% endfor %}", "line 1"),
                ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "line 1")):
            spec = self.spec(path)
            spec.data.chat.template_text = template
            call = self.client.jobs.InspectData.future(
                job_pb2.InspectDataRequest(spec=spec), timeout=harness.DEADLINE)
            self.client.jobs.ListJobs(job_pb2.ListJobsRequest(), timeout=harness.DEADLINE)
            with self.assertRaises(grpc.RpcError) as raised:
                call.result()
            _, info, message = error_of(raised.exception)
            self.assertEqual(info.reason, "DATA_INVALID")
            self.assertIn(words, message)
        self.assertEqual(self.daemon.process.pid, pid)
        self.assertIsNone(self.daemon.process.poll())

    def test_a_number_of_documents_is_held_out(self):
        rows = [{"instruction": f"say {i}", "output": "Hello."} for i in range(12)]
        spec = self.spec(self.write("rows.jsonl", rows))
        spec.evaluation.validation_documents = 3
        self.assertEqual(self.inspect(spec).documents, 9)
        spec.evaluation.validation_documents = 12
        with self.assertRaises(grpc.RpcError) as raised:
            self.inspect(spec)
        self.assertIn("validation_documents is 12", error_of(raised.exception)[2])

    def test_the_command_line_shows_what_is_learned(self):
        folder = self.daemon.work / "instructions"
        shutil.copytree(harness.SOURCE / "examples" / "instructions", folder)
        job = folder / "job.yaml"
        page = cli(self.daemon, "data", "inspect", job, "--examples", "2", "--ids").stdout
        self.assertIn("{+A pipe that carries water from a reservoir to a turbine.<|im_end|>", page)
        self.assertIn("conversations.jsonl", page)
        self.assertNotIn("\x1b", page, "no terminal, no colors")
        built = cli(self.daemon, "-o", "json", "data", "build", job)
        self.assertIn("starting: data", built.stderr, "it says how far it is")
        data = load_json(built)
        self.assertNotIn("examples", data)
        self.assertEqual(int(data["documents"]), 40)


class RunTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="penstock-run-test-", dir="/tmp")
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)
        self.environment = dict(os.environ, TMPDIR=self.directory.name)

    def command(self, *arguments):
        return [harness.BIN / "penstock", "run", EXAMPLE / "job.yaml", *arguments]

    def test_runs_one_job_and_cleans_up(self):
        result = subprocess.run(
            self.command("--set", "schedule.max_steps=10", "--set",
                         f"output.directory={self.path}/out"),
            env=self.environment, capture_output=True, text=True, timeout=harness.DEADLINE)
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(f"made {self.path}/out", result.stderr)
        self.assertTrue((self.path / "out" / "model.safetensors").is_file())
        self.assertEqual([p.name for p in self.path.iterdir()], ["out"], "no state left")

    def test_refused_job_exits_78_and_leaves_nothing(self):
        result = subprocess.run(self.command("--set", "optimizer.learning_rate=-1"),
                                env=self.environment, capture_output=True, text=True,
                                timeout=harness.DEADLINE)
        self.assertEqual(result.returncode, 78, result)
        self.assertEqual(list(self.path.iterdir()), [])

    def interrupted(self, number):
        state = self.path / "state"
        process = subprocess.Popen(
            self.command("--state-dir", state, "--set", "schedule.max_steps=100000"),
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + harness.DEADLINE
        while not list(state.glob("jobs/*/metrics.seg")):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=harness.DEADLINE)
        self.assertIn("saves a checkpoint first", stderr)
        self.assertTrue(list(state.glob("jobs/*/checkpoints/*")), stderr)
        return process.returncode

    def test_sigterm_saves_and_asks_to_be_requeued(self):
        self.assertEqual(self.interrupted(signal.SIGTERM), 75)

    def test_ctrl_c_saves_and_is_a_cancel(self):
        self.assertEqual(self.interrupted(signal.SIGINT), 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
