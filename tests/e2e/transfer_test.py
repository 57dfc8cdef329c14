"""Files sent and fetched, and streams followed, over connections that break anywhere: every byte and
every event arrives once."""

import hashlib
import json
import pathlib
import random
import subprocess
import time
import unittest

import grpc

import harness
from harness import (EXAMPLE, Client, CuttingProxy, Daemon, Faults, cli, create, example_spec, job_pb2,
                     load_json)
from penstock.v1 import transfer_service_pb2, transfer_service_pb2_grpc


def tearDownModule():
    harness.remove_stubs()


def files_of(directory):
    root = pathlib.Path(directory)
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in root.rglob("*") if p.is_file()}


class DaemonTest(harness.DaemonTest):
    def make_tree(self, name, sizes, seed=1):
        """Random files; what they hold compresses to nothing less."""
        root = self.daemon.directory / name
        source = random.Random(seed)
        for path, size in sizes.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(source.randbytes(size))
        return root

    def proxy(self, least, most, seed=3):
        proxy = CuttingProxy(self.daemon.directory / "cut.sock", self.daemon.socket, seed, least, most)
        self.addCleanup(proxy.close)
        return proxy


class TransferTest(DaemonTest):
    def test_a_checkpoint_of_another_daemon_starts_a_job_here(self):
        spec = example_spec(max_steps=40)
        spec.checkpoints.every_steps = 20
        spec.checkpoints.keep_last = 5
        end = self.client.wait(create(self.client, spec, job_id="whole").name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        fetched = self.daemon.directory / "fetched"
        printed = cli(self.daemon, "download", "whole/checkpoints/20", fetched)
        self.assertEqual(printed.stdout, f"{fetched}\n")
        self.assertEqual(files_of(fetched),
                         files_of(self.daemon.state / "jobs" / "whole" / "checkpoints" / "20"))
        again = cli(self.daemon, "download", "whole/checkpoints/20", fetched, check=False)
        self.assertEqual(again.returncode, 78, "it is there already")
        self.assertIn("OUTPUT_EXISTS", again.stderr)
        newest = cli(self.daemon, "download", "whole", cwd=self.daemon.work).stdout.strip()
        self.assertEqual(newest, str(self.daemon.work.resolve() / "whole-checkpoints-40"))

        other = Daemon()
        self.addCleanup(other.close)
        other.start()
        client = Client(other.target)
        self.addCleanup(client.close)
        sent = cli(other, "upload", fetched, "--id", "half-way")
        self.assertEqual(sent.stdout, f"{other.state.resolve()}/uploads/half-way\n")
        spec = example_spec(max_steps=40, start_checkpoint="uploads/half-way")
        end = client.wait(create(client, spec).name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        self.assertEqual(harness.final_files(client, end.name, "*.safetensors"),
                         harness.final_files(self.client, "jobs/whole", "*.safetensors"))
        self.assertIn("uploads/half-way", cli(other, "uploads").stdout)
        self.assertEqual(cli(other, "delete", "uploads/half-way").stdout,
                         "uploads/half-way deleted\n")
        self.assertFalse((other.state / "uploads" / "half-way").exists())
        self.assertEqual(cli(other, "delete", "uploads/half-way", check=False).returncode, 4)

    def test_a_job_trains_on_a_model_and_data_that_were_sent(self):
        root = self.daemon.directory / "sent"
        root.mkdir()
        for name in ("config.json", "text.txt"):
            (root / name).write_bytes((EXAMPLE / name).read_bytes())
        directory = cli(self.daemon, "upload", root).stdout.strip()
        self.assertEqual(cli(self.daemon, "upload", root).stdout.strip(), directory,
                         "the same files again are the same upload")
        spec = example_spec(max_steps=3)
        spec.model.random.config_path = f"{directory}/config.json"
        spec.data.paths[:] = [f"{directory}/text.txt"]
        spec.output.directory = str(self.daemon.work / "model")
        end = self.client.wait(create(self.client, spec, job_id="sent").name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        fetched = self.daemon.directory / "exported"
        listed = load_json(cli(self.daemon, "download", "sent/exports/1", fetched, "-o", "json"))
        self.assertEqual(files_of(fetched), files_of(self.daemon.work / "model"))
        self.assertEqual({f["path"]: f["sha256"] for f in listed["files"]}, files_of(fetched))
        # What is not complete is no root, nor is anything beside the uploads.
        for path in (f"{self.daemon.state}/jobs.db", f"{self.daemon.state}/uploads/../jobs.db",
                     f"{self.daemon.state}/incoming/x/text.txt"):
            spec.data.paths[:] = [path]
            with self.assertRaises(grpc.RpcError) as raised:
                create(self.client, spec)
            self.assertEqual(harness.error_of(raised.exception)[1].reason, "PATH_NOT_ALLOWED", path)

    def test_kill_9_in_the_middle_of_an_upload_loses_nothing(self):
        root = self.make_tree("big", {"a.bin": 30_000_000, "sub/b.bin": 5_000_000, "empty": 0})
        for round_ in range(4):
            sender = subprocess.Popen(
                [harness.BIN / "penstock", "--endpoint", self.daemon.socket, "upload", root, "--id",
                 f"round-{round_}"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            partial = self.daemon.state / "incoming" / f"round-{round_}" / "a.bin"
            deadline = time.monotonic() + harness.DEADLINE
            want = 1 + round_ * 7_000_000
            while not (partial.exists() and partial.stat().st_size >= want):
                if sender.poll() is not None:
                    break  # it was faster than we look
                self.assertLess(time.monotonic(), deadline)
            self.daemon.kill()
            had = partial.stat().st_size if partial.exists() else None
            if round_ % 2 == 1:
                sender.kill()
                sender.communicate()
            self.restart()
            stub = transfer_service_pb2_grpc.TransferServiceStub(self.client.channel)
            upload = stub.GetUpload(
                transfer_service_pb2.GetUploadRequest(name=f"uploads/round-{round_}")).upload
            if had is not None and not upload.complete:
                self.assertGreaterEqual(upload.received_bytes[0], had)
            if round_ % 2 == 1:
                out = cli(self.daemon, "upload", root, "--id", f"round-{round_}").stdout
            else:
                out, err = sender.communicate(timeout=harness.DEADLINE)
                self.assertEqual(sender.returncode, 0, err)
            self.assertEqual(files_of(out.strip()), files_of(root))

    def test_what_cannot_be_sent_or_fetched_is_said(self):
        root = self.make_tree("tree", {"f": 10})
        (root / "up").symlink_to("/etc")
        refused = cli(self.daemon, "upload", root, check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("link to a directory", refused.stderr)
        self.assertEqual(cli(self.daemon, "upload", "/nowhere", check=False).returncode, 1)
        self.assertEqual(cli(self.daemon, "upload", root / "f", "--id", "../x", check=False).returncode,
                         2)
        self.assertEqual(cli(self.daemon, "download", "uploads/none", check=False).returncode, 4)
        self.assertEqual(cli(self.daemon, "download", "nobody/checkpoints/1", check=False).returncode, 4)
        (root / "up").unlink()
        cli(self.daemon, "upload", root, "--id", "mine")
        (root / "f").write_bytes(b"another")
        refused = cli(self.daemon, "upload", root, "--id", "mine", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("other files", refused.stderr)


class KillTest(unittest.TestCase):
    def test_killed_while_an_upload_is_put_into_its_place(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        faults = Faults(daemon)
        daemon.start()
        root = daemon.directory / "tree"
        (root / "sub").mkdir(parents=True)
        (root / "sub" / "f").write_bytes(b"0123456789" * 100_000)
        for point in ("upload.written", "upload.verified", "upload.published"):
            faults.kill_at(point)
            upload_id = point.replace(".", "-")
            sender = subprocess.Popen(
                [harness.BIN / "penstock", "--endpoint", daemon.socket, "upload", root, "--id",
                 upload_id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            daemon.process.wait(timeout=harness.DEADLINE)
            self.assertTrue(faults.killed(point), daemon.log_text())
            daemon.start()
            out, err = sender.communicate(timeout=harness.DEADLINE)
            self.assertEqual(sender.returncode, 0, err)
            self.assertEqual(files_of(out.strip()), files_of(root))
            self.assertFalse((daemon.state / "incoming" / upload_id).exists())


class ChaosTest(DaemonTest):
    """A connection that is cut after a random number of bytes, again and again."""

    def test_upload_and_download_arrive_whole(self):
        sizes = {"weights.bin": 12_000_000, "sub/more.bin": 3_000_001, "small.json": 17, "empty": 0}
        root = self.make_tree("tree", sizes)
        proxy = self.proxy(200_000, 3_000_000)
        endpoint = f"unix:{proxy.path}"
        sent = cli(self.daemon, "upload", root, "--id", "chaos", endpoint=endpoint)
        self.assertGreaterEqual(proxy.cuts, 4, "nothing was cut")
        self.assertEqual(files_of(sent.stdout.strip()), files_of(root))
        cuts = proxy.cuts
        fetched = self.daemon.directory / "fetched"
        cli(self.daemon, "download", "uploads/chaos", fetched, endpoint=endpoint)
        self.assertGreaterEqual(proxy.cuts - cuts, 4, "nothing was cut")
        self.assertEqual(files_of(fetched), files_of(root))
        self.assertEqual([p.name for p in self.daemon.directory.glob(".*")], [], "nothing is left")

    def test_a_download_is_gone_on_with_by_another_program(self):
        root = self.make_tree("tree", {"weights.bin": 40_000_000})
        cli(self.daemon, "upload", root, "--id", "mine")
        fetched = self.daemon.directory / "fetched"
        partial = self.daemon.directory / ".fetched.penstock-partial" / "weights.bin"
        process = subprocess.Popen(
            [harness.BIN / "penstock", "--endpoint", self.daemon.socket, "download", "uploads/mine",
             fetched], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (partial.exists() and partial.stat().st_size > 0):
            pass
        process.kill()
        process.wait()
        if not fetched.exists():
            # What a power cut may leave of it is found out.
            size = partial.stat().st_size
            with open(partial, "r+b") as file:
                file.seek(size // 2)
                file.write(b"x")
            (partial.parent / "stranger").write_text("of another download")
            cli(self.daemon, "download", "uploads/mine", fetched)
        self.assertEqual(files_of(fetched), files_of(root))

    def test_every_event_arrives_once_and_in_order(self):
        name = create(self.client, example_spec(max_steps=150), job_id="watched").name
        proxy = self.proxy(500, 20_000)
        request = job_pb2.WatchJobsRequest(name=name, follow=True)
        events, metrics, end, log = [], [], None, b""
        deadline = time.monotonic() + harness.DEADLINE
        while end is None:
            self.assertLess(time.monotonic(), deadline)
            client = Client(f"unix:{proxy.path}")
            try:
                for message in client.jobs.WatchJobs(request, timeout=harness.DEADLINE):
                    request.after.CopyFrom(message.cursor)
                    kind = message.WhichOneof("event")
                    if kind in ("state_changed", "checkpoint_saved", "plan_missed"):
                        events.append(getattr(message, kind).sequence)
                    elif kind == "metrics":
                        metrics.append(message.metrics.step)
                    elif kind == "log_lines":
                        self.assertEqual(message.log_lines.offset, len(log))
                        log += "".join(line + "\n" for line in message.log_lines.lines).encode()
                    elif kind == "end":
                        end = message.end.job
            except grpc.RpcError:
                pass
            client.close()
        self.assertGreaterEqual(proxy.cuts, 4, "nothing was cut")
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED)
        self.assertEqual(metrics, list(range(1, 151)))
        self.assertEqual(events, list(range(1, len(events) + 1)))
        path = self.daemon.state / "jobs" / "watched" / "attempts" / "1" / "worker.log"
        self.assertEqual(log, path.read_bytes())

    def test_the_command_line_follows_to_the_end(self):
        proxy = self.proxy(2_000, 30_000)
        followed = cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--follow", "--job-id", "followed",
                       "--set", "schedule.max_steps=100", endpoint=f"unix:{proxy.path}")
        self.assertIn("jobs/followed succeeded", followed.stderr)


class TraceTest(DaemonTest):
    def test_the_timeline_of_the_step_that_runs(self):
        spec = example_spec(max_steps=1_000_000)
        name = create(self.client, spec, job_id="traced").name
        self.client.wait_for_step(name, 3)
        out = self.daemon.directory / "trace.json"
        cli(self.daemon, "trace", "traced", "-o", out)
        trace = json.loads(out.read_text())
        lanes = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        self.assertTrue({"compute", "host"} <= lanes, lanes)
        process = next(e for e in trace["traceEvents"] if e["name"] == "process_name")
        self.assertRegex(process["args"]["name"], r"^measured: step \d+$")
        ops = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        self.assertIn("forward_block", " ".join(e["name"] for e in ops))
        self.assertTrue(all(e["dur"] >= 0 and e["ts"] >= 0 for e in ops))
        self.assertGreater(sum(e["dur"] for e in ops), 0)
        # The same ops as the plan's, which was simulated.
        planned = self.daemon.directory / "planned.json"
        cli(self.daemon, "plan", EXAMPLE / "job.yaml", "--set", "batch.micro_batch_tokens=256",
            "--trace", planned)
        self.assertTrue(json.loads(planned.read_text())["traceEvents"])
        second = json.loads(cli(self.daemon, "trace", "traced").stdout)
        self.assertNotEqual(second, trace)
        cli(self.daemon, "cancel", "traced", "--wait")
        refused = cli(self.daemon, "trace", "traced", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("JOB_STATE_CONFLICT", refused.stderr)


if __name__ == "__main__":
    unittest.main()
