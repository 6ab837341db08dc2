"""Access to the dashboard: a token, the names under which it is reached, and headers that keep other sites out."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Sent with every answer."""
PLACE = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:/@\[\]\s]+)(:(?P<port>[0-9]{1,5}))?")
DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class Access:
    """Decides about requests. The server is reached under `names`, and through a proxy under `proxies`.

    Ports are not compared with the server's own: a tunnel (`ssh -L`) or a proxy has another one. A page of another site
    can have its name resolved to this machine (DNS rebinding), but its Host header keeps that name.
    """

    token: str
    names: frozenset[str]
    is_tls: bool = False
    proxies: frozenset[str] = frozenset()

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers send cookies to all ports of a host, so that two dashboards need two."""
        return f"srl-dashboard-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def set_cookie(self) -> str:
        secure = "; Secure" if self.is_tls else ""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def knows(self, given: str | None) -> bool:
        """Return whether this is the token. The time does not depend on how much of it is right."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def refusal(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str], token: str | None) -> str:
        """Return why a request is refused, or an empty text. A page of another site can name this server (DNS
        rebinding) and post to it, but cannot choose the headers Host and Origin, nor add one of its own."""
        host = PLACE.fullmatch(headers.get("host", "").lower())
        if host is None or host["name"] not in self.names | self.proxies:
            return "this server is not reached under that name; add it with --name"
        if (origin := headers.get("origin")) is not None and not self._is_own(origin.lower(), host):
            return "requests from other sites are refused"
        if headers.get("sec-fetch-site") not in (None, "same-origin", "none") and method != "GET":
            return "requests from other sites are refused"
        if method not in ("GET", "HEAD") and headers.get("x-srl") != "1":
            return "the header X-SRL is missing"
        authorization = headers.get("authorization", "")
        bearer = authorization.removeprefix("Bearer ") if authorization.startswith("Bearer ") else None
        if not any(self.knows(given) for given in (cookies.get(self.cookie), bearer, token)):
            return "a valid token is needed: open the address that `srl dashboard` printed"
        return ""

    def _is_own(self, origin: str, host: re.Match[str]) -> bool:
        """Return whether a page belongs to this server: it has the same name and port as the Host header, because
        another port of this machine may be another program's. A proxy may send another Host header than it got."""
        scheme, _, place = origin.partition("://")
        found = PLACE.fullmatch(place)
        if found is None or scheme not in (("https",) if self.is_tls else ("http", "https")):
            return False
        usual = DEFAULT_PORTS[scheme]
        is_same = (found["name"], found["port"] or usual) == (host["name"], host["port"] or usual)
        return is_same or (found["name"] in self.proxies and host["name"] not in self.proxies)


def host_names(bind: str, *more: str) -> frozenset[str]:
    """Return the names of a server that listens at an address, and has `more` names."""
    names = {"localhost", "127.0.0.1", "[::1]", *more}
    if bind not in ("0.0.0.0", "::"):
        names.add(f"[{bind}]" if ":" in bind else bind)
    return frozenset(name.lower() for name in names)


def proxy_names(names: tuple[str, ...]) -> frozenset[str]:
    """Return the names of proxies, without ports. Raises ValueError for what is not the name of a host."""
    found = {name: PLACE.fullmatch(name.lower()) for name in names}
    for name, match in found.items():
        if match is None:
            raise ValueError(f"--name must be the name of a host, such as runs.example.org; found {name!r}")
    return frozenset(match["name"] for match in found.values() if match is not None)


def is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
