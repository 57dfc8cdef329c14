"""Generates stubs in every language that the distribution's protoc and plugins have, as docs/clients.md says,
and looks whether every message, enum and call has come out; what can be compiled here is."""
import os
import pathlib
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from google.protobuf import descriptor_pb2

SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
PROTOC = os.environ["PENSTOCK_PROTOC"]
GOOGLEAPIS = os.environ["PENSTOCK_GOOGLEAPIS"]
PROTOS = sorted((SOURCE / "proto/penstock/v1").glob("*.proto"))


class StubGenerationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="penstock-stubs-"))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.protoc(f"--descriptor_set_out={cls.root}/set", "--include_imports")
        described = descriptor_pb2.FileDescriptorSet.FromString((cls.root / "set").read_bytes())
        ours = [file for file in described.file if file.package == "penstock.v1"]
        cls.messages = [message.name for file in ours for message in file.message_type]
        cls.calls = [method.name for file in ours for service in file.service for method in service.method]
        assert len(cls.messages) > 100 and len(cls.calls) > 20

    @classmethod
    def protoc(cls, *arguments):
        subprocess.run([PROTOC, f"-I{SOURCE}/proto", f"-I{GOOGLEAPIS}", *arguments, *map(str, PROTOS)],
                       check=True)

    def generate(self, language, plugin=None):
        """All that was written, as one text."""
        out = self.root / language
        out.mkdir()
        arguments = [f"--{language}_out={out}"]
        if plugin:
            found = shutil.which(plugin)
            self.assertIsNotNone(found, f"{plugin}: run tools/install_deps")
            arguments += [f"--grpc_out={out}", f"--plugin=protoc-gen-grpc={found}"]
        self.protoc(*arguments)
        return out, "\n".join(p.read_text(errors="replace") for p in sorted(out.rglob("*")) if p.is_file())

    def expect_names(self, text, names):
        words = set(re.findall(r"\w+", text))
        self.assertEqual([name for name in names if name not in words], [])

    def test_cpp(self):
        _, text = self.generate("cpp", "grpc_cpp_plugin")
        self.expect_names(text, self.messages + self.calls)

    def test_python(self):
        out, text = self.generate("python", "grpc_python_plugin")
        self.expect_names(text, self.calls)
        self.generate("pyi")
        self.expect_names("\n".join(p.read_text() for p in (self.root / "pyi").rglob("*.pyi")), self.messages)
        for path in out.rglob("*.py"):
            py_compile.compile(str(path), doraise=True)
        # google.rpc comes from a package elsewhere.
        subprocess.run([PROTOC, f"-I{GOOGLEAPIS}", f"--python_out={out}", "google/rpc/status.proto"], check=True)
        modules = ", ".join(f"penstock.v1.{p.stem}_pb2_grpc" for p in PROTOS)
        subprocess.run([sys.executable, "-c", f"import {modules}"], check=True,
                       env=dict(os.environ, PYTHONPATH=str(out)))

    def test_ruby(self):
        _, text = self.generate("ruby", "grpc_ruby_plugin")
        self.expect_names(text, self.messages + self.calls)

    def test_php(self):
        _, text = self.generate("php", "grpc_php_plugin")
        self.expect_names(text, self.messages + self.calls)

    def test_java_csharp_and_objective_c_messages(self):
        for language in ("java", "csharp", "objc"):
            out, text = self.generate(language)
            self.expect_names(text, self.messages)


if __name__ == "__main__":
    unittest.main()
