"""Files to and from the daemon's machine. A broken connection costs at most the piece that was under way:
a download goes on after the bytes that lie in FILE.part, an upload after those that the daemon has."""

from __future__ import annotations

import hashlib
import os
import pathlib
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import crc32c

from penstock.connection import Connection, Patience
from penstock.errors import PenstockError, TransferCorrupt
from penstock.v1 import transfer_service_pb2 as pb
from penstock.v1 import transfer_service_pb2_grpc

PIECE_BYTES = 1 << 20
# Called with a file's path, the bytes that have arrived, and all its bytes.
Progress = Callable[[str, int, int], None]
AnyPath = Union[str, "os.PathLike[str]"]


def _hash_file(path: pathlib.Path) -> Any:
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            hasher.update(piece)
    return hasher


def _corrupt(path: str, problem: str) -> TransferCorrupt:
    return TransferCorrupt(f"{path}: {problem}: transfer it again", code="DATA_LOSS",
                           metadata={"file": path})


def _safe(path: str) -> str:
    """A path that stays beneath the directory that it is joined to. A daemon is believed only so far."""
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or "\0" in path or any(p in ("", ".", "..") for p in parts):
        raise _corrupt(path, "found a path that leaves its directory, expected a relative one")
    return path


class Download:
    """The files of one checkpoint, upload or exported directory."""

    def __init__(self, connection: Connection, parent: str, directory: pathlib.Path,
                 reconnect_seconds: float, progress: Optional[Progress]) -> None:
        self._connection = connection
        self._stub = transfer_service_pb2_grpc.TransferServiceStub(connection.channel)
        self._parent = parent
        self._directory = directory
        self._reconnect_seconds = reconnect_seconds
        self._progress = progress or (lambda path, done, total: None)

    def run(self) -> List[pathlib.Path]:
        files = self._connection.call(self._stub.ListFiles, pb.ListFilesRequest(parent=self._parent)).files
        return [self._fetch(entry, self._directory / _safe(entry.path)) for entry in files]

    def _fetch(self, entry: pb.FileEntry, target: pathlib.Path) -> pathlib.Path:
        if target.is_file() and target.stat().st_size == entry.bytes and entry.sha256:
            if _hash_file(target).hexdigest() == entry.sha256:
                return target
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        if part.exists() and (not entry.sha256 or part.stat().st_size > entry.bytes):
            part.unlink()  # without a hash there is no telling whose bytes these are
        hasher = _hash_file(part) if part.exists() else hashlib.sha256()
        with open(part, "ab") as file:
            wanted = self._read(entry, file, hasher) or entry.sha256
            file.flush()
            os.fsync(file.fileno())
        if wanted and hasher.hexdigest() != wanted:
            part.unlink()
            raise _corrupt(entry.path, f"found sha256 {hasher.hexdigest()}, expected {wanted}")
        os.replace(part, target)
        return target

    def _read(self, entry: pb.FileEntry, file: Any, hasher: Any) -> str:
        """Appends what is missing; the hash of the whole file if the daemon says it at the end."""
        patience = Patience(self._reconnect_seconds)
        while True:
            request = pb.ReadFileRequest(parent=self._parent, path=entry.path, offset=file.tell())
            try:
                for message in self._connection.stream(self._stub.ReadFile, request):
                    if not message.data:
                        return self._ended(entry, file, message)
                    if crc32c.crc32c(message.data) != message.crc32c:
                        raise _corrupt(entry.path, f"the bytes at {file.tell()} differ from their crc32c")
                    if file.tell() + len(message.data) > entry.bytes:
                        raise _corrupt(entry.path, f"found more than the {entry.bytes} bytes expected")
                    file.write(message.data)
                    hasher.update(message.data)
                    patience.progress()
                    self._progress(entry.path, file.tell(), entry.bytes)
                raise PenstockError("the stream closed without its end", code="UNAVAILABLE")
            except TransferCorrupt:
                raise
            except PenstockError as error:
                patience.wait(error)

    def _ended(self, entry: pb.FileEntry, file: Any, last: pb.ReadFileResponse) -> str:
        if file.tell() != entry.bytes:
            raise _corrupt(entry.path, f"found {file.tell()} bytes, expected {entry.bytes}")
        return str(last.sha256)


