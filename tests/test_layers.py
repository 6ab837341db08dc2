"""Imports point downward, packages and files stay small, and nothing unpickles or evaluates data."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from srl.base.object_names import PARTS

PACKAGE = Path(__file__).parent.parent / "srl"

# A package may import itself and what is listed for it.
FOUNDATION = {"base", "api"}
DATA_PLANE = FOUNDATION | {"transports", "names", "streams", "parameters"}
RUNTIME = DATA_PLANE | {"workers", "schedulers", "controller"}
LEARNING = {"networks", "algorithms", "environments", "populations"}
MAY_IMPORT = {
    "base": set(),
    "api": {"base"},
    "transports": FOUNDATION,
    "names": FOUNDATION,
    "replay": FOUNDATION,
    "search": FOUNDATION,
    "streams": FOUNDATION | {"transports"},
    "parameters": FOUNDATION | {"transports"},
    "datasets": FOUNDATION | {"environments"},
    "workers": DATA_PLANE | {"replay", "datasets"},
    "schedulers": DATA_PLANE | {"workers"},
    "controller": FOUNDATION | {"transports", "names"},
    "networks": FOUNDATION,
    "algorithms": FOUNDATION | {"networks", "search"},
    "environments": FOUNDATION,
    "populations": FOUNDATION,
    "storage": FOUNDATION,
    "terminal": FOUNDATION | {"storage"},
    "testing": DATA_PLANE | {"environments", "workers"},
    "callbacks": FOUNDATION,
    # terminal: the live view of srl.train(verbose=True)
    "experiments": RUNTIME | LEARNING | {"callbacks", "datasets", "replay", "storage", "terminal"},
    "results": FOUNDATION | LEARNING | {"datasets", "workers", "storage", "experiments", "terminal"},
    "bench": RUNTIME | LEARNING | {"experiments", "testing"},
    "dashboard": RUNTIME | {"storage", "experiments"},
    "checks": FOUNDATION | {"controller", "datasets", "environments", "storage", "experiments", "results", "testing"},
    "cli": RUNTIME
    | LEARNING
    | {"replay", "storage", "experiments", "results", "bench", "checks", "dashboard", "terminal", "testing"},
}

# Sub-packages (and some modules) of a package, from left to right: each may import those on its left. Modules that are
# not listed are free.
ROOMS = {
    "algorithms": "returns training torch_policy actor_critic ppo ppg a2c impala mappo offpolicy dqn r2d2 sac offline "
    "qmix alphazero muzero",
    "environments": "failures factories spaces conversion adapters mujoco pettingzoo games hide_and_seek registry",
    "environments/hide_and_seek": "options variants physics perception rules rendering lanes",
    "experiments": "options recipes graph session sweeps",
    "networks": "options spaces parameters network encoders distributions memory actor_critic wrappers build",
    "schedulers": "local inline hosts agent engines",
    "testing": "findings contexts env_checks worker_checks",
    "workers": "role wait_set reanalyzer trainer replay actor context process episode_player evaluator",
}
# Imports that point to the right, with the reason why they stay.
EXCEPTIONS = {
    ("algorithms/ppo/ppg_phase.py", "srl.algorithms.ppg"): "PPG is a variant of PPO: its phase reads its own config",
    ("algorithms/training/learner.py", "srl.algorithms.actor_critic"): "the learner is built from the shared config",
    ("environments/adapters/gymnasium.py", "srl.environments.pettingzoo.config"): "one constructor may return either",
    ("environments/adapters/gymnasium.py", "srl.environments.mujoco.callbacks"): "silences MuJoCo's own warnings",
}
# Protocols outside of srl/api: each is used inside of one package only, or cannot be there for the reason given.
LOCAL_PROTOCOLS = {
    "base.clock:Clock": "the foundation below srl.api uses it",
    "networks.distributions.distribution:Distribution": "needs torch",
    "networks.memory.recurrent:Memory": "needs torch",
    "networks.backpropagation:Pass": "needs torch",
    "environments.hide_and_seek.rules.tasks:Task": "tasks of one environment",
    "environments.mujoco.tasks:Task": "tasks of one adapter",
    "environments.pettingzoo.lanes:Game": "the two kinds of PettingZoo environments",
    "callbacks.callback:RunControl": "only callbacks use it",
    "populations.versus:Opponents": "opponents of self-play and of a league",
    "schedulers.local.worker_logs:LogStore": "the destinations of logs on one host and on several",
    "testing.env_checks.driver:Probe": "the kinds of environments that are checked",
    "workers.actor.recorder:Recorder": "the kinds of recorders of an actor",
    "workers.trainer.batches:BatchMaker": "what a trainer's batches are made of",
}
# Names with an underscore that are public by their documentation, or have no public counterpart.
FOREIGN_PRIVATE = {
    "os._exit",
    "_replace",  # of named tuples
    "torch._fused_adam_",
    "trial._trial_id",  # of Optuna, which offers no other way to continue a trial
    "environment._max_episode_steps",  # of Gymnasium's TimeLimit, which has no public way to read its limit
}
MAX_MODULES = 16  # a dozen, and in `srl.api` one for each contract
MAX_LINES = 400
UNSAFE_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "joblib", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.package", "os.system"}

TRUSTED_MESSAGES = {
    "schedulers/local/zygote.py": "configs of workers, from their own supervisor",
    "experiments/graph/environment_probe.py": "the profile, from a forked process",
    "experiments/session/compatibility.py": "the description that this process has just made",
    "experiments/sweeps/processes.py": "the options of a member, from the process of the sweep",
    "testing/findings.py": "a config that this process has just written",
}
IMPORTERS = {
    "base/object_names.py": "the only place that imports names from configs, once they are trusted",
    "environments/adapters/vector.py": "the module in an id; `named_code` reports it",
    "environments/pettingzoo/config.py": "PettingZoo's modules; `named_code` reports others",
    "environments/registry.py": "the module in an id that the user wrote",
    "environments/factories.py": "ale_py",
    "schedulers/local/zygote.py": "modules that the supervisor names",
    "environments/hide_and_seek/__init__.py": "own modules, on first use",
    "testing/__init__.py": "own modules, on first use",
    "__init__.py": "own modules, on first use",
}


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        package = relative.parts[0] if len(relative.parts) > 1 else ""
        found.append((package, path, ast.parse(path.read_text())))
    return found


@cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def imports(tree: ast.Module) -> list[str]:
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def is_name(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def dotted(node: ast.AST) -> str:
    """Return the source of a node. Most are dotted names, for which `ast.unparse` takes long."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_lower_packages(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for own, path, tree in modules()
        if own == package
        for name in imports(tree)
        if name.startswith("srl.") and name.split(".")[1] not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_imports_inside_a_package_point_to_the_left(package: str) -> None:
    order = ROOMS[package].split()
    prefix = f"srl.{package.replace('/', '.')}."
    wrong = []
    for _, path, tree in modules():
        if not path.is_relative_to(PACKAGE / package):
            continue
        own = path.relative_to(PACKAGE / package).parts[0].removesuffix(".py")
        where = str(path.relative_to(PACKAGE))
        for name in sorted(set(imports(tree))):
            other = name.removeprefix(prefix).split(".")[0]
            to_the_right = own in order and other in order and order.index(own) < order.index(other)
            if name.startswith(prefix) and to_the_right and (where, name) not in EXCEPTIONS:
                wrong.append(f"{where} imports {name}")
    assert wrong == []


