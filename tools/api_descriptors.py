"""The protos of penstock.v1 as descriptors, comments included: what the tools that read them share."""
import os
import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load(proto_directory=ROOT / "proto"):
    """FileDescriptorProtos of penstock/v1/*.proto beneath `proto_directory`, by name."""
    googleapis = os.environ.get("PENSTOCK_GOOGLEAPIS", ROOT / ".deps/googleapis")
    protos = sorted(pathlib.Path(proto_directory).glob("penstock/v1/*.proto"))
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(
            [os.environ.get("PENSTOCK_PROTOC", "protoc"), f"-I{proto_directory}", f"-I{googleapis}",
             "--include_source_info", f"--descriptor_set_out={file.name}", *map(str, protos)],
            check=True)
        found = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(file.name).read_bytes())
    return sorted(found.file, key=lambda file: file.name)


def type_name(field):
    """"int64", "penstock.v1.Job": as the .proto says it, without repeated and optional."""
    if field.type_name:
        return field.type_name.lstrip(".")
    return descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[len("TYPE_"):].lower()


def is_repeated(field):
    return field.label == descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def oneof_of(message, field):
    """Name of the choice that the field is a member of; empty if it is of none."""
    if field.HasField("oneof_index") and not field.proto3_optional:
        return message.oneof_decl[field.oneof_index].name
    return ""
