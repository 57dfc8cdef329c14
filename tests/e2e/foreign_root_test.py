"""No RPC reads or writes a file outside the allowed roots: every field of every request that names a
path, found in the service descriptors, so that a new one cannot be forgotten."""

import re
import shutil
import unittest

import grpc

import harness
from harness import DEADLINE, EXAMPLE, SOURCE, create, error_of, example_spec

from penstock.v1 import (admin_service_pb2, checkpoint_service_pb2, job_pb2, job_spec_pb2,
                         transfer_service_pb2)

SERVICES = [file.DESCRIPTOR.services_by_name[name] for file, name in
            ((job_pb2, "JobService"), (checkpoint_service_pb2, "CheckpointService"),
             (transfer_service_pb2, "TransferService"), (admin_service_pb2, "AdminService"))]
PATH_NAME = re.compile(r"(^|_)(paths?|directory|file|root)$")

# By the field of the spec: what makes it matter, and how it is set.
def model_directory(spec, path):
    spec.model.directory = path


def config_path(spec, path):
    spec.model.random.config_path = path


def data_path(spec, path):
    spec.data.paths[0] = path


def dataset_path(spec, path):
    spec.data.datasets[0].paths[0] = path


def dataset_info_path(spec, path):
    del spec.data.datasets[0].paths[:]
    spec.data.datasets[0].ClearField("format")
    spec.data.datasets[0].dataset_info.path = path
    spec.data.datasets[0].dataset_info.name = "rows"


def template_path(spec, path):
    spec.data.chat.template_path = path


def validation_path(spec, path):
    spec.evaluation.validation_paths.append(path)


def validation_dataset_path(spec, path):
    spec.evaluation.validation_datasets.add(paths=[path], format=job_spec_pb2.DATA_FORMAT_ALPACA)


def validation_dataset_info_path(spec, path):
    spec.evaluation.validation_datasets.add().dataset_info.path = path
    spec.evaluation.validation_datasets[0].dataset_info.name = "rows"


def output_directory(spec, path):
    spec.output.directory = path + "/out"


PRETRAIN = {
    "model.directory": model_directory,
    "model.random.config_path": config_path,
    "data.paths": data_path,
    "evaluation.validation_paths": validation_path,
    "output.directory": output_directory,
}
TUNE = {
    "data.datasets.paths": dataset_path,
    "data.datasets.dataset_info.path": dataset_info_path,
    "data.chat.template_path": template_path,
    "evaluation.validation_datasets.paths": validation_dataset_path,
    "evaluation.validation_datasets.dataset_info.path": validation_dataset_info_path,
}
# Paths beneath a directory that the daemon has made: names are checked, no root is asked.
RELATIVE = {"CreateUpload": "files.path", "WriteUpload": "path", "ReadFile": "path"}


def path_fields(message):
    """"model.directory" and so on: the fields of a message, at any depth, that name a path."""
    found = set()
    for field in message.fields:
        if field.message_type is not None:
            found |= {f"{field.name}.{name}" for name in path_fields(field.message_type)}
        elif field.type == field.TYPE_STRING and PATH_NAME.search(field.name):
            found.add(field.name)
    return found


