"""REINFORCE without its noise: the gradient of the expected return, the actions summed over instead of drawn.

An action does not change the queue. A handover of a table is therefore one known path, on which a policy
that submits with probability p_k at point k (1 at the last) earns

    J = sum_k  p_k * prod_{j<k} (1 - p_j) * R_k.

REINFORCE (Williams, Machine Learning 8, 1992) estimates the gradient of J from drawn actions; here J itself is
differentiated. It is the all-actions policy gradient (Sutton et al., NeurIPS 1999) with the true values.
"""

from __future__ import annotations

import torch
from torch import Tensor


def expected_return(logits: Tensor, returns: Tensor) -> Tensor:
    """J of each handover, shape (E,), for logits of (hold, submit), (E, G, 2), and returns R, (E, G).

    The last point's logits do not matter: submission is forced there.
    """
    chances = torch.log_softmax(logits, dim=-1)
    hold, submit = chances[:, :-1, 0], chances[:, :-1, 1]
    none = torch.zeros_like(hold[:, :1])
    until = torch.cat([none, hold.cumsum(dim=1)], dim=1)
    stopping = (until + torch.cat([submit, none], dim=1)).exp()
    return (stopping * returns).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the decisions, in nats."""
    chances = torch.log_softmax(logits[:, :-1], dim=-1)
    return -(chances.exp() * chances).sum(dim=-1).mean()
