"""A fake of the Slurm commands that a run uses. One machine acts as all nodes; one file serves all commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "srun")


def install(folder: Path) -> None:
    """Install the commands. If the folder has a file `full`, submitted jobs wait for the reason that it contains."""
    folder.mkdir()
    (folder / "fake_slurm.py").write_text(Path(__file__).read_text())
    for name in NAMES:
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/fake_slurm.py {name} "$@"\n')
        (folder / name).chmod(0o755)


def main(name: str, *arguments: str) -> int:
    if name == "sinfo":
        print("main")
    elif name == "sbatch":
        print(_submit(Path(arguments[-1])))
    elif name == "squeue":
        if (HERE / "waiting").exists():
            print(f"7|PENDING|{(HERE / 'waiting').read_text()}")
        for job in _jobs():
            if _alive(job):
                print(f"{job}|RUNNING|None")
    elif name == "scancel" and (HERE / "waiting").exists():
        (HERE / "waiting").unlink()
    elif name == "scancel":
        os.killpg(int((HERE / f"{arguments[0]}.pid").read_text()), signal.SIGKILL)
    elif name == "scontrol" and arguments[0] == "requeue":
        _requeue(arguments[1])
    elif name == "scontrol":
        print("\n".join(arguments[2].split(",")) if "hostnames" in arguments else "NodeAddr=127.0.0.1")
    elif name == "srun":
        command = [word for word in arguments if not word.startswith("--")]
        os.execvp(command[0], command)
    return 0


def _jobs() -> list[str]:
    """Return the ids of all jobs, the first of which is 7."""
    return sorted((file.stem for file in HERE.glob("*.pid")), key=int)


def _requeue(job: str) -> None:
    """Preempt the job: its processes get SIGTERM, and it starts again when they have ended."""
    os.kill(int((HERE / f"{job}.pid").read_text()), signal.SIGTERM)
    deadline = time.monotonic() + 60.0  # no import of `support`: the installed copy runs on its own
    while _alive(job):
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.02)
    _submit(Path((HERE / f"{job}.script").read_text()))


def _submit(script: Path) -> str:
    if (HERE / "full").exists():
        (HERE / "waiting").write_text((HERE / "full").read_text())
        return "7"
    number = _number(script)
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script.read_text(), re.M))
    nodes = ",".join(f"n{index}" for index in range(int(directives["nodes"])))
    job = {
        "SLURM_JOB_ID": number,
        "SLURMD_NODENAME": "n0",
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_CPUS_PER_TASK": directives["cpus-per-task"],
    }
    with open(directives["output"], "ab") as log:
        process = subprocess.Popen(
            ["bash", str(script)],
            env={**os.environ, **job},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (HERE / f"{number}.pid").write_text(str(process.pid))
    return number


def _number(script: Path) -> str:
    """Return the id of the job with this script: a new one, unless it was submitted before. Others submit meanwhile."""
    for number in range(7, 1000):
        file = HERE / f"{number}.script"
        try:
            with open(file, "x") as new:
                new.write(str(script))
        except FileExistsError:
            if file.read_text() != str(script):
                continue
        return str(number)
    raise AssertionError("too many jobs")


def _alive(job: str) -> bool:
    try:
        state = Path(f"/proc/{(HERE / f'{job}.pid').read_text()}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
