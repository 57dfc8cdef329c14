"""The Python client against a daemon of our own making, which loses connections and bytes where a real one
would be hard to make to: request ids and retries, cursors, transfers, errors; and job files."""

import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import stat
import tempfile
import threading
import unittest
from concurrent import futures

import crc32c
import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

import penstock
from penstock.v1 import (admin_service_pb2, admin_service_pb2_grpc, job_pb2, job_pb2_grpc, job_spec_pb2, transfer_service_pb2,
                         transfer_service_pb2_grpc)

FINAL = job_pb2.JOB_STATE_SUCCEEDED


def fail(context, code, message, *details):
    """Aborts a call as the daemon does: with a google.rpc.Status."""
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def info(reason, **metadata):
    return error_details_pb2.ErrorInfo(reason=reason, domain="penstock", metadata=metadata)


class FakeJobs(job_pb2_grpc.JobServiceServicer):
    def __init__(self):
        self.requests = []
        self.metadata = []
        self.failures = []  # called with the context, one a call, before it is answered
        self.watches = []
        self.streams = []  # what each WatchJobs call sends, and how it ends
        self.points = []

    def CreateJob(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.failures:
            self.failures.pop(0)(context)
        return job_pb2.CreateJobResponse(job=job_pb2.Job(name="jobs/made", train=request.spec))

    def ListJobs(self, request, context):
        first = int(request.page_token or 0)
        return job_pb2.ListJobsResponse(
            jobs=[job_pb2.Job(name=f"jobs/j{i}") for i in range(first, first + 3)],
            next_page_token=str(first + 3) if first < 6 else "")

    def ListJobMetrics(self, request, context):
        return job_pb2.ListJobMetricsResponse(points=self.points)

    def TraceJob(self, request, context):
        self.requests.append(request)
        for piece in ('{"trace', 'Events": [', ']}'):
            yield job_pb2.TraceJobResponse(chrome_trace=piece)

    def WatchJobs(self, request, context):
        call = len(self.watches)
        self.watches.append(request)
        messages, end = self.streams[min(call, len(self.streams) - 1)]
        yield from messages
        if end is not None:
            end(context)


class FakeTransfers(transfer_service_pb2_grpc.TransferServiceServicer):
    """Breaks the connection after every `cut_after` pieces; `spoil` changes what is sent."""

    def __init__(self):
        self.files = {}
        self.hashes = {}
        self.listed = None
        self.cut_after = 1 << 30
        self.spoil = lambda piece: piece
        self.reads = []
        self.upload = None
        self.received = {}
        self.writes = []
        self.wrong_offsets = 0

    def entries(self):
        return [transfer_service_pb2.FileEntry(path=path, bytes=len(data),
                                               sha256=self.hashes.get(path, ""))
                for path, data in sorted(self.files.items())]

    def ListFiles(self, request, context):
        return transfer_service_pb2.ListFilesResponse(files=self.listed or self.entries())

    def ReadFile(self, request, context):
        self.reads.append((request.path, request.offset))
        data, offset = self.files[request.path], request.offset
        for _ in range(self.cut_after):
            piece = data[offset:offset + 1000]
            if not piece:
                sha = hashlib.sha256(data).hexdigest() if request.offset == 0 else ""
                yield transfer_service_pb2.ReadFileResponse(sha256=sha)
                return
            yield self.spoil(transfer_service_pb2.ReadFileResponse(
                data=piece, crc32c=crc32c.crc32c(piece)))
            offset += len(piece)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the cable is out")

    def CreateUpload(self, request, context):
        self.upload = transfer_service_pb2.Upload(name="uploads/u", files=request.files)
        self.received = {entry.path: b"" for entry in request.files}
        return transfer_service_pb2.CreateUploadResponse(upload=self.now())

    def now(self):
        upload = transfer_service_pb2.Upload()
        upload.CopyFrom(self.upload)
        upload.received_bytes.extend(len(self.received[e.path]) for e in upload.files)
        return upload

    def GetUpload(self, request, context):
        return transfer_service_pb2.GetUploadResponse(upload=self.now())

    def WriteUpload(self, messages, context):
        path, pieces = None, 0
        for message in messages:
            path = path or message.path
            if pieces == 0:
                self.writes.append((message.name, path, message.offset))
                if self.wrong_offsets:
                    self.wrong_offsets -= 1
                    fail(context, grpc.StatusCode.OUT_OF_RANGE, "wrong offset", info("UPLOAD_OFFSET"))
            if pieces == self.cut_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the cable is out")
            if message.offset != len(self.received[path]) or (
                    crc32c.crc32c(message.data) != message.crc32c):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not the next piece: {message.offset}")
            self.received[path] += message.data
            pieces += 1
        return transfer_service_pb2.WriteUploadResponse(received_bytes=len(self.received[path]))

    def FinishUpload(self, request, context):
        for entry in self.upload.files:
            if hashlib.sha256(self.received[entry.path]).hexdigest() != entry.sha256:
                fail(context, grpc.StatusCode.DATA_LOSS, entry.path, info("UPLOAD_CORRUPT"))
        self.upload.complete = True
        self.upload.directory = "/state/uploads/u"
        return transfer_service_pb2.FinishUploadResponse(upload=self.now())


class FakeAdmin(admin_service_pb2_grpc.AdminServiceServicer):
    def __init__(self):
        self.requests = []
        self.failures = []  # as those of FakeJobs

    def answer(self, request, context, reply):
        self.requests.append(request)
        if self.failures:
            self.failures.pop(0)(context)
        return reply

    def CreateToken(self, request, context):
        return self.answer(request, context, admin_service_pb2.CreateTokenResponse(
            token=admin_service_pb2.Token(name="tokens/t1", user=request.user), secret="pst_1"))

    def ListTokens(self, request, context):
        first = int(request.page_token or 0)
        return self.answer(request, context, admin_service_pb2.ListTokensResponse(
            tokens=[admin_service_pb2.Token(name=f"tokens/t{first}")],
            next_page_token=str(first + 1) if first < 2 else ""))

    def RevokeToken(self, request, context):
        return self.answer(request, context, admin_service_pb2.RevokeTokenResponse(
            token=admin_service_pb2.Token(name=request.name)))

    def ListAuditEntries(self, request, context):
        entries = [admin_service_pb2.AuditEntry(sequence=n) for n in range(request.after + 1, 6)]
        return self.answer(request, context, admin_service_pb2.ListAuditEntriesResponse(
            entries=entries[:2], last_sequence=5))

    def DrainServer(self, request, context):
        return self.answer(request, context, admin_service_pb2.DrainServerResponse())


class FakeDaemonTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="penstock-py-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.jobs, self.transfers, self.admin = FakeJobs(), FakeTransfers(), FakeAdmin()
        server = grpc.server(futures.ThreadPoolExecutor(4))
        job_pb2_grpc.add_JobServiceServicer_to_server(self.jobs, server)
        transfer_service_pb2_grpc.add_TransferServiceServicer_to_server(self.transfers, server)
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server(self.admin, server)
        self.endpoint = f"{self.directory}/socket"
        server.add_insecure_port(f"unix:{self.endpoint}")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        self.client = penstock.Client.connect(self.endpoint)
        self.addCleanup(self.client.close)


class CallTest(FakeDaemonTest):
    def test_a_lost_reply_is_asked_for_again_with_the_same_request_id(self):
        lost = lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "gone")  # noqa: E731
        self.jobs.failures = [lost, lost]
        self.assertEqual(self.client.submit({"seed": 1}).name, "jobs/made")
        ids = [request.request_id for request in self.jobs.requests]
        self.assertEqual(len(ids), 3)
        self.assertEqual(len(set(ids)), 1)
        self.assertNotEqual(ids[0], "")
        self.client.submit({"seed": 1})
        self.assertNotEqual(self.jobs.requests[-1].request_id, ids[0], "a new call has a new id")
        self.client.submit({"seed": 1}, request_id="mine")
        self.assertEqual(self.jobs.requests[-1].request_id, "mine")

    def test_four_tries_and_then_the_id_to_try_again_with(self):
        self.jobs.failures = [
            lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "gone")] * 9
        with self.assertRaises(penstock.Unreachable) as raised:
            self.client.submit({"seed": 1})
        self.assertEqual(len(self.jobs.requests), 4)
        self.assertEqual(raised.exception.request_id, self.jobs.requests[0].request_id)
        self.assertEqual(raised.exception.reason, "SERVER_UNREACHABLE")

    def test_errors_have_reason_metadata_fields_and_time_to_wait(self):
        self.jobs.failures = [lambda context: fail(
            context, grpc.StatusCode.INVALID_ARGUMENT, "seed: found x",
            info("SPEC_INVALID", field="seed", fix="remove it"),
            error_details_pb2.BadRequest(field_violations=[
                error_details_pb2.BadRequest.FieldViolation(field="seed", description="found x")]))]
        with self.assertRaises(penstock.PenstockError) as raised:
            self.client.submit({"seed": 1})
        error = raised.exception
        self.assertEqual((error.code, error.reason), ("INVALID_ARGUMENT", "SPEC_INVALID"))
        self.assertEqual(error.metadata, {"field": "seed", "fix": "remove it"})
        self.assertEqual(error.field_violations, [penstock.FieldViolation("seed", "found x")])
        self.assertEqual(str(error), "SPEC_INVALID: seed: found x (fix: remove it)")
        self.assertEqual(len(self.jobs.requests), 1, "what is refused is not tried again")
        self.jobs.failures = [lambda context: fail(
            context, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", info("QUEUE_FULL"),
            error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=7)))]
        with self.assertRaises(penstock.PenstockError) as raised:
            self.client.submit({"seed": 1})
        self.assertEqual(raised.exception.retry_after, 7)

    def test_the_token_goes_along(self):
        self.client.submit({})
        self.assertNotIn("authorization", self.jobs.metadata[0])
        with penstock.Client.connect(self.endpoint, token="pst_x") as client:
            client.submit({})
        self.assertEqual(self.jobs.metadata[1]["authorization"], "Bearer pst_x")

    def test_lists_go_over_pages(self):
        self.assertEqual([job.name for job in self.client.jobs()], [f"jobs/j{i}" for i in range(9)])

    def test_metrics_are_rows(self):
        self.jobs.points = [
            job_pb2.StepMetrics(step=1, attempt=1, loss=2.5, outcome=job_pb2.STEP_OUTCOME_APPLIED,
                                lane_busy_seconds={"compute": 0.5}),
            job_pb2.StepMetrics(step=1, attempt=1,
                                evaluation=job_pb2.EvaluationMetrics(loss=2.25, perplexity=9.5))]
        step, evaluation = self.client.metrics("x", frame=False)
        self.assertEqual((step["loss"], step["outcome"], step["compute_busy_seconds"]),
                         (2.5, "applied", 0.5))
        self.assertIsNone(step["validation_loss"])
        self.assertEqual((evaluation["loss"], evaluation["validation_loss"], evaluation["outcome"]),
                         (None, 2.25, "evaluation"))

    def test_a_frame_is_one_of_pandas(self):
        # Stands in for pandas, which is no dependency.
        (self.directory / "pandas.py").write_text("class DataFrame(list):\n    pass\n")
        self.jobs.points = [job_pb2.StepMetrics(step=4)]
        with contextlib.ExitStack() as stack:
            import sys
            real = {name: sys.modules.pop(name) for name in list(sys.modules) if name == "pandas"}
            stack.callback(sys.modules.update, real)
            sys.path.insert(0, str(self.directory))
            stack.callback(sys.path.remove, str(self.directory))
            frame = self.client.metrics("x")
            self.assertEqual(type(frame).__name__, "DataFrame")
            self.assertEqual(frame[0]["step"], 4)
            sys.modules.pop("pandas")


