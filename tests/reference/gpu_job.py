#!/usr/bin/env python3
"""A job end to end: a daemon of its own trains a model directory, exports it, and the export is
held to Hugging Face transformers.

  gpu_job.py --bin DIR --model DIR --tokens FILE --evaluation FILE --work DIR [--steps 40]

Token files are raw int32 ids; each row of --sequence_length is one document. The loss that the
job reports for the evaluation file after its last step must be that of the exported model in
transformers, in fp32: within 0.2% where the job ran in bf16 on a GPU, 0.001% on the CPU. Prints one
JSON object. Needs numpy, torch and transformers. WORK must not exist; it is left for a look.
"""

import argparse
import json
import pathlib
import sys

import numpy
import torch
import transformers

from own_daemon import Daemon

BOUNDS = {"cpu": 1e-5, "gpu": 2e-3}
ROWS_A_STEP = 4


def write_documents(path, rows):
    path.write_text("".join(json.dumps({"ids": row.tolist()}) + "\n" for row in rows))


def job_spec(arguments, work):
    length = arguments.sequence_length
    return {
        "model": {"directory": str(arguments.model.resolve())},
        "data": {"format": "token_ids_jsonl", "paths": [str(work / "train.jsonl")]},
        "batch": {"sequence_length": length, "tokens_per_step": ROWS_A_STEP * length,
                  "micro_batch_tokens": ROWS_A_STEP // 2 * length},
        "optimizer": {"learning_rate": 2e-4, "beta2": 0.95, "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup_steps": 5, "max_steps": arguments.steps},
        "evaluation": {"validation_paths": [str(work / "evaluation.jsonl")]},
        "output": {"directory": str(work / "model")},
        "device": {"kind": arguments.device},
        "seed": 1,
    }


@torch.no_grad()
def loss_in_transformers(directory, rows):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager").to(device)
    total, labels = 0.0, 0
    for row in torch.from_numpy(rows.astype(numpy.int64)).to(device):
        logits = model(row[None], use_cache=False).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").double().item()
        labels += len(row) - 1
    return total / labels


def run(arguments):
    work = arguments.work.resolve()
    work.mkdir(parents=True)
    read = lambda path: numpy.fromfile(path, dtype="<i4").reshape(-1, arguments.sequence_length)
    held_out = read(arguments.evaluation)
    write_documents(work / "train.jsonl", read(arguments.tokens)[:arguments.steps * ROWS_A_STEP])
    write_documents(work / "evaluation.jsonl", held_out)
    (work / "job.json").write_text(json.dumps(job_spec(arguments, work)))
    daemon = Daemon(arguments.bin, work, [work, arguments.model.resolve()])
    try:
        daemon.call("submit", work / "job.json", "--job-id", "gpu-job", "--wait", "-q")
        job = json.loads(daemon.call("show", "gpu-job"))
        points = json.loads(daemon.call("metrics", "gpu-job"))["points"]
    finally:
        daemon.stop()
    reported = [p["evaluation"]["loss"] for p in points if "evaluation" in p][-1]
    losses = [p["loss"] for p in points if "loss" in p]
    before = loss_in_transformers(arguments.model, held_out)
    after = loss_in_transformers(work / "model", held_out)
    bound = BOUNDS["cpu" if job["device"] == "cpu" else "gpu"]
    print(json.dumps({"device": job["device"], "state": job["state"], "steps": len(losses),
                      "first_step_loss": losses[0], "last_step_loss": losses[-1],
                      "evaluation_loss_reported": reported,
                      "evaluation_loss_of_export_in_transformers": after,
                      "evaluation_loss_before": before}, indent=2))
    if abs(reported - after) > bound * after:
        sys.exit(f"the job reported {reported}, transformers says {after}: more than {bound} apart")
    if not after < before:
        sys.exit(f"the loss did not fall: {before} before, {after} after {arguments.steps} steps")


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "model", "tokens", "evaluation", "work"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--sequence_length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
