"""Small windows over a screen: all keys, one line of text, yes or no, an action by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.console import Console
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gpudiag.render.style import BOLD, DIM
from gpudiag.tui.actions import GROUPS, Action

_BOX = """
    align: center middle;
    background: ansi_default;
    & > .box {
        width: auto; max-width: 78; height: auto; max-height: 100%;
        padding: 0 2; border: round ansi_bright_black; background: ansi_default;
    }
"""


class Help(ModalScreen[None]):
    """Every key of the registry."""

    CSS: ClassVar[str] = "Help {" + _BOX + " & > .box { width: 78; height: 22; } }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,h,f1,enter,space", "dismiss", show=False)]

    def __init__(self, actions: Sequence[Action], *, plain: bool) -> None:
        super().__init__()
        self._text = help_text(actions)
        self._plain = plain

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.styles.border = ("ascii" if self._plain else "round", "ansi_bright_black")
            box.styles.scrollbar_size_vertical = 0
            box.border_subtitle = "down for more, esc closes"
            yield Static(self._text)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_text(actions: Sequence[Action]) -> Text:
    """The keys by group, with what they do."""
    text = Text()
    for group, title in GROUPS.items():
        text.append(f"{title}\n", BOLD)
        for action in (a for a in actions if a.group == group):
            text.append(f"  {action.shown:<11}", "")
            text.append(f"{action.title:<17}", "")
            hanging = Text(action.help, DIM)
            lines = hanging.wrap(Console(width=78), 40)
            for number, line in enumerate(lines):
                text.append("" if number == 0 else "\n" + " " * 30)
                text.append_text(line)
            text.append("\n")
    text.rstrip()
    return text


class Ask(ModalScreen[str | None]):
    """One line of text at the bottom. Escape gives None."""

    CSS: ClassVar[str] = """
    Ask { align: left bottom; background: ansi_default 0%; }
    Ask > Vertical { height: 1; width: 100%; layout: horizontal; background: ansi_default; }
    Ask Static { width: auto; text-style: bold; }
    Ask Input { width: 1fr; height: 1; border: none; padding: 0; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, prompt: str, value: str) -> None:
        super().__init__()
        self._prompt = prompt
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._prompt, markup=False)
            yield Input(self._value, select_on_focus=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class Confirm(ModalScreen[bool]):
    """A question that only `y` answers with yes."""

    CSS: ClassVar[str] = "Confirm {" + _BOX + " & > .box { width: 70; } }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,escape,q,enter", "dismiss(False)", show=False),
    ]

    def __init__(self, question: str, *, plain: bool) -> None:
        super().__init__()
        self._question = question
        self._plain = plain

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.styles.border = ("ascii" if self._plain else "round", "ansi_bright_black")
            yield Static(
                Text(f"{self._question}\n\n", "") + Text("y", BOLD) + Text(" yes    ", "") + Text("n", BOLD) + Text(" no", "")
            )


class Palette(ModalScreen[str | None]):
    """An action by a part of its name or of what it does."""

    CSS: ClassVar[str] = (
        "Palette {"
        + _BOX
        + """ & > .box { width: 74; height: 20; }
    & Input { height: 1; border: none; padding: 0; background: ansi_default; }
    & OptionList { height: 1fr; border: none; padding: 0; background: ansi_default; margin-top: 1; }
    }"""
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, actions: Sequence[Action]) -> None:
        super().__init__()
        self._actions = [a for a in actions if a.id != "palette"]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Input(placeholder="what to do")
            yield OptionList()

    def on_mount(self) -> None:
        self._list("")
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, wanted: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        words = wanted.lower().split()
        found = [a for a in self._actions if all(w in f"{a.title} {a.help}".lower() for w in words)]
        found.sort(key=lambda a: not a.title.lower().startswith(wanted.lower()))
        for action in found:
            options.add_option(
                Option(Text.assemble((f"{action.title:<18}", ""), (f"{action.shown:<13}", DIM), (action.help, DIM)), id=action.id)
            )
        if found:
            options.highlighted = 0

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if options.option_count:
            options.highlighted = ((options.highlighted or 0) + by) % options.option_count

    def on_input_submitted(self) -> None:
        options = self.query_one(OptionList)
        self.dismiss(options.highlighted_option.id if options.highlighted_option else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)
