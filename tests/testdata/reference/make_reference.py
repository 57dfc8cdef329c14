#!/usr/bin/env python3
"""Makes the reference values that our decoder is held to, with Hugging Face transformers.

  make_reference.py OUTPUT_DIRECTORY [--float64 FLOAT64_DIRECTORY]

Needs torch and transformers (SOURCES.txt says which versions made the fixtures that are
checked in). Runs on the CPU, in fp32, with eager attention, in seconds.

Each case of cases.py becomes a folder:
  config.json, model.safetensors   a Hugging Face directory, random weights, F32
  case.json                        hyper-parameters of the optimizer step
  expected.safetensors             what the model computes, F32 and I32:
    ids, position_ids, labels [T]    labels[t] is the token that position t predicts, or -1
    document_starts [D + 1]          first 0, last T
    loss [1]                         sum of cross entropies / number of labels
    logits [T, vocab]
    grad.NAME                        gradient of `loss`, for each parameter
    grad_norm [1]                    over all parameters, before clipping
    updated.NAME                     after one step of torch.optim.AdamW on clipped gradients
    wide.NAME                        the same step with the wide epsilon of case.json
    wide2.NAME                       two cases: after a second such step on the same tokens

Packed documents: each document goes through the model alone, at positions from 0, and sums are
divided by the number of labels of all documents. That is what isolation means, so no mask of a
packed batch can be wrong here.

Clipping: gradients are multiplied by max_norm / norm. torch.nn.utils.clip_grad_norm_ divides by
norm + 1e-6, which is not the norm that was asked for.

Why a wide epsilon: with a small one the first step moves a weight by lr * sign(gradient) however
small the gradient is, so where a gradient is nearly zero its rounding errors decide the result,
in the reference as well. `updated` is for checking an optimizer on the gradients given here, and
`wide` is for a whole step, gradients included.

--float64 computes the same in float64 throughout (norms, softmax and rotary angles too, which
transformers computes in float32 whatever the model's type), says in NOISE.txt how far
the float32 values are from it, and writes it to FLOAT64_DIRECTORY/CASE.safetensors.
"""

import argparse
import contextlib
import hashlib
import importlib
import inspect
import json
import math
import pathlib
import platform
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

from cases import CASES

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
HYPER = {
    "learning_rate": 1e-2,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "wide_epsilon": 1e-2,
    "weight_decay": 0.1,
}
IGNORED = -1
NOISE_HEAD = """\
How far the float32 values of each case are from the same in float64 throughout: the largest
|error| / |value| of a tensor by Euclidean norm, the largest by peak (max|error| / max|value|),
and the tensor that has the former.

"""


def modeling_module(family):
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


class Float64Torch:
    """Stands in for the name `torch` inside a module: its float32 is float64."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def float64_throughout():
    modules = [modeling_module(f) for f in FAMILIES]
    modules.append(importlib.import_module("transformers.modeling_rope_utils"))
    tensor_float = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    for module in modules:
        module.torch = Float64Torch()
    try:
        yield
    finally:
        for module in modules:
            module.torch = torch
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = tensor_float


def make_config(case):
    config_class = type(transformers.AutoConfig.for_model(case.family))
    return config_class(attention_dropout=0.0, bos_token_id=None, eos_token_id=None,
                        **case.config)


def randomize(model, generator):
    """Weights large enough that leaving out any part of the model shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.1 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(0.2 * noise)


def respell_config(path, case):
    """Writes config.json the way `case` wants it."""
    config = json.loads(path.read_text())
    if case.spelling == "rope_scaling":
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        if kind == "default":
            config["rope_scaling"] = None
        elif kind == "linear":  # older still: the kind was called "type"
            config["rope_scaling"] = {"type": kind, **rope}
        else:
            config["rope_scaling"] = {"rope_type": kind, **rope}
        config["torch_dtype"] = config.pop("dtype")
    assert ("rope_parameters" in config) == (case.spelling == "rope_parameters")
    for key in case.drop_json:
        del config[key]
    config.update(case.extra_json)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def rope_numbers(config):
    """The rotary numbers of a configuration, without the spelling of their names."""
    rope = dict(config.rope_parameters)
    rope.pop("type", None)
    return {k: float(v) if isinstance(v, (int, float)) else v for k, v in rope.items()}


