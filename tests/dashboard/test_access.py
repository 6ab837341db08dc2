"""Access to the dashboard: tokens, names of the server, and other sites."""

from pathlib import Path

import pytest

from srl.dashboard.access import Access, host_names, is_loopback
from srl.dashboard.serve import check_address, kept_token, listening

TOKEN = "a-secret-token"
ACCESS = Access(TOKEN, 6070, host_names("127.0.0.1", 6070))
HOST = {"host": "localhost:6070"}
COOKIE = {"srl-dashboard-6070": TOKEN}


def refused(method: str = "GET", token: str | None = None, cookies: dict[str, str] = COOKIE, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ACCESS.refusal(method, HOST | named, cookies, token)


def test_the_token_is_accepted_as_cookie_as_bearer_and_in_the_address() -> None:
    assert refused() == ""
    assert refused(cookies={}, authorization=f"Bearer {TOKEN}") == ""
    assert refused(cookies={}, token=TOKEN) == ""


@pytest.mark.parametrize("wrong", ["", "a-secret-toke", "a-secret-token ", "é" * 14, "x" * 100_000])
def test_a_wrong_token_is_refused(wrong: str) -> None:
    assert "valid token" in refused(cookies={"srl-dashboard-6070": wrong}, token=wrong, authorization=f"Bearer {wrong}")


def test_the_cookie_of_another_dashboard_is_not_used() -> None:
    assert "valid token" in refused(cookies={"srl-dashboard-6071": TOKEN})


@pytest.mark.parametrize(
    "host", ["evil.example:6070", "localhost:6071", "localhost", "", "localhost:6070.evil.example"]
)
def test_another_name_of_the_server_is_refused(host: str) -> None:
    """A page of another site that names this server (DNS rebinding) has its own Host header."""
    assert "name" in refused(host=host)


def test_other_sites_cannot_post() -> None:
    assert refused("POST", x_srl="1", origin="http://localhost:6070") == ""
    assert "other sites" in refused("POST", x_srl="1", origin="http://evil.example")
    assert "other sites" in refused("POST", x_srl="1", origin="null")
    assert "other sites" in refused("POST", x_srl="1", sec_fetch_site="same-site")
    assert "X-SRL" in refused("POST")


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
