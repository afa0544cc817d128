"""Names of hosts and users, and network addresses, found in the strings of a structure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

HOME: Final = re.compile(r"(?P<before>/(?:home|Users)/)(?P<name>[A-Za-z_][A-Za-z0-9_.@-]*)(?=/|$|[\s:'\",;)\]}])")
"""A user's directory. Below some other directory (`/nfs/home/NAME`) it only counts if a path goes on after it."""

_TILDE: Final = re.compile(r"(?:^|(?<=[\s=:,'\"]))~(?P<name>[a-z_][a-z0-9_-]*)(?=/)")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*")
_URL_HOST: Final = re.compile(
    r"\b(?:tcp|https?|grpc|ssh|nats|redis)://(?:[^\s/@]*@)?(?P<name>[A-Za-z0-9][A-Za-z0-9.-]*)(?=[:/\s]|$)"
)
_HOST_FLAG: Final = re.compile(
    r"--?(?:dist-init-addr|nccl-init-addr|master[-_]addr|rdzv[-_]endpoint|host|node-ip|data-parallel-address|head-node(?:-ip)?)"
)
_HOST_VARIABLE: Final = re.compile(r"(?:^|_)(?:MASTER_ADDR|HOSTNAME|HOST|HOST_IP|NODELIST|SERVER_ADDR)$")
_USER_VARIABLE: Final = frozenset({"USER", "LOGNAME", "USERNAME", "SUDO_USER"})

_IPV4: Final = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{3,}(?![\w.:])")

NO_HOST: Final = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "0", ""})


def users_in(text: str) -> Iterator[str]:
    """User names that a text shows as the owner of a home directory. `root` is nobody's name."""
    for match in HOME.finditer(text):
        absolute = match.start() == 0 or not (text[match.start() - 1].isalnum() or text[match.start() - 1] in "._-")
        if (absolute or text[match.end() : match.end() + 1] == "/") and match["name"] != "root":
            yield match["name"]
    yield from (m["name"] for m in _TILDE.finditer(text) if m["name"] != "root")


def hosts_in_urls(text: str) -> Iterator[str]:
    for match in _URL_HOST.finditer(text):
        yield from host_name(match["name"])


def hosts_in_arguments(arguments: list[str]) -> Iterator[str]:
    """Host names given to flags such as --dist-init-addr, as the next argument or after '='."""
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if _HOST_FLAG.fullmatch(flag):
            yield from host_name(value if equals else "".join(arguments[index + 1 : index + 2]))


def hosts_in_variable(name: str, value: str) -> Iterator[str]:
    if _HOST_VARIABLE.search(name):
        for part in re.split(r"[,\s]+", value):
            yield from host_name(part)


def user_in_variable(name: str, value: str) -> Iterator[str]:
    if name in _USER_VARIABLE and value and value != "root":
        yield value


def host_name(value: str) -> Iterator[str]:
    """The host name in 'name' or 'name:port', unless it is an address or stands for this machine itself."""
    name = value.partition(":")[0].rstrip(".")
    if name.lower() not in NO_HOST and _HOST.fullmatch(name) and not name.replace(".", "").isdigit():
        yield name


def addresses_in(text: str) -> list[tuple[int, int]]:
    """Spans of IP addresses that are neither loopback nor wildcard. 'address:port' of an IPv6 socket counts without its port."""
    if "." not in text and ":" not in text:
        return []
    spans = [m.span() for m in _IPV4.finditer(text) if _identifies(m.group())]
    for match in _IPV6.finditer(text):
        start, end = match.span()
        head, _, port = match.group().rpartition(":")
        if port.isdigit() and end == len(text) and _address(head) is not None:
            end = start + len(head)
        if _identifies(text[start:end]):
            spans.append((start, end))
    return sorted(spans)


def _identifies(text: str) -> bool:
    address = _address(text)
    return address is not None and not (address.is_loopback or address.is_unspecified or text == "255.255.255.255")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
