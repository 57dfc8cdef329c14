"""What the end-to-end tests share: stubs made from the .proto files, a real penstockd on a
temporary state directory, and a proxy that loses replies."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc

BIN = pathlib.Path(os.environ["PENSTOCK_BIN"])
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
EXAMPLE = SOURCE / "examples" / "tiny_llama"
DEADLINE = 120  # seconds; only a hang reaches it


def make_stubs(directory):
    """Generates Python stubs as a client of the API would, and puts them on the path."""
    protos = ["penstock/v1/" + p.name for p in (SOURCE / "proto/penstock/v1").glob("*.proto")]
    protos += ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    subprocess.run(
        [os.environ["PENSTOCK_PROTOC"], f"-I{SOURCE}/proto",
         f"-I{os.environ['PENSTOCK_GOOGLEAPIS']}", f"--python_out={directory}",
         f"--grpc_python_out={directory}",
         f"--plugin=protoc-gen-grpc_python={os.environ['PENSTOCK_GRPC_PYTHON']}", *protos],
        check=True)
    sys.path.insert(0, str(directory))


STUBS = tempfile.mkdtemp(prefix="penstock-stubs-")
make_stubs(STUBS)

from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from penstock.v1 import (admin_service_pb2, admin_service_pb2_grpc,  # noqa: E402
                         checkpoint_service_pb2, checkpoint_service_pb2_grpc, job_pb2,
                         job_pb2_grpc, job_spec_pb2)


def remove_stubs():
    shutil.rmtree(STUBS, ignore_errors=True)


class Client:
    """Stubs of one connection, without gRPC's own retries: what is lost stays lost."""

    def __init__(self, target):
        self.channel = grpc.insecure_channel(target, options=[("grpc.enable_retries", 0)])
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.checkpoints = checkpoint_service_pb2_grpc.CheckpointServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)

    def close(self):
        self.channel.close()

    def get(self, name):
        return self.jobs.GetJob(job_pb2.GetJobRequest(name=name), timeout=DEADLINE).job

    def wait(self, name):
        """Follows a job to its End over as many connections as it takes; the job as End has it."""
        request = job_pb2.WatchJobsRequest(name=name, follow=True)
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            try:
                for message in self.jobs.WatchJobs(request, timeout=DEADLINE):
                    request.after.CopyFrom(message.cursor)
                    if message.HasField("end"):
                        return message.end.job
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED,
                                        grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
                    raise
            time.sleep(0.1)
        raise AssertionError(f"{name} did not end: {self.get(name)}")

    def wait_for_step(self, name, step):
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            job = self.get(name)
            if job.progress.step >= step:
                return job
            assert job.state not in (job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_SUCCEEDED,
                                     job_pb2.JOB_STATE_CANCELLED), f"ended early: {job}"
            time.sleep(0.05)
        raise AssertionError(f"{name} did not reach step {step}: {self.get(name)}")


