"""Where the daemon is, and calls to it that are repeated when it is away for a moment."""

from __future__ import annotations

import ipaddress
import json
import os
import pathlib
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple

import grpc

from penstock.errors import PenstockError, Unreachable, from_rpc_error

TRIES = 4
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
# The program and the trace of a step are the largest replies.
MAX_REPLY_BYTES = 128 << 20
TLS = "https://"
OPTIONS = [
    # Calls are repeated here, where the daemon's own word on when to try again is known.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


def _bad_endpoint(source: str, found: str) -> PenstockError:
    return PenstockError(
        f'{source}: found "{found}", expected unix:/path/to/socket, /path/to/socket, host:port or '
        "https://host:port",
        code="INVALID_ARGUMENT", reason="REQUEST_INVALID", metadata={"found": found})


def _checked(source: str, text: str) -> str:
    """unix:/path, host:port, or https://host:port for TLS."""
    if text.startswith("/"):
        return "unix:" + text
    if text.startswith("unix:/"):
        return text
    address = text[len(TLS):] if text.startswith(TLS) else text
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in address or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise _bad_endpoint(source, text)
    return text


def _from_file(path: str) -> str:
    source = f"PENSTOCK_ENDPOINT_FILE {path}"
    try:
        text = pathlib.Path(path).read_text()
    except OSError as error:
        raise Unreachable(f"{source} cannot be read: no daemon has written it, or it has ended ({error})",
                          code="NOT_FOUND", reason="SERVER_UNREACHABLE",
                          metadata={"file": path}) from error
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    for key in ("socket", "tcp_address"):
        value = found.get(key) if isinstance(found, dict) else None
        if isinstance(value, str) and value:
            tls = key == "tcp_address" and found.get("tls") is True
            return _checked(source, TLS + value if tls else value)
    raise _bad_endpoint(source, text[:80])


def _current_context(environment: Mapping[str, str]) -> Optional[str]:
    """The endpoint that `penstock context use` has chosen."""
    if environment.get("XDG_CONFIG_HOME"):
        config = pathlib.Path(environment["XDG_CONFIG_HOME"])
    elif environment.get("HOME"):
        config = pathlib.Path(environment["HOME"]) / ".config"
    else:
        return None
    path = config / "penstock" / "contexts.json"
    try:
        found = json.loads(path.read_text())
        current = found["current"]
        return str(found["contexts"][current]["endpoint"]) if current else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PenstockError(f"{path} is no file of contexts: remove it, and add them again with "
                            "`penstock context add`", code="INVALID_ARGUMENT",
                            reason="REQUEST_INVALID", metadata={"file": str(path)}) from error


def find_endpoint(endpoint: Optional[str] = None,
                  environment: Optional[Mapping[str, str]] = None) -> str:
    """The daemon's endpoint (unix:/path, host:port, https://host:port), found as the command line finds it: `endpoint`, PENSTOCK_ENDPOINT,
    the file that PENSTOCK_ENDPOINT_FILE names, the context in use, the default socket."""
    environment = os.environ if environment is None else environment
    if endpoint:
        return _checked("endpoint", endpoint)
    if environment.get("PENSTOCK_ENDPOINT"):
        return _checked("PENSTOCK_ENDPOINT", environment["PENSTOCK_ENDPOINT"])
    if environment.get("PENSTOCK_ENDPOINT_FILE"):
        return _from_file(environment["PENSTOCK_ENDPOINT_FILE"])
    context = _current_context(environment)
    if context:
        return _checked("context", context)
    if environment.get("XDG_STATE_HOME"):
        return f"unix:{environment['XDG_STATE_HOME']}/penstock/penstock.sock"
    if environment.get("HOME"):
        return f"unix:{environment['HOME']}/.local/state/penstock/penstock.sock"
    raise PenstockError("no endpoint: give endpoint=, or set PENSTOCK_ENDPOINT or HOME",
                        code="INVALID_ARGUMENT", reason="REQUEST_INVALID")


def _stays_on_this_machine(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: Optional[str]) -> Optional[bytes]:
    return pathlib.Path(path).read_bytes() if path else None


class Patience:
    """How long to try again over broken connections: as long as bytes arrive at least every so often."""

    # What another call may do although this one could not.
    BROKEN = ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN")

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self.progress()

    def progress(self) -> None:
        self._last = time.monotonic()
        self._pause = FIRST_PAUSE

    def wait(self, error: PenstockError) -> None:
        """Returns when it is time to try again, or raises what cannot be helped by that."""
        if error.code not in self.BROKEN or time.monotonic() - self._last >= self._limit:
            raise error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


class Connection:
    """A channel, what every call carries, and one way to repeat and to fail."""

    def __init__(self, endpoint: str, *, token: Optional[str], tls_ca: Optional[str],
                 tls_certificate: Optional[str], tls_key: Optional[str], timeout: float) -> None:
        self.target = endpoint
        self.timeout = timeout
        self._metadata: Tuple[Tuple[str, str], ...] = (
            (("authorization", f"Bearer {token}"),) if token else ())
        if endpoint.startswith(TLS):
            credentials = grpc.ssl_channel_credentials(_read(tls_ca), _read(tls_key),
                                                       _read(tls_certificate))
            self.channel = grpc.secure_channel(endpoint[len(TLS):], credentials, options=OPTIONS)
            return
        if token and not _stays_on_this_machine(endpoint):
            raise PenstockError(
                f"{endpoint}: the token would cross the network in plain text: use {TLS}{endpoint}",
                code="INVALID_ARGUMENT", reason="REQUEST_INVALID", metadata={"endpoint": endpoint})
        if tls_certificate or tls_key:
            raise PenstockError(f"{endpoint}: found a certificate for an endpoint without TLS, expected "
                                f"{TLS}host:port", code="INVALID_ARGUMENT", reason="REQUEST_INVALID",
                                metadata={"endpoint": endpoint})
        self.channel = grpc.insecure_channel(endpoint, options=OPTIONS)

    def call(self, method: Callable[..., Any], request: Any, *, timeout: Optional[float] = None,
             tries: int = TRIES) -> Any:
        """A unary call. Tried up to four times if the daemon is unavailable, which is harmless: reads
        change nothing, and what changes something has the same request_id each time, or changes nothing
        when it is done again. What is neither has one try."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        request_id = getattr(request, "request_id", "")
        pause = FIRST_PAUSE
        for tries_left in reversed(range(tries)):
            try:
                return method(request, timeout=max(deadline - time.monotonic(), 0.001),
                              metadata=self._metadata)
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error, self.target)
                error.request_id = request_id
                wait = pause if error.retry_after is None else error.retry_after
                if (error.code != "UNAVAILABLE" or tries_left == 0
                        or time.monotonic() + wait >= deadline):
                    raise error from rpc_error
            time.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")

    def stream(self, method: Callable[..., Any], request: Any,
               timeout: Optional[float] = None) -> Iterator[Any]:
        """The messages of one stream. It is not repeated: who reads it knows from where to go on. Leaving
        the loop ends the call."""
        call = method(request, timeout=timeout, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from error
        finally:
            call.cancel()

    def send(self, method: Callable[..., Any], messages: Iterator[Any],
             timeout: Optional[float] = None) -> Any:
        """A call that streams to the daemon, tried once."""
        try:
            return method(messages, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.target) from error

    def close(self) -> None:
        self.channel.close()
