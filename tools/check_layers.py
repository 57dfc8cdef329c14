#!/usr/bin/env python3
"""Checks that a folder includes only what stands above it in the list of docs/architecture.md.

Rules:
  engine/<folder> includes engine/ folders up to its own place in ENGINE_ORDER;
  server/ includes of the engine only engine/engine.h, engine/base, and the few headers in
  SERVER_MAY; client/ of the engine only engine/base and what reads checkpoints without a daemon,
  CLIENT_MAY;
  CUDA headers only in CUDA_FOLDERS and in *_cuda.* files.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINE_ORDER = ["base", "model", "provenance", "plan", "memory", "cuda", "kernels", "nn", "exec",
                "tokenizer", "template", "data", "train", "audit"]
CUDA_FOLDERS = ("engine/cuda/", "engine/exec/cuda/")
# Path rules, memory limits and what columns of rows mean are needed before a job exists; who holds a
# checkpoint, while it runs.
SERVER_MAY = {"engine/engine.h", "engine/train/checkpoint_directory.h", "engine/train/rooted_file.h",
              "engine/memory/host_memory.h", "engine/data/dataset_info.h",
              "engine/data/format_spec.h", "engine/provenance/sha256.h",
              "engine/provenance/signing_key.h"}
# `penstock verify` and `penstock diff` are to work where no daemon is: they read files, and nothing
# of a job.
CLIENT_MAY = ("base", "provenance", "audit")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)


def engine_folder(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "engine" else None


def problems_of(path, text):
    own = engine_folder(path)
    for included in INCLUDE.findall(text):
        if re.match(r"(cuda|cublas|cudnn|nvml|nvtx)", included) and not (
                path.startswith(CUDA_FOLDERS) or "_cuda." in path):
            yield f"{path} includes CUDA header {included}; those belong in {CUDA_FOLDERS}"
        theirs = engine_folder(included)
        if path.startswith("engine/"):
            if included.startswith(("server/", "client/", "proto/", "penstock/")):
                yield f"{path} includes {included}, which lies above the engine"
            if own and theirs and ENGINE_ORDER.index(theirs) > ENGINE_ORDER.index(own):
                yield f"{path} includes {included}: {theirs}/ comes after {own}/"
        elif path.startswith("server/"):
            if included.startswith("client/"):
                yield f"{path} includes {included}; the daemon does not know its clients"
            if included.startswith("engine/") and theirs != "base" and included not in SERVER_MAY:
                yield f"{path} includes {included}; server/ may include only {sorted(SERVER_MAY)}"
        elif path.startswith("client/"):
            if included.startswith("engine/") and theirs not in CLIENT_MAY:
                yield f"{path} includes {included}; the client knows the API and {CLIENT_MAY} only"


def main():
    problems = []
    for folder in ("engine", "server", "client"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                name = path.relative_to(ROOT).as_posix()
                problems += problems_of(name, path.read_text())
    for problem in problems:
        print(problem)
    print("layers ok" if not problems else f"{len(problems)} layer violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