def metric(step):
    return job_pb2.WatchJobsResponse(cursor=job_pb2.Cursor(metric=step),
                                     metrics=job_pb2.StepMetrics(step=step))


def end(state=FINAL, **fields):
    return job_pb2.WatchJobsResponse(end=job_pb2.End(job=job_pb2.Job(
        name="jobs/x", state=state, **fields)))


def broken(context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


class AdminTest(FakeDaemonTest):
    def test_a_token_is_made_once_even_if_its_reply_is_lost(self):
        self.admin.failures = [lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "gone")]
        with self.assertRaises(penstock.Unreachable):
            self.client.create_token("ann", admin_service_pb2.ROLE_USER)
        self.assertEqual(len(self.admin.requests), 1)
        end = datetime.datetime(2030, 1, 2, tzinfo=datetime.timezone.utc)
        made = self.client.create_token("ann", admin_service_pb2.ROLE_USER, expires=end, comment="ci")
        self.assertEqual((made.token.user, made.secret), ("ann", "pst_1"))
        sent = self.admin.requests[-1]
        self.assertEqual((sent.role, sent.comment, sent.expire_time.seconds),
                         (admin_service_pb2.ROLE_USER, "ci", int(end.timestamp())))
        # The same moment, told in another zone.
        zone = datetime.timezone(datetime.timedelta(hours=5))
        self.client.create_token("ann", admin_service_pb2.ROLE_USER, expires=end.astimezone(zone))
        self.assertEqual(self.admin.requests[-1].expire_time, sent.expire_time)
        with self.assertRaisesRegex(ValueError, "time zone"):
            self.client.create_token("ann", admin_service_pb2.ROLE_USER,
                                     expires=datetime.datetime(2030, 1, 2))

    def test_what_may_be_done_twice_is_tried_again(self):
        gone = lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "gone")  # noqa: E731
        for token in ("t7", "tokens/t7", admin_service_pb2.Token(name="tokens/t7")):
            self.admin.failures = [gone]
            self.assertEqual(self.client.revoke_token(token).name, "tokens/t7")
        self.admin.failures = [gone]
        self.client.drain("new disks")
        self.assertEqual(self.admin.requests[-1],
                         admin_service_pb2.DrainServerRequest(draining=True, message="new disks"))
        self.client.undrain()
        self.assertEqual(self.admin.requests[-1], admin_service_pb2.DrainServerRequest())

    def test_lists_are_whole(self):
        self.assertEqual([token.name for token in self.client.tokens()],
                         ["tokens/t0", "tokens/t1", "tokens/t2"])
        self.assertEqual([e.sequence for e in self.client.audit_entries()], [1, 2, 3, 4, 5])
        self.assertEqual([e.sequence for e in self.client.audit_entries(after=4)], [5])
        self.assertEqual(list(self.client.audit_entries(after=5)), [])

    def test_a_trace_is_put_together(self):
        self.assertEqual(self.client.trace("x"), {"traceEvents": []})
        self.assertEqual(self.jobs.requests[-1].name, "jobs/x")


