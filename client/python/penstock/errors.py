"""What goes wrong, as exceptions that programs can decide by: `reason` is API (docs/errors.md)."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from penstock.v1 import job_pb2


@dataclasses.dataclass(frozen=True)
class FieldViolation:
    """A field of the request that is at fault: its path ("optimizer.learning_rate"), and what is wrong."""

    field: str
    description: str


class PenstockError(Exception):
    """A call that was refused or failed.

    code: gRPC's, "NOT_FOUND"; reason: one of docs/errors.md, "JOB_NOT_FOUND"; metadata: every value that
    the message names; retry_after: seconds after which the daemon says that trying again is worth
    while; request_id: of a call that changes something, with which it can be made again to the same
    effect."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", reason: str = "",
                 metadata: Optional[Mapping[str, str]] = None,
                 field_violations: Sequence[FieldViolation] = (),
                 retry_after: Optional[float] = None, request_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.field_violations = list(field_violations)
        self.retry_after = retry_after
        self.request_id = request_id

    def __str__(self) -> str:
        text = f"{self.reason or self.code}: {self.message}"
        fix = self.metadata.get("fix")
        return f"{text} (fix: {fix})" if fix else text


class Unreachable(PenstockError):
    """No daemon answers."""


class JobFailed(PenstockError):
    """A job that was waited for has failed or was cancelled; `job` is as it ended."""

    def __init__(self, job: job_pb2.Job) -> None:
        state = job_pb2.JobState.Name(job.state).replace("JOB_STATE_", "").lower()
        error = _from_status(job.error) if job.HasField("error") else PenstockError("")
        super().__init__(f"{job.name} {state}: {error.message or job.state_message or 'no reason given'}",
                         code=error.code, reason=error.reason, metadata=error.metadata,
                         field_violations=error.field_violations)
        self.job = job


class TransferCorrupt(PenstockError):
    """Bytes that arrived are not those that were sent."""


def _code_name(number: int) -> str:
    for code in grpc.StatusCode:
        if code.value[0] == number:
            return str(code.name)
    return "UNKNOWN"


def _from_status(status: status_pb2.Status) -> PenstockError:
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    retry_after = None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(bad_request.DESCRIPTOR):
            detail.Unpack(bad_request)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return PenstockError(
        status.message, code=_code_name(status.code), reason=info.reason, metadata=info.metadata,
        field_violations=[FieldViolation(violation.field, violation.description)
                          for violation in bad_request.field_violations],
        retry_after=retry_after)


def from_rpc_error(error: grpc.RpcError, target: str) -> PenstockError:
    """What a call ended with: the daemon's own status if it gave one, else that it was not reached."""
    trailing: Any = error.trailing_metadata() or ()
    details = dict(trailing)
    try:
        status = status_pb2.Status.FromString(details.get("grpc-status-details-bin", b""))
    except DecodeError:  # no status: gRPC's own words are all there is
        status = status_pb2.Status()
    if status.code:
        return _from_status(status)
    code = error.code().name
    if code == "UNAVAILABLE":
        return Unreachable(f"no daemon answers at {target}: {error.details()}", code=code,
                           reason="SERVER_UNREACHABLE",
                           metadata={"endpoint": target,
                                     "fix": "start penstockd, or name its endpoint with endpoint= or "
                                            "PENSTOCK_ENDPOINT"})
    if code == "DEADLINE_EXCEEDED":
        return PenstockError(f"the daemon at {target} did not answer in time; what was to be changed may have been "
                             "changed all the same", code=code, reason="CALL_TIMED_OUT", metadata={"endpoint": target})
    return PenstockError(error.details() or code, code=code)
