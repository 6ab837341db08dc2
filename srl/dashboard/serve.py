"""Start of the dashboard: a free port, a token, and the server until it is interrupted."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.util
import os
import secrets
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from srl.dashboard.access import Access, host_names, is_loopback, proxy_names

PORT = 6070
MAX_TRIED = 50
"""Ports that are tried after one that is in use."""
MIN_TOKEN = 16
M_TRIM_THRESHOLD = -1  # of mallopt, see malloc.h
TRIM_BYTES = 1 << 16


def check_address(bind: str, is_tls: bool, insecure: bool) -> None:
    """Raise ValueError for an address that other machines reach without encryption, unless it is wanted."""
    if not is_loopback(bind) and not is_tls and not insecure:
        raise ValueError(
            f"--bind {bind} can be reached from other machines, and the token would be sent in clear text; add "
            "--tls-certificate and --tls-key, add --insecure in a network that you trust, or leave the address out and "
            "use `ssh -L 6070:localhost:6070 HOST`"
        )


def check_port(port: int) -> None:
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must be from 0 (any free one) to 65535, found {port}")


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise ValueError if the server could not use these files."""
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key needs --tls-certificate")
        return
    for option, path in (("--tls-certificate", certificate), ("--tls-key", key)):
        try:
            _ = path.read_bytes() if path is not None else b""
        except OSError as error:
            raise ValueError(f"{option} {path} cannot be read: {error.strerror}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        where = f"in {certificate}" if key is None else f"{certificate} and {key}"
        raise ValueError(f"expected a certificate and its private key (PEM, no password) {where}: {error}") from error


def check_root(root: Path) -> None:
    if root.expanduser().exists() and not root.expanduser().is_dir():
        raise ValueError(f"{root} is a file; expected a directory of runs")


def listening(bind: str, port: int) -> socket.socket:
    """Return a socket at the port or, if it is in use, at the next free one. Raises OSError if there is none."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for candidate in range(port, min(port + MAX_TRIED, 65535) + 1) if port else [0]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind, candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"cannot listen at {bind}:{candidate}: {error.strerror}") from error
            continue
        return listener
    raise OSError(errno.EADDRINUSE, f"the ports from {port} to {port + MAX_TRIED} are in use; choose another --port")


def kept_token(path: Path) -> str:
    """Return the token in a file, which is created if it does not exist. Raises ValueError if others can read it."""
    with contextlib.suppress(FileExistsError), open(path, "x", opener=_private) as file:
        file.write(secrets.token_urlsafe(24))
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others; chmod 600 {path}")
    token = path.read_text().strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or set(token) & set(' ;,"&#+%'):
        raise ValueError(f"{path} must contain a token of {MIN_TOKEN} letters, digits, '-' and '_' at least")
    return token


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def return_memory() -> None:
    """Make the C library return freed memory to the system, such as that of the tables of pages that were closed. By
    default it keeps what several threads have freed: 200 MB after nine runs of 100,000 rows."""
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


def serve(
    root: Path,
    bind: str = "127.0.0.1",
    port: int = PORT,
    certificate: Path | None = None,
    key: Path | None = None,
    insecure: bool = False,
    names: tuple[str, ...] = (),
    token_file: Path | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the dashboard until the process is interrupted. `announce` is called with its address, which contains the
    token. `names` are further names under which browsers reach this machine, such as those of a proxy."""
    missing = [name for name in ("starlette", "uvicorn", "prometheus_client") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f'the dashboard needs {" and ".join(missing)}; pip install "srl-rl[dashboard]"')
    check_root(root)
    check_port(port)
    check_address(bind, certificate is not None, insecure)
    check_certificate(certificate, key)
    proxies = proxy_names(names)
    import uvicorn

    from srl.dashboard.catalog import Catalog
    from srl.dashboard.server import Dashboard

    return_memory()
    listener = listening(bind, port)
    taken: int = listener.getsockname()[1]
    token = secrets.token_urlsafe(24) if token_file is None else kept_token(token_file)
    scheme = "https" if certificate is not None else "http"
    access = Access(token, host_names(bind, socket.gethostname()), certificate is not None, proxies)
    dashboard = Dashboard(Catalog(root), access)
    if port and taken != port:
        announce(f"port {port} is in use; using {taken}")
    shown = "localhost" if is_loopback(bind) else socket.gethostname() if bind in ("0.0.0.0", "::") else bind
    announce(f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{taken}/?token={token}")
    config = uvicorn.Config(
        dashboard.app,
        log_level="warning",
        access_log=False,  # addresses contain the token
        ssl_certfile=str(certificate) if certificate else None,
        ssl_keyfile=str(key) if key else None,
        timeout_graceful_shutdown=3,
        server_header=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    end = server.handle_exit

    def handle_exit(number: int, frame: FrameType | None) -> None:
        dashboard.close()
        end(number, frame)

    server.handle_exit = handle_exit
    with listener:
        server.run(sockets=[listener])