def _files_of(source: pathlib.Path) -> Dict[str, pathlib.Path]:
    """Relative path to file, by path. Links to files are followed, as model caches are made of them."""
    if source.is_file():
        return {source.name: source}
    if not source.is_dir():
        raise PenstockError(f"{source}: no such file or directory", code="NOT_FOUND",
                            reason="REQUEST_INVALID", metadata={"file": str(source)})
    found: Dict[str, pathlib.Path] = {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = pathlib.Path(folder) / name
            if not path.is_file():
                raise PenstockError(f"{path}: found something that is no regular file, expected only "
                                    "files and directories: remove it", code="INVALID_ARGUMENT",
                                    reason="REQUEST_INVALID", metadata={"file": str(path)})
            found[path.relative_to(source).as_posix()] = path
    return dict(sorted(found.items()))


class Sending:
    """One upload of a file or of a directory with all that lies in it."""

    def __init__(self, connection: Connection, source: AnyPath, reconnect_seconds: float,
                 progress: Optional[Progress]) -> None:
        self._connection = connection
        self._stub = transfer_service_pb2_grpc.TransferServiceStub(connection.channel)
        self._paths = _files_of(pathlib.Path(source))
        self._reconnect_seconds = reconnect_seconds
        self._progress = progress or (lambda path, done, total: None)

    def run(self, upload_id: str, name: str) -> pb.Upload:
        entries = [pb.FileEntry(path=relative, bytes=path.stat().st_size,
                                sha256=_hash_file(path).hexdigest())
                   for relative, path in self._paths.items()]
        upload = self._begin(upload_id, name, entries)
        if upload.complete:
            return upload
        for index, entry in enumerate(upload.files):
            self._send(upload.name, index, entry)
        request = pb.FinishUploadRequest(name=upload.name, request_id=str(uuid.uuid4()))
        # Every byte is read again there: as long as it takes.
        return self._connection.call(self._stub.FinishUpload, request, timeout=24 * 3600).upload

    def _begin(self, upload_id: str, name: str, entries: List[pb.FileEntry]) -> pb.Upload:
        if not name:
            return self._connection.call(self._stub.CreateUpload, pb.CreateUploadRequest(
                upload_id=upload_id, files=entries, request_id=str(uuid.uuid4()))).upload
        upload = self._get(name)
        announced = {entry.path: (entry.bytes, entry.sha256) for entry in upload.files}
        if announced != {entry.path: (entry.bytes, entry.sha256) for entry in entries}:
            raise PenstockError(f"{name}: the files are not those that were announced: begin a new upload",
                                code="INVALID_ARGUMENT", reason="REQUEST_INVALID",
                                metadata={"upload": name})
        return upload

    def _get(self, name: str) -> pb.Upload:
        return self._connection.call(self._stub.GetUpload, pb.GetUploadRequest(name=name)).upload

    def _send(self, name: str, index: int, entry: pb.FileEntry) -> None:
        patience = Patience(self._reconnect_seconds)
        most = -1
        while True:
            try:
                offset = self._get(name).received_bytes[index]
                if offset >= entry.bytes:
                    return
                if offset > most:
                    patience.progress()
                    most = offset
                received = self._connection.send(
                    self._stub.WriteUpload, self._pieces(name, entry, offset)).received_bytes
                if received <= offset:
                    raise _corrupt(entry.path, f"found {offset} bytes, expected {entry.bytes}: the file "
                                               "has changed while it was sent")
                continue
            except TransferCorrupt:
                raise
            except PenstockError as error:
                # Bytes from before a cut may still be on their way: ask again where to go on.
                lost = (error if error.reason != "UPLOAD_OFFSET"
                        else PenstockError(error.message, code="UNAVAILABLE", reason=error.reason))
            patience.wait(lost)

    def _pieces(self, name: str, entry: pb.FileEntry, offset: int) -> Iterator[pb.WriteUploadRequest]:
        with open(self._paths[entry.path], "rb") as file:
            file.seek(offset)
            begin = offset
            while offset < entry.bytes and (data := file.read(min(PIECE_BYTES, entry.bytes - offset))):
                message = pb.WriteUploadRequest(offset=offset, data=data, crc32c=crc32c.crc32c(data))
                if offset == begin:
                    message.name, message.path = name, entry.path
                yield message
                offset += len(data)
                self._progress(entry.path, offset, entry.bytes)