def write_model(case, directory, generator):
    """Writes the Hugging Face directory and returns the model as read back from it."""
    built = transformers.AutoModelForCausalLM.from_config(
        make_config(case), attn_implementation="eager", dtype=torch.float32)
    randomize(built, generator)
    built.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    respell_config(directory / "config.json", case)

    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32)
    assert model.config._attn_implementation == "eager"
    assert rope_numbers(model.config) == rope_numbers(built.config), case.name
    for key in case.config.keys() - {"rope_parameters", "max_window_layers"}:
        assert getattr(model.config, key) == getattr(built.config, key), (case.name, key)
    for key in ("layer_types", "sliding_window", "head_dim"):
        assert getattr(model.config, key, None) == getattr(built.config, key, None), key
    for (name, a), (_, b) in zip(built.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(a, b), (case.name, name)
    assert torch.equal(built.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)
    return model.train()


def make_batch(case, generator):
    """ids and labels of the documents; two labels in the middle of the longest are ignored."""
    vocab = case.config["vocab_size"]
    documents = []
    for length in case.document_lengths:
        ids = torch.randint(0, vocab, (length,), generator=generator)
        labels = torch.full((length,), IGNORED)
        labels[:-1] = ids[1:]
        if length == max(case.document_lengths):
            labels[length // 2:length // 2 + 2] = IGNORED
        documents.append((ids, labels))
    return documents


def forward_backward(model, documents):
    """Returns (loss, logits [T, vocab]); leaves the gradients of the loss in the model."""
    labelled = sum(int((labels != IGNORED).sum()) for _, labels in documents)
    total, rows = 0.0, []
    model.zero_grad(set_to_none=True)
    for ids, labels in documents:
        logits = model(input_ids=ids[None], position_ids=torch.arange(len(ids))[None],
                       use_cache=False).logits[0]
        rows.append(logits.detach())
        total = total + F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    loss = total / labelled
    loss.backward()
    return loss.detach(), torch.cat(rows)


def gradient_norm(model):
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))


def make_optimizer(model, epsilon):
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    spared = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": HYPER["weight_decay"]},
              {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=HYPER["learning_rate"], eps=epsilon,
                             betas=(HYPER["beta1"], HYPER["beta2"]), foreach=False, fused=False)


def clip(model, max_norm):
    norm = gradient_norm(model)
    assert norm > max_norm, "the case is meant to clip"
    for parameter in model.parameters():
        parameter.grad.mul_(max_norm / norm)


def run_steps(model, documents, epsilon, max_norm, steps):
    """The weights after each of `steps` steps; the model gets its own weights back."""
    original = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = make_optimizer(model, epsilon)
    results = []
    for _ in range(steps):
        forward_backward(model, documents)
        clip(model, max_norm)
        optimizer.step()
        results.append({n: p.detach().clone() for n, p in model.named_parameters()})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(original[name])
    return results


def compute(model, documents, steps, max_norm=None):
    """All expected tensors of a case but its integer inputs, and the clipping norm used."""
    loss, logits = forward_backward(model, documents)
    norm = gradient_norm(model)
    expected = {"loss": loss.reshape(1), "logits": logits,
                "grad_norm": torch.tensor([norm], dtype=loss.dtype)}
    for name, parameter in model.named_parameters():
        expected[f"grad.{name}"] = parameter.grad.clone()
    max_norm = max_norm or float(f"{0.4 * norm:.3g}")
    updated = run_steps(model, documents, HYPER["epsilon"], max_norm, 1)[0]
    wide = run_steps(model, documents, HYPER["wide_epsilon"], max_norm, steps)
    for name in updated:
        expected[f"updated.{name}"] = updated[name]
        for step, weights in enumerate(wide):
            expected[f"wide{step + 1 if step else ''}.{name}"] = weights[name]
    return {k: v.contiguous() for k, v in expected.items()}, max_norm


