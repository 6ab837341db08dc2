"""Configurations are equal after a round trip through JSON; errors name the field that is wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.spaces import Box, Discrete, Space
from srl.base.config import UntrustedCode, from_data, from_file, parse_json, to_data
from srl.base.object_names import load_object, refuse_private_code


class Body(Protocol):
    def build(self) -> object: ...


@dataclass(frozen=True)
class MlpConfig:
    widths: tuple[int, ...] = (64, 64)

    def build(self) -> object:
        return self.widths


@dataclass(frozen=True)
class LearnerConfig:
    learning_rate: float
    body: Body = field(default_factory=MlpConfig)
    clip: float | None = None
    shape: tuple[int, str] = (1, "a")
    folder: Path | None = None
    label: str = ""
    either: str | float = "x"
    options: dict[str, Any] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()
    steps: list[int] = field(default_factory=list)
    pairs: dict[str, tuple[float, float]] = field(default_factory=dict)


def through_json(config: Any) -> Any:
    return from_data(json.loads(json.dumps(to_data(config), allow_nan=False)))


def test_a_nested_config_keeps_its_tuples_and_types() -> None:
    config = LearnerConfig(
        3e-4,
        body=MlpConfig((32, 16)),
        clip=math.inf,
        folder=Path("/tmp/x"),
        label="nan",
        bodies=(MlpConfig((1,)), MlpConfig()),
        steps=[1, 2],
        pairs={"a": (0.0, -math.inf)},
    )
    assert through_json(config) == config


def test_values_without_type_hints_keep_their_types() -> None:
    options = {"tuple": (1, (2,)), "type": "native", "value": 1, "path": Path("p"), "list": [1], "name": "inf"}
    config = LearnerConfig(1.0, options=options, either=math.inf)
    assert through_json(config) == config
    assert through_json({"type": "a", "fields": {"b": (1,)}}) == {"type": "a", "fields": {"b": (1,)}}


def test_nan_remains_a_number_and_the_string_nan_a_string() -> None:
    config = through_json(LearnerConfig(math.nan, label="nan", either="nan", options={"x": math.nan, "y": "nan"}))
    assert math.isnan(config.learning_rate)
    assert math.isnan(config.options["x"])
    assert (config.label, config.either, config.options["y"]) == ("nan", "nan", "nan")


def test_data_is_plain_and_names_the_class() -> None:
    data = to_data(MlpConfig((np.int64(8),)))  # type: ignore[arg-type]
    assert data == {"type": f"{__name__}:MlpConfig", "fields": {"widths": [8]}}
    assert type(data["fields"]["widths"][0]) is int


def test_inf_may_be_written_as_a_string_in_a_number_field() -> None:
    data = to_data(LearnerConfig(1.0))
    data["fields"]["clip"] = "inf"
    assert from_data(data).clip == math.inf


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    data = to_data(LearnerConfig(1.0))
    data["fields"]["learning_rat"] = 1.0
    with pytest.raises(ValueError, match=r"LearnerConfig has no field 'learning_rat'; did you mean 'learning_rate'\?"):
        from_data(data)


def test_the_error_for_a_missing_field_names_its_place() -> None:
    data = {"type": f"{__name__}:LearnerConfig", "fields": {}}
    with pytest.raises(ValueError, match=r"config\[0\]: LearnerConfig requires the field 'learning_rate'"):
        from_data([data])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"type": "pathlib:Path", "fields": {}}, "is not a dataclass"),
        ({"type": "os:system", "fields": {}}, "is not a dataclass"),
        ({"type": "srl.base.confog:x", "fields": {}}, "did you mean 'config'"),
        ({"type": "srl.base.tree:ArraySpek", "fields": {}}, "did you mean 'ArraySpec'"),
        ({"type": "float", "value": "seven"}, "as type 'float'"),
        ({"type": "float"}, r"found the keys \['type'\]"),
    ],
)
def test_invalid_data_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_data(data)


def test_values_that_cannot_be_serialized_are_refused_with_their_place() -> None:
    with pytest.raises(TypeError, match=r"config\.options\['f'\]: cannot serialize a function"):
        to_data(LearnerConfig(1.0, options={"f": through_json}))
    with pytest.raises(TypeError, match="dictionary keys must be strings"):
        to_data({1: 2})

    @dataclass
    class Local:
        x: int = 1

    with pytest.raises(ValueError, match="Local was defined inside a function, so worker processes cannot import it"):
        refuse_private_code(to_data(Local()))


def test_a_file_is_loaded_once_and_its_classes_round_trip(tmp_path: Path) -> None:
    (tmp_path / "neighbor_of_config_test.py").write_text("number = 7\n")
    file = tmp_path / "my-env.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from neighbor_of_config_test import number\n"
        "@dataclass(frozen=True)\nclass EnvConfig:\n    size: tuple[int, ...] = (number,)\n"
    )
    kind = load_object(f"{file}:EnvConfig")
    assert load_object(f"{file}:EnvConfig") is kind
    data = to_data(kind((1, 2)))
    assert data["type"] == f"{file}:EnvConfig"
    assert from_data(data) == kind((1, 2))


def test_other_processes_find_a_config_class_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from dataclasses import dataclass\nfrom srl.base.config import to_data, from_data\n"
        "@dataclass(frozen=True)\nclass C:\n    x: int = 1\n"
        "if __name__ == '__main__':\n"
        "    assert from_data(to_data(C(2))) == C(2)\n"
        "    print(to_data(C(2))['type'])\n"
    )
    printed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == f"{script}:C"
    assert load_object(printed)(2).x == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "does not name an object; write 'package.module:name'"),
        ("no/such/file.py:f", "no file no/such/file.py"),
        ("nosuchpackage.deep:f", "no module 'nosuchpackage'"),
        ("srl.base.tree:leafs", "did you mean 'leaves'"),
    ],
)
def test_a_wrong_name_is_a_clear_error(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_object(name)


def test_a_file_that_fails_to_import_raises_its_own_error_every_time(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import math\nvalue = 1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_object(f"{file}:value")


def read_from_file(data: Any, kind: Any = AlgorithmConfig, trust_code: Any = False) -> Any:
    return from_file({"a": data}, {"a": kind}, "file", trust_code)["a"]


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (
            AlgorithmConfig,
            {"type": "box-space", "fields": {"shape": [1]}},
            "a must be AlgorithmConfig, found box-space",
        ),
        (AlgorithmConfig, "ppo", "a must be AlgorithmConfig, found 'ppo'"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"gamma": "high"}}, "a.gamma must be float, found 'high'"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"gamma": True}}, "a.gamma must be float, found True"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"epochs": 2**63}}, "a.epochs must be int"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"memory": "gruu"}}, "a.memory must be Literal, found 'gruu'"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"hidden_sizes": [64, "x"]}}, r"a.hidden_sizes\[1\] must be int"),
        (AlgorithmConfig, {"type": "ppo", "fields": {"hidden_sizes": {"type": "ppo", "fields": {}}}}, "must be tuple"),
        (Space, {"type": "dict-space", "fields": {"items": {"x": 1}}}, "must be Box or Discrete"),
        (Space, {"type": "minigrid", "fields": {}}, "minigrid is not a dataclass"),
        (dict[str, Any], {"x": {"type": "ppo", "fields": {}}}, "found a config of type 'ppo'"),
    ],
)
def test_values_in_a_file_must_have_the_types_of_their_fields(kind: Any, data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_from_file(data, kind)


def test_own_types_in_a_file_are_rebuilt() -> None:
    config = PPOConfig(gamma=1, dual_clip=math.inf, hidden_sizes=(8,))
    assert read_from_file(json.loads(json.dumps(to_data(config)))) == config
    space = Box((2,), low=(0.0, -math.inf))
    assert read_from_file(to_data(space), Space) == space
    assert read_from_file(to_data(Discrete(3)), Space) == Discrete(3)


def test_all_foreign_names_of_a_file_are_reported_at_once_and_none_is_imported() -> None:
    data = {"a": {"type": "no_module:A", "fields": {"x": {"type": "no_other:B", "fields": {}}}}}
    data["b"] = to_data(PPOConfig(network="no_third:net"))
    with pytest.raises(UntrustedCode, match=r": no_module:A, no_other:B, no_third:net\. SRL"):
        from_file(data, {"a": AlgorithmConfig, "b": AlgorithmConfig}, "file")


def test_a_file_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="file must contain a; found a list"):
        from_file([], {"a": int}, "file")
    with pytest.raises(ValueError, match="file has no 'a'"):
        from_file({}, {"a": int}, "file")
    for content in (b"[" * 10_000, b'{"a": 1, "a": 2}', b"\xff", b'["\\ud800"]', b"{", b"9" * 5000):
        with pytest.raises(ValueError, match="file is"):
            parse_json(content, "file")
    assert parse_json(b'["\\ud83d\\ude00"]', "file") == ["\U0001f600"]
