"""Access to the dashboard: a token, the names under which it is reached, and headers that keep other sites out."""

from __future__ import annotations

import hmac
import ipaddress
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


@dataclass(frozen=True)
class Access:
    """Decides about requests. `names` are the values of the Host header under which the server is reached."""

    token: str
    port: int
    names: frozenset[str]
    is_tls: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers send cookies to all ports of a host, so that two dashboards need two."""
        return f"srl-dashboard-{self.port}"

    def set_cookie(self) -> str:
        secure = "; Secure" if self.is_tls else ""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def knows(self, given: str | None) -> bool:
        """Return whether this is the token. The time does not depend on how much of it is right."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def refusal(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str], token: str | None) -> str:
        """Return why a request is refused, or an empty text. A page of another site can name this server (DNS
        rebinding) and post to it, but cannot choose the headers Host and Origin, nor add one of its own."""
        if headers.get("host", "").lower() not in self.names:
            return "this server is not reached under that name"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"{self._scheme}://{name}" for name in self.names}:
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

    @property
    def _scheme(self) -> str:
        return "https" if self.is_tls else "http"


def host_names(bind: str, port: int, more: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the values of the Host header for an address that the server listens at, and for other `more` names."""
    names = {"localhost", "127.0.0.1", "[::1]", *more}
    if bind not in ("0.0.0.0", "::"):
        names.add(f"[{bind}]" if ":" in bind else bind)
    return frozenset(f"{name.lower()}:{port}" for name in names)


def is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
