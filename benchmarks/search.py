"""Speed of tree search beside LightZero and mctx: simulations per CPU second on one core.

    python benchmarks/search.py --peers DIRECTORY --rounds 3 --roots 8,64 --sims 25 --actions 2 --kind puct,gumbel
    python benchmarks/search.py --one mlp --roots 64      # only ours

The directory has `search_common.py`, `search_mctx.py` and `search_lightzero.py`, with the environments that its
`install.sh` makes. All run the same small network with the same weights (three dense layers of `--hidden` units, and 21
bins each for value and reward), one after another, `--rounds` times; medians. `srl-mlp` is the compiled network,
`srl-torch` the same in torch. `net_pct` is the share of the network's calls alone, measured on as many rows.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402  # after the number of threads is set

BINS, DISCOUNT, EPSILON = 21, 0.997, 0.001
CONTENDERS = {
    "srl-mlp": [__file__, "--one", "mlp"],
    "srl-torch": [__file__, "--one", "torch"],
    "mctx": ["search_mctx.py"],
    "lightzero": ["search_lightzero.py"],
}
KEY = ("impl", "kind", "actions", "sims", "roots", "hidden")


def cases(arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    lists = [[int(x) for x in getattr(arguments, name).split(",")] for name in ("hidden", "actions", "sims", "roots")]
    for kind in arguments.kind.split(","):
        for hidden, actions, sims, roots in itertools.product(*lists):
            yield argparse.Namespace(kind=kind, hidden=hidden, actions=actions, sims=sims, roots=roots)


def weights(case: argparse.Namespace) -> dict[str, Any]:
    """Return the arrays that `search_common.py` makes from the same seed."""
    random, hidden, actions = np.random.default_rng(0), case.hidden, case.actions

    def draw(n: int, m: int, scale: float) -> Any:
        return (random.standard_normal((n, m)) * scale / n**0.5).astype(np.float32)

    found = {"w1": draw(hidden, hidden, 1.4), "wa": draw(actions, hidden, 1.4), "w2": draw(hidden, hidden, 1.4)}
    found |= {"w3": draw(hidden, hidden, 1.4), "wo": draw(hidden, actions + 2 * BINS, 2.0)}
    found["root"] = np.tanh(random.standard_normal((case.roots, hidden))).astype(np.float32)
    return found


def search_of(case: argparse.Namespace) -> Any:
    from srl.search import GumbelSearch, PUCTSearch

    return (PUCTSearch if case.kind == "puct" else GumbelSearch)(case.sims, case.actions, DISCOUNT)


def with_mlp(case: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return functions that search once, and that call the network once per simulation."""
    from srl.search import Evaluation, MLPModelConfig

    arrays = weights(case)
    config = MLPModelConfig(
        4, case.actions, case.hidden, (), (case.hidden,), (case.hidden,), num_bins=BINS, discount=DISCOUNT
    )
    parameters = config.new_parameters()
    dynamics = np.concatenate((arrays["w1"], arrays["wa"]))
    named = {"dynamics.0.weight": dynamics, "dynamics.1.weight": arrays["w2"]}
    named |= {"prediction.0.weight": arrays["w3"], "prediction.1.weight": arrays["wo"]}
    for name, start, shape in config.layout():
        if name in named:
            parameters[start : start + int(np.prod(shape))] = named[name].ravel()
    model, search = config.build(parameters), search_of(case)
    work = model.work(case.roots)
    work.latent[:] = arrays["root"]
    model._predict(work)
    root = Evaluation(arrays["root"], work.value.copy(), work.logits.copy())
    random = np.random.default_rng(0)
    chosen = np.zeros(case.roots, np.int64)

    def network() -> None:
        for _ in range(case.sims):
            model(arrays["root"], chosen)

    return lambda: search.run(root, model, random), network