class Daemon:
    """A penstockd of its own, in a directory with a short path (unix sockets)."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="penstock-e2e-", dir="/tmp"))
        self.state = self.directory / "state"
        self.work = self.directory / "work"
        self.work.mkdir()
        self.socket = self.state / "penstock.sock"
        self.target = f"unix:{self.socket}"
        self.process = None
        self.program = BIN / "penstockd"
        self.environment = None
        self.flags = []
        self.log = open(self.directory / "penstockd.log", "ab")

    def start(self, *flags):
        self.flags = list(flags) or self.flags
        self.process = subprocess.Popen(
            [self.program, "--state-directory", self.state, "--allowed-root", self.work,
             "--allowed-root", EXAMPLE, "--no-calibration", *self.flags],
            stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=self.environment)
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"penstockd ended: {self.log_text()}"
            client = Client(self.target)
            try:
                client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest(), timeout=5)
                # Written when all addresses are served.
                endpoint = json.loads((self.state / "endpoint.json").read_text())
                if endpoint["pid"] == self.process.pid:
                    return self
            except (grpc.RpcError, FileNotFoundError):
                time.sleep(0.05)
            finally:
                client.close()
        raise AssertionError(f"penstockd does not serve: {self.log_text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.terminate()
        return self.process.wait(timeout=DEADLINE)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def log_text(self):
        return (self.directory / "penstockd.log").read_text(errors="replace")[-4000:]

    def worker(self, job_id):
        """Pid of the worker that holds the job's lock."""
        text = (self.state / "jobs" / job_id / "worker.lock").read_text()
        return int(text.split()[0].split("=")[1])

    def workers(self):
        """Pids of all workers of this state directory, whose path is in their command lines."""
        pids = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if len(words) > 2 and words[2].startswith(bytes(self.state) + b"/"):
                pids.append(int(path.parent.name))
        return pids

    def close(self):
        """Ends the daemon and every worker it left, and removes all files."""
        if self.alive():
            self.process.kill()
            self.process.wait()
        while workers := self.workers():
            for pid in workers:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class HeadersFinder:
    """Walks the HTTP/2 frames of one direction: replies begin with a HEADERS frame, what merely keeps
    a connection going has none."""

    def __init__(self):
        self.head, self.skip = b"", 0

    def found_in(self, data):
        found = False
        while data:
            if self.skip:
                taken = min(self.skip, len(data))
                self.skip -= taken
                data = data[taken:]
                continue
            taken = 9 - len(self.head)
            self.head += data[:taken]
            data = data[taken:]
            if len(self.head) == 9:
                found |= self.head[3] == 1
                self.skip, self.head = int.from_bytes(self.head[:3], "big"), b""
        return found


class Proxy:
    """Forwards a unix socket. What becomes of the bytes is for the classes below."""

    def __init__(self, path, target):
        self.path, self.target = str(path), str(target)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                continue
            connection = self.new_connection()
            connection["pumps"], connection["lock"] = 2, threading.Lock()
            for source, sink, is_reply in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, is_reply, connection),
                                 daemon=True).start()

    def new_connection(self):
        """What `passes` remembers of it."""
        return {}

    def passes(self, data, is_reply, connection):
        """How many of these bytes go on; with fewer than all, the connection is cut."""
        return len(data)

    def _pump(self, source, sink, is_reply, connection):
        try:
            while data := source.recv(65536):
                allowed = self.passes(data, is_reply, connection)
                sink.sendall(data[:allowed])
                if allowed < len(data):
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with connection["lock"]:
            connection["pumps"] -= 1
            if connection["pumps"] == 0:
                source.close()
                sink.close()

    def close(self):
        self.listener.close()


class LossyProxy(Proxy):
    """While `losing`, what the server answers is dropped and the connection cut: the request has
    arrived, its reply never does."""

    def __init__(self, path, target):
        self.losing = False
        self.lost = 0
        super().__init__(path, target)

    def new_connection(self):
        return {"headers": HeadersFinder()}

    def passes(self, data, is_reply, connection):
        if is_reply and connection["headers"].found_in(data) and self.losing:
            self.lost += 1
            return 0
        return len(data)


class CuttingProxy(Proxy):
    """Cuts each connection after a random number of bytes, both ways counted together, without regard
    for what they say."""

    def __init__(self, path, target, seed, least, most):
        self.random = random.Random(seed)
        self.least, self.most = least, most
        self.cuts = 0
        super().__init__(path, target)

    def new_connection(self):
        return {"left": self.random.randint(self.least, self.most)}

    def passes(self, data, is_reply, connection):
        with connection["lock"]:
            allowed = min(len(data), max(connection["left"], 0))
            connection["left"] -= len(data)
        if allowed < len(data):
            self.cuts += 1
        return allowed


class DaemonTest(unittest.TestCase):
    """Each test has a daemon and a client."""

    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.daemon.start()
        self.client = Client(self.daemon.target)
        self.addCleanup(lambda: self.client.close())

    def restart(self):
        """A new connection too: gRPC would wait out a back-off on the old one."""
        self.daemon.start()
        self.client.close()
        self.client = Client(self.daemon.target)