def integer_tensors(documents):
    starts = [0]
    for ids, _ in documents:
        starts.append(starts[-1] + len(ids))
    tensors = {"ids": torch.cat([ids for ids, _ in documents]),
               "labels": torch.cat([labels for _, labels in documents]),
               "position_ids": torch.cat([torch.arange(len(ids)) for ids, _ in documents]),
               "document_starts": torch.tensor(starts)}
    return {k: v.to(torch.int32) for k, v in tensors.items()}


def float64_of(case, directory, documents, max_norm):
    with float64_throughout():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation="eager", dtype=torch.float64).train()
        assert all(p.dtype == torch.float64 for p in model.parameters())
        assert model.model.rotary_emb.inv_freq.dtype == torch.float64
        return compute(model, documents, case.steps, max_norm)[0]


def noise_lines(case, expected, exact):
    """One line a kind of value: the largest errors of float32 against float64."""
    worst = {}
    for name, value in expected.items():
        want = exact[name]
        error = value.double() - want
        kind = name.split(".")[0]
        norm_error = float(error.norm() / want.norm())
        peak_error = float(error.abs().max() / want.abs().max())
        worst.setdefault(kind, []).append((norm_error, peak_error, name))
    return [f"{case.name:28}  {kind:9}  {max(errors)[0]:.1e}  "
            f"{max(e[1] for e in errors):.1e}  {max(errors)[2]}"
            for kind, errors in worst.items()]


def write_sources(path):
    """Which code made the fixtures: versions, and a hash of every file that matters."""
    lines = [f"python {platform.python_version()}", f"torch {torch.__version__}",
             f"transformers {transformers.__version__}", "",
             "sha256 of inspect.getsource:"]
    modules = [modeling_module(f) for f in FAMILIES]
    modules += [importlib.import_module(f"transformers.models.{f}.configuration_{f}")
                for f in FAMILIES]
    modules += [importlib.import_module("transformers.modeling_rope_utils"),
                importlib.import_module("transformers.masking_utils"),
                importlib.import_module("torch.optim.adamw"),
                importlib.import_module("torch.optim.adam")]
    for module in modules:
        digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
        lines.append(f"{digest}  {module.__name__}")
    path.write_text("\n".join(lines) + "\n")


def make_case(index, case, output, float64_directory):
    generator = torch.Generator().manual_seed(1000 + index)
    directory = output / case.name
    directory.mkdir(parents=True)
    model = write_model(case, directory, generator)
    documents = make_batch(case, generator)
    expected, max_norm = compute(model, documents, case.steps)
    save_file(integer_tensors(documents) | expected, directory / "expected.safetensors",
              metadata={"format": "pt"})
    for path in directory.iterdir():
        path.chmod(0o644)
    (directory / "case.json").write_text(
        json.dumps(HYPER | {"max_norm": max_norm, "steps": case.steps}, indent=2) + "\n")
    print(f"{case.name:30} loss {float(expected['loss']):.4f}, "
          f"norm {float(expected['grad_norm']):.4f} clipped to {max_norm}")
    if not float64_directory:
        return []
    exact = float64_of(case, directory, documents, max_norm)
    save_file(exact, float64_directory / f"{case.name}.safetensors")
    return noise_lines(case, expected, exact)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--float64", type=pathlib.Path)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.float64:
        arguments.float64.mkdir(parents=True, exist_ok=True)
    noise = []
    for index, case in enumerate(CASES):
        noise += make_case(index, case, arguments.output, arguments.float64)
    if arguments.float64:
        (arguments.output / "NOISE.txt").write_text(NOISE_HEAD + "\n".join(noise) + "\n")
    write_sources(arguments.output / "SOURCES.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