class ForeignRootTest(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        self.rows = self.daemon.work / "instructions"
        shutil.copytree(SOURCE / "examples/instructions", self.rows)
        (self.daemon.work / "link").symlink_to("/etc")
        self.transfers = harness.grpc.insecure_channel(self.daemon.target)
        self.addCleanup(self.transfers.close)

    def tuning_spec(self):
        spec = example_spec(type=job_spec_pb2.JOB_TYPE_SFT)
        spec.model.random.config_path = str(self.rows / "config.json")
        spec.data.Clear()
        spec.data.datasets.add(paths=[str(self.rows / "instructions.json")],
                               format=job_spec_pb2.DATA_FORMAT_ALPACA)
        spec.data.chat.builtin = "chatml"
        spec.data.tokenizer.kind = job_spec_pb2.TOKENIZER_KIND_BYTES
        spec.batch.sequence_length = 512
        spec.batch.tokens_per_step = 1024
        spec.batch.micro_batch_tokens = 1024
        return spec

    def call(self, service, method, request):
        """Of any kind but those that the client writes to: all replies."""
        path = f"/{service.full_name}/{method.name}"
        if method.server_streaming:
            invoke = self.transfers.unary_stream(path, type(request).SerializeToString)
            return list(invoke(request, timeout=DEADLINE))
        if method.client_streaming:
            invoke = self.transfers.stream_unary(path, type(request).SerializeToString)
            return [invoke(iter([request]), timeout=DEADLINE)]
        return [self.transfers.unary_unary(path, type(request).SerializeToString)(
            request, timeout=DEADLINE)]

    def refused(self, service, method, request):
        with self.assertRaises(grpc.RpcError, msg=f"{method.full_name}: {request}") as raised:
            self.call(service, method, request)
        return error_of(raised.exception)

    def test_no_rpc_takes_a_path_outside_the_roots(self):
        foreign = ["/etc/passwd", f"{self.daemon.work}/../../../etc/passwd",
                   f"{self.daemon.work}/link/passwd", "/proc/self/root/etc/passwd", "/dev/zero"]
        checked = set()
        for service in SERVICES:
            for method in service.methods:
                fields = path_fields(method.input_type)
                if method.name in RELATIVE:
                    self.assertEqual(fields, {RELATIVE[method.name]})
                    continue
                if method.name == "ExportCheckpoint":
                    self.assertEqual(fields, {"spec.directory"})
                    continue
                if not fields:
                    continue
                prefix = "spec.job." if method.name == "CreateSweep" else "spec."
                self.assertEqual(fields, {prefix + name for name in (*PRETRAIN, *TUNE)},
                                 f"{method.full_name} has a path that no test tries")
                for table, make in ((PRETRAIN, example_spec), (TUNE, self.tuning_spec)):
                    self.call_validly(service, method, make())
                    for name, change in table.items():
                        for path in foreign:
                            spec = make()
                            change(spec, path)
                            code, info, message = self.refused(service, method,
                                                               self.request(method, spec))
                            self.assertEqual((code, info.reason),
                                             (grpc.StatusCode.PERMISSION_DENIED,
                                              "PATH_NOT_ALLOWED"), f"{method.name} {name}: {message}")
                            field = re.sub(r"\[\d+\]", "", info.metadata["field"])
                            self.assertTrue(field.endswith(name), f"{field}: {message}")
                checked.add(method.name)
        self.assertEqual(checked, {"CreateJob", "CreateSweep", "PlanJob", "InspectData", "BuildData"})
        self.assertEqual(len(self.client.jobs.ListJobs(job_pb2.ListJobsRequest()).jobs), 0)
        self.assertTrue(self.daemon.alive())

    @staticmethod
    def request(method, spec):
        if method.name == "CreateSweep":
            return job_pb2.CreateSweepRequest(spec=job_spec_pb2.SweepSpec(
                job=spec, axes=[job_spec_pb2.SweepAxis(field="seed", values=["1", "2"])]))
        return getattr(job_pb2, method.input_type.name)(spec=spec)

    def call_validly(self, service, method, spec):
        """The spec that is spoilt next would have been taken."""
        request = self.request(method, spec)
        if "validate_only" in method.input_type.fields_by_name:
            request.validate_only = True
        self.call(service, method, request)

    def test_an_export_goes_nowhere_else(self):
        name = create(self.client, example_spec(max_steps=2)).name
        self.client.wait(name)
        checkpoint = f"{name}/checkpoints/2"
        for path in ("/etc/out", f"{self.daemon.work}/../out", f"{self.daemon.work}/link/out",
                     str(EXAMPLE / "../out"), str(self.daemon.state / "out")):
            request = checkpoint_service_pb2.ExportCheckpointRequest(
                spec=job_pb2.ExportSpec(checkpoint=checkpoint, directory=path))
            service = SERVICES[1]
            _, info, message = self.refused(service, service.methods_by_name["ExportCheckpoint"],
                                            request)
            self.assertEqual(info.reason, "PATH_NOT_ALLOWED", message)

    def test_no_transfer_leaves_its_directory(self):
        name = create(self.client, example_spec(max_steps=2)).name
        self.client.wait(name)
        service = SERVICES[2]
        outside = ["../manifest.json", "/etc/passwd", "a/../../b", ".", "..", "a//b", "a/./b", "a\0b"]
        for path in outside:
            create_upload = transfer_service_pb2.CreateUploadRequest(
                files=[transfer_service_pb2.FileEntry(path=path, bytes=1, sha256="0" * 64)])
            read = transfer_service_pb2.ReadFileRequest(parent=f"{name}/checkpoints/2", path=path)
            write = transfer_service_pb2.WriteUploadRequest(name="uploads/none", path=path, data=b"x")
            for request in (create_upload, read, write):
                method = service.methods_by_name[type(request).__name__.removesuffix("Request")]
                code, info, message = self.refused(service, method, request)
                self.assertIn(info.reason, ("REQUEST_INVALID", "FILE_NOT_FOUND", "UPLOAD_NOT_FOUND"),
                              message)
                self.assertIn(code, (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND))
        self.assertEqual(list((self.daemon.state / "incoming").glob("*")), [])


if __name__ == "__main__":
    try:
        unittest.main(verbosity=2)
    finally:
        harness.remove_stubs()
