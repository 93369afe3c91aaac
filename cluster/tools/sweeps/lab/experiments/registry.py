"""The registry of experiments."""

from __future__ import annotations

from typing import Final

from cluster.tools.sweeps.lab.experiment import Experiment
from cluster.tools.sweeps.lab.experiments.bias_lambda import BiasLambda
from cluster.tools.sweeps.lab.experiments.bid_source import BidSource
from cluster.tools.sweeps.lab.experiments.fairness_window import FairnessWindow
from cluster.tools.sweeps.lab.experiments.fragmentation import Fragmentation
from cluster.tools.sweeps.lab.experiments.lane_multiplier import LaneMultiplier
from cluster.tools.sweeps.lab.experiments.median_smoothing import MedianSmoothing
from cluster.tools.sweeps.lab.experiments.reserve_price import ReservePrice
from cluster.tools.sweeps.lab.experiments.rivals import Rivals
from cluster.tools.sweeps.lab.experiments.tiers import Tiers
from cluster.tools.sweeps.lab.experiments.truthfulness import Truthfulness

EXPERIMENTS: Final[dict[str, type[Experiment]]] = {
    each.name: each
    for each in (
        FairnessWindow,
        Fragmentation,
        MedianSmoothing,
        Tiers,
        LaneMultiplier,
        BiasLambda,
        ReservePrice,
        Truthfulness,
        BidSource,
        Rivals,
    )
}
"""All experiments by name, in the order of the questions."""
