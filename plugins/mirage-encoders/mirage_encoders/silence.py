"""A logger that keeps nothing."""

from __future__ import annotations

from stable_baselines3.common.logger import Logger


def silence() -> Logger:
    """For ``set_logger``: the logger that stable-baselines3 makes by itself leaves a directory behind in
    ``/tmp``."""
    return Logger(folder=None, output_formats=[])
