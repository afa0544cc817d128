"""What a structure holds, gathered in one walk before anything is replaced: its texts, and the names they give away."""

from __future__ import annotations

from typing import Any

from gpudiag.session import identity


def is_host_field(path: str) -> bool:
    """Whether a field holds the name of a host and nothing else."""
    return path == "host" or path.endswith((".host", ".host.name", "]host.name"))


def is_environment(node: dict[Any, Any], path: str) -> bool:
    """Whether a dictionary is an environment: a field of that name, or the value of a reading in such a field."""
    named = path.endswith(("environ", "environ.value", "environment"))
    return named and "reading" not in node and all(isinstance(text, str) for text in node.values())


def variable(node: Any, path: str) -> tuple[str, str] | None:
    """Name and value, where a node is one variable or option with its value: a pair in an environment, or `name` and `value`."""
    if isinstance(node, list | tuple) and path.endswith("environment[]") and len(node) == 2:
        name, value = node
    elif isinstance(node, dict) and "name" in node and "value" in node:
        name, value = node["name"], node["value"]
    else:
        return None
    return (name, value) if isinstance(name, str) and isinstance(value, str) else None


def is_argument_list(node: list[Any] | tuple[Any, ...]) -> bool:
    return bool(node) and all(isinstance(item, str) for item in node)


class Survey:
    """`hosts` and `users` are in the order in which they were met. `frames` are (function, file) pairs."""

    def __init__(self, plain: Any) -> None:
        self.texts: set[str] = set()
        self.frames: set[tuple[str, str]] = set()
        self.flags: set[str] = set()
        self.hosts: dict[str, None] = {}
        self.users: dict[str, None] = {}
        self._visit(plain, "")
        for text in sorted(self.texts):
            self.users.update(dict.fromkeys(identity.users_in(text)))
            self.hosts.update(dict.fromkeys(identity.hosts_in_text(text)))

    def _visit(self, node: Any, path: str) -> None:
        if (set_here := variable(node, path)) is not None:
            self.hosts.update(dict.fromkeys(identity.hosts_in_variable(*set_here)))
            self.hosts.update(dict.fromkeys(identity.hosts_in_arguments([*set_here])))
            self.users.update(dict.fromkeys(identity.user_in_variable(*set_here)))
        if isinstance(node, str):
            self.texts.add(node)
            if is_host_field(path):
                self.hosts.update(dict.fromkeys(identity.host_name(node)))
        elif isinstance(node, dict):
            self._visit_dictionary(node, path)
        elif isinstance(node, list | tuple):
            if is_argument_list(node):
                self._visit_arguments([*node])
            for item in node:
                self._visit(item, path)

    def _visit_dictionary(self, node: dict[Any, Any], path: str) -> None:
        function, file = node.get("function"), node.get("file")
        if isinstance(function, str) and isinstance(file, str):
            self.frames.add((function, file))
        if is_environment(node, path):
            for name, value in node.items():
                self.hosts.update(dict.fromkeys(identity.hosts_in_variable(name, value)))
                self.users.update(dict.fromkeys(identity.user_in_variable(name, value)))
        for key, item in node.items():
            if isinstance(key, str):
                self.texts.add(key)
            if isinstance(item, str):
                if item not in self.texts or key in ("host", "name"):
                    self._visit(item, f"{path}.{key}")
            elif isinstance(item, dict | list | tuple):
                self._visit(item, f"{path}.{key}")

    def _visit_arguments(self, arguments: list[str]) -> None:
        flags = [a for a in arguments if a.startswith("-")]
        if flags:
            self.flags.update(a.partition("=")[0] for a in flags)
            self.hosts.update(dict.fromkeys(identity.hosts_in_arguments(arguments)))
