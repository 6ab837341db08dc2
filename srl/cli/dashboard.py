"""The command `srl dashboard`."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from srl.cli.parser import flag, positional
from srl.storage import ROOT


@dataclass(frozen=True)
class Dashboard:
    """Show runs in the browser: `srl dashboard`, or `srl dashboard DIR`. Prints an address that contains a token.

    On a remote machine, forward the port (`ssh -L 6070:localhost:6070 HOST`) and open the address on your own. The page
    shows all runs below the directory and all live ones, and can stop, scale, evaluate and record them. Prometheus may
    read `/metrics`, with the token as bearer token.
    """

    root: Path = positional("DIR", ROOT)
    """Directory of all runs."""
    port: int = 6070
    """Port to listen at; the next free one if it is in use."""
    bind: str = flag("HOST", "127.0.0.1")
    """Address to listen at. Others than the loopback interface need a certificate, or --insecure."""
    tls_certificate: Path | None = flag("FILE", None)
    """Certificate (PEM) for HTTPS."""
    tls_key: Path | None = flag("FILE", None)
    """Private key of the certificate. Default: in the file of the certificate."""
    insecure: bool = False
    """Listen without TLS at an address that other machines reach."""
    name: tuple[str, ...] = flag("HOST ...", ())
    """Further host names under which browsers reach this server, such as that of a proxy; ports do not matter."""
    token_file: Path | None = flag("FILE", None)
    """File that keeps the token over restarts; created if it does not exist. Default: a new token each time."""
    open: bool = False
    """Open the page in the browser of this machine."""

    def run(self) -> int:
        from srl.dashboard.serve import serve

        def announce(line: str) -> None:
            if line.startswith("http") and not self.root.expanduser().exists():
                print(f"{self.root} does not exist yet; runs appear once there are some", file=sys.stderr)
            print(line, flush=True)
            if self.open and line.startswith("http"):
                webbrowser.open(line)

        tls = self.tls_certificate, self.tls_key
        serve(self.root, self.bind, self.port, *tls, self.insecure, self.name, self.token_file, announce)
        return 0
