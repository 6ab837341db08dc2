"""Gymnasium's MuJoCo tasks as lanes: one model, one simulation per lane, array-based observations and rewards."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from srl.api.control import OptionValue
from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep, named_texts
from srl.api.spaces import Box
from srl.base.errors import nearest
from srl.base.seeding import generator_state, restore_generator
from srl.base.state import State, part, under
from srl.base.tree import Array, Tree
from srl.environments.conversion import action_decoder
from srl.environments.factories import NamedConfig, copy_seeds
from srl.environments.failures import all_finite, broken_lanes, failed_lanes
from srl.environments.mujoco import bodies, tasks
from srl.environments.mujoco.callbacks import log_warnings, stop_clock
from srl.environments.mujoco.tasks import Scene, Task
from srl.environments.spaces import from_gymnasium

TASKS: Mapping[str, Any] = {
    "HalfCheetah-v5": tasks.HalfCheetah,
    "Hopper-v5": tasks.Hopper,
    "Walker2d-v5": tasks.Walker2d,
    "Ant-v5": tasks.Ant,
    "Swimmer-v5": tasks.Swimmer,
    "InvertedPendulum-v5": tasks.InvertedPendulum,
    "InvertedDoublePendulum-v5": tasks.InvertedDoublePendulum,
    "Humanoid-v5": bodies.Humanoid,
    "HumanoidStandup-v5": bodies.HumanoidStandup,
    "Reacher-v5": bodies.Reacher,
    "Pusher-v5": bodies.Pusher,
}


@dataclass(frozen=True)
class MujocoConfig(NamedConfig):
    """A task by its Gymnasium id, with the options of Gymnasium's constructor."""

    max_episode_steps: int | None = 1000

    def named_code(self) -> tuple[str, ...]:
        if self.name not in TASKS:
            raise ValueError(f"no MuJoCo task {self.name!r}{nearest(self.name, TASKS)}")
        return named_texts(self.kwargs)

    def episode_limit(self) -> int | None:
        return self.max_episode_steps

    def build(self, num_copies: int) -> MujocoLanes:
        task: Task = TASKS[self.name](**self.kwargs)
        return MujocoLanes(self.name, task, self.max_episode_steps, num_copies)

    def build_rendered(self) -> Lanes:
        """Make one copy of Gymnasium's own task, which renders with EGL, OSMesa or a display."""
        from srl.environments.adapters.gymnasium import GymnasiumConfig

        return GymnasiumConfig(self.name, {**self.kwargs, "max_episode_steps": self.max_episode_steps}).build_rendered()


def config_of(name: str, kwargs: Mapping[str, Any]) -> MujocoConfig | None:
    """Return the config for a Gymnasium id, or None if we have no such task or the task lacks one of the options."""
    if name not in TASKS:
        return None
    options = dict(kwargs)
    limit = options.pop("max_episode_steps", gymnasium.registry[name].max_episode_steps)
    known = {option.name for option in dataclasses.fields(TASKS[name])}
    return MujocoConfig(name, options, limit) if set(options) <= known else None


