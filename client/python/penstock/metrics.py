"""Step metrics as rows: one dict a point, the columns named as the fields of StepMetrics."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Iterable, List

from penstock.v1 import job_pb2

_PLAIN = ("attempt", "step", "epoch", "loss", "labelled_tokens", "real_tokens", "padding_tokens",
          "grad_norm", "clip_scale", "learning_rate", "step_seconds", "tokens_per_second",
          "predicted_step_seconds", "checkpoint_wait_seconds", "loss_z_score", "host_peak_bytes",
          "skipped")


def _row(point: job_pb2.StepMetrics) -> Dict[str, Any]:
    # A point is a step or an evaluation, which has none of a step's values: None, and not 0.
    is_step = not point.HasField("evaluation")
    row: Dict[str, Any] = {name: getattr(point, name) if is_step or name in ("attempt", "step", "epoch")
                           else None for name in _PLAIN}
    row["time"] = point.time.ToDatetime(tzinfo=datetime.timezone.utc)
    row["outcome"] = (job_pb2.StepOutcome.Name(point.outcome).replace("STEP_OUTCOME_", "").lower()
                      if is_step else "evaluation")
    row["validation_loss"] = None if is_step else point.evaluation.loss
    row["perplexity"] = None if is_step else point.evaluation.perplexity
    for lane, seconds in sorted(point.lane_busy_seconds.items()):
        row[f"{lane}_busy_seconds"] = seconds
    reading = point.device_reading
    for name in ("utilization", "memory_used_bytes", "temperature_celsius", "power_watts"):
        if reading.HasField(name):
            row[f"device_{name}"] = getattr(reading, name)
    return row


def rows_of(points: Iterable[job_pb2.StepMetrics]) -> List[Dict[str, Any]]:
    return [_row(point) for point in points]
