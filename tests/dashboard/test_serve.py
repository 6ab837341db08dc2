"""The command `srl dashboard`: its address, ports in use, wrong options, TLS, and what it never prints."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dashboard.conftest import MakeRun
from support.waiting import PATIENCE

from srl.cli.main import main
from srl.transports.join_ticket import _new_certificate


@contextmanager
def command(root: Path, *words: str) -> Iterator[tuple[list[str], subprocess.Popen[str]]]:
    """Run `srl dashboard` until its address is printed, and yield the lines up to it."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(root.parent / "runtime")}
    process = subprocess.Popen(
        [sys.executable, "-m", "srl", "dashboard", str(root), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("http"):
            lines.append(process.stdout.readline().strip())
            assert lines[-1], process.stderr.read()
        yield lines, process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def ask(address: str, path: str, **headers: str) -> int:
    place = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=60)
    connection.request("GET", path, headers={"Host": f"localhost:{place.port}", **headers})
    code = connection.getresponse().status
    connection.close()
    return code


def test_two_dashboards_take_different_ports_and_print_no_token_but_in_their_address(
    tmp_path: Path, make_run: MakeRun
) -> None:
    make_run("mine")
    with command(tmp_path / "runs", "--port", "0") as ((first,), one):
        port = urlsplit(first).port
        with command(tmp_path / "runs", "--port", str(port)) as ((said, second), _):
            taken = urlsplit(second).port
            assert (said, taken != port) == (f"port {port} is in use; using {taken}", True)
        token = first.partition("token=")[2]
        assert token
        assert token not in second
        for path in (f"/?token={token}", f"/api/run?key=mine&token={token}", f"/nothing?token={token}"):
            assert ask(first, path) in (200, 404)
        assert ask(first, "/?token=wrong") == 403
        assert ask(first, "/metrics", Authorization=f"Bearer {token}") == 200
        page = http.client.HTTPConnection("127.0.0.1", port or 0, timeout=60)
        own = {"Host": f"localhost:{port}", "Authorization": f"Bearer {token}"}
        page.request("GET", "/api/events?key=mine", headers=own)
        events = page.getresponse()
        assert events.readline().startswith(b"event: ")
        one.send_signal(signal.SIGINT)
        left = one.communicate(timeout=PATIENCE)
        assert (left, one.returncode) == (("", ""), 130)  # also with a page that is open
        events.close()
        page.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--port -1", "--port must be from 0 (any free one) to 65535, found -1"),
        ("--port 70000", "--port must be from 0 (any free one) to 65535, found 70000"),
        ("--tls-certificate nowhere.pem", "--tls-certificate nowhere.pem cannot be read: No such file"),
        ("--tls-certificate file", "expected a certificate and its private key (PEM, no password) in file"),
        ("--tls-key file", "--tls-key needs --tls-certificate"),
        ("file", "file is a file; expected a directory of runs"),
        ("--name https://example.org", "--name must be the name of a host"),
        ("--bind 0.0.0.0", "the token would be sent in clear text"),
    ],
)
def test_a_wrong_option_is_explained_before_an_address_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("this is no certificate")
    assert main(["dashboard", *words.split()]) != 0
    out, err = capsys.readouterr()
    assert (out, message in err, "Traceback" in err) == ("", True, False), err


def test_it_serves_with_tls_and_keeps_its_token(tmp_path: Path, make_run: MakeRun) -> None:
    make_run("mine")
    certificate = tmp_path / "server.pem"
    certificate.write_bytes(_new_certificate())
    words = ("--port", "0", "--tls-certificate", str(certificate), "--token-file", str(tmp_path / "token"))
    with command(tmp_path / "runs", *words, "--name", "runs.example.org") as ((address,), _):
        token = (tmp_path / "token").read_text()
        assert address.startswith("https://localhost:")
        assert address.endswith(f"?token={token}")
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", urlsplit(address).port or 0, timeout=60, context=context)
        connection.request("GET", f"/?token={token}", headers={"Host": "runs.example.org"})
        answer = connection.getresponse()
        assert (answer.status, "; Secure" in (answer.getheader("Set-Cookie") or "")) == (200, True)
        connection.close()
