"""A job as a dict or a job file, as the message that the API takes.

The rules are those of the command line (docs/cli.md): keys are the field names of JobSpec; an unknown key,
a key given twice and two members of a choice are refused; a value has the type of its field, whatever
YAML would make of it; enums are short (kind: cosine); relative paths are relative to the job file."""

from __future__ import annotations

import difflib
import json
import math
import os
import pathlib
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import yaml
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from penstock.errors import FieldViolation, PenstockError
from penstock.v1 import job_spec_pb2

MAX_TEXT_BYTES = 1 << 20
MAX_DEPTH = 32
JobSource = Union[job_spec_pb2.JobSpec, Mapping[str, Any], str, "os.PathLike[str]"]
SweepSource = Union[job_spec_pb2.SweepSpec, JobSource]

_BITS = {FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
         FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
         FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
         FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1)}


def _refuse(path: str, problem: str) -> PenstockError:
    return PenstockError(f"{path}: {problem}", code="INVALID_ARGUMENT", reason="SPEC_INVALID",
                         metadata={"field": path}, field_violations=[FieldViolation(path, problem)])


def _unique(pairs: Sequence[Tuple[Any, Any]]) -> Dict[Any, Any]:
    found: Dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _refuse(str(key), "the key is given twice")
        found[key] = value
    return found


class _Loader(yaml.BaseLoader):  # scalars stay text: their type is their field's
    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refuse(f"line {event.start_mark.line + 1}", "anchors and aliases are refused")
        if getattr(event, "tag", None):
            raise _refuse(f"line {event.start_mark.line + 1}", "tags are refused")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        return _unique([(self.construct_object(key, deep=True), self.construct_object(value, deep=True))
                        for key, value in node.value])


def _mapping(loader: Any, node: Any) -> Any:
    return loader.construct_mapping(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _parse(text: str, origin: str) -> Any:
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise _refuse(origin, f"found more than {MAX_TEXT_BYTES} bytes, expected a job file")
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_unique, parse_float=str, parse_int=str)
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise _refuse(origin, f"not YAML or JSON: {error}") from error
    except RecursionError as error:
        raise _refuse(origin, f"more than {MAX_DEPTH} levels deep") from error


def _enum(value: Any, field: Any, path: str) -> int:
    kind: EnumDescriptor = field.enum_type
    if isinstance(value, int) and not isinstance(value, bool) and value in kind.values_by_number:
        return value
    prefix = "".join("_" + c if c.isupper() and i else c for i, c in enumerate(kind.name)).upper() + "_"
    names = {entry.name[len(prefix):].lower() if entry.name.startswith(prefix) else entry.name.lower():
             entry.number for entry in kind.values}
    word = str(value).lower()
    if word.startswith(prefix.lower()):
        word = word[len(prefix):]
    if word not in names:
        raise _refuse(path, f'found "{value}", expected one of '
                            f'{", ".join(n for n in names if n != "unspecified")}')
    return names[word]


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool):
        raise _refuse(path, f"found {value}, expected a number")
    try:
        if isinstance(value, str) and ("_" in value or value != value.strip()):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError):
        raise _refuse(path, f'found "{value}", expected a number') from None
    if not math.isfinite(number):
        raise _refuse(path, f'found "{value}", expected a finite number')
    return number


def _integer(value: Any, field: Any, path: str) -> int:
    text = value if isinstance(value, str) else ""
    digits = text.lstrip("-")
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif digits.isdecimal() and digits.isascii() and (digits == "0" or digits[0] != "0"):
        number = int(text)
    else:
        as_float = _number(value, path)
        if digits.isdecimal() or not as_float.is_integer():
            raise _refuse(path, f'found "{value}", expected an integer')
        number = int(as_float)
    low, high = _BITS[field.cpp_type]
    if not low <= number <= high:
        raise _refuse(path, f"found {number}, expected {low} to {high}")
    return number


def _scalar(value: Any, field: Any, path: str) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _enum(value, field, path)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if value in (True, "true"):
            return True
        if value in (False, "false"):
            return False
        raise _refuse(path, f'found "{value}", expected true or false')
    if field.cpp_type in _BITS:
        return _integer(value, field, path)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _number(value, path)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, str):
        raise _refuse(path, f"found {type(value).__name__}, expected text")
    return value


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_repeated(field: Any) -> bool:
    # The newest protobuf has no `label` any more, the oldest that we take has no `is_repeated` yet.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _fill_field(message: Message, field: Any, value: Any, path: str, depth: int) -> None:
    if _is_map(field):
        if not isinstance(value, Mapping):
            raise _refuse(path, f"found {type(value).__name__}, expected keys and values")
        entry = field.message_type.fields_by_name["value"]
        for key, item in value.items():
            getattr(message, field.name)[str(key)] = _scalar(item, entry, f"{path}.{key}")
    elif _is_repeated(field):
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
            raise _refuse(path, f"found {type(value).__name__}, expected a list")
        items = getattr(message, field.name)
        for i, item in enumerate(value):
            if field.message_type is not None:
                _fill(items.add(), item, f"{path}[{i}]", depth + 1)
            else:
                items.append(_scalar(item, field, f"{path}[{i}]"))
    elif field.message_type is not None:
        child = getattr(message, field.name)
        child.SetInParent()
        _fill(child, value, path, depth + 1)
    else:
        setattr(message, field.name, _scalar(value, field, path))