def test_every_sub_package_and_no_other_name_is_listed() -> None:
    for package, order in ROOMS.items():
        names = {path.stem for path in (PACKAGE / package).iterdir()}
        assert set(order.split()) <= names, package
    listed = {f"{package}/{name}" for package, order in ROOMS.items() for name in order.split()}
    nested = {path.parent.relative_to(PACKAGE) for _, path, _ in modules()}
    assert {str(room) for room in nested if len(room.parts) > 1} <= listed


def test_exceptions_are_still_needed() -> None:
    found = {(str(path.relative_to(PACKAGE)), name) for _, path, tree in modules() for name in imports(tree)}
    assert set(EXCEPTIONS) - found == set(), "remove them from EXCEPTIONS"


def test_every_package_is_listed() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)


def test_only_networks_and_algorithms_import_torch() -> None:
    users = {
        package
        for package, path, tree in modules()
        if any(name.split(".")[0] == "torch" for name in imports(tree)) and path.name != "doctor.py"
    }
    assert users <= {"networks", "algorithms"}


def test_contracts_need_only_numpy_and_msgspec() -> None:
    foreign = {name.split(".")[0] for package, _, tree in modules() if package == "api" for name in imports(tree)}
    allowed = {"__future__", "abc", "collections", "dataclasses", "functools", "typing", "numpy", "msgspec", "srl"}
    assert foreign <= allowed