class MujocoLanes(Lanes):
    """Simulations in this process. An unstable simulation is restarted; only its own lane loses its episode."""

    def __init__(self, name: str, task: Task, max_episode_steps: int | None, num_copies: int) -> None:
        import mujoco
        from gymnasium.envs.mujoco.mujoco_env import expand_model_path

        log_warnings()
        stop_clock()
        self._mujoco, self._task, self._limit = mujoco, task, max_episode_steps
        self._saved = int(mujoco.mjtState.mjSTATE_INTEGRATION)  # determines all next steps, including the warm start
        model = mujoco.MjModel.from_xml_path(expand_model_path(task.xml_file))
        self._datas = [mujoco.MjData(model) for _ in range(num_copies)]
        example = self._datas[0]
        self._scene = Scene(model, example.qpos.copy(), example.qvel.copy(), model.opt.timestep * task.frame_skip)
        # Views of the simulations' memory: reading a field of all lanes is one concatenation.
        fields = ("qpos", "qvel", *task.needs)
        self._views = {name: [np.atleast_1d(getattr(data, name)) for data in self._datas] for name in fields}
        self._controls = [data.ctrl for data in self._datas]
        self._now, self._before = ({name: self._empty(name) for name in fields} for _ in range(2))
        self._post = "cfrc_ext" in task.needs  # MuJoCo computes contact forces only on request.
        low, high = model.actuator_ctrlrange.copy().astype(np.float32).T
        action = from_gymnasium(gymnasium.spaces.Box(low, high, dtype=np.float32), "action")
        self._decode = action_decoder(action)
        size = task.observe(self._scene, self._now).shape[1]
        team = TeamSpec("agent", ("agent",), Box((size,)), action)
        self.spec = LaneSpec(name, num_copies, (team,))
        self._ended = np.zeros(num_copies, bool)
        self._elapsed = np.zeros(num_copies, np.int64)
        self._seed = 0
        self._random = np.random.default_rng(0)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._seed = next(copy_seeds(seed))
        self._random = np.random.default_rng(self._seed)
        all_lanes, no_lane = np.ones(len(self._datas), bool), np.zeros(len(self._datas), bool)
        self._restart(all_lanes)
        self._gather()
        self._ended = no_lane
        observation = self._task.observe(self._scene, self._now).astype(np.float32)
        return (TimeStep(observation, np.zeros(len(no_lane), np.float32), no_lane, no_lane, all_lanes, all_lanes),)

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        starting = self._ended
        action = self._decode(actions[0]).astype(np.float64)
        failures = self._simulate(action, starting.tolist())
        self._elapsed += 1
        if starting.any():
            self._restart(starting)
        self._gather()
        observation, reward, terminated = self._score(action)
        if not (all_finite(observation) and all_finite(reward)):
            failures |= broken_lanes(observation, reward)
        reports = tuple(self._report(lane, what) for lane, what in failures.items())
        if (failed := failed_lanes(failures, len(starting))) is not None:
            self._restart(failed)
            self._gather()
            observation = self._task.observe(self._scene, self._now).astype(np.float32)
            starting = starting | failed
        if starting.any():
            reward[starting] = 0
            terminated[starting] = False
        truncated = self._elapsed >= self._limit if self._limit is not None else np.zeros(len(starting), bool)
        self._ended = terminated | truncated
        return (TimeStep(observation, reward, terminated, truncated, ~self._ended, starting, failed, reports),)

    def set_option(self, name: str, value: OptionValue) -> None:
        task: Any = self._task
        if not isinstance(getattr(task, name, None), float):
            numbers = [option.name for option in dataclasses.fields(task) if option.type == "float"]
            raise AttributeError(f"{self.spec.environment} has no {name!r}; what can change is {', '.join(numbers)}")
        self._task = dataclasses.replace(task, **{name: float(value)})

    def state(self) -> State:
        bodies = np.zeros((len(self._datas), self._mujoco.mj_stateSize(self._scene.model, self._saved)))
        for data, row in zip(self._datas, bodies, strict=True):
            self._mujoco.mj_getState(self._scene.model, data, row, self._saved)
        return {
            "bodies": bodies,
            **under("now", self._now),
            "ended": self._ended.copy(),
            "elapsed": self._elapsed.copy(),
            "seed": np.array(self._seed),
            "random": generator_state(self._random),
        }

    def restore(self, state: State) -> None:
        for data, row in zip(self._datas, state["bodies"], strict=True):
            self._mujoco.mj_setState(self._scene.model, data, row, self._saved)
        for name, values in part(state, "now").items():
            self._now[name][...] = values
        self._ended, self._elapsed = state["ended"].copy(), state["elapsed"].copy()
        self._seed = int(state["seed"])
        restore_generator(self._random, state["random"])

    def close(self) -> None:
        self._datas.clear()
        self._controls.clear()
        self._views.clear()

    def _empty(self, name: str) -> Array:
        example = self._views[name][0]
        return np.zeros((len(self._datas), *example.shape))

    def _simulate(self, action: Array, starting: list[bool]) -> dict[int, str]:
        """Step the lanes that are not starting an episode; return error messages by lane."""
        model, step, post, frames = self._scene.model, self._mujoco.mj_step, self._post, self._task.frame_skip
        failures: dict[int, str] = {}
        expected = self._elapsed * self._scene.dt + self._scene.dt - model.opt.timestep / 2
        lanes = zip(self._datas, self._controls, action, starting, expected.tolist(), strict=True)
        for lane, (data, control, chosen, start, time) in enumerate(lanes):
            if start:
                continue
            try:
                control[:] = chosen
                step(model, data, frames)
                if post:
                    self._mujoco.mj_rnePostConstraint(model, data)
            except Exception:
                failures[lane] = traceback.format_exc()
                continue
            if data.time < time:  # MuJoCo resets a simulation that diverges and only logs it.
                failures[lane] = "the simulation became unstable (NaN, infinite or huge positions or velocities)"
        return failures

    def _score(self, action: Array) -> tuple[Array, Array, Array]:
        observation = self._task.observe(self._scene, self._now)
        reward, terminated = self._task.score(self._scene, self._before, self._now, action)
        return observation.astype(np.float32), reward.astype(np.float32), terminated

    def _gather(self) -> None:
        """Read the simulations into `_now`; its previous values become `_before`."""
        self._before, self._now = self._now, self._before
        for name, views in self._views.items():
            target = self._now[name]
            np.concatenate(views, out=target.reshape((-1, *target.shape[2:])))

    def _restart(self, lanes: Array) -> None:
        chosen = np.flatnonzero(lanes)
        qpos, qvel = self._task.begin(self._scene, self._random, len(chosen))
        for row, lane in enumerate(chosen):
            data = self._datas[lane]
            self._mujoco.mj_resetData(self._scene.model, data)
            data.qpos[:], data.qvel[:] = qpos[row], qvel[row]
            self._mujoco.mj_forward(self._scene.model, data)
        self._elapsed[chosen] = 0

    def _report(self, lane: int, what: str) -> str:
        return (
            f"environment {self.spec.environment}, copy {lane}, seed {self._seed}, step {self._elapsed[lane]}: "
            f"failed and was restarted:\n{what}"
        )
