"""``false-proposer``: as leader, proposes a block that names another validator as its proposer, which gets the tips.

The block is executed for that validator, so its only error is that this validator does not lead the view.
"""

from __future__ import annotations

from dataclasses import replace

from cluster.misbehaviour.byzantine.base import Behaviour
from validator.node.events import Effect, Run
from validator.node.executor.jobs import Build


class FalseProposer(Behaviour):
    name = "false-proposer"
    description = "as leader, proposes blocks that name another validator as their proposer"

    def alter(self, effect: Effect) -> list[Effect]:
        if not isinstance(effect, Run) or not isinstance(effect.job, Build):
            return super().alter(effect)
        self.count_effect()
        return [Run(replace(effect.job, proposer=self.context.random.choice(self.context.peers)))]
