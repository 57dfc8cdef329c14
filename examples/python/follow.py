"""Submits a job that is a dict and follows it to its end, over restarts of the daemon."""

import pathlib

import penstock
from penstock.v1 import job_pb2

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "tiny_llama"

JOB = {
    "display_name": "followed by a program",
    "model": {"random": {"config_path": EXAMPLE / "config.json"}},
    "data": {"format": "text", "paths": [EXAMPLE / "text.txt"], "text_documents": "blank_line"},
    "batch": {"sequence_length": 64, "tokens_per_step": 512},
    "optimizer": {"learning_rate": 3e-3},
    "schedule": {"kind": "cosine", "max_steps": 30},
    "evaluation": {"validation_fraction": 0.1, "every_steps": 10},
    "checkpoints": {"every_steps": 10},
    "limits": {"compute_threads": 1},
    "seed": 7,
}


def main():
    with penstock.Client.connect() as client:
        try:
            job = client.submit(JOB)
        except penstock.PenstockError as error:
            for violation in error.field_violations:
                print(f"{violation.field}: {violation.description}")
            raise
        for message in client.follow(job):
            if message.HasField("metrics") and message.metrics.HasField("evaluation"):
                print(f"evaluation after step {message.metrics.step}: "
                      f"{message.metrics.evaluation.loss:.4f}")
            elif message.HasField("metrics"):
                print(f"step {message.metrics.step}: loss {message.metrics.loss:.4f}")
            elif message.HasField("checkpoint_saved"):
                print(f"{message.checkpoint_saved.checkpoint.name} saved")
            elif message.HasField("end"):
                print(f"{job.name} ended: {job_pb2.JobState.Name(message.end.job.state)}")


if __name__ == "__main__":
    main()
