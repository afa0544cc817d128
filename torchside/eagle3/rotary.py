"""Rotary position embedding as Llama and its relatives use it (transformers 5, modeling_rope_utils.py)."""

from __future__ import annotations

import math

import torch


class Rotary:
    """Turns queries and keys by their position. Kinds: default, linear, llama3; anything else raises ValueError."""

    def __init__(self, config, head_dim, device):
        settings = dict(config.get("rope_scaling") or {})
        settings.update(config.get("rope_parameters") or {})
        theta = float(settings.get("rope_theta") or config.get("rope_theta") or 10000.0)
        share = float(settings.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0)
        self.turned = int(head_dim * share)
        steps = torch.arange(0, self.turned, 2, dtype=torch.float32, device=device) / self.turned
        self.inverse = _scaled(theta**-steps, settings)

    def __call__(self, x, positions):
        """Turn x [..., T, D], for positions that broadcast to [..., T]; float32 inside."""
        angle = positions[..., None].to(torch.float32) * self.inverse
        cosine, sine = torch.cat((angle, angle), -1).cos().to(x.dtype), torch.cat((angle, angle), -1).sin().to(x.dtype)
        part, rest = x[..., : self.turned], x[..., self.turned :]
        half = self.turned // 2
        turned = part * cosine + torch.cat((-part[..., half:], part[..., :half]), -1) * sine
        return torch.cat((turned, rest), -1) if rest.shape[-1] else turned


def _scaled(inverse, settings):
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind in ("default", "mrope"):
        return inverse
    factor = float(settings.get("factor") or 1.0)
    if kind == "linear":
        return inverse / factor
    if kind != "llama3":
        raise ValueError(f"rope type {kind} is not written out here")
    low, high = float(settings["low_freq_factor"]), float(settings["high_freq_factor"])
    original = float(settings["original_max_position_embeddings"])
    wavelength = 2 * math.pi / inverse
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = torch.where(wavelength > original / low, inverse / factor, inverse)
    return torch.where((wavelength <= original / low) & (wavelength >= original / high), between, scaled)
