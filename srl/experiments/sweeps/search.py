"""Searches: Optuna suggests the options of each trial, and may end a trial early by the curves of its runs."""

from __future__ import annotations

import importlib.util
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.base.config import TrustCode
from srl.base.object_names import load_object
from srl.base.process import num_cores
from srl.experiments.options.keywords import merged
from srl.experiments.sweeps.plan import Member, Plan, Search, Variant, with_settings
from srl.experiments.sweeps.processes import FINISHED, STOPPED, MemberProcesses, failure_of, is_finished, log_of
from srl.experiments.sweeps.sweep import POLL_SECONDS, OnEnd, Suggest, Sweep, sharing, status_of
from srl.storage.curves import Curve, read_curve
from srl.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

STUDY = "study.db"
REPORTS = 20
"""Values that a run reports for pruning, evenly spaced over its steps."""
READING_SHARE = 0.05
"""Maximum share of a core for reading the metrics of running trials. Waiting for the disk does not count: a search of
short trials would otherwise report too few values to prune any of them."""


def search(
    plan: Plan, path: Path, jobs: int | None, on_end: OnEnd, trust_code: TrustCode, suggest: Suggest | None
) -> Sweep:
    """Conduct the trials of a search that have not ended, several at a time where that is faster."""
    assert plan.search is not None
    suggest = suggest or load_object(plan.search.function)
    study = open_study(path, plan.search, suggest)
    (variant,) = plan.variants
    conductor = Conductor(plan, variant, path, study, suggest, on_end)
    left = plan.search.trials - len(conductor.ended())
    share = sharing(variant.options, max(1, left) * len(plan.seeds), num_cores(), jobs)
    stopped = False
    try:
        if left > 0:
            with MemberProcesses(trust_code is True) as processes:
                conductor.conduct(processes, share.jobs, share.cores)
    except KeyboardInterrupt:
        stopped = True
    return conductor.sweep(stopped)


def open_study(path: Path, search: Search, suggest: Suggest) -> Study:
    """Return the study in the directory of the sweep, with the sampler and pruner beside `suggest`."""
    if importlib.util.find_spec("optuna") is None:
        raise ImportError('a search needs Optuna, which is not installed; pip install "srl-rl[sweep]"')
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    beside = getattr(suggest, "__globals__", {})
    study = optuna.create_study(
        study_name=path.name,
        storage=f"sqlite:///{path / STUDY}",
        direction="maximize" if search.maximize else "minimize",
        sampler=beside.get("sampler"),
        pruner=beside.get("pruner"),
        load_if_exists=True,
    )
    if study.trials:
        study.sampler.reseed_rng()  # a sampler with a fixed seed would suggest its first values again
    return study


class RunningTrial:
    """A trial and its runs, one per seed."""

    def __init__(self, trial: Trial, members: list[Member], metric: str, reported: int) -> None:
        self.trial = trial
        self.members = members
        self.failed = self.pruned = False
        self._metric = metric
        self._steps = members[0].options.run.steps
        self._reported = reported  # number of values that were reported

    def follow(self) -> bool:
        """Report the values that have become known, and return whether the trial should end now."""
        curves = self._curves()
        if curves is None:
            return False
        reached = min(curve.steps[-1] for curve in curves) / self._steps * REPORTS
        while self._reported < min(math.floor(reached), REPORTS - 1):
            self._reported += 1
            step = self._reported * self._steps // REPORTS
            self.trial.report(float(np.mean([curve.final(step) for curve in curves])), step)
        return bool(self.trial.should_prune())

    def value(self) -> float | None:
        """Return the mean of the metric over the ends of all runs; None if one of them has no curve."""
        curves = self._curves()
        return None if curves is None else float(np.mean([curve.final() for curve in curves]))

    def _curves(self) -> list[Curve] | None:
        try:
            return [read_curve(member.run, self._metric) for member in self.members]
        except ValueError:  # a run has not begun, or no episode has ended
            return None


