"""Names of hosts and users, and network addresses, found in the strings of a structure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

HOME: Final = re.compile(r"(?P<before>/(?:home|Users)/)(?P<name>[A-Za-z_][A-Za-z0-9_.@-]*)(?=/|$|[\s:'\",;)\]}])")
"""A user's directory. Below some other directory (`/nfs/home/NAME`) it only counts if a path goes on after it."""

_USER: Final = r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])"
_OWNERS: Final = (
    # Directories that hold one directory per person.
    re.compile(rf"/(?:users|people|scratch|fsx)/{_USER}(?=/)"),
    # What programs put into a directory that all share.
    re.compile(rf"(?:/tmp|/var/tmp|/dev/shm)/(?:torchinductor_|pytest-of-|ray-|triton-|tmux-){_USER}(?=/|$)"),
    re.compile(rf"\b(?:sudo -u|runuser -u|owned by user|user(?:name)?[=:])\s*['\"]?{_USER}(?=['\"\s,;)]|$)"),
    re.compile(rf"\b(?:ssh|scp|rsync|sftp)\s(?:[^\n]{{0,200}}?\s)?{_USER}@"),
    # The address of a person, not of a service: celery@host, git@host.
    re.compile(r"(?<![\w.@-])(?P<name>(?=[A-Za-z]{0,63}[._0-9])[A-Za-z][A-Za-z0-9._+-]{0,63})@[A-Za-z0-9-]{1,63}\.[A-Za-z0-9]"),
)
"""Other places that name a user."""

_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]+")
_ASSIGNED: Final = re.compile(r"(?<![A-Za-z0-9_])(?P<name>[A-Z][A-Z0-9_]{2,60})=[\"']?(?P<value>[^\s\"',;]{1,4096})")

_TILDE: Final = re.compile(r"(?:^|(?<=[\s=:,'\"]))~(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,62})(?=/)")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*")
_URL_HOST: Final = re.compile(
    r"\b(?:tcp|https?|grpc|ssh|nats|redis)://(?:[^\s/@]*@)?(?P<name>[A-Za-z0-9][A-Za-z0-9.-]*)(?=[:/\s]|$)"
)
_NAMED: Final = r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)"
_NUMBERED: Final = r"(?P<name>(?=[A-Za-z.-]{0,252}\d)[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)"
"""In a place where a plain word may stand too, only what has a digit counts as a host."""

_HOST_PLACES: Final = (
    # NCCL's own lines: 'name:pid:tid [gpu] NCCL INFO'.
    re.compile(rf"(?:^|(?<=\s)){_NAMED}(?=:\d+:\d+ \[\d+\] )", re.MULTILINE),
    # The system's log, old and new form of the time.
    re.compile(rf"(?:^|(?<=[\s'\"]))[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d {_NAMED}(?= \S+:)", re.MULTILINE),
    re.compile(rf"(?:^|(?<=[\s'\"]))\d{{4}}-\d\d-\d\dT[\d:.,]{{5,20}}(?:Z|[+-]\d\d:?\d\d) {_NAMED}(?= \S+:)", re.MULTILINE),
    # torch's store, name resolution, Slurm, ssh.
    re.compile(rf"\bconnect to [\[(]{_NAMED}(?=[\]),])"),
    re.compile(rf"\bconnect to host {_NAMED}"),
    re.compile(rf"(?:not known|Unknown host|resolve (?:host(?:name)?|name))[: ]+['\"]?{_NAMED}"),
    re.compile(rf"\bsrun: error: {_NAMED}(?=: )"),
    re.compile(rf"\b(?:JOB|STEP) [\d.]+ ON {_NAMED}"),
    re.compile(rf"\b[\w.-]{{1,64}}@{_NAMED}(?=:[/~])"),
    re.compile(rf"\b(?:Host: |host_?name[=:]\s*['\"]?){_NAMED}"),
    re.compile(rf"\b(?:on (?:node|host|machine)|[Rr]ank \d+ on) {_NUMBERED}"),
    re.compile(rf"\b(?:node|host|node_ip|host_ip|nodename)\s?[=:]\s?['\"]?{_NUMBERED}"),
)
"""Places in a line that hold the name of a host."""

