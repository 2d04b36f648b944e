"""A logger without output."""

from __future__ import annotations

from stable_baselines3.common.logger import Logger


def silence() -> Logger:
    """For ``set_logger``: the default logger of stable-baselines3 leaves a directory behind in
    ``/tmp``."""
    return Logger(folder=None, output_formats=[])
