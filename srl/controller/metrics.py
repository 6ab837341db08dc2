"""Names of the metrics in metrics.jsonl, TensorBoard and the services.

In a run with one policy they are `SECTION/NAME`, for example `algorithm/entropy`. In a run with several, metrics of one
policy are `SECTION/POLICY/NAME` (`algorithm/hiders/entropy`), and `SECTION/NAME` is the total or mean of the run.
"""

from __future__ import annotations

from srl.api.status import EvaluationStatus, PolicyStatus, RunStatus


def metrics_of(status: RunStatus) -> dict[str, float]:
    """Return the metrics of a run."""
    metrics = {
        "time/elapsed": status.elapsed,
        "time/env_fps": status.env_fps,
        "time/train_fps": status.train_fps,
        "train/updates": float(status.updates),
        "run/restarts": float(status.restarts),
        "run/lane_failures": float(status.lane_failures),
        "run/skipped_updates": float(status.skipped_updates),
        "run/unrecorded_decisions": float(status.unrecorded_decisions),
        **_lag("train", status),
        **_episodes("episodes", status),
    }
    for name, policy in status.policies.items() if len(status.policies) > 1 else ():
        metrics |= _episodes(f"episodes/{name}", policy)
        if policy.learning:
            metrics |= _lag(f"train/{name}", policy)
            metrics[f"train/{name}/steps"] = float(policy.steps)
            metrics[f"train/{name}/updates"] = float(policy.version)
    metrics |= {f"algorithm/{name}": value for name, value in status.metrics.items()}
    for worker in status.workers:
        metrics |= {f"busy/{worker.name}/{phase}": share for phase, share in worker.busy.items()}
    for stream in status.streams:
        if stream.kind == "push":
            metrics[f"streams/{stream.name}/dropped_blocks"] = float(stream.dropped)
        else:
            metrics[f"streams/{stream.name}/batch_mean"] = stream.batch_mean
    return metrics


def _lag(section: str, status: RunStatus | PolicyStatus) -> dict[str, float]:
    return {f"{section}/lag_mean": status.lag_mean, f"{section}/lag_max": float(status.lag_max)}


def _episodes(section: str, status: RunStatus | PolicyStatus) -> dict[str, float]:
    metrics = {f"{section}/{name}": value for name, value in status.facts.items()}
    metrics[f"{section}/count"] = float(status.episodes)
    if status.return_mean is not None and status.length_mean is not None:
        metrics |= {f"{section}/return_mean": status.return_mean, f"{section}/length_mean": status.length_mean}
    return metrics


def evaluation_metrics(evaluation: EvaluationStatus, elapsed: float, policy: str = "") -> dict[str, float]:
    """Return the metrics of one evaluation; `policy` is empty unless the run has several policies."""
    section = f"eval/{policy}" if policy else "eval"
    metrics = {
        "time/elapsed": elapsed,
        f"{section}/return_mean": evaluation.return_mean,
        f"{section}/length_mean": evaluation.length_mean,
        f"{section}/episodes": float(evaluation.episodes),
        f"{section}/truncated": float(evaluation.truncated),
        f"{section}/best_return": evaluation.best_return,
    }
    if evaluation.return_interval is not None:
        metrics[f"{section}/return_interval"] = evaluation.return_interval
    return metrics
