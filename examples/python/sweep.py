"""Trains one job file with several learning rates and exports the best: sweep.py OUTPUT_DIRECTORY."""

import pathlib
import sys

import penstock

JOB_FILE = pathlib.Path(__file__).resolve().parent.parent / "tiny_llama" / "job.yaml"
RATES = (1e-4, 1e-3, 5e-3)


def main():
    with penstock.Client.connect() as client:
        jobs = {}
        for rate in RATES:
            spec = penstock.job_spec(JOB_FILE)
            spec.optimizer.learning_rate = rate
            spec.schedule.max_steps = 20
            jobs[rate] = client.submit(spec)
        losses = {}
        for rate, job in jobs.items():
            losses[rate] = client.wait(job).progress.validation_loss
            print(f"learning rate {rate:g}: validation loss {losses[rate]:.4f}")
        best = min(losses, key=losses.get)
        exported = client.wait(client.export(jobs[best], sys.argv[1]))
        print(f"the model of learning rate {best:g} lies in {exported.artifacts[-1]}")


if __name__ == "__main__":
    main()
