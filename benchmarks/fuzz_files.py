"""Fuzz the readers of files: mutated configs, checkpoints, facts, groups and signatures of runs must be refused with a
clear message or read as valid values. Nothing may be executed, and memory must not grow.

python benchmarks/fuzz_files.py --files 100000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

import srl
from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.experiments.options.config_file import read_config
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import checkpointing
from srl.experiments.sweeps.plan import Plan, read_plan
from srl.storage import checkpoints, run_directory, signatures
from srl.storage.checkpoints import CheckpointError
from srl.storage.run_directory import RunDirectory
from srl.storage.saved_policies import read_policy

MAX_GROWTH_MB = 50
WARMUP = 2000
FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn"),
    *("pickle.find_class", "ctypes.dlopen", "ctypes.dlsym", "webbrowser.open", "socket.connect"),
)
WORDS = (
    *("os:system", "subprocess:call", "builtins:exec", "importlib:import_module", "antigravity:geohash", "this:c"),
    *("/tmp/x.py:make", "../../x", "..", "\0", "\ud800", "a" * 100_000, "CartPole-v1", "os:Env-v0", "ppo", "vector"),
    *("gymnasium", "pettingzoo", "lanes-function", "team-reward", "minigrid", "GymV26Environment-v0", "inf", "nan", ""),
)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    -0.0,
    float("nan"),
    float("inf"),
)
executed: list[str] = []
watching = False


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and (event in FORBIDDEN or (event == "import" and arguments[0] in ("antigravity", "this"))):
        executed.append(f"{event} {arguments}"[:200])


class Mutator:
    """Makes hostile variants of a JSON value or of bytes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def data(self, value: Any) -> Any:
        """Return the value with some of its nodes replaced, removed, renamed or exchanged."""
        value = json.loads(json.dumps(value))
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 8))):
            places = list(_places(value))
            if not places:
                return self.junk()
            owner, key = self.random.choice(places)
            action = self.random.randrange(6)
            if action == 0:
                owner[key] = self.junk()
            elif action == 1 and isinstance(owner, dict):
                owner[self.random.choice(WORDS)[:100]] = owner.pop(key)
            elif action == 2:
                del owner[key]
            elif action == 3:
                other_owner, other = self.random.choice(places)
                owner[key] = json.loads(json.dumps(other_owner[other]))
            elif action == 4:
                owner[key] = {"type": self.random.choice(WORDS), "fields": {"command": "true", "name": owner[key]}}
            else:
                owner[key] = self.random.choice((self.random.choice(WORDS), self.random.choice(NUMBERS)))
        return value

    def junk(self) -> Any:
        deep: Any = 0
        for _ in range(self.random.choice((1, 10, 100))):
            deep = [deep] if self.random.random() < 0.5 else {"type": "dict", "value": {"a": deep}}
        shapes = ([], {}, None, True, [1] * 1000, deep, {"type": "path", "value": "/etc/passwd"})
        return self.random.choice((*shapes, self.random.choice(WORDS), self.random.choice(NUMBERS)))

    def text(self, value: Any) -> bytes:
        """Return a mutated JSON text: mutated as a value, as bytes, or both."""
        content = json.dumps(self.data(value) if self.random.random() < 0.8 else value).encode("utf-8", "replace")
        if self.random.random() < 0.1:  # a key twice
            content = content.replace(b"{", b'{"type": "os:system", "type": 1, ', 1)
        return self.bytes(content) if self.random.random() < 0.3 else content

    def bytes(self, content: bytes) -> bytes:
        """Return bytes with flipped bits, other lengths, spliced parts or lies about the length of a header."""
        found = bytearray(content)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            place = self.random.randrange(len(found) + 1)
            action = self.random.randrange(6)
            if action == 0 and place < len(found):
                found[place] ^= 1 << self.random.randrange(8)
            elif action == 1:
                del found[place:]
            elif action == 2:
                found[place:place] = self.random.randbytes(self.random.choice((1, 8, 100)))
            elif action == 3:
                found[:8] = self.random.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)).to_bytes(8, "little")
            elif action == 4:
                found[place : place + 16] = found[: self.random.randrange(16)]
            else:
                found[place:place] = self.random.choice((b"[", b'{"a":')) * self.random.choice((1, 1000, 100_000))
        return bytes(found)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a JSON value with each of its keys."""
    left = [value]
    while left:
        owner = left.pop()
        if isinstance(owner, dict | list):
            for key in list(owner) if isinstance(owner, dict) else range(len(owner)):
                yield owner, key
                left.append(owner[key])


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
        self.contents = {file.name: file.read_bytes() for file in self.source.iterdir()}
        self.facts = json.loads(self.contents["facts.json"])
        self.arrays, _ = checkpoints.read(self.source)
        variant = {"label": "", "env": "CartPole-v1", "options": self.config["options"]}
        fields = {"variants": [{"type": "sweep-variant", "fields": variant}], "seeds": [0, 1], "search": None}
        self.group = {"plan": {"type": "sweep-plan", "fields": fields}}
        self.kinds: list[Callable[[], None]] = [
            self.config_file,
            self.facts_of_checkpoint,
            self.bytes_of_checkpoint,
            self.arrays_of_checkpoint,
            self.group_file,
            self.options_file,
            self.signature,
        ]

    def config_file(self) -> None:
        self.run.config.write_bytes(self.mutator.text(self.config))
        config = self.run.load_config()
        assert isinstance(config["options"], TrainOptions)
        assert isinstance(config["lanes"], LanesConfig)

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


def fuzz(num_files: int, seed: int, folder: Path) -> bool:
    global watching
    files = Files(folder, seed)
    chooser = random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    before = 0.0
    start = time.perf_counter()
    watching = True
    for number in range(WARMUP + num_files):
        if number == WARMUP:  # caches are filled: only growth from here on counts
            before, start = resident_mb(), time.perf_counter()
        read = chooser.choice(files.kinds)
        begin = time.perf_counter()
        outcomes[read.__name__, attempt(read)] += number >= WARMUP
        slowest = max(slowest, time.perf_counter() - begin)
    watching = False
    elapsed, growth = time.perf_counter() - start, resident_mb() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    for kind in files.kinds:
        refused, valid = (outcomes[kind.__name__, outcome] for outcome in ("refused", "valid"))
        print(f"{kind.__name__:22} refused {refused:7}  read as valid values {valid:7}")
    print(
        f"{num_files} files in {elapsed:.0f} s ({num_files / elapsed:,.0f}/s), slowest {slowest * 1e3:.0f} ms, memory "
        f"{growth:+.1f} MB (peak {peak:+.1f} MB), executed: {len(executed)} {executed[:3]}"
    )
    return growth < MAX_GROWTH_MB and peak < MAX_GROWTH_MB and not executed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.addaudithook(audit)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder  # a signing key of its own
        assert signatures.own_key() == ""
        return 0 if fuzz(arguments.files, arguments.seed, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
