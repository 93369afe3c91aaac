"""The registry of experiments."""

from __future__ import annotations

from typing import Final

from kits.market.lab.experiment import Experiment
from kits.market.lab.experiments.bias_lambda import BiasLambda
from kits.market.lab.experiments.bid_source import BidSource
from kits.market.lab.experiments.fairness_window import FairnessWindow
from kits.market.lab.experiments.fragmentation import Fragmentation
from kits.market.lab.experiments.lane_multiplier import LaneMultiplier
from kits.market.lab.experiments.median_smoothing import MedianSmoothing
from kits.market.lab.experiments.reserve_price import ReservePrice
from kits.market.lab.experiments.rivals import Rivals
from kits.market.lab.experiments.tiers import Tiers
from kits.market.lab.experiments.truthfulness import Truthfulness

EXPERIMENTS: Final[dict[str, Experiment]] = {
    each.name: each
    for each in (
        FairnessWindow(),
        Fragmentation(),
        MedianSmoothing(),
        Tiers(),
        LaneMultiplier(),
        BiasLambda(),
        ReservePrice(),
        Truthfulness(),
        BidSource(),
        Rivals(),
    )
}
"""All experiments by name, in the order of the questions."""