class Faults:
    """The fault points of the programs that are made with tests/server/file_faults.cc."""

    def __init__(self, daemon):
        self.directory = daemon.directory / "faults"
        self.directory.mkdir()
        daemon.program = BIN / "penstockd_with_faults"
        daemon.environment = dict(os.environ, PENSTOCK_FAULTS=str(self.directory))
        self.flags = ["--worker-binary", str(BIN / "penstock_worker_with_faults")]

    def kill_at(self, point):
        (self.directory / f"kill-{point}").touch()

    def killed(self, point):
        return not (self.directory / f"kill-{point}").exists()

    def hold_at(self, point):
        (self.directory / f"hold-{point}").touch()

    def wait_until_held(self, point):
        held = self.directory / f"held-{point}"
        deadline = time.monotonic() + DEADLINE
        while not held.exists():
            assert time.monotonic() < deadline, f"nobody came to {point}"
            time.sleep(0.01)

    def release(self, point):
        (self.directory / f"hold-{point}").unlink()
        (self.directory / f"held-{point}").unlink(missing_ok=True)

    def clear(self):
        for path in self.directory.glob("kill-*"):
            path.unlink(missing_ok=True)

    def seen(self):
        path = self.directory / "seen"
        return set(path.read_text().split()) if path.exists() else set()


def final_files(client, name, pattern="*"):
    """Name to bytes of what the job's newest checkpoint holds: weights, moments, manifest. Not its
    provenance, which says which job and attempt made it: there, runs of equal bits differ."""
    listed = client.checkpoints.ListCheckpoints(
        checkpoint_service_pb2.ListCheckpointsRequest(parent=name)).checkpoints
    root = pathlib.Path(listed[-1].directory)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob(pattern)
            if p.is_file() and not p.name.startswith("provenance.")}


def losses(client, name):
    """(step, loss, gradient norm) of every step, and of every evaluation (step, loss, None)."""
    points = client.jobs.ListJobMetrics(
        job_pb2.ListJobMetricsRequest(name=name, max_points=10000)).points
    return [(p.step, p.evaluation.loss, None) if p.HasField("evaluation")
            else (p.step, p.loss, p.grad_norm) for p in points]


def example_spec(**changes):
    """The job of examples/tiny_llama, as the API wants it."""
    spec = job_spec_pb2.JobSpec()
    spec.model.random.config_path = str(EXAMPLE / "config.json")
    spec.data.format = job_spec_pb2.DATA_FORMAT_TEXT
    spec.data.paths.append(str(EXAMPLE / "text.txt"))
    spec.data.text_documents = job_spec_pb2.TEXT_DOCUMENTS_BLANK_LINE
    spec.batch.sequence_length = 64
    spec.batch.tokens_per_step = 512
    spec.batch.micro_batch_tokens = 256
    spec.optimizer.learning_rate = 3e-3
    spec.schedule.max_steps = changes.pop("max_steps", 30)
    spec.limits.compute_threads = 1
    spec.seed = 7
    for key, value in changes.items():
        setattr(spec, key, value)
    return spec


def create(client, spec, **fields):
    request = job_pb2.CreateJobRequest(spec=spec, **fields)
    return client.jobs.CreateJob(request, timeout=DEADLINE).job


def error_of(error):
    """(code, ErrorInfo, message) of a refused call."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    assert details is not None, f"no details: {error}"
    status = status_pb2.Status.FromString(details)
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return error.code(), info, status.message
    raise AssertionError(f"no ErrorInfo: {status}")


def cli(daemon, *arguments, check=True, endpoint=None, **options):
    result = subprocess.run(
        [BIN / "penstock", "--endpoint", endpoint or str(daemon.socket),
         *[str(a) for a in arguments]],
        capture_output=True, text=True, timeout=DEADLINE, **options)
    if check:
        assert result.returncode == 0, f"{arguments}: {result}"
    return result


def load_json(result):
    return json.loads(result.stdout)
