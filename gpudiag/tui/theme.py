"""Colours of the terminal interface."""

from __future__ import annotations

from typing import Final

from textual.theme import Theme

from gpudiag.render.style import GREEN, ORANGE, SKY, VERMILION

THEME: Final = Theme(
    name="gpudiag",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_default",
    warning=ORANGE,
    error=VERMILION,
    success=GREEN,
    accent=SKY,
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_black",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_cyan",
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
        "input-selection-background": "ansi_cyan",
        "input-selection-foreground": "ansi_black",
        "screen-selection-background": "ansi_cyan",
        "screen-selection-foreground": "ansi_black",
    },
)
"""The terminal's own colours for text and background, those of Okabe and Ito for what means something."""
