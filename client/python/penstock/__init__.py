"""Client of penstockd.

    import penstock

    with penstock.Client.connect() as client:
        job = client.submit("job.yaml")
        job = client.wait(job.name)
        print(client.metrics(job.name))

What goes in and comes out are the messages of the API (penstock.v1, documented in the .proto files);
a job may also be given as a dict or as the path of a job file. Errors are PenstockError."""

from penstock.client import Client
from penstock.connection import find_endpoint
from penstock.errors import (FieldViolation, JobFailed, PenstockError, TransferCorrupt,
                             Unreachable)
from penstock.job_file import job_spec, sweep_spec

__all__ = ["Client", "FieldViolation", "JobFailed", "PenstockError", "TransferCorrupt",
           "Unreachable", "find_endpoint", "job_spec", "sweep_spec"]
