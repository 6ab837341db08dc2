"""The command for recorded streams: `srl replay`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from srl.cli.parser import RunCommand, TrustCommand, flag


@dataclass(frozen=True)
class Replay(RunCommand, TrustCommand):
    """Make recorded updates of a run again, and compare the parameters with those of the run, bit for bit.

    The run must have been trained with --record-streams. A trainer starts from the nearest recorded state or checkpoint
    before the range and learns from the same batches. Exits with code 1 if the parameters differ. With --only-blocks,
    nothing is learned: histograms show what actors produced.

    Examples:
      srl replay latest
      srl replay runs/pong --from-update 1200 --to-update 1250
      srl replay latest --from-update 1200 --json
      srl replay latest --only-blocks --from-update 1200
    """

    from_update: int | None = None
    """First update. Default: the first one of the newest part of the record that can be made again."""
    to_update: int | None = None
    """Last update. Default: the last one of the record."""
    policy: str = flag("NAME", "")
    """Policy, for a run in which several learn."""
    only_blocks: bool = False
    """Show histograms of ages, rewards, actions and observations instead, without code of the run."""
    json: bool = False
    """Print one line of JSON, with the digest and the metrics of every update, or the histograms."""

    def run(self) -> int:
        return self._show_blocks() if self.only_blocks else self._replay()

    def _show_blocks(self) -> int:
        from srl.results.recorded_blocks import recorded_blocks

        path, first, last = self.find().path, self.from_update, self.to_update
        blocks = recorded_blocks(path, from_update=first, to_update=last, policy=self.policy)
        if self.json:
            policies = {name: asdict(one) for name, one in blocks.policies.items()}
            print(json.dumps(without_nan({"run": blocks.run.name, "policies": policies})))
        else:
            print(blocks)
        return 0

    def _replay(self) -> int:
        from srl.results.replay import replay_run

        done = replay_run(
            self.find().path,
            from_update=self.from_update,
            to_update=self.to_update,
            policy=self.policy,
            trust_code=self.trust_code,
        )
        if self.json:
            report = {
                "run": done.run.name,
                "policy": done.policy,
                "start": done.start,
                "first_difference": done.first_difference,
                "distances": done.distances,
                "notes": done.notes,
                "updates": [
                    {
                        "update": one.update,
                        "digest": one.digest,
                        "recorded": one.recorded,
                        "skipped": one.skipped,
                        "metrics": one.metrics,
                    }
                    for one in done.updates
                ],
            }
            print(json.dumps(without_nan(report)))
        else:
            print(done)
        return 0 if done.first_difference is None else 1


def without_nan(data: Any) -> Any:
    """Return plain data with None for numbers that JSON does not have."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: without_nan(value) for key, value in data.items()}
    return [without_nan(value) for value in data] if isinstance(data, (list, tuple)) else data
