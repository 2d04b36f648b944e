"""Monte Carlo on the simulator: what may come, played many times from the queue of this time."""

from mirage.predictors.lookahead.predictor import Budget, Lookahead

__all__ = ["Budget", "Lookahead"]
