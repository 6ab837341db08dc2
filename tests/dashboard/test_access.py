"""Access to the dashboard: tokens, names of the server, and other sites."""

from pathlib import Path

import pytest

from srl.dashboard.access import Access, host_names, is_loopback, proxy_names
from srl.dashboard.serve import check_address, kept_token, listening

TOKEN = "a-secret-token"
NAMES = host_names("127.0.0.1")
ACCESS = Access(TOKEN, NAMES)
HOST = {"host": "localhost:6070"}
COOKIE = {ACCESS.cookie: TOKEN}


def refused(method: str = "GET", token: str | None = None, cookies: dict[str, str] = COOKIE, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ACCESS.refusal(method, HOST | named, cookies, token)


def test_the_token_is_accepted_as_cookie_as_bearer_and_in_the_address() -> None:
    assert refused() == ""
    assert refused(cookies={}, authorization=f"Bearer {TOKEN}") == ""
    assert refused(cookies={}, token=TOKEN) == ""


@pytest.mark.parametrize("wrong", ["", "a-secret-toke", "a-secret-token ", "é" * 14, "x" * 100_000])
def test_a_wrong_token_is_refused(wrong: str) -> None:
    assert "valid token" in refused(cookies={ACCESS.cookie: wrong}, token=wrong, authorization=f"Bearer {wrong}")


def test_the_cookie_of_another_dashboard_is_not_used() -> None:
    other = Access("another-token", NAMES)
    assert other.cookie != ACCESS.cookie
    assert "valid token" in refused(cookies={other.cookie: TOKEN})


@pytest.mark.parametrize(
    "host", ["localhost:6070", "localhost:7000", "localhost", "LOCALHOST", "127.0.0.1:80", "[::1]:1"]
)
def test_the_port_may_be_that_of_a_tunnel_or_a_proxy(host: str) -> None:
    assert refused(host=host) == ""
    assert refused("POST", host=host, x_srl="1", origin=f"http://{host}") == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example:6070", "evil.example", "", "localhost:6070.evil.example", "localhost.evil.example", "localhost:",
     "evil.example@localhost", "localhost:6070@evil.example", "[::1", "localhost, evil.example", "[::2]:6070"],
)  # fmt: skip
def test_another_name_of_the_server_is_refused(host: str) -> None:
    """A page of another site that names this server (DNS rebinding) has its own Host header."""
    assert "name" in refused(host=host)


def test_other_sites_cannot_post() -> None:
    assert refused("POST", x_srl="1", origin="http://localhost:6070") == ""
    assert "other sites" in refused("POST", x_srl="1", origin="http://evil.example")
    assert "other sites" in refused("POST", x_srl="1", origin="null")
    assert "other sites" in refused("POST", x_srl="1", sec_fetch_site="same-site")
    assert "other sites" in refused("POST", x_srl="1", origin="http://localhost:9999")  # another program's page
    assert "other sites" in refused("POST", x_srl="1", origin="http://localhost")
    assert "other sites" in refused("POST", x_srl="1", origin="ftp://localhost:6070")
    assert "X-SRL" in refused("POST")


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_proxy_with_tls_is_accepted_under_its_name_only(is_tls: bool) -> None:
    access = Access(TOKEN, NAMES, is_tls, proxy_names(("Runs.example.org", "other.example.org:8443")))

    def refusal(host: str, origin: str) -> str:
        headers = {"host": host, "origin": origin, "x-srl": "1"}
        return access.refusal("POST", headers, {}, TOKEN)

    assert refusal("runs.example.org", "https://runs.example.org") == ""
    assert refusal("runs.example.org:8443", "https://runs.example.org:8443") == ""
    assert refusal("localhost:6070", "https://other.example.org:8443") == ""  # a proxy that names us by our address
    assert "other sites" in refusal("runs.example.org", "https://runs.example.org:8443")
    assert "other sites" in refusal("runs.example.org", "https://localhost")
    assert "other sites" in refusal("localhost:6070", "https://evil.example.org")
    assert "--name" in refusal("evil.example.org", "https://evil.example.org")
    assert ("other sites" in refusal("runs.example.org", "http://runs.example.org")) == is_tls
    for wrong in ("https://runs.example.org", "", "a b", "x:y"):
        with pytest.raises(ValueError, match="--name must be the name of a host"):
            proxy_names((wrong,))


def test_an_address_for_other_machines_needs_tls_or_a_flag() -> None:
    check_address("127.0.0.1", False, False)
    check_address("0.0.0.0", True, False)
    check_address("0.0.0.0", False, True)
    for bind in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        with pytest.raises(ValueError, match="clear text"):
            check_address(bind, False, False)
    assert [is_loopback(bind) for bind in ("localhost", "::1", "127.0.0.2", "10.0.0.1")] == [True, True, True, False]


def test_a_token_file_is_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = kept_token(path)
    assert (len(token), kept_token(path), path.stat().st_mode & 0o777) == (32, token, 0o600)
    path.write_text("short")
    with pytest.raises(ValueError, match="at least"):
        kept_token(path)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="read by others"):
        kept_token(path)


def test_the_next_free_port_is_used() -> None:
    with listening("127.0.0.1", 0) as first:
        taken = first.getsockname()[1]
        with listening("127.0.0.1", taken) as second:
            assert second.getsockname()[1] > taken
