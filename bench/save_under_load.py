#!/usr/bin/env python3
"""What a checkpoint in the background costs a job on this machine: a daemon of its own trains a model
with random weights, once without checkpoints and once with, and compares their steps.

  save_under_load.py --bin DIR --config config.json --work DIR [--tokens_per_step 65536] [--steps 40]

Prints one JSON object. `exposed_seconds` is what the steps took that ran while a checkpoint was
written, beyond as many of the run without; the bound is max(0, write time - step time), plus 2% of
the steps meanwhile. WORK must not exist; the checkpoints in it are deleted at the end.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "reference"))
from own_daemon import Daemon  # noqa: E402


def job_spec(arguments, work, every_steps):
    return {
        "model": {"random": {"config_path": str(work / "config.json")}},
        "data": {"format": "token_ids_jsonl", "paths": [str(work / "train.jsonl")]},
        "batch": {"sequence_length": arguments.sequence_length,
                  "tokens_per_step": arguments.tokens_per_step},
        "optimizer": {"learning_rate": 1e-5},
        "schedule": {"kind": "constant", "max_steps": arguments.steps},
        "checkpoints": {"every_steps": every_steps, "keep_last": 2},
        "device": {"kind": arguments.device},
        "seed": 1,
    }


def write_data(arguments, path):
    numbers = random.Random(1)
    with open(path, "w") as file:
        for _ in range(2 * arguments.tokens_per_step // arguments.sequence_length):
            ids = [numbers.randrange(1000) for _ in range(arguments.sequence_length)]
            file.write(json.dumps({"ids": ids}) + "\n")


def run_job(daemon, arguments, work, name, every_steps):
    path = work / f"{name}.json"
    path.write_text(json.dumps(job_spec(arguments, work, every_steps)))
    daemon.call("submit", path, "--job-id", name, "--wait", "-q")
    points = [p for p in json.loads(daemon.call("metrics", name))["points"] if "stepSeconds" in p]
    checkpoints = json.loads(daemon.call("checkpoints", name))["checkpoints"]
    return points, checkpoints


def save_cost(points, checkpoint, usual):
    """The steps that ran while the checkpoint was written; the last one may have run on alone."""
    written, steps, step = checkpoint["writeSeconds"], [], int(checkpoint["step"])
    by_step = {int(p["step"]): p["stepSeconds"] for p in points}
    while sum(steps) < written and step + len(steps) + 1 in by_step:
        steps.append(by_step[step + len(steps) + 1])
    exposed = sum(steps) - len(steps) * usual
    return {"step": step, "bytes": int(checkpoint["bytes"]), "write_seconds": written,
            "wait_seconds": checkpoint.get("waitSeconds", 0.0), "steps_meanwhile": len(steps),
            "exposed_seconds": exposed,
            "bound_seconds": max(0.0, written - usual) + 0.02 * len(steps) * usual}


def run(arguments):
    work = arguments.work.resolve()
    work.mkdir(parents=True)
    shutil.copy(arguments.config, work / "config.json")
    write_data(arguments, work / "train.jsonl")
    daemon = Daemon(arguments.bin, work, [work])
    try:
        usual, _ = run_job(daemon, arguments, work, "without", 0)
        daemon.call("delete", "without")  # its final checkpoint has the disk's room
        points, checkpoints = run_job(daemon, arguments, work, "with", arguments.every_steps)
        job = json.loads(daemon.call("show", "with"))
    finally:
        daemon.stop()
        shutil.rmtree(work / "state" / "jobs", ignore_errors=True)
    step_seconds = statistics.median(p["stepSeconds"] for p in usual[2:])
    # The final checkpoint has no steps after it.
    costs = [save_cost(points, c, step_seconds) for c in checkpoints
             if int(c["step"]) < arguments.steps]
    print(json.dumps({
        "device": job["device"], "policy": job.get("plan", {}).get("policy"),
        "tokens_per_step": arguments.tokens_per_step, "step_seconds_without": step_seconds,
        "steps_without": [p["stepSeconds"] for p in usual],
        "steps_with": [p["stepSeconds"] for p in points],
        "checkpoint_wait_seconds": [p.get("checkpointWaitSeconds", 0.0) for p in points],
        "checkpoints": costs}, indent=1))


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "config", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--sequence_length", type=int, default=1024)
    parser.add_argument("--tokens_per_step", type=int, default=65536)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every_steps", type=int, default=15)
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    run(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
