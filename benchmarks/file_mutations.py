"""Hostile variants of the files of a run, for `fuzz_files.py`."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOSTILE = "fuzz_hostile"
"""Module in the working directory, which is on the search path, that no file may make us import."""
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
SIGNS = (",", "=", ":", '"', "[", "]", "{", "/", "..", " ", "\n", "\\u003a", "\\u002c", "\\u0022", "\\", "*", "@")
NAMED = (f"{HOSTILE}:make", f"{HOSTILE}:Env-v0", "FILE:make", "/,/..FILE:make", '"FILE\\u003amake"', f"{HOSTILE}.py")
"""Names of a hostile function, also hidden. FILE stands for the path of its file."""
PIECES = {
    "callback": (
        *("early-stopping", "curriculum", "option-schedule", "webhook", "minigrid", "gymnasium", "evaluator"),
        *(",patience=9", ",option=env.x", ",levels=[1]", ",points=[[0,1]]", ",url=http://127.0.0.1:9", ",id="),
    ),
    "role": (
        *("*=policy", ",algo=", ",network=", ",frozen=", ",device=cuda:0", ",gamma=0.9", ",horizon=4", "ppo"),
        *((',network="FILE\\u003amake"', ',algo="ppo\\u002cnetwork=\\u0022FILE\\\\u003amake\\u0022"') * 4),
    ),
    "environment": (
        *("game:", "openspiel:", "efg_game", "connect-four", "classic.tictactoe_v3", "breakthrough", "filename"),
        *("CartPole-v1", "CartPole", "Ant-v5", "pettingzoo:", "envpool:", "ale_py:", "hide-and-seek/quadrant"),
        *("minigrid", "classic.chess_v6", "xml_file", "model_path", "base_path", "GymV26Environment-v0"),
    ),
    "slurm": ("time=10", " --export=ALL", "export=ALL", "--", "mem=1", "wrap=true", "actors=node:x", "mail-user=x"),
    "sink": ("tensorboard", "wandb", "mlflow"),
}
"""Pieces of texts that mean something to the parser of an option."""


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

    def pieces(self, kind: str, file: Path) -> str:
        """Return a text for an option of this kind, which may name a function in the file."""
        count = self.random.choice((1, 1, 2, 3, 5))
        pools = (PIECES[kind], NAMED, SIGNS)
        return "".join(self.random.choice(self.random.choice(pools)) for _ in range(count)).replace("FILE", str(file))

    def setting(self, file: Path) -> str:
        """Return a setting of a role whose value is quoted and escaped, once or twice, as JSON may be."""
        name = self.random.choice(("algo", "algo", "network", "frozen", "device", "gamma"))
        value = self.random.choice(NAMED[:3]).replace("FILE", str(file))
        for _ in range(self.random.choice((1, 1, 2))):
            share = self.random.choice((0.1, 0.5, 1.0))
            signs = (f"\\u{ord(s):04x}" if not s.isalnum() and self.random.random() < share else s for s in value)
            value = '"' + "".join(signs) + '"'
        return f"{name}={value}"

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
