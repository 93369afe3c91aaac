"""Fragmentation: what does a party gain by splitting its timers over many actors? (Seed 001 §8, limitation 1.)"""

from __future__ import annotations

from kits.market.estimates import Cell, Estimate, Results
from kits.market.lab.experiment import LANE_PRICES, Decision, Effort, Experiment, Plot, Setup
from kits.market.lab.market import Market
from kits.market.lab.measures import ratio
from kits.market.lab.population import Group
from kits.market.lab.strategies import Share
from kits.market.metric import POSITIVE, Metric
from validator.chain.genesis import Policy

ACTORS = (1, 4, 16, 64)
PARTIES = ("actor", "deployer")
MATERIAL = 0.1
"""A relative gain in the share of the lane from which the attack counts as material."""


def price_of_party(market: Market) -> float:
    fires = [[t for t in market.of_group(name) if t.fired_at is not None] for name in ("party", "others")]
    mine, theirs = (ratio(sum(t.tip + t.burned for t in of), sum(t.job.cycles for t in of)) for of in fires)
    return ratio(mine, theirs)


class Fragmentation(Experiment):
    name = "fragmentation"
    title = "Fragmentation attack"
    question = "How much of the lane does a party gain by splitting its timers over k actors, at what price?"
    hypothesis = (
        "With a weight for each actor the gain grows with k; with one for each deployer there is none"
        " (seed 001 §8, limitation 1)."
    )
    rule = (
        "Material if some k raises the party's share of the lane by more than a tenth of it with a weight for each"
        " actor. Deployers help if with them no k does."
    )
    factors = {"LANE_FEE_MULTIPLIER_MILLI": LANE_PRICES, "WEIGHT_PARTY": PARTIES, "actors": ACTORS}
    plots = (
        Plot("party.lane_share", "Share of the lane", "actors"),
        Plot("party.wait_mean", "Mean wait in blocks", "actors"),
        Plot("party.utility", "Utility of the party", "actors"),
        Plot("party.price", "Price of a cycle for the party, as a multiple of the others'", "actors"),
    )
    shown = ("party.lane_share", "party.wait_mean", "party.utility", "party.price", "full_share")
    metrics = {
        "party.price": Metric(
            "what the party's fires paid and burned for a cycle", "× the others'", "", POSITIVE, price_of_party
        )
    }
    full = Effort(800, 8)

    def setup(self, cell: Cell, blocks: int) -> Setup:
        multiplier, party, actors = cell
        groups = (
            Group(name="party", agents=4, load=0.4, actors=int(actors), strategy=lambda _: Share(0.3)),
            Group(name="others", agents=40, load=0.9, strategy=lambda _: Share(0.3)),
        )
        params = {
            "LANE_FEE_MULTIPLIER_MILLI": multiplier,
            "WEIGHT_PARTY": party,
            "FAIRNESS_WINDOW_BLOCKS": 200,
            "LANE_BASEFEE_SLOPE": 8,
        }
        return Setup(Policy.CIP1, groups, params)

    def decide(self, results: Results) -> Decision:
        best = {(price, party): self._best(results, price, party) for price in LANE_PRICES for party in PARTIES}
        before = {pair: results.mean((*pair, 1), "party.lane_share").mean for pair in best}
        pays = {pair: gain.exceeds(MATERIAL * before[pair]) for pair, gain in best.items()}
        usual, free = LANE_PRICES
        if any(pays[price, "deployer"] for price in LANE_PRICES):
            recommendation = "A weight per deployer does not help: splitting pays with it, too."
        elif pays[usual, "actor"]:
            recommendation = "Weigh deployers: splitting pays with a weight per actor, and not with one per deployer."
        elif pays[free, "actor"]:
            recommendation = (
                "It depends on the lane's price: splitting pays where the lane is always full, and not where the price"
                " keeps it half empty. Keep the weight per actor as long as the lane has its price."
            )
        else:
            recommendation = "Keep the weight per actor: splitting does not pay."
        utility = results.change((usual, "actor", ACTORS[-1]), (usual, "actor", 1), "party.utility")
        return Decision(
            f"The greatest gain in the share of the lane is {best[usual, 'actor'].text} from"
            f" {before[usual, 'actor']:.3f} per actor, {best[usual, 'deployer'].text} per deployer; without a lane"
            f" price {best[free, 'actor'].text} from {before[free, 'actor']:.3f} per actor,"
            f" {best[free, 'deployer'].text} per deployer. With {ACTORS[-1]} actors, per actor, the party's utility"
            f" changes by {utility.text}.",
            recommendation,
            "The price of the attack is the deployment of the actors, once, and what the table shows for each cycle."
            " Deployers are free, too: a party that deploys from many funded addresses keeps its gain.",
        )

    def _best(self, results: Results, price: int, party: str) -> Estimate:
        """The greatest gain in the share of the lane, over all numbers of actors."""
        gains = (results.change((price, party, k), (price, party, 1), "party.lane_share") for k in ACTORS[1:])
        return max(gains, key=lambda gain: gain.mean)
