"""What a run offers to programs: metrics for Prometheus while it trains, and JSON lines."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from srl.cli.main import main

SCRAPE = """
from pathlib import Path
from urllib.request import urlopen
import srl

class Scrape(srl.Callback):
    def on_checkpoint(self, path):
        text = urlopen("http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        Path({target!r}).write_text(text)
"""


def test_a_run_serves_its_metrics_and_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "scrape.py").write_text(SCRAPE.format(port=port, target=str(tmp_path / "scraped")))
    words = f"train CartPole-v1 --scheduler inline --steps 2000 --batch 512 --lanes 4 --root {tmp_path} --name mine"
    own = f"--metrics-port {port} --log-format json --callback {tmp_path}/scrape.py:Scrape"
    assert main([*words.split(), *own.split()]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["run"] for line in lines} == {"mine"}
    assert [line["kind"] for line in lines if line["kind"] != "message"][-1] == "end"
    assert (lines[-1]["state"], lines[-1]["steps"] >= 2000) == ("finished", True)
    assert 'srl_steps_total{run="mine"}' in (tmp_path / "scraped").read_text()
    with pytest.raises(OSError, match="refused"):  # the port is closed when the run has ended
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


def test_a_port_in_use_is_named_before_the_run_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = f"train CartPole-v1 --scheduler inline --steps 256 --batch 128 --lanes 4 --root {tmp_path}"
        assert main([*words.split(), "--metrics-port", str(port)]) == 2
    assert f"--metrics-port {port} cannot be used" in capsys.readouterr().err
