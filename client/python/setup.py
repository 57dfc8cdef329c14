"""Generates the stubs of proto/penstock/v1 into the package; everything else is in pyproject.toml.

Needs protoc and grpc_python_plugin (Debian: protobuf-compiler, protobuf-compiler-grpc). Where the
.proto files lie is known from PENSTOCK_PROTO_DIR and PENSTOCK_GOOGLEAPIS, which tools/python_wheel sets,
else from this checkout."""

import os
import pathlib
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = pathlib.Path(os.environ.get("PENSTOCK_PROTO_DIR", ROOT / "proto"))
GOOGLEAPIS = pathlib.Path(os.environ.get("PENSTOCK_GOOGLEAPIS", ROOT / ".deps/googleapis"))


def tool(name):
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not in PATH: install protobuf-compiler and "
                         "protobuf-compiler-grpc (tools/install_deps does)")
    return found


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        protos = sorted((PROTOS / "penstock/v1").glob("*.proto"))
        if not protos or not (GOOGLEAPIS / "google/rpc/status.proto").is_file():
            raise SystemExit(f"no .proto files in {PROTOS}/penstock/v1 or {GOOGLEAPIS}/google/rpc: "
                             "run tools/install_deps, and tools/python_wheel from a checkout")
        subprocess.run(
            [tool("protoc"), f"-I{PROTOS}", f"-I{GOOGLEAPIS}", f"--python_out={self.build_lib}",
             f"--pyi_out={self.build_lib}", f"--grpc_python_out={self.build_lib}",
             f"--plugin=protoc-gen-grpc_python={tool('grpc_python_plugin')}", *map(str, protos)],
            check=True)


setup(cmdclass={"build_py": BuildWithStubs})
