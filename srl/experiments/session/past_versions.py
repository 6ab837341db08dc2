"""The opponents of a run that is resumed: those of its past versions whose checkpoints were kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from srl.api.parameters import ParameterStore
from srl.base.tree import Array
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.checkpointing import Restored
from srl.populations.pool import refill
from srl.storage import checkpoints


def keep_every(options: TrainOptions) -> int:
    """Steps between two checkpoints that are kept; in self-play enough for every opponent, unless it was said."""
    if options.checkpoints.keep_every or options.agents.self_play == "none":
        return options.checkpoints.keep_every
    return max(1, options.run.steps // options.agents.self_play_versions)


def find_opponents(
    root: Path, restored: Restored, stores: dict[str, ParameterStore], size: int, tell: Callable[[str], None]
) -> None:
    """Publish them again, spread over the run, and then the version it goes on with; before the first worker starts."""
    known = checkpoints.checkpoints(root)
    before = known[: known.index(restored.source)]
    chosen = sorted({round(i) for i in np.linspace(0, len(before) - 1, min(size, len(before)))})
    past: dict[str, list[tuple[int, Array]]] = {policy: [] for policy in stores}
    for number in chosen:
        try:
            arrays, facts = checkpoints.read(before[number])
            for policy, versions in past.items():
                versions.append((int(facts["policies"][policy]["version"]), arrays[f"{policy}/parameters"]))
        except (checkpoints.CheckpointError, KeyError) as error:
            tell(f"an opponent is missing: {error}")
    for policy, store in stores.items():
        newest = int(restored.policies[policy]["version"])
        found = refill(store, [pair for pair in past[policy] if pair[0] < newest])
        store.push(newest, restored.states[policy]["parameters"])
        tell(f"{found} past versions of {policy!r} were found again as opponents")
