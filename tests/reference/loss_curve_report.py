#!/usr/bin/env python3
"""Compares loss curves: runs of ours with fp32 runs on the same batches, and those with each other.

  loss_curve_report.py --reference 1=fp32_1.jsonl 2=fp32_2.jsonl --ours 1=ours_1.jsonl \\
      --figure curves.svg

A number is the seed of a run's data order: runs of one seed saw the same batches. Prints two
tables in Markdown, on the loss of held-out rows and on the training loss (moving average over
WINDOW steps), and draws both differences. Only the steps that all runs have are compared. Needs
numpy.

Ours "stays inside" where |ours - fp32|, same seed, is less than |fp32 - fp32|, two seeds.
"""

import argparse
import itertools
import json
import sys

import numpy

WINDOW = 50
WIDTH, HEIGHT, MARGIN = 860, 300, 56
OURS_COLOR, SEEDS_COLOR = "#c0392b", "#2c6fbb"


class Curve:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.held_out = {x["step"]: x["evaluation_loss"] for x in lines if "evaluation_loss" in x}
        self.training = numpy.array([x["loss"] for x in lines if "loss" in x])

    def smoothed(self, steps):
        return numpy.convolve(self.training[:steps], numpy.ones(WINDOW) / WINDOW, "valid")


def held_out_series(a, b, steps):
    common = sorted(step for step in a.held_out.keys() & b.held_out.keys() if step <= steps)
    return common, [a.held_out[step] - b.held_out[step] for step in common]


def training_series(a, b, steps):
    return list(range(WINDOW, steps + 1)), list(a.smoothed(steps) - b.smoothed(steps))


def differences(references, ours, steps, series):
    """(label, is_ours, steps, values): every run of ours, then every pair of references."""
    found = [(f"ours - fp32, seed {seed}", True, *series(curve, references[seed], steps))
             for seed, curve in ours.items()]
    found += [(f"fp32 seed {a} - fp32 seed {b}", False,
               *series(references[a], references[b], steps))
              for a, b in itertools.combinations(references, 2)]
    return found


def held_out_table(references, ours, steps):
    columns = [(f"fp32, seed {seed}", curve) for seed, curve in references.items()]
    columns += [(f"ours, seed {seed}", curve) for seed, curve in ours.items()]
    pairs = differences(references, ours, steps, held_out_series)
    names = [name for name, _ in columns] + [label for label, *_ in pairs]
    lines = ["| step | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for index, step in enumerate(pairs[0][2]):
        cells = [f"{curve.held_out[step]:.4f}" for _, curve in columns]
        cells += [f"{values[index]:+.4f}" for *_, values in pairs]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def training_table(references, ours, steps):
    lines = ["| difference | mean | mean of absolute values | largest absolute value |",
             "|---|---|---|---|"]
    for label, _, _, values in differences(references, ours, steps, training_series):
        size = numpy.abs(values)
        lines.append(f"| {label} | {numpy.mean(values):+.4f} | {size.mean():.4f} | "
                     f"{size.max():.4f} |")
    return "\n".join(lines)


def panel(title, top, lines, steps):
    """One plot of absolute differences over steps, on a logarithmic axis, as SVG elements."""
    low, high = 1e-4, 1.0
    x_of = lambda step: MARGIN + (WIDTH - 2 * MARGIN) * step / steps
    share = lambda value: numpy.log10(max(abs(value), low) / low) / numpy.log10(high / low)
    y_of = lambda value: top + HEIGHT - 40 - (HEIGHT - 80) * share(value)
    parts = [f'<text x="{MARGIN}" y="{top + 24}" font-weight="bold">{title}</text>']
    for value in (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        y = y_of(value)
        parts.append(f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in range(0, steps + 1, 100):
        parts.append(f'<text x="{x_of(step):.1f}" y="{top + HEIGHT - 22}" '
                     f'text-anchor="middle">{step}</text>')
    for label, is_ours, at, values in lines:
        points = " ".join(f"{x_of(s):.1f},{y_of(v):.1f}" for s, v in zip(at, values))
        color = OURS_COLOR if is_ours else SEEDS_COLOR
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" '
                     f'stroke-width="1.5"><title>{label}</title></polyline>')
    return parts


def figure(references, ours, steps):
    legend = HEIGHT * 2 + 16
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT * 2 + 30}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="#fff"/>']
    parts += panel("Held-out loss: absolute difference", 0,
                   differences(references, ours, steps, held_out_series), steps)
    parts += panel(f"Training loss, mean of {WINDOW} steps: absolute difference", HEIGHT,
                   differences(references, ours, steps, training_series), steps)
    parts.append(f'<text x="{MARGIN}" y="{legend}" fill="{OURS_COLOR}">ours (bf16) against fp32, '
                 'same batches</text>')
    parts.append(f'<text x="{MARGIN + 300}" y="{legend}" fill="{SEEDS_COLOR}">fp32 against fp32, '
                 'two orders of the data</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def read_curves(words):
    return {seed: Curve(path) for seed, path in (word.split("=", 1) for word in words)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", nargs="+", required=True, metavar="SEED=FILE")
    parser.add_argument("--ours", nargs="+", required=True, metavar="SEED=FILE")
    parser.add_argument("--figure")
    arguments = parser.parse_args()
    references, ours = read_curves(arguments.reference), read_curves(arguments.ours)
    if missing := ours.keys() - references.keys():
        parser.error(f"no reference of seed {', '.join(sorted(missing))}")
    steps = min(len(c.training) for c in (*references.values(), *ours.values()))
    if steps < WINDOW:
        parser.error(f"the runs have {steps} steps in common, wanted at least {WINDOW}")
    print(held_out_table(references, ours, steps))
    print(f"\n{training_table(references, ours, steps)}")
    if arguments.figure:
        with open(arguments.figure, "w", encoding="utf-8") as file:
            file.write(figure(references, ours, steps))
    return 0


if __name__ == "__main__":
    sys.exit(main())
