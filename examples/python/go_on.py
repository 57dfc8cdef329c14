"""Stops a job in its course and goes on with it. Ids and request ids are of the program's choice, so that it
may be killed and started again anywhere, and never makes a second job."""

import pathlib

import penstock
from penstock.v1 import job_pb2

JOB_FILE = pathlib.Path(__file__).resolve().parent.parent / "tiny_llama" / "job.yaml"


def stop_and_go_on(client, job):
    for message in client.follow(job, kinds=[job_pb2.WATCH_KIND_METRIC]):
        if message.HasField("metrics") and message.metrics.step >= 10:
            break
    client.cancel(job)
    stopped = client.wait(job, check=False)
    saved = client.checkpoints(job)[-1]
    print(f"stopped after step {stopped.progress.step}, saved as {saved.name}")
    client.resume(job)
    client.wait(job)
    for row in client.metrics(job, first_step=saved.step, last_step=saved.step + 2, frame=False):
        print(f"attempt {row['attempt']} step {row['step']}: {row['loss']}")


def main():
    with penstock.Client.connect() as client:
        spec = penstock.job_spec(JOB_FILE)
        spec.schedule.max_steps = 200
        job = client.submit(spec, job_id="goes-on", request_id="goes-on-1")
        if client.job(job).state != job_pb2.JOB_STATE_SUCCEEDED:
            stop_and_go_on(client, job)
        print(f"went on to step {client.wait(job).progress.step}")


if __name__ == "__main__":
    main()
