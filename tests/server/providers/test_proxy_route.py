"""A proxy is used for what it is meant for: as variables are really set, and never for this machine."""

from __future__ import annotations

import pytest

from refold_protocol.errors import ProviderError
from refold_server.providers.proxy_route import DIRECT, ProxyRoute, route_to

FAR = "https://api.example.com/v1"
PROXY = "http://proxy.corp:3128"


def way(url: str, **environment: str) -> str | None:
    return route_to(url, None, "providers.x.proxy", environment).proxy


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8080/v1", "http://127.0.0.1:1/v1", "http://127.9.0.1/v1", "http://[::1]:8/v1", "http://a.localhost/v1"],
)
def test_this_machine_is_reached_directly_whatever_the_environment_names(url: str) -> None:
    assert way(url, HTTP_PROXY=PROXY, http_proxy=PROXY, ALL_PROXY=PROXY) is None


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"all_proxy": PROXY}, PROXY),
        ({"HTTPS_PROXY": "http://one:1", "https_proxy": "http://two:2"}, "http://two:2"),
        ({"HTTPS_PROXY": "http://one:1", "https_proxy": ""}, None),
        ({"HTTPS_PROXY": " 'proxy.corp:3128' "}, PROXY),
        ({"HTTPS_PROXY": "socks://p:1"}, "socks5://p:1"),
        ({"HTTPS_PROXY": "http://user:pass@p:1"}, "http://user:pass@p:1"),
    ],
)
def test_variables_are_read_as_people_set_them(environment: dict[str, str], proxy: str | None) -> None:
    assert way(FAR, **environment) == proxy


def test_a_header_of_a_web_server_names_no_proxy() -> None:
    assert way("http://far.example/v1", HTTP_PROXY=PROXY, REQUEST_METHOD="GET") is None
    assert way("http://far.example/v1", HTTP_PROXY=PROXY) == PROXY


@pytest.mark.parametrize(
    ("exempt", "url", "direct"),
    [
        ("*", FAR, True),
        ("example.com", FAR, True),
        (".example.com", FAR, True),
        ("*.example.com", FAR, True),
        ("API.Example.com", FAR, True),
        ("other.org, api.example.com", FAR, True),
        ("other.org api.example.com", FAR, True),
        ("api.example.com:443", FAR, True),
        ("api.example.com:8443", FAR, False),
        ("https://api.example.com", FAR, True),
        ("ample.com", FAR, False),
        ("", FAR, False),
        ("10.0.0.0/8", "https://10.1.2.3/v1", True),
        ("10.0.0.0/8", "https://11.1.2.3/v1", False),
        ("10.1.2.3", "https://10.1.2.3:8443/v1", True),
        ("[fd00::1]:8080", "http://[fd00::1]:8080/v1", True),
        ("fd00::/8", "http://[fd00::1]:8080/v1", True),
        ("nonsense/33,example.com", FAR, True),
    ],
)
def test_what_no_proxy_exempts_is_reached_directly(exempt: str, url: str, direct: bool) -> None:
    assert (way(url, HTTPS_PROXY=PROXY, HTTP_PROXY=PROXY, NO_PROXY=exempt) is None) is direct


def test_the_configuration_goes_before_the_environment() -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}
    assert route_to(FAR, "socks5://own:1", "providers.x.proxy", environment) == ProxyRoute(
        "socks5://own:1", "providers.x.proxy"
    )
    assert route_to("http://127.0.0.1/v1", "http://own:1", "providers.x.proxy", {}).proxy == "http://own:1"
    assert route_to(FAR, DIRECT, "providers.x.proxy", environment) == ProxyRoute()


@pytest.mark.parametrize("text", ["ftp://p:1", "http://", "http://p:99999", "socks4://p:1"])
def test_what_is_no_proxy_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ProviderError) as caught:
        way(FAR, HTTPS_PROXY=text)
    assert caught.value.error_kind == "provider.unreachable"
    assert "HTTPS_PROXY" in caught.value.message


def test_a_proxy_is_shown_without_user_and_password() -> None:
    assert ProxyRoute("http://me:hush@p:3128", "HTTPS_PROXY").shown == "http://p:3128 (HTTPS_PROXY)"
