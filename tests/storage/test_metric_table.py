"""Columns of a file of rows that grows, is repeated by a resumed run, or is replaced by another file."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from srl.storage.metric_table import MetricTable, metric_columns


def write(path: Path, *rows: dict[str, Any], mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def update(number: int, **values: Any) -> dict[str, Any]:
    return {"step": 10 * number, "kind": "update", "policy": "policy", "update": number, **values}


def test_a_table_grows_with_its_file_and_reads_no_line_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, update(1, loss=1.0), {"step": 10, "kind": "evaluation", "eval/return": 5})
    table = MetricTable(path)
    assert table.read()
    with path.open("a") as half:
        half.write('{"step": 20, "kind": "update", "policy": "policy", "update": 2, "lo')
    assert not table.read()
    with path.open("a") as rest:
        rest.write('ss": 2.0}\n')
    assert table.read()
    rows, values = table.column("loss")
    assert (rows.tolist(), values.tolist()) == ([0, 2], [1.0, 2.0])
    assert table.at("step", rows).tolist() == [10, 20]
    np.testing.assert_array_equal(table.at("eval/return", np.array([0, 1, 2])), [np.nan, 5, np.nan])


def test_another_file_replaces_the_table(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *(update(n) for n in (1, 2, 3)))
    table = MetricTable(path)
    table.read()
    path.unlink()
    write(path, update(1))
    assert table.read()
    assert len(table) == 1


def test_what_is_no_row_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'null\n[1]\n{"step": "x"}\n{"loss": 1}\n\xff\xfe\n{"step": 1, "kind": "update"}\n' + b"[" * 2000 + b"\n"
    )
    write(path, update(1, loss=None, mixed=1.0, facts=["wins"]), update(2, mixed="text"))
    columns = metric_columns(path)
    assert columns["step"].tolist() == [10, 20]
    assert "loss" not in columns
    np.testing.assert_array_equal(columns["mixed"], [1.0, np.nan])
    assert columns["update"].dtype == np.int64


def test_rows_after_the_update_that_a_resumed_run_repeats_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, update(1), update(2), {"step": 20, "kind": "evaluation", "eval/return": 1}, update(3), update(2))
    table = MetricTable(path)
    table.read()
    assert table.column("update")[1].tolist() == [1, 2]
    assert table.column("eval/return")[1].tolist() == []
    assert len(table) == 2