class Conductor:
    """Begins and ends trials, and starts and stops their runs."""

    def __init__(self, plan: Plan, variant: Variant, path: Path, study: Study, suggest: Suggest, on_end: OnEnd) -> None:
        assert plan.search is not None
        self._plan, self._search, self._variant, self._path = plan, plan.search, variant, path
        self.study, self._suggest, self._on_end = study, suggest, on_end
        self._trials: dict[int, RunningTrial] = {}
        self._failures: dict[str, str] = {}

    def conduct(self, processes: MemberProcesses, jobs: int, cores: int | None) -> None:
        waiting: deque[Member] = deque()
        unfinished = deque(self.running())
        read_at = 0.0
        while True:
            while len(waiting) + len(processes.running) < jobs:
                if unfinished:
                    waiting += self.begin(unfinished.popleft())
                elif len(self.study.trials) < self._search.trials:
                    waiting += self.begin(self.study.ask())
                else:
                    break
            while waiting and len(processes.running) < jobs:
                processes.start(waiting.popleft(), cores)
            if not processes.running:
                return
            for member, code in processes.ended(POLL_SECONDS):
                self._end_member(member, code)
            if time.monotonic() >= read_at:
                began = time.process_time()
                for trial in [each for each in self._trials.values() if not each.pruned and each.follow()]:
                    trial.pruned = True
                    for member in trial.members:
                        processes.stop(member.run.name)
                    waiting = deque(member for member in waiting if member not in trial.members)
                read_at = time.monotonic() + (time.process_time() - began) / READING_SHARE
            for number, trial in list(self._trials.items()):
                if not any(each in waiting or each.run.name in processes.running for each in trial.members):
                    self._end_trial(self._trials.pop(number))

    def running(self) -> list[Trial]:
        """Return the trials that were running when the search was interrupted."""
        from optuna.trial import Trial, TrialState

        found = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [Trial(self.study, trial._trial_id) for trial in found]

    def begin(self, trial: Trial) -> list[Member]:
        """Return the runs of a trial that have not finished."""
        settings: Mapping[str, Any] = trial.user_attrs.get("options") or self._suggest(trial)
        if not isinstance(settings, Mapping):
            raise ValueError(f"{self._search.function} must return a dictionary with options, found {settings!r}")
        options = merged(self._variant.options, with_settings({}, settings))[0]
        trial.set_user_attr("options", dict(settings))  # only valid ones: a corrected file is asked again
        members = self._plan.members_of(Variant(f"trial-{trial.number}", self._variant.env, options), self._path)
        trial.set_user_attr("runs", [member.run.name for member in members])
        reported = len(self.study.trials[trial.number].intermediate_values)
        self._trials[trial.number] = RunningTrial(trial, members, self._search.metric, reported)
        return [member for member in members if not is_finished(status_of(member.run))]

    def _end_member(self, member: Member, code: int) -> None:
        trial = next(each for each in self._trials.values() if member in each.members)
        failure = failure_of(member.run) if code not in (FINISHED, STOPPED) else ""
        if failure:
            self._failures[member.run.name] = f"{failure} ({log_of(member.run)})"
        trial.failed = trial.failed or (code != FINISHED and not trial.pruned)
        self._on_end(member.run.name, status_of(member.run), failure)

    def _end_trial(self, ended: RunningTrial) -> None:
        from optuna.trial import TrialState

        value = None if ended.failed or ended.pruned else ended.value()
        if value is not None:
            ended.follow()  # the pruner compares later trials with these values
            self.study.tell(ended.trial, value)
        else:
            self.study.tell(ended.trial, state=TrialState.PRUNED if ended.pruned else TrialState.FAIL)

    def ended(self) -> list[int]:
        return [trial.number for trial in self.study.get_trials(deepcopy=False) if trial.state.is_finished()]

    def sweep(self, stopped: bool) -> Sweep:
        """Return what the search has found so far."""
        from optuna.trial import TrialState

        trials = self.study.get_trials(deepcopy=False)
        names = [name for trial in trials for name in trial.user_attrs.get("runs", [])]
        statuses = {name: status_of(RunDirectory(self._path / name)) for name in names}
        complete = not stopped and len(self.ended()) >= self._search.trials
        finished = any(trial.state == TrialState.COMPLETE for trial in trials)
        best = dict(self.study.best_trial.user_attrs["options"]) if finished else None
        return Sweep(self._path, statuses, self._failures, complete, best)
