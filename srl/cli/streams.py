"""The command for recorded streams: `srl replay`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from srl.cli.parser import RunCommand, TrustCommand, flag


@dataclass(frozen=True)
class Replay(RunCommand, TrustCommand):
    """Make recorded updates of a run again, and compare the parameters with those of the run, bit for bit.

    The run must have been trained with --record-streams. A trainer starts from the nearest recorded state or checkpoint
    before the range and learns from the same batches. Exits with code 1 if the parameters differ.

    Examples:
      srl replay latest
      srl replay runs/pong --from-update 1200 --to-update 1250
      srl replay latest --from-update 1200 --json
    """

    from_update: int | None = None
    """First update. Default: the first one of the newest part of the record that can be made again."""
    to_update: int | None = None
    """Last update. Default: the last one of the record."""
    policy: str = flag("NAME", "")
    """Policy, for a run in which several learn."""
    json: bool = False
    """Print one line of JSON, with the digest and the metrics of every update."""

    def run(self) -> int:
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
            print(json.dumps(report))
        else:
            print(done)
        return 0 if done.first_difference is None else 1