def _fill(message: Message, value: Any, path: str, depth: int) -> None:
    if not isinstance(value, Mapping):
        raise _refuse(path or "job", f"found {type(value).__name__}, expected keys and values")
    if depth > MAX_DEPTH:
        raise _refuse(path, f"more than {MAX_DEPTH} levels deep")
    fields = {field.name: field for field in message.DESCRIPTOR.fields}
    seen: Dict[str, str] = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else str(key)
        field = fields.get(key)
        if field is None:
            near = difflib.get_close_matches(str(key), list(fields), 1)
            hint = f", did you mean {near[0]}?" if near else f", expected one of {', '.join(fields)}"
            raise _refuse(here, f"unknown key{hint}")
        if item is None:
            continue
        choice = field.containing_oneof
        if choice is not None and len(choice.fields) > 1:
            if choice.name in seen:
                raise _refuse(here, f"found beside {seen[choice.name]}, of which one excludes the other")
            seen[choice.name] = key
        _fill_field(message, field, item, here, depth)


def _set_path(message: Message, name: str, base: pathlib.Path) -> None:
    """Makes a path absolute that is given and is not."""
    value = getattr(message, name)
    if isinstance(value, str):
        if value:
            setattr(message, name, os.path.normpath(base / value))
    else:
        value[:] = [os.path.normpath(base / path) if path else path for path in value]


def _make_paths_absolute(spec: job_spec_pb2.JobSpec, base: pathlib.Path) -> None:
    datasets = list(spec.data.datasets) + list(spec.evaluation.validation_datasets)
    places: List[Tuple[Message, str]] = [(dataset, "paths") for dataset in datasets]
    places += [(dataset.dataset_info, "path") for dataset in datasets if dataset.HasField("dataset_info")]
    if spec.model.HasField("directory"):
        places.append((spec.model, "directory"))
    if spec.model.random.HasField("config_path"):
        places.append((spec.model.random, "config_path"))
    if spec.data.paths:
        places.append((spec.data, "paths"))
    if spec.data.chat.HasField("template_path"):
        places.append((spec.data.chat, "template_path"))
    if spec.evaluation.validation_paths:
        places.append((spec.evaluation, "validation_paths"))
    if spec.output.directory:
        places.append((spec.output, "directory"))
    for message, name in places:
        _set_path(message, name, base)


def job_spec(source: JobSource) -> job_spec_pb2.JobSpec:
    """The JobSpec of a dict, of a job file, or of a JobSpec, which is copied. Relative paths of a dict are
    relative to the working directory, those of a file to the file's."""
    spec = job_spec_pb2.JobSpec()
    if isinstance(source, job_spec_pb2.JobSpec):
        spec.CopyFrom(source)
    else:
        _make_paths_absolute(spec, _read(source, spec))
    return spec


def sweep_spec(source: SweepSource,
               over: Optional[Mapping[str, Sequence[Any]]] = None) -> job_spec_pb2.SweepSpec:
    """The SweepSpec of a job over axes ({"optimizer.learning_rate": [1e-5, 3e-5]}), or, without axes, of a
    dict, of a sweep file, or of a SweepSpec, which is copied. Paths as in job_spec()."""
    sweep = job_spec_pb2.SweepSpec()
    if over is not None:
        if isinstance(source, job_spec_pb2.SweepSpec):
            raise _refuse("over", "found axes for a SweepSpec, which has its own, expected a job")
        sweep.job.CopyFrom(job_spec(source))
        for field, values in over.items():
            sweep.axes.add(field=field, values=[_value_text(value) for value in values])
    elif isinstance(source, job_spec_pb2.SweepSpec):
        sweep.CopyFrom(source)
    elif isinstance(source, job_spec_pb2.JobSpec):
        raise _refuse("over", "is missing, expected the axes of the sweep")
    else:
        _make_paths_absolute(sweep.job, _read(source, sweep))
    return sweep


def _value_text(value: Any) -> str:
    """As the daemon reads it: text stays what it is, all else is JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _read(source: Union[Mapping[str, Any], str, "os.PathLike[str]"], message: Message) -> pathlib.Path:
    """Fills the message from a dict or a file; what its relative paths are relative to."""
    base = pathlib.Path.cwd()
    if isinstance(source, Mapping):
        value: Any = source
    else:
        path = pathlib.Path(source).absolute()
        base = path.parent
        value = _parse(path.read_text(encoding="utf-8"), str(source))
    _fill(message, value, "", 0)
    return base
