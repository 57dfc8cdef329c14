"""The client: one method for each thing that `penstock` can do with jobs, and those of admins."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import time
import uuid
from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Type, Union

from google.protobuf.message import Message

from penstock import transfer
from penstock.connection import Connection, Patience, find_endpoint
from penstock.errors import JobFailed, PenstockError, Unreachable
from penstock.job_file import JobSource, SweepSource, job_spec, sweep_spec
from penstock.metrics import rows_of
from penstock.v1 import (admin_service_pb2, admin_service_pb2_grpc, checkpoint_pb2,
                         checkpoint_service_pb2, checkpoint_service_pb2_grpc, device_pb2, job_pb2,
                         job_pb2_grpc, transfer_service_pb2)
from penstock.v1 import job_spec_pb2 as spec_pb2

# How long the daemon may be away before following, waiting and transfers give up.
RECONNECT_SECONDS = 120.0


def _job_name(job: Union[str, job_pb2.Job]) -> str:
    name = job.name if isinstance(job, job_pb2.Job) else job
    return name if name.startswith("jobs/") else "jobs/" + name


def _sweep_name(sweep: str) -> str:
    return sweep if sweep.startswith("sweeps/") else "sweeps/" + sweep


class Client:
    """A connection to one penstockd, made by Client.connect(). May be used by several threads.

    Jobs are named "jobs/x" or "x", or given as the Job itself. What changes something is sent with a
    request_id that is made once and repeated with each try, so that a lost reply never has it done twice;
    give your own where a program that is started again must not do it twice either."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._jobs = job_pb2_grpc.JobServiceStub(connection.channel)
        self._checkpoints = checkpoint_service_pb2_grpc.CheckpointServiceStub(connection.channel)
        self._admin = admin_service_pb2_grpc.AdminServiceStub(connection.channel)

    @classmethod
    def connect(cls, endpoint: Optional[str] = None, *, token: Optional[str] = None,
                tls_ca: Optional[str] = None, tls_certificate: Optional[str] = None,
                tls_key: Optional[str] = None, timeout: float = 30.0) -> "Client":
        """Connects when first called. `endpoint` is unix:/path, /path, host:port, or https://host:port for
        TLS; absent, it is found as the command line finds it. `token` is PENSTOCK_TOKEN otherwise, and
        `tls_ca`, the PEM file of who signed the daemon's certificate, PENSTOCK_TLS_CA, else the system's
        authorities. `timeout` is the deadline of a call, tries included."""
        return cls(Connection(
            find_endpoint(endpoint), token=token or os.environ.get("PENSTOCK_TOKEN"),
            tls_ca=tls_ca or os.environ.get("PENSTOCK_TLS_CA"), tls_certificate=tls_certificate,
            tls_key=tls_key, timeout=timeout))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def _call(self, method: Any, request: Message, timeout: Optional[float] = None) -> Any:
        return self._connection.call(method, request, timeout=timeout)

    # Jobs

    def submit(self, spec: JobSource, *, job_id: str = "", request_id: str = "") -> job_pb2.Job:
        """Puts a training job into the queue. `spec` is a dict, the path of a job file, or a JobSpec."""
        return self._call(self._jobs.CreateJob, job_pb2.CreateJobRequest(
            spec=job_spec(spec), job_id=job_id, request_id=request_id or str(uuid.uuid4()))).job

    def submit_sweep(self, spec: SweepSource, over: Optional[Mapping[str, Sequence[Any]]] = None, *,
                     sweep_id: str = "", validate_only: bool = False,
                     request_id: str = "") -> job_pb2.CreateSweepResponse:
        """A job for every point of a grid, all or none: `spec` is a job and `over` its axes, as in
        {"optimizer.learning_rate": [1e-5, 3e-5], "seed": [1, 2]}; or, without `over`, `spec` is a sweep file,
        a dict with "job" and "axes", or a SweepSpec. The reply names the sweep and its jobs."""
        return self._call(self._jobs.CreateSweep, job_pb2.CreateSweepRequest(
            spec=sweep_spec(spec, over), sweep_id=sweep_id, validate_only=validate_only,
            request_id=request_id or str(uuid.uuid4())))

    def cancel_sweep(self, sweep: str, *, request_id: str = "") -> List[str]:
        """The jobs of the sweep that had not ended, and are or will be cancelled."""
        return list(self._call(self._jobs.CancelSweep, job_pb2.CancelSweepRequest(
            name=_sweep_name(sweep), request_id=request_id or str(uuid.uuid4()))).jobs)

    def plan(self, spec: JobSource, *, machine: str = "", with_program: bool = False,
             with_trace: bool = False) -> job_pb2.PlanJobResponse:
        """How a job would run, how fast and in which memory, here or on `machine`; submits nothing."""
        return self._call(self._jobs.PlanJob, job_pb2.PlanJobRequest(
            spec=job_spec(spec), machine=machine, with_program=with_program, with_trace=with_trace))

    def job(self, job: Union[str, job_pb2.Job]) -> job_pb2.Job:
        return self._call(self._jobs.GetJob, job_pb2.GetJobRequest(name=_job_name(job))).job

    def jobs(self, states: Sequence["job_pb2.JobState"] = (), owner: str = "",
             sweep: str = "") -> Iterator[job_pb2.Job]:
        """Newest first, fetched as they are asked for."""
        request = job_pb2.ListJobsRequest(states=states, owner=owner,
                                          sweep=_sweep_name(sweep) if sweep else "")
        while True:
            page = self._call(self._jobs.ListJobs, request)
            yield from page.jobs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def cancel(self, job: Union[str, job_pb2.Job], *, request_id: str = "") -> job_pb2.Job:
        """A running job saves its last finished step and ends: wait(job, check=False) tells when."""
        return self._call(self._jobs.CancelJob, job_pb2.CancelJobRequest(
            name=_job_name(job), request_id=request_id or str(uuid.uuid4()))).job

    def pause(self, job: Union[str, job_pb2.Job], *, request_id: str = "") -> job_pb2.Job:
        return self._call(self._jobs.PauseJob, job_pb2.PauseJobRequest(
            name=_job_name(job), request_id=request_id or str(uuid.uuid4()))).job

    def resume(self, job: Union[str, job_pb2.Job], *, step: Optional[int] = None,
               request_id: str = "") -> job_pb2.Job:
        """Queues a paused, failed or cancelled job again, from its newest checkpoint or that of `step`."""
        name = _job_name(job)
        return self._call(self._jobs.ResumeJob, job_pb2.ResumeJobRequest(
            name=name, checkpoint="" if step is None else f"{name}/checkpoints/{step}",
            request_id=request_id or str(uuid.uuid4()))).job

    def delete(self, job: Union[str, job_pb2.Job], *, request_id: str = "") -> None:
        self._call(self._jobs.DeleteJob, job_pb2.DeleteJobRequest(
            name=_job_name(job), request_id=request_id or str(uuid.uuid4())))

    # What happens to them

    def follow(self, job: Union[str, job_pb2.Job], *, after: Optional[job_pb2.Cursor] = None,
               kinds: Iterable["job_pb2.WatchKind"] = (), live: bool = True,
               min_metric_interval: float = 0, timeout: Optional[float] = None,
               reconnect_seconds: float = RECONNECT_SECONDS) -> Iterator[job_pb2.WatchJobsResponse]:
        """What happens to a job ("-": to all), as messages, from the beginning or after a cursor that a
        message had, to the one with `end`: that alone says that the job has ended. Broken connections and
        restarts of the daemon are bridged, nothing is lost and nothing comes twice. Not `live`: what there
        is so far. TimeoutError when `timeout` seconds have passed."""
        request = job_pb2.WatchJobsRequest(
            name=_job_name(job), after=after, kinds=kinds, follow=live,
            min_metric_interval_ms=int(min_metric_interval * 1000))
        deadline = None if timeout is None else time.monotonic() + timeout
        patience = Patience(reconnect_seconds)
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"{request.name} has not ended within {timeout:g} seconds")
            try:
                for message in self._connection.stream(self._jobs.WatchJobs, request, left):
                    patience.progress()
                    if message.HasField("cursor"):
                        request.after.CopyFrom(message.cursor)
                    if not message.HasField("heartbeat"):
                        yield message
                    if message.HasField("end"):
                        return
                lost: PenstockError = Unreachable("the stream closed without its end",
                                                  code="UNAVAILABLE")
            except PenstockError as error:
                lost = error
            if lost.code != "DEADLINE_EXCEEDED" or deadline is None:
                patience.wait(lost)

    def wait(self, job: Union[str, job_pb2.Job], *, timeout: Optional[float] = None,
             check: bool = True, reconnect_seconds: float = RECONNECT_SECONDS) -> job_pb2.Job:
        """The job as it ended. `check`: JobFailed unless it succeeded."""
        for message in self.follow(job, kinds=[job_pb2.WATCH_KIND_STATE], timeout=timeout,
                                   reconnect_seconds=reconnect_seconds):
            if message.HasField("end"):
                if check and message.end.job.state != job_pb2.JOB_STATE_SUCCEEDED:
                    raise JobFailed(message.end.job)
                return message.end.job
        raise AssertionError("follow() ends with the end or raises")

    def logs(self, job: Union[str, job_pb2.Job], *, follow: bool = False) -> Iterator[str]:
        """The lines of the job's log, all attempts."""
        for message in self.follow(job, kinds=[job_pb2.WATCH_KIND_LOG], live=follow):
            yield from message.log_lines.lines

    def metrics(self, job: Union[str, job_pb2.Job], *, first_step: int = 0, last_step: int = 0,
                max_points: int = 10_000, frame: Optional[bool] = None) -> Any:
        """Steps and evaluations, thinned to at most `max_points`: a pandas DataFrame if pandas is installed,
        else a list of dicts; `frame` says which."""
        rows = rows_of(self._call(self._jobs.ListJobMetrics, job_pb2.ListJobMetricsRequest(
            name=_job_name(job), first_step=first_step, last_step=last_step,
            max_points=max_points)).points)
        if frame is False:
            return rows
        try:
            import pandas
        except ImportError:
            if frame:
                raise
            return rows
        return pandas.DataFrame(rows)

    def trace(self, job: Union[str, job_pb2.Job], *, timeout: Optional[float] = None) -> Dict[str, Any]:
        """What each lane did in the step that a running job does next, measured: a Chrome trace, which
        json.dump() writes as the file that Perfetto opens."""
        pieces = self._connection.stream(self._jobs.TraceJob,
                                         job_pb2.TraceJobRequest(name=_job_name(job)), timeout)
        trace: Dict[str, Any] = json.loads("".join(piece.chrome_trace for piece in pieces))
        return trace

    # Checkpoints

    def checkpoints(self, job: Union[str, job_pb2.Job]) -> List[checkpoint_pb2.Checkpoint]:
        """By step, oldest first."""
        request = checkpoint_service_pb2.ListCheckpointsRequest(parent=_job_name(job))
        found: List[checkpoint_pb2.Checkpoint] = []
        while True:
            page = self._call(self._checkpoints.ListCheckpoints, request)
            found.extend(page.checkpoints)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def save_checkpoint(self, job: Union[str, job_pb2.Job], *, request_id: str = "") -> int:
        """Asks a running job for a checkpoint after its current step. The checkpoint will be of the step
        that is returned, or of a later one."""
        return int(self._call(self._checkpoints.SaveCheckpoint,
                              checkpoint_service_pb2.SaveCheckpointRequest(
                                  parent=_job_name(job),
                                  request_id=request_id or str(uuid.uuid4()))).step)

    def pin(self, checkpoint: str, pinned: bool = True, *,
            request_id: str = "") -> checkpoint_pb2.Checkpoint:
        return self._call(self._checkpoints.PinCheckpoint,
                          checkpoint_service_pb2.PinCheckpointRequest(
                              name=_job_name(checkpoint), pinned=pinned,
                              request_id=request_id or str(uuid.uuid4()))).checkpoint

    def export(self, source: Union[str, job_pb2.Job], directory: Union[str, "os.PathLike[str]"], *,
               export_type: "spec_pb2.ExportType" = spec_pb2.EXPORT_TYPE_UNSPECIFIED,
               request_id: str = "") -> job_pb2.Job:
        """Queues a job that writes a checkpoint, or a job's newest one, as a Hugging Face directory on the
        daemon's machine. Wait for it, then download(f"{job.name}/exports/1", ...) brings it here."""
        checkpoint = _job_name(source)
        if "/checkpoints/" not in checkpoint:
            saved = self.checkpoints(checkpoint)
            if not saved:
                raise LookupError(f"{checkpoint} has no checkpoint to export")
            checkpoint = saved[-1].name
        return self._call(self._checkpoints.ExportCheckpoint,
                          checkpoint_service_pb2.ExportCheckpointRequest(
                              spec=job_pb2.ExportSpec(checkpoint=checkpoint,
                                                      directory=os.path.abspath(directory),
                                                      export_type=export_type),
                              request_id=request_id or str(uuid.uuid4()))).job

    # Files

    def download(self, parent: str, directory: Union[str, "os.PathLike[str]"], *,
                 progress: Optional[transfer.Progress] = None,
                 reconnect_seconds: float = RECONNECT_SECONDS) -> List[pathlib.Path]:
        """Brings the files of jobs/x/checkpoints/7, jobs/x/exports/1 or uploads/y here. Called again after a
        failure, it goes on where it was, and what is here already stays."""
        return transfer.Download(self._connection, parent, pathlib.Path(directory), reconnect_seconds,
                                 progress).run()

    def upload(self, source: Union[str, "os.PathLike[str]"], *, upload_id: str = "", resume: str = "",
               progress: Optional[transfer.Progress] = None,
               reconnect_seconds: float = RECONNECT_SECONDS) -> transfer_service_pb2.Upload:
        """Sends a file, or a directory with all in it. Upload.directory, where it then lies on the daemon's
        machine, may stand in jobs. `resume` names an upload that was broken off, to go on with it."""
        return transfer.Sending(self._connection, source, reconnect_seconds, progress).run(
            upload_id, resume)

    # The daemon

    def server_info(self) -> admin_service_pb2.GetServerInfoResponse:
        return self._call(self._admin.GetServerInfo, admin_service_pb2.GetServerInfoRequest())

    def devices(self) -> List[device_pb2.Device]:
        return list(self._call(self._admin.ListDevices, admin_service_pb2.ListDevicesRequest()).devices)

    def drain(self, message: str = "") -> None:
        """The daemon starts no more jobs; what runs, runs on. `message` is what those who wait are told."""
        self._call(self._admin.DrainServer,
                   admin_service_pb2.DrainServerRequest(draining=True, message=message))

    def undrain(self) -> None:
        self._call(self._admin.DrainServer, admin_service_pb2.DrainServerRequest())

    def create_token(self, user: str, role: "admin_service_pb2.Role", *,
                     expires: Optional[datetime.datetime] = None,
                     comment: str = "") -> admin_service_pb2.CreateTokenResponse:
        """A token and its secret, which is told this once. Tried once: if the reply is lost, make another
        and revoke this one. `expires` needs a time zone."""
        request = admin_service_pb2.CreateTokenRequest(user=user, role=role, comment=comment)
        if expires is not None:
            if expires.tzinfo is None:
                raise ValueError(f"expires: found {expires} without a time zone, expected one, such as "
                                 "datetime.now(timezone.utc) + timedelta(days=30)")
            request.expire_time.FromDatetime(expires)
        return self._connection.call(self._admin.CreateToken, request, tries=1)

    def tokens(self) -> Iterator[admin_service_pb2.Token]:
        """Oldest first, without secrets, fetched as they are asked for."""
        request = admin_service_pb2.ListTokensRequest()
        while True:
            page = self._call(self._admin.ListTokens, request)
            yield from page.tokens
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def revoke_token(self, token: Union[str, admin_service_pb2.Token]) -> admin_service_pb2.Token:
        """Refused from now on; its holder's open streams end."""
        name = token.name if isinstance(token, admin_service_pb2.Token) else token
        return self._call(self._admin.RevokeToken, admin_service_pb2.RevokeTokenRequest(
            name=name if name.startswith("tokens/") else "tokens/" + name)).token

    def audit_entries(self, after: int = 0) -> Iterator[admin_service_pb2.AuditEntry]:
        """What was done by whom, oldest first, from behind the entry of that sequence number, fetched as
        they are asked for. `penstock admin audit verify` checks that none was changed or taken out."""
        request = admin_service_pb2.ListAuditEntriesRequest(after=after)
        while True:
            page = self._call(self._admin.ListAuditEntries, request)
            yield from page.entries
            if not page.entries or page.entries[-1].sequence >= page.last_sequence:
                return
            request.after = page.entries[-1].sequence
