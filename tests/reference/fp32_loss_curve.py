#!/usr/bin/env python3
"""Trains a Hugging Face llama in fp32 with PyTorch and prints what penstock_loss_curve prints.

  fp32_loss_curve.py --model DIR --tokens FILE --evaluation FILE --steps 1000

The same batches in the same order (bench/loss_curve.cc says which), the same schedule, clip and
AdamW. fp32 throughout: no TF32, eager attention. Runs on the first GPU, or on the CPU without
one. Needs torch and transformers.

--round_weights lets forward and backward see the weights rounded to bf16, and nothing else of
bf16: it tells what the rounding of weights alone does to a curve.

Clipping multiplies by max_norm / norm where norm > max_norm, without the 1e-6 that
torch.nn.utils.clip_grad_norm_ adds. The norm is summed in fp64: on the CPU, torch's fp32 sum over an
embedding's 28 million gradients comes out 1e-3 too small.
"""

import argparse
import contextlib
import json
import math
import sys

import numpy
import torch
import transformers

MAX_GRAD_NORM = 1.0
FINAL_FRACTION = 0.1
LINES_AT_A_TIME = 10  # reading a loss waits for the GPU


def read_rows(path, sequence_length):
    ids = numpy.fromfile(path, dtype="<i4")
    count = len(ids) // sequence_length
    return torch.from_numpy(ids[:count * sequence_length].reshape(count, sequence_length)
                            .astype(numpy.int64))


def learning_rate(arguments, step):
    """Linear warm-up, then a cosine to FINAL_FRACTION of the peak; `step` from 0."""
    if step < arguments.warmup_steps:
        return arguments.learning_rate * (step + 1) / arguments.warmup_steps
    progress = (step - arguments.warmup_steps) / max(1, arguments.steps - arguments.warmup_steps)
    cosine = (1 + math.cos(math.pi * progress)) / 2
    return arguments.learning_rate * (FINAL_FRACTION + (1 - FINAL_FRACTION) * cosine)


def loss_of(model, rows, reduction="mean"):
    logits = model(rows, use_cache=False).logits
    assert logits.dtype == torch.float32
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten(),
                                             reduction=reduction)


def make_optimizer(model, weight_decay, device):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": weight_decay},
                              {"params": vectors, "weight_decay": 0.0}],
                             betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")


@contextlib.contextmanager
def weights_of(model, rounded):
    """The model's weights, or while in here the bf16 values nearest to them."""
    exact = [p.detach().clone() for p in model.parameters()] if rounded else []
    with torch.no_grad():
        for parameter in model.parameters() if rounded else []:
            parameter.copy_(parameter.bfloat16())
    yield
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), exact):
            parameter.copy_(value)


def train_step(model, optimizer, rows, rate, rounded):
    """Loss and the norm of its gradient, as tensors."""
    optimizer.zero_grad(set_to_none=True)
    with weights_of(model, rounded):
        loss = loss_of(model, rows)
        loss.backward()
    gradients = [p.grad for p in model.parameters()]
    norms = torch._foreach_norm(gradients, dtype=torch.float64)
    norm = torch.linalg.vector_norm(torch.stack(norms)).float()
    torch._foreach_mul_(gradients, torch.clamp(MAX_GRAD_NORM / norm, max=1.0))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return loss.detach(), norm


@torch.no_grad()
def evaluate(model, rows, batch, step, rounded):
    total, labels = 0.0, 0
    with weights_of(model, rounded):
        for first in range(0, len(rows) - batch + 1, batch):
            some = rows[first:first + batch]
            total += loss_of(model, some, reduction="sum").double().item()
            labels += some[:, 1:].numel()
    print_line({"step": step, "evaluation_loss": total / labels, "labelled_tokens": labels})


def print_line(line):
    print(json.dumps(line), flush=True)


def run(arguments):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        arguments.model, dtype=torch.float32, attn_implementation="eager").to(device).train()
    rows = read_rows(arguments.tokens, arguments.sequence_length).to(device)
    held_out = read_rows(arguments.evaluation, arguments.sequence_length).to(device)
    batch = arguments.rows_per_step
    if len(rows) < arguments.steps * batch or len(held_out) < batch:
        sys.exit(f"{arguments.tokens} has {len(rows)} rows, the run needs "
                 f"{arguments.steps * batch}; {arguments.evaluation} has {len(held_out)}, a batch "
                 f"needs {batch}")
    optimizer = make_optimizer(model, arguments.weight_decay, device)
    evaluate(model, held_out, batch, 0, arguments.round_weights)
    waiting = []
    for step in range(arguments.steps):
        rate = learning_rate(arguments, step)
        loss, norm = train_step(model, optimizer, rows[step * batch:(step + 1) * batch], rate,
                                arguments.round_weights)
        waiting.append((step + 1, loss, norm, rate))
        last = step + 1 == arguments.steps
        due = last or (step + 1) % arguments.evaluate_every == 0
        if due or len(waiting) == LINES_AT_A_TIME:
            for number, loss, norm, rate in waiting:
                print_line({"step": number, "loss": loss.item(), "grad_norm": norm.item(),
                            "learning_rate": rate})
            waiting.clear()
        if due:
            evaluate(model, held_out, batch, step + 1, arguments.round_weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--evaluation", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rows_per_step", type=int, default=4)
    parser.add_argument("--sequence_length", type=int, default=512)
    parser.add_argument("--evaluate_every", type=int, default=50)
    parser.add_argument("--warmup_steps", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--round_weights", action="store_true")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
