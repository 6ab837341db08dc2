"""Episode statistics: returns and lengths, computed from full blocks for all lanes at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.api.block import LANE, LENGTH, RESERVED, RETURN, Episodes, concatenated
from srl.api.control import OptionValue
from srl.base.state import State, part, under
from srl.base.tree import Array

ROW = "row"  # column of statistics whose episode is not counted yet: the row of the block in which it ended


class _Option:
    """An attribute of the environments that changed during the run, as a column: its value when an episode began.

    Within a block, it is not known whether an episode began before or after a change. It counts as begun before.
    """

    def __init__(self, num_lanes: int) -> None:
        self.begun = np.full(num_lanes, np.nan)  # [L], for the running episodes
        self.at_start = np.nan  # when the current block began
        self.current = np.nan

    def count_block(self, heads: Array, tails: Array, is_whole: Array) -> Array:
        """Return the values for the pieces of episodes in a block. `heads` and `tails` are the first and the last piece
        of each lane; pieces that are not whole continue in the next block."""
        values = np.full(len(is_whole), self.at_start)
        values[heads] = self.begun
        self.begun = np.where(is_whole[tails], self.current, values[tails])
        self.at_start = self.current
        return values

    def state(self) -> Array:
        return np.append(self.begun, [self.at_start, self.current])

    def restore(self, state: Array) -> None:
        self.begun[...], self.at_start, self.current = state[:-2], float(state[-2]), float(state[-1])


class EpisodeTracker:
    """Tracks the episodes of one lane group, a block at a time, so there is no cost per step."""

    def __init__(self, num_lanes: int) -> None:
        self._return = np.zeros(num_lanes, np.float64)  # [L], for the running episodes
        self._length = np.zeros(num_lanes, np.float64)
        self._options: dict[str, _Option] = {}
        self._ended: list[dict[str, Array]] = []  # columns of episodes that no posted block carries yet
        self._noted: list[dict[str, Array]] = []  # the environment's statistics on episodes of the current block

    def set_option(self, name: str, value: OptionValue) -> None:
        """Note that the environments have another value of an option from now on. Texts are not recorded."""
        if not isinstance(value, str):
            self._options.setdefault(name, _Option(len(self._return))).current = float(value)
        else:
            self._options.pop(name, None)

    def count_block(self, reward: Array, acting: Array, ended: Array, failed: Array | None = None) -> None:
        """Add T steps of all lanes; all arrays are [T, L]. Episodes that end where `failed` is set are left out."""
        num_steps = len(reward)
        ends = np.ascontiguousarray(ended.T).ravel()  # by lane, then by time, like everything below
        opens = np.empty(len(ends), bool)  # an episode starts or continues here
        opens[1:] = ends[:-1]
        opens[::num_steps] = True
        begins = np.flatnonzero(opens)  # first steps of the pieces of episodes in this block
        lasts = np.append(begins[1:], len(ends)) - 1
        is_whole = ends[lasts]
        heads = np.flatnonzero(begins % num_steps == 0)  # [L]: each lane's first piece
        tails = np.append(heads[1:], len(begins)) - 1  # [L]: and its last
        is_counted = is_whole if failed is None else is_whole & ~failed.T.ravel()[lasts]
        places = lasts[is_counted]
        found = {LANE: places // num_steps}
        for name, running, values, kind in (
            (RETURN, self._return, reward, np.float32),
            (LENGTH, self._length, acting.view(np.uint8), np.int32),
        ):
            sums = np.add.reduceat(np.ascontiguousarray(values.T).ravel(), begins, dtype=kind).astype(np.float64)
            sums[heads] += running
            found[name] = sums[is_counted]
            running[...] = sums[tails]
            running[is_whole[tails]] = 0.0
        for name, option in self._options.items():
            found[name] = option.count_block(heads, tails, is_whole)[is_counted]
        if self._noted:
            self._apply_noted(found, places, num_steps)
        if len(found[LANE]):
            self._ended.append(found)

    def _apply_noted(self, found: dict[str, Array], places: Array, num_steps: int) -> None:
        """Add the environment's statistics to the episodes that ended at `places`, by lane and then by time."""
        for noted in self._noted:
            own = noted[LANE] * num_steps + noted[ROW]
            at = np.searchsorted(places, own)
            known = at < len(places)
            known[known] = places[at[known]] == own[known]
            for name in noted.keys() - {LANE, ROW}:
                column = found.setdefault(name, np.full(len(places), np.nan))
                column[at[known]] = noted[name][known]
        self._noted.clear()
        kept = np.isfinite(found[RETURN])
        found.update({name: values[kept] for name, values in found.items()})
        _drop_repetitions(found)

    def note(self, row: int, facts: Mapping[str, Array], ended: Array, first_lane: int = 0) -> None:
        """Keep the environment's statistics on the episodes that `ended` [L] in this row of the current block."""
        lanes = np.flatnonzero(ended)
        if len(lanes):
            own = {name: np.asarray(values)[lanes] for name, values in facts.items() if name not in RESERVED}
            self._noted.append({LANE: lanes + first_lane, ROW: np.full(len(lanes), row), **own})

    def count_step(
        self, lane: int, reward: float, ended: bool, facts: Mapping[str, Array], index: int, kept: bool = True
    ) -> None:
        """Add one step of one lane, for lanes that do not step together. `index` is the lane's place in `facts`. An
        episode that ends here counts only if it is `kept`."""
        self._return[lane] += reward
        self._length[lane] += 1
        if ended:
            own = {name: float(values[index]) for name, values in facts.items() if name not in RESERVED}
            own |= {name: option.begun[lane] for name, option in self._options.items()}
            found = {LANE: lane, RETURN: self._return[lane], LENGTH: self._length[lane], **own}
            if kept and np.isfinite(found[RETURN]):
                columns = {name: np.array([value]) for name, value in found.items()}
                _drop_repetitions(columns)
                self._ended.append(columns)
            self.forget(np.array([lane]))

    def forget(self, lanes: Array) -> None:
        """Start new episodes in lanes, without the running ones."""
        self._return[lanes] = 0.0
        self._length[lanes] = 0.0
        for option in self._options.values():
            option.begun[lanes] = option.at_start = option.current

    def drain(self, lane: int | None = None) -> Episodes | None:
        """Return the episodes that ended since the last call; of one lane, if all lanes are counted by steps."""
        taken = self._ended if lane is None else [one for one in self._ended if one[LANE][0] == lane]
        if not taken:
            return None
        self._ended = [] if lane is None else [one for one in self._ended if one[LANE][0] != lane]
        return Episodes.of(concatenated(taken))

    def state(self) -> State:
        """Return the running episodes, and the ended ones that have not been posted."""
        saved = under("ended", concatenated(self._ended))
        for number, noted in enumerate(self._noted):
            saved |= under(f"noted/{number}", noted)
        saved |= under("options", {name: option.state() for name, option in self._options.items()})
        return {"return": self._return.copy(), "length": self._length.copy(), **saved}

    def restore(self, state: State) -> None:
        self._return[...], self._length[...] = state["return"], state["length"]
        for name, values in part(state, "options").items():
            self._options[name] = _Option(len(self._return))
            self._options[name].restore(values)
        ended, noted = part(state, "ended"), part(state, "noted")
        count = len(ended.get(LANE, ()))
        self._ended = [{name: values[i : i + 1] for name, values in ended.items()} for i in range(count)]
        numbers = sorted({int(key.partition("/")[0]) for key in noted})
        self._noted = [part(noted, str(number)) for number in numbers]


def _drop_repetitions(columns: dict[str, Array]) -> None:
    """Remove returns and lengths that a wrapper of the environment counted, if they are the actor's own."""
    for name in (RETURN, LENGTH):
        raw = f"raw_{name}"
        if raw in columns and np.allclose(columns[raw], columns[name], rtol=1e-5, atol=1e-3):
            del columns[raw]