def with_torch(case: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    from srl.search import Evaluation

    torch.set_num_threads(1)
    arrays = {name: torch.from_numpy(array) for name, array in weights(case).items()}
    actions = case.actions
    support = torch.arange(-(BINS // 2), BINS // 2 + 1, dtype=torch.float32)

    def scalar(bins: Any) -> Any:
        mean = torch.softmax(bins, 1) @ support
        root = (torch.sqrt(1 + 4 * EPSILON * (mean.abs() + 1 + EPSILON)) - 1) / (2 * EPSILON)
        return torch.sign(mean) * (root * root - 1)

    def heads(latent: Any) -> Any:
        outputs = (latent @ arrays["w3"]).relu_() @ arrays["wo"]
        both = scalar(torch.cat((outputs[:, actions : actions + BINS], outputs[:, actions + BINS :])))
        return outputs[:, :actions], both[: len(latent)], both[len(latent) :]

    def step(state: Any, action: Any) -> Any:
        hidden = torch.addmm(arrays["wa"].index_select(0, action), state, arrays["w1"]).relu_()
        latent = (hidden @ arrays["w2"]).tanh_()
        logits, value, reward = heads(latent)
        return latent, reward, value, logits

    logits, value, _ = heads(arrays["root"])
    root, search, random = Evaluation(arrays["root"], value, logits), search_of(case), np.random.default_rng(0)
    chosen = torch.zeros(case.roots, dtype=torch.int64)

    def run() -> None:
        with torch.inference_mode():
            search.run(root, step, random)

    def network() -> None:
        with torch.inference_mode():
            for _ in range(case.sims):
                step(arrays["root"], chosen)

    return run, network


def timed(call: Callable[[], Any], seconds: float) -> tuple[float, int]:
    """Return the median CPU seconds of one call, and the number of calls."""
    for _ in range(3):
        call()
    found: list[float] = []
    end = time.process_time() + seconds
    while time.process_time() < end or len(found) < 5:
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found), len(found)


def measure(arguments: argparse.Namespace) -> None:
    """Measure ours, and print results as the peers' scripts do."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {0})
    for case in cases(arguments):
        run, network = (with_mlp if arguments.one == "mlp" else with_torch)(case)
        seconds, count = timed(run, arguments.seconds)
        alone, _ = timed(network, arguments.seconds / 2)
        share = 100 * alone / seconds
        found = {"impl": f"srl-{arguments.one}", "version": importlib.metadata.version("srl-rl"), **vars(case)}
        found |= {"ms_per_search": round(seconds * 1e3, 3), "sims_per_s": round(case.roots * case.sims / seconds)}
        found |= {"searches": count, "net_pct": round(share, 1), "tree_pct": round(100 - share, 1)}
        print("RESULT " + json.dumps(found), flush=True)


def compare(arguments: argparse.Namespace) -> None:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = collections.defaultdict(list)
    names = ("roots", "sims", "actions", "hidden", "kind", "seconds")
    own = list(itertools.chain.from_iterable((f"--{name}", str(getattr(arguments, name))) for name in names))
    for _ in range(arguments.rounds):
        for name in arguments.only.split(","):
            script, *more = CONTENDERS[name]
            place = Path(script) if name.startswith("srl") else arguments.peers / script
            command = [sys.executable, str(place.resolve()), *more, *own]
            done = subprocess.run(command, capture_output=True, text=True, cwd=place.resolve().parent)
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            if not lines:
                print(f"{name} failed: {done.stderr[-600:]}", file=sys.stderr)
            for line in lines:
                one = json.loads(line[7:])
                found[tuple(one[key] for key in KEY)].append(one)
    for key, rows in found.items():
        rates = [one["sims_per_s"] for one in rows]
        shares = [one["net_pct"] for one in rows]
        values = {"sims_per_s": round(statistics.median(rates)), "net_pct": round(statistics.median(shares), 1)}
        span = {"lowest": min(rates), "highest": max(rates), "n": len(rows)}
        print("MEDIAN " + json.dumps(dict(zip(KEY, key, strict=True)) | values | span), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=("mlp", "torch"), help="measure only ours")
    parser.add_argument("--peers", type=Path, help="directory with the peers' scripts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(CONTENDERS))
    parser.add_argument("--roots", default="64")
    parser.add_argument("--sims", default="25")
    parser.add_argument("--actions", default="2")
    parser.add_argument("--hidden", default="128")
    parser.add_argument("--kind", default="puct,gumbel")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of each case")
    arguments = parser.parse_args()
    measure(arguments) if arguments.one else compare(arguments)


if __name__ == "__main__":
    main()