def test_nothing_unpickles_or_evaluates_data() -> None:
    found = []
    for _, path, tree in modules():
        where = path.relative_to(PACKAGE)
        found += [f"{where}: {name}" for name in imports(tree) if name.split(".")[0] in UNSAFE_MODULES]
        found += [
            f"{where}: from torch import {alias.name}"  # the check of calls below does not find other names
            for node in nodes(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "torch"
            for alias in node.names
            if alias.name == "load"
        ]
        for node in nodes(tree):
            if not isinstance(node, ast.Call):
                continue
            called = dotted(node.func)
            if called in UNSAFE_CALLS or called.endswith("yaml.load"):
                found.append(f"{where}:{node.lineno}: {called}")
            found += [
                f"{where}:{node.lineno}: {keyword.arg}"
                for keyword in node.keywords
                if keyword.arg in ("allow_pickle", "weights_only", "shell")
            ]
    assert found == []


def test_only_messages_of_the_same_run_are_read_as_trusted() -> None:
    """`from_data` imports what its data names; files are read by `from_file`."""
    readers = {
        str(path.relative_to(PACKAGE))
        for _, path, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "from_data" for alias in node.names)
    }
    assert readers == set(TRUSTED_MESSAGES)


def test_imports_by_variable_names_are_listed() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for _, path, tree in modules()
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and dotted(node.func).endswith("import_module")
        and not isinstance(node.args[0], ast.Constant)
    }
    assert found == set(IMPORTERS)


def test_short_names_of_parts_point_to_existing_classes() -> None:
    """Moving a class means to change its path in srl/base/object_names.py; saved runs keep working."""
    defined = {
        f"{'.'.join(('srl', *path.relative_to(PACKAGE).with_suffix('').parts))}:{node.name}"
        for _, path, tree in modules()
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    assert set(PARTS.values()) - defined == set()


def test_contracts_are_in_api() -> None:
    found = {
        f"{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}:{node.name}"
        for package, path, tree in modules()
        for node in tree.body
        if package != "api" and isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }
    assert found - set(LOCAL_PROTOCOLS) == set(), "move them to srl/api, or list them with a reason"
    assert set(LOCAL_PROTOCOLS) - found == set(), "remove them from LOCAL_PROTOCOLS"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_access(tree: ast.Module) -> Iterator[str]:
    """Yield uses of private names that the module does not define itself."""
    own = {node.name for node in nodes(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.id for node in nodes(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = [node for node in nodes(tree) if isinstance(node, ast.Attribute)]
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store) and is_name(node.value, "self")}
    for node in attributes:
        foreign = node.attr not in own and not is_name(node.value, "self", "cls")
        if is_private(node.attr) and foreign and not FOREIGN_PRIVATE & {node.attr, dotted(node)}:
            yield f"{node.lineno}: {dotted(node)}"
    for statement in nodes(tree):
        if isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.lineno}: {a.name}" for a in statement.names if is_private(a.name))


def test_no_module_uses_private_names_of_another() -> None:
    found = {str(path.relative_to(PACKAGE)): list(private_access(tree)) for _, path, tree in modules()}
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_files_stay_small() -> None:
    lengths = {str(path.relative_to(PACKAGE)): path.read_text().count("\n") for _, path, _ in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_packages_stay_small() -> None:
    counts = Counter(str(path.parent.relative_to(PACKAGE)) for _, path, _ in modules() if path.name != "__init__.py")
    assert {package: count for package, count in counts.items() if count > MAX_MODULES} == {}