_HOST_FLAG: Final = re.compile(
    r"--?(?:dist-init-addr|nccl-init-addr|master[-_]addr|rdzv[-_]endpoint|host|node-ip|data-parallel-address|head-node(?:-ip)?)"
)
_HOST_VARIABLE: Final = re.compile(r"(?:^|_)(?:MASTER_ADDR|HOSTNAME|HOST|HOST_IP|NODELIST|NODENAME|NODE_NAME|SERVER_ADDR)$")
_USER_VARIABLE: Final = re.compile(r"(?:^|_)(?:USER|LOGNAME|USERNAME)$")

_MAC: Final = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}(?:(?:[0-9A-Fa-f]{2}:){14})?[0-9A-Fa-f]{2}(?![\w:])")
_NO_MAC: Final = frozenset({"ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"})
_NCCL_IPV6: Final = re.compile(r":(?P<address>[0-9A-Fa-f]{1,4}:[0-9A-Fa-f:]{1,40})(?:%\w{1,16})?<\d+>")
"""An address as NCCL prints it, behind the name of its interface: 'eth0:2001:db8::7<0>'."""

_MAX_COMMAND: Final = 20_000
"""Characters of a text that are looked through for flags."""

_IPV4: Final = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{3,45}(?![\w.:])")

_PUBLIC: Final = re.compile(
    r"(?:^|\.)(?:huggingface\.co|hf\.co|modelscope\.cn|github\.com|githubusercontent\.com|gitlab\.com|pypi\.org|pythonhosted\.org|"
    r"python\.org|pytorch\.org|nvidia\.com|vllm\.ai|sglang\.ai|docker\.(?:io|com)|kernel\.org)$",
    re.IGNORECASE,
)
"""Hosts that everybody knows: they give nobody away, and their names are words of paths and packages."""

NO_HOST: Final = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "0", ""})


def users_in(text: str) -> Iterator[str]:
    """User names that a text shows as the owner of a home directory. `root` is nobody's name."""
    for match in HOME.finditer(text):
        absolute = match.start() == 0 or not (text[match.start() - 1].isalnum() or text[match.start() - 1] in "._-")
        if (absolute or text[match.end() : match.end() + 1] == "/") and match["name"] != "root":
            yield match["name"]
    for name, value, _ in assigned(text):
        yield from user_in_variable(name, value)
    yield from (m["name"] for pattern in (_TILDE, *_OWNERS) for m in pattern.finditer(text) if m["name"] != "root")


def hosts_in_text(text: str) -> Iterator[str]:
    """Host names in URLs, and in lines of NCCL, torch, Slurm, ssh and the system's log."""
    for pattern in (_URL_HOST, *_HOST_PLACES):
        for match in pattern.finditer(text):
            yield from host_name(match["name"])
    if "--" in text:
        yield from hosts_in_arguments(text[:_MAX_COMMAND].split())
    for name, value, _ in assigned(text):
        yield from hosts_in_variable(name, value)


def is_variable(name: str) -> bool:
    """Whether this is written as environment variables are."""
    return _VARIABLE.fullmatch(name) is not None


def assigned(text: str) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Variables that a text sets, in the form NAME=value: name, value, and the span of the value."""
    for match in _ASSIGNED.finditer(text):
        yield match["name"], match["value"], match.span("value")


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
    if _USER_VARIABLE.search(name) and value and value != "root":
        yield value


def host_name(value: str) -> Iterator[str]:
    """The host name in 'name' or 'name:port', unless it is an address or stands for this machine itself."""
    name = value.partition(":")[0].rstrip(".")
    if name.lower() not in NO_HOST and not _PUBLIC.search(name) and _HOST.fullmatch(name) and not name.replace(".", "").isdigit():
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
    spans += [m.span("address") for m in _NCCL_IPV6.finditer(text) if _identifies(m["address"])]
    spans += [m.span() for m in _MAC.finditer(text) if m.group().lower() not in _NO_MAC]
    return sorted(spans)


def _identifies(text: str) -> bool:
    address = _address(text)
    return address is not None and not (address.is_loopback or address.is_unspecified or text == "255.255.255.255")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