class FollowTest(FakeDaemonTest):
    def test_only_the_end_is_the_end(self):
        heartbeat = job_pb2.WatchJobsResponse(heartbeat=job_pb2.Heartbeat(),
                                              cursor=job_pb2.Cursor(metric=2))
        self.jobs.streams = [([metric(1), metric(2), heartbeat], None),  # closes as if all were well
                             ([], broken), ([metric(3)], broken), ([end()], None)]
        seen = list(self.client.follow("x"))
        self.assertEqual([m.metrics.step for m in seen[:-1]], [1, 2, 3])
        self.assertTrue(seen[-1].HasField("end"))
        self.assertEqual([w.after.metric for w in self.jobs.watches], [0, 2, 2, 3])
        self.assertFalse(self.jobs.watches[0].HasField("after"))
        self.assertTrue(all(w.follow and w.name == "jobs/x" for w in self.jobs.watches))

    def test_it_goes_on_from_a_cursor_that_was_kept(self):
        self.jobs.streams = [([metric(8), end()], None)]
        list(self.client.follow("jobs/x", after=job_pb2.Cursor(metric=7)))
        self.assertEqual(self.jobs.watches[0].after.metric, 7)

    def test_it_gives_up_when_the_daemon_is_away_for_long(self):
        self.jobs.streams = [([metric(1)], None)]
        following = self.client.follow("x", reconnect_seconds=0)
        self.assertEqual(next(following).metrics.step, 1)
        with self.assertRaises(penstock.Unreachable):
            next(following)

    def test_a_refusal_is_no_broken_connection(self):
        self.jobs.streams = [([], lambda context: fail(
            context, grpc.StatusCode.OUT_OF_RANGE, "old", info("CURSOR_EXPIRED")))]
        with self.assertRaises(penstock.PenstockError) as raised:
            list(self.client.follow("x"))
        self.assertEqual(raised.exception.reason, "CURSOR_EXPIRED")
        self.assertEqual(len(self.jobs.watches), 1)

    def test_waiting_says_how_the_job_ended(self):
        self.jobs.streams = [([end()], None)]
        self.assertEqual(self.client.wait("x").state, FINAL)
        failed = status_pb2.Status(code=3, message="line 7 is broken")
        failed.details.add().Pack(info("DATA_INVALID", line="7"))
        self.jobs.streams = [([end(job_pb2.JOB_STATE_FAILED, error=failed)], None)]
        with self.assertRaises(penstock.JobFailed) as raised:
            self.client.wait("x")
        self.assertEqual(raised.exception.reason, "DATA_INVALID")
        self.assertEqual(raised.exception.metadata, {"line": "7"})
        self.assertIn("jobs/x failed: line 7 is broken", str(raised.exception))
        self.assertEqual(self.client.wait("x", check=False).state, job_pb2.JOB_STATE_FAILED)

    def test_waiting_has_a_limit(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.jobs.streams = [([metric(1)], lambda context: release.wait(60))]
        with self.assertRaises(TimeoutError):
            self.client.wait("x", timeout=0.3)

    def test_logs_are_lines(self):
        lines = job_pb2.WatchJobsResponse(log_lines=job_pb2.LogLines(lines=["a", "b"]))
        self.jobs.streams = [([lines, end()], None)]
        self.assertEqual(list(self.client.logs("x")), ["a", "b"])
        self.assertFalse(self.jobs.watches[0].follow)


class DownloadTest(FakeDaemonTest):
    def setUp(self):
        super().setUp()
        self.big = os.urandom(10_500)
        self.transfers.files = {"a/model.bin": self.big, "empty": b"", "config.json": b"{}"}
        self.transfers.hashes = {p: hashlib.sha256(d).hexdigest()
                                 for p, d in self.transfers.files.items()}
        self.target = self.directory / "here"

    def fetch(self, **options):
        return self.client.download("jobs/x/checkpoints/7", self.target, **options)

    def test_whole_and_over_a_connection_that_breaks(self):
        self.transfers.cut_after = 4
        seen = []
        paths = self.fetch(progress=lambda path, done, total: seen.append((path, done, total)))
        self.assertEqual((self.target / "a/model.bin").read_bytes(), self.big)
        self.assertEqual((self.target / "empty").read_bytes(), b"")
        self.assertEqual(len(paths), 3)
        self.assertEqual([offset for path, offset in self.transfers.reads if path == "a/model.bin"],
                         [0, 4000, 8000], "no byte comes twice")
        self.assertEqual(seen[-1][0], "config.json")
        self.assertEqual(list(self.target.rglob("*.part")), [])

    def test_a_program_that_was_stopped_goes_on_and_fetches_nothing_twice(self):
        self.transfers.cut_after = 3
        with self.assertRaises(penstock.Unreachable):
            self.fetch(reconnect_seconds=0)
        self.transfers.cut_after, self.transfers.reads = 1 << 30, []
        self.fetch()
        self.assertIn(("a/model.bin", 3000), self.transfers.reads)
        self.assertEqual((self.target / "a/model.bin").read_bytes(), self.big)
        self.transfers.reads = []
        self.fetch()
        self.assertEqual(self.transfers.reads, [])

    def test_without_a_hash_on_record_a_rest_is_not_trusted(self):
        self.transfers.hashes = {}
        (self.target / "a").mkdir(parents=True)
        (self.target / "a/model.bin.part").write_bytes(b"of another run")
        self.fetch()
        self.assertEqual((self.target / "a/model.bin").read_bytes(), self.big)

    def test_wrong_bytes_are_found(self):
        def other_piece(message):
            return transfer_service_pb2.ReadFileResponse(data=b"x" + message.data[1:],
                                                         crc32c=message.crc32c)
        self.transfers.spoil = other_piece
        with self.assertRaises(penstock.TransferCorrupt):
            self.fetch()

        def other_file(message):
            data = b"x" + message.data[1:]
            return transfer_service_pb2.ReadFileResponse(data=data, crc32c=crc32c.crc32c(data))
        self.transfers.spoil = other_file
        with self.assertRaises(penstock.TransferCorrupt) as raised:
            self.fetch()
        self.assertIn("sha256", str(raised.exception))
        self.assertFalse((self.target / "a/model.bin").exists())
        self.transfers.spoil = lambda message: message
        self.fetch()
        self.assertEqual((self.target / "a/model.bin").read_bytes(), self.big)

    def test_a_daemon_cannot_write_elsewhere(self):
        for path in ("../up", "/etc/x", "a/../../up", "a//b", ".", "a\0b"):
            self.transfers.listed = [transfer_service_pb2.FileEntry(path=path, bytes=1)]
            with self.assertRaises(penstock.TransferCorrupt, msg=path):
                self.fetch()
        self.assertFalse((self.directory / "up").exists())


class UploadTest(FakeDaemonTest):
    def setUp(self):
        super().setUp()
        self.source = self.directory / "model"
        (self.source / "deep").mkdir(parents=True)
        self.big = os.urandom((3 << 20) + 17)
        (self.source / "deep/weights").write_bytes(self.big)
        (self.source / "empty").write_bytes(b"")
        (self.directory / "blob").write_bytes(b"{}")
        (self.source / "config.json").symlink_to(self.directory / "blob")

    def test_a_directory_over_a_connection_that_breaks(self):
        self.transfers.cut_after = 2
        self.transfers.wrong_offsets = 1
        upload = self.client.upload(self.source)
        self.assertTrue(upload.complete)
        self.assertEqual(upload.directory, "/state/uploads/u")
        self.assertEqual(self.transfers.received,
                         {"deep/weights": self.big, "empty": b"", "config.json": b"{}"})
        offsets = [offset for _, path, offset in self.transfers.writes if path == "deep/weights"]
        self.assertEqual(offsets[-1], 2 << 20)
        self.assertEqual({name for name, _, _ in self.transfers.writes}, {"uploads/u"})

    def test_it_goes_on_with_an_upload_that_was_broken_off(self):
        self.transfers.cut_after = 1
        with self.assertRaises(penstock.Unreachable):
            self.client.upload(self.source, reconnect_seconds=0)
        self.transfers.cut_after, self.transfers.writes = 1 << 30, []
        self.assertTrue(self.client.upload(self.source, resume="uploads/u").complete)
        self.assertIn(("uploads/u", "deep/weights", 1 << 20), self.transfers.writes)
        self.assertEqual(self.transfers.received["deep/weights"], self.big)
        (self.source / "empty").write_bytes(b"no more")
        self.transfers.upload.complete = False
        with self.assertRaises(penstock.PenstockError):
            self.client.upload(self.source, resume="uploads/u")

    def test_one_file(self):
        self.client.upload(self.source / "deep/weights")
        self.assertEqual(list(self.transfers.received), ["weights"])

    def test_what_is_no_file_is_refused(self):
        os.mkfifo(self.source / "pipe")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.source / "pipe").st_mode))
        with self.assertRaises(penstock.PenstockError):
            self.client.upload(self.source)
        with self.assertRaises(penstock.PenstockError):
            self.client.upload(self.directory / "nothing")


class EndpointTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="penstock-py-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def test_it_is_found_in_the_documented_order(self):
        (self.directory / "endpoint.json").write_text(json.dumps(
            {"socket": "/run/file.sock", "tcp_address": "127.0.0.1:1"}))
        contexts = self.directory / "penstock" / "contexts.json"
        contexts.parent.mkdir()
        contexts.write_text(json.dumps(
            {"current": "lab", "contexts": {"lab": {"endpoint": "lab:7070"}}}))
        environment = {"PENSTOCK_ENDPOINT": "127.0.0.1:7070",
                       "PENSTOCK_ENDPOINT_FILE": str(self.directory / "endpoint.json"),
                       "XDG_CONFIG_HOME": str(self.directory), "XDG_STATE_HOME": "/state",
                       "HOME": "/home/u"}
        self.assertEqual(penstock.find_endpoint("/flag.sock", environment), "unix:/flag.sock")
        for key, expected in (("PENSTOCK_ENDPOINT", "127.0.0.1:7070"),
                              ("PENSTOCK_ENDPOINT_FILE", "unix:/run/file.sock"),
                              ("XDG_CONFIG_HOME", "lab:7070"),
                              ("XDG_STATE_HOME", "unix:/state/penstock/penstock.sock"),
                              ("HOME", "unix:/home/u/.local/state/penstock/penstock.sock")):
            self.assertEqual(penstock.find_endpoint(None, environment), expected)
            del environment[key]
        with self.assertRaises(penstock.PenstockError):
            penstock.find_endpoint(None, environment)

    def test_bad_ones_are_refused_by_name(self):
        for text in ("localhost", ":7070", "host:0", "host:99999", "host:x", "unix:relative", "a/b:1",
                     "http://h:1"):
            with self.assertRaises(penstock.PenstockError, msg=text) as raised:
                penstock.find_endpoint(text, {})
            self.assertIn(text, str(raised.exception))
        for text in ("", "{", "[]", '{"socket": 3}', '{"tcp_address": ""}'):
            path = self.directory / "bad.json"
            path.write_text(text)
            with self.assertRaises(penstock.PenstockError, msg=text):
                penstock.find_endpoint(None, {"PENSTOCK_ENDPOINT_FILE": str(path)})
        with self.assertRaises(penstock.Unreachable):
            penstock.find_endpoint(None, {"PENSTOCK_ENDPOINT_FILE": str(self.directory / "none")})

    def test_tls_is_said_by_the_endpoint(self):
        self.assertEqual(penstock.find_endpoint("https://lab:7070", {}), "https://lab:7070")
        path = self.directory / "endpoint.json"
        path.write_text('{"socket": "", "tcp_address": "10.0.0.1:7070", "tls": true}')
        environment = {"PENSTOCK_ENDPOINT_FILE": str(path)}
        self.assertEqual(penstock.find_endpoint(None, environment), "https://10.0.0.1:7070")

    def test_a_token_does_not_cross_a_network_in_plain_text(self):
        with self.assertRaises(penstock.PenstockError) as raised:
            penstock.Client.connect("10.0.0.1:7070", token="pst_x")
        self.assertIn("https://10.0.0.1:7070", str(raised.exception))
        for endpoint in ("https://10.0.0.1:7070", "127.0.0.1:7070", "[::1]:7070", "localhost:7070", "/s"):
            penstock.Client.connect(endpoint, token="pst_x").close()

    def test_a_broken_file_of_contexts_is_named(self):
        (self.directory / "penstock").mkdir()
        path = self.directory / "penstock/contexts.json"
        environment = {"XDG_CONFIG_HOME": str(self.directory), "HOME": "/home/u"}
        for text in ("", "[]", '{"current": "x", "contexts": {}}', '{"contexts": {}}'):
            path.write_text(text)
            with self.assertRaises(penstock.PenstockError, msg=text) as raised:
                penstock.find_endpoint(None, environment)
            self.assertIn(str(path), str(raised.exception))
        path.write_text('{"current": "", "contexts": {}}')
        self.assertIn("/home/u", penstock.find_endpoint(None, environment))


class JobFileTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="penstock-py-")).resolve()
        self.addCleanup(shutil.rmtree, self.directory)

    def load(self, text):
        path = self.directory / "job.yaml"
        path.write_text(text)
        return penstock.job_spec(path)

    def problem(self, source):
        with self.assertRaises(penstock.PenstockError, msg=source) as raised:
            self.load(source) if isinstance(source, str) else penstock.job_spec(source)
        self.assertEqual(raised.exception.reason, "SPEC_INVALID")
        return str(raised.exception)

    def test_values_have_the_type_of_their_field(self):
        spec = self.load("seed: '18446744073709551615'\ndisplay_name: 010\n"
                         "optimizer: {learning_rate: 1e-5, kind: adamw}\n"
                         "schedule: {max_steps: 1e3, kind: SCHEDULE_KIND_COSINE}\n"
                         "data: {train_on_prompt: true, packing: wrapped}\nlabels: {run: yes}\n")
        self.assertEqual(spec.seed, 2**64 - 1)
        self.assertEqual(spec.display_name, "010")
        self.assertEqual(spec.optimizer.learning_rate, 1e-5)
        self.assertEqual(spec.schedule.max_steps, 1000)
        self.assertEqual(spec.schedule.kind, job_spec_pb2.SCHEDULE_KIND_COSINE)
        self.assertEqual(spec.data.packing, job_spec_pb2.PACKING_WRAPPED)
        self.assertTrue(spec.data.train_on_prompt)
        self.assertEqual(dict(spec.labels), {"run": "yes"})
        self.assertEqual(spec, self.load(json.dumps({
            "seed": 2**64 - 1, "display_name": "010", "labels": {"run": "yes"},
            "optimizer": {"learning_rate": 1e-5, "kind": "adamw"},
            "schedule": {"max_steps": 1000, "kind": "cosine"},
            "data": {"train_on_prompt": True, "packing": "wrapped"}})))

    def test_an_optional_field_that_is_zero_is_set(self):
        self.assertTrue(penstock.job_spec({"optimizer": {"learning_rate": 0}})
                        .optimizer.HasField("learning_rate"))
        self.assertFalse(penstock.job_spec({"optimizer": {"learning_rate": None}})
                         .optimizer.HasField("learning_rate"))

    def test_paths_are_relative_to_the_file(self):
        spec = self.load("model: {random: {config_path: c.json}}\noutput: {directory: ../out}\n"
                         "data: {paths: [text/a, /abs/b], datasets: [{paths: [d]}]}\n"
                         "evaluation: {validation_paths: [v]}\n")
        base = str(self.directory)
        self.assertEqual(spec.model.random.config_path, base + "/c.json")
        self.assertEqual(list(spec.data.paths), [base + "/text/a", "/abs/b"])
        self.assertEqual(list(spec.data.datasets[0].paths), [base + "/d"])
        self.assertEqual(list(spec.evaluation.validation_paths), [base + "/v"])
        self.assertEqual(spec.output.directory, str(self.directory.parent / "out"))
        self.assertEqual(penstock.job_spec({"model": {"directory": "m"}}).model.directory,
                         os.path.join(os.getcwd(), "m"))

    def test_what_is_wrong_is_named(self):
        self.assertIn("did you mean learning_rate?", self.problem("optimizer: {learning_rat: 1}"))
        self.assertIn("optimizer.learning_rat", self.problem({"optimizer": {"learning_rat": 1}}))
        self.assertIn("twice", self.problem("seed: 1\nseed: 2\n"))
        self.assertIn("twice", self.problem('{"seed": 1, "seed": 2}'))
        self.assertIn("excludes", self.problem("model: {directory: a, random: {config_path: b}}"))
        self.assertIn("cosine", self.problem("schedule: {kind: cosinus}"))
        for text in ("optimizer: {learning_rate: nan}", "optimizer: {learning_rate: 1_000}",
                     "seed: 010", "seed: -1", "seed: 1.5", "seed: 1e30", "seed: [1]",
                     "data: {paths: one}", "data: text", "data: {train_on_prompt: yes}", "- a\n- b\n",
                     "model: &m {directory: a}", "a: *m", "seed: !!int 3", "{", "seed: \x01"):
            self.problem(text)
        for source in ({"seed": True}, {"seed": 1.5}, {"display_name": 3}, {"data": {"paths": "x"}}):
            self.problem(source)
        self.assertIn("levels", self.problem("seed: " + "[" * 5000))


if __name__ == "__main__":
    unittest.main()
