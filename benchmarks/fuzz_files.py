"""Fuzz the readers of files: mutated configs, checkpoints, facts, groups and signatures of runs must be refused with a
clear message or read as valid values, and what is accepted is made as commands make it: environments, callbacks, roles
and batch scripts. Nothing may be executed, no unexpected module imported, no file written outside of the run directory,
no connection opened, and memory must not grow.

python benchmarks/fuzz_files.py --files 100000 --processes 2

`--self-test` puts holes back that files once had, one after the other; the fuzzer must notice each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import file_corpus
import numpy as np
from file_holes import holes
from file_mutations import HOSTILE, Mutator
from safetensors.numpy import save

import srl
from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.base.config import texts_in, to_data
from srl.environments import registry
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.games.config import GameConfig
from srl.environments.registry import lanes_config
from srl.experiments.graph.preparation import environment_for
from srl.experiments.options.config_file import check_named_environment, gather, read_config
from srl.experiments.options.roles import role_options, with_checkpoints
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import checkpointing
from srl.experiments.session.callback_runner import check_callbacks
from srl.experiments.sweeps.plan import Plan, read_plan
from srl.schedulers.engines.components import Component
from srl.schedulers.engines.slurm_commands import batch_script
from srl.storage import checkpoints, run_directory, signatures
from srl.storage.checkpoints import CheckpointError
from srl.storage.run_directory import RunDirectory
from srl.storage.saved_policies import read_policy
from srl.storage.service_sinks import check_sinks

MAX_GROWTH_MB = 50
WARMUP = 2000
SELF_TEST_FILES = 10_000
FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn"),
    *("pickle.find_class", "webbrowser.open", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname"),
    *("os.remove", "os.rename", "os.link", "os.symlink", "os.chmod", "shutil.rmtree"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
KNOWN = ("CartPole-v1", "Ant-v5", "ALE/Pong-v5", "hide-and-seek/quadrant", "pettingzoo:classic.chess_v6")
SURPRISING = {HOSTILE, "antigravity", "this", "wandb", "mlflow", "ray", "shimmy", "optuna"}
"""Modules that no file may make us import."""
executed: list[str] = []
watching = False
inside = ""  # directory in which files may be written


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and _is_surprising(event, arguments):
        executed.append(f"{event} {arguments}"[:200])


def _is_surprising(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "exec":  # `importlib.import_module` causes no event "import"
        path = Path(getattr(arguments[0], "co_filename", ""))
        return path.stem in SURPRISING or not SURPRISING.isdisjoint(path.parts)
    if event == "pickle.find_class":
        return not _is_in_numba()
    if event == "openspiel.load_game":
        return any(texts_in(arguments[1]))
    if event == "ctypes.dlopen":  # importing MuJoCo loads its library
        return str(arguments[0]).startswith(inside)
    if event == "open":
        path, _, flags = arguments
        return bool((flags or 0) & WRITING) and isinstance(path, (str, bytes)) and not _is_inside(os.fsdecode(path))
    if event.startswith(("os.", "shutil.")) and arguments and isinstance(arguments[0], (str, os.PathLike)):
        return event in FORBIDDEN and not _is_inside(os.fspath(arguments[0]))
    return event in FORBIDDEN


def _is_in_numba() -> bool:
    """Return whether Numba reads its cache of compiled functions now."""
    frame: Any = sys._getframe()
    while frame is not None and "numba/core" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def _is_inside(path: str) -> bool:
    path = os.path.abspath(path)
    return path.startswith((inside, "/dev/null")) or "__pycache__" in path  # of Numba


class Files:
    """A small run, and functions that write a mutated file into it and read it as commands do."""

    def __init__(self, folder: Path, seed: int) -> None:
        options: dict[str, Any] = {"steps": 64, "scheduler": "inline", "actors": 1, "lanes": 2, "horizon": 16}
        self.run = RunDirectory(srl.train("CartPole-v1", **options, root=folder, name="run").path)
        self.mutator = Mutator(seed)
        self.source = checkpoints.checkpoints(self.run.checkpoints)[-1]
        self.copy = self.run.checkpoints / "0009-step-64"
        self.written: dict[str, bytes] = {}
        self.config = json.loads(self.run.config.read_bytes())
        self.configs = file_corpus.configs(self.config)
        self.contents = {file.name: file.read_bytes() for file in self.source.iterdir()}
        self.facts = json.loads(self.contents["facts.json"])
        self.arrays, _ = checkpoints.read(self.source)
        variant = {"label": "", "env": "CartPole-v1", "options": self.config["options"]}
        fields = {"variants": [{"type": "sweep-variant", "fields": variant}], "seeds": [0, 1], "search": None}
        self.group = {"plan": {"type": "sweep-plan", "fields": fields}}
        self.hostile = folder / f"{HOSTILE}.py"
        self.hostile.write_text("def make(*a, **k): pass\n")
        self.used: set[int] = set()
        self.spec = self.run.load_config()["lanes"].build(1).spec
        self.kinds: list[Callable[[], None]] = [
            self.config_file,
            *(self.texts_of_config, self.texts_of_config, self.texts_of_options, self.texts_of_options),
            self.texts_of_lanes,
            self.facts_of_checkpoint,
            self.bytes_of_checkpoint,
            self.arrays_of_checkpoint,
            self.group_file,
            self.options_file,
            self.signature,
        ]

    def config_file(self) -> None:
        self.run.config.write_bytes(self.mutator.text(self._config()))
        config = self.run.load_config()
        assert isinstance(config["options"], TrainOptions)
        assert isinstance(config["lanes"], LanesConfig)
        self._use(config)

    def _config(self) -> dict[str, Any]:
        draw = self.mutator.random
        return self.config if draw.random() < 0.5 else draw.choice(self.configs)

    def texts_of_config(self) -> None:
        config = deepcopy(self._config())
        choice = self.mutator.random.random()
        if choice < 0.2:
            config["environment"] = self._text("environment")
        elif choice < 0.3:
            self._change_lanes(config["lanes"]["fields"])
        else:
            for section, fields in self._texts().items():
                config["options"]["fields"][section]["fields"].update(fields)
        self.run.config.write_text(json.dumps(config))
        self._use(self.run.load_config())

    def texts_of_lanes(self) -> None:
        config, draw = deepcopy(self.config), self.mutator.random
        game = GameConfig(draw.choice(file_corpus.GAMES))
        lanes = game if draw.random() < 0.5 else draw.choice(file_corpus.ENVIRONMENTS)
        config["lanes"], config["environment"] = to_data(lanes), lanes.environment_name()
        self._change_lanes(config["lanes"]["fields"])
        self.run.config.write_text(json.dumps(config))
        self._use(self.run.load_config())

    def _change_lanes(self, fields: dict[str, Any]) -> None:
        """Put a text into the name of an environment or game, or into its options."""
        draw = self.mutator.random
        inner = fields.get("game", fields.get("inner"))
        if inner is not None and draw.random() < 0.8:
            return self._change_lanes(inner["fields"])
        options = [name for name in ("kwargs", "options", "parameters") if name in fields]
        if options and draw.random() < 0.7:
            text = self._text("environment")
            fields[options[0]][self._text("environment")] = draw.choice((text, [text], {"a": text}))
        else:
            fields["variant" if "variant" in fields else "name"] = self._text("environment")
        return None

    def texts_of_options(self) -> None:
        path = self.run.path / "options.json"
        named = self.mutator.random.random() < 0.3
        env = self._text("environment") if named else "CartPole-v1"
        more = {} if named and self.mutator.random.random() < 0.7 else self._texts()
        path.write_text(json.dumps({"env": env, **more}))
        gathered = gather(path, {}, "flag")
        lanes = lanes_config(gathered.environment(""), **gathered.options.run.env_args)
        self._use({"environment": env, "lanes": lanes, "options": gathered.options})

    def _text(self, kind: str) -> str:
        return self.mutator.pieces(kind, self.hostile)

    def _texts(self) -> dict[str, dict[str, Any]]:
        """Return texts for one of the options that are parsed."""
        slurm = self._text("slurm")
        return self.mutator.random.choice(
            (
                {"run": {"callbacks": [self._text("callback")]}},
                {"agents": {"roles": [self._text("role")]}},
                {"agents": {"roles": [f"*=policy{self._text('role')}"]}},
                *({"agents": {"roles": [f"*=policy,{self.mutator.setting(self.hostile)}"]}} for _ in range(3)),
                {"run": {"sinks": [self._text("sink")], "graph": ""}},
                {"run": {"env_args": {self._text("environment"): self._text("environment")}}},
                {"cluster": {"slurm_options": [slurm]}},
                {"cluster": {"resources": [slurm], "partition": self._text("slurm")}},
            )
        )

    def _use(self, config: Mapping[str, Any]) -> None:
        """Make what commands make of a config that was accepted. Errors are those of values that do not fit."""
        options: TrainOptions = config["options"]
        run, roles, cluster = options.run, options.agents.roles, options.cluster
        text = repr((config["environment"], config["lanes"], run.callbacks, run.env_args, run.sinks, roles, cluster))
        key = hash(text)  # the texts themselves would be most of the memory
        if key in self.used or len(text) > 10_000:
            return
        self.used.add(key)

        def title() -> None:
            check_named_environment(config["environment"], run.env_args, "config.json", False)
            environment_for(config["environment"], options).build(1).close()

        made = (
            lambda: config["lanes"].build(1).close(),
            title,
            lambda: check_callbacks(options, ()),
            lambda: check_sinks(run.sinks),
            lambda: role_options(self.spec, options.replace(roles=with_checkpoints(roles))),
        )
        for make in made:
            with suppress(Exception):
                make()
        script = ""
        with suppress(ValueError):
            node = cluster.resources[0].partition(":")[2] if cluster.resources else ""
            parts = [Component(1, 1, constraint=node)]
            script = batch_script("run", parts, Path("/log"), ["true"], cluster.partition, cluster.slurm_options)
        for line in script.splitlines()[1:-1]:
            assert len(line.split()) == 2, f"a batch script has a line with further options: {line!r}"
            assert "export" not in line.partition("=")[0], line

    def facts_of_checkpoint(self) -> None:
        """Facts that were changed by someone who can compute the hashes of the manifest."""
        self._write({**self.contents, "facts.json": self.mutator.text(self.facts)})
        self._read()

    def bytes_of_checkpoint(self) -> None:
        name = self.mutator.random.choice(list(self.contents))
        content = self.mutator.bytes(self.contents[name])
        self._write({**self.contents, name: content}, sealed=False)
        self._read()
        assert name.endswith(".sig") or content == self.contents[name], f"a change of {name} was not noticed"

    def arrays_of_checkpoint(self) -> None:
        """Arrays that were changed by someone who can compute the hashes of the manifest."""
        choice = self.mutator.random
        arrays = {key: array for key, array in self.arrays.items() if choice.random() < 0.95}
        arrays[choice.choice(("policy/parameters", "x", "/", "a/b/c"))] = np.zeros(choice.choice((0, 1, 7)), np.int8)
        content = save(arrays)
        self._write(
            {**self.contents, "arrays.safetensors": self.mutator.bytes(content) if choice.randrange(2) else content}
        )
        self._read()

    def group_file(self) -> None:
        folder = self.run.path.parent
        (folder / run_directory.GROUP).write_bytes(self.mutator.text(self.group))
        assert isinstance(read_plan(folder), Plan)

    def options_file(self) -> None:
        path = self.run.path / "options.json"
        path.write_bytes(self.mutator.text(self.config))
        read_config(path)

    def signature(self) -> None:
        original = self.contents["manifest.json.sig"]
        mutated = self.mutator.bytes(original)
        (self.source / "manifest.json.sig").write_bytes(mutated)
        if not checkpoints.is_own(self.source):
            raise ValueError("not signed by this user")
        found, expected = json.loads(mutated), json.loads(original)
        assert bytes.fromhex(found.pop("signature")) == bytes.fromhex(expected.pop("signature"))
        assert found == expected, "a change of the signature was not noticed"

    def _write(self, contents: dict[str, bytes], sealed: bool = True) -> None:
        self.copy.mkdir(exist_ok=True)
        if sealed:
            body = json.loads(contents["manifest.json"])
            del body["sha256"]
            for name, entry in body["files"].items():
                entry |= {
                    "bytes": len(contents[name]),
                    "sha256": checkpoints.hashlib.sha256(contents[name]).hexdigest(),
                }
            seal = checkpoints.hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            text = json.dumps({**body, "sha256": seal}, indent=2, sort_keys=True) + "\n"
            contents = {**contents, "manifest.json": text.encode()}
        for name, content in contents.items():
            if self.written.get(name) != content:
                (self.copy / name).write_bytes(content)
                self.written[name] = content

    def _read(self) -> None:
        saved = read_policy(self.copy)
        assert isinstance(saved.algorithm, AlgorithmConfig)
        checkpointing.read(self.copy)


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def attempt(read: Callable[[], None]) -> str:
    """Read one file and return `valid` or `refused`. Raises any error that is not a message for the user."""
    try:
        read()
    except (RecursionError, MemoryError, UnicodeError):
        raise
    except (ValueError, OSError, CheckpointError):
        return "refused"
    return "valid"


def import_known() -> None:
    """Import the packages of environments that files may name: they import much and start programs."""
    for lanes in (*map(lanes_config, KNOWN), GymnasiumConfig("Ant-v5")):
        with suppress(Exception):
            lanes.build(1).close()
    sys.modules.setdefault("pyspiel", file_corpus.FakeOpenSpiel)  # type: ignore[arg-type]
    # The list of installed packages in the message about an unknown environment takes 0.3 s and does not change.
    registry._registering = functools.cache(registry._registering)


def fuzz(num_files: int, seed: int, folder: Path) -> bool:
    global inside, watching
    files = Files(folder, seed)
    chooser = random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    import_known()
    slowest = 0.0
    before = 0.0
    start = time.perf_counter()
    inside, watching = str(folder), True
    warmup = min(WARMUP, num_files)
    for number in range(warmup + num_files):
        if number == warmup:  # caches are filled: only growth from here on counts
            before, start = resident_mb(), time.perf_counter()
        read = chooser.choice(files.kinds)
        begin = time.perf_counter()
        outcomes[read.__name__, attempt(read)] += number >= warmup
        slowest = max(slowest, time.perf_counter() - begin)
    watching = False
    elapsed, growth = time.perf_counter() - start, resident_mb() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    for kind in dict.fromkeys(files.kinds):
        refused, valid = (outcomes[kind.__name__, outcome] for outcome in ("refused", "valid"))
        print(f"{kind.__name__:22} refused {refused:7}  read as valid values {valid:7}")
    print(
        f"{num_files} files in {elapsed:.0f} s ({num_files / elapsed:,.0f}/s), slowest {slowest * 1e3:.0f} ms, memory "
        f"{growth:+.1f} MB (peak {peak:+.1f} MB), executed: {len(executed)} {executed[:3]}"
    )
    return growth < MAX_GROWTH_MB and peak < MAX_GROWTH_MB and not executed


def finds(number: int, seed: int, folder: Path) -> bool:
    """Put a hole back, and return whether a file used it."""
    global inside, watching
    files = Files(folder, seed)
    import_known()
    hole = holes(sys.modules[__name__])[number]
    hole.open()
    chooser, inside, watching = random.Random(seed), str(folder), True
    what, tried = "", 0
    while not what and tried < SELF_TEST_FILES:
        tried += 1
        try:
            attempt(chooser.choice(files.kinds))
        except AssertionError as error:
            what = str(error)
        except Exception:  # what is accepted wrongly may fail later
            pass
        what = executed[0] if executed else what
    print(
        f"allowed {hole.allows}:\n  {f'file {tried}: {what}' if what else f'not noticed in {tried} files'}", flush=True
    )
    return bool(what)


def self_test(seed: int) -> int:
    command = [sys.executable, __file__, "--seed", str(seed), "--hole"]
    numbers = range(len(holes(sys.modules[__name__])))
    return max([subprocess.run([*command, str(number)]).returncode for number in numbers])


def fuzz_in_processes(num_files: int, seed: int, num_processes: int) -> int:
    share = -(-num_files // num_processes)
    command = [sys.executable, __file__, "--files", str(share), "--seed"]
    parts = [
        subprocess.Popen([*command, str(seed + index)], stdout=subprocess.PIPE, text=True)
        for index in range(num_processes)
    ]
    outputs = [part.communicate()[0] for part in parts]
    print("\n".join(f"seed {seed + index}:\n{output}" for index, output in enumerate(outputs)))
    return max(part.returncode != 0 for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="processes that share the files, with seeds in a row")
    parser.add_argument("--self-test", action="store_true", help="put old holes back, and report which are noticed")
    parser.add_argument("--hole", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test(arguments.seed)
    if arguments.processes > 1:
        return fuzz_in_processes(arguments.files, arguments.seed, arguments.processes)
    sys.addaudithook(audit)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk would take a third of the time
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        os.environ["HOME"] = folder  # a signing key of its own
        os.chdir(folder)
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        assert signatures.own_key() == ""
        if arguments.hole is not None:
            return 0 if finds(arguments.hole, arguments.seed, Path(folder)) else 1
        return 0 if fuzz(arguments.files, arguments.seed, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
