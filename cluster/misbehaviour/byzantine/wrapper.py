"""A validator wrapped in its behaviours, which drivers use instead of the bare one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from cluster.misbehaviour.byzantine.accountability import Accountability
from cluster.misbehaviour.byzantine.base import Behaviour, BehaviourContext, heard_in
from validator.node.assembly import Validator
from validator.node.events import Effect, Event, Send


class ByzantineValidator:
    """Hands events to the honest validator inside, and changes its effects.

    Behaviours form a chain: each may change the effects of the previous one. Each draws from a separate random source,
    so that adding one does not change the others.
    """

    def __init__(
        self,
        behaviours: Sequence[type[Behaviour]],
        context: BehaviourContext,
        accountability: Accountability | None = None,
    ) -> None:
        """``accountability`` is that of another validator with the same key, if there is one, so that both share it."""
        self.accountability = Accountability(context) if accountability is None else accountability
        seed = context.random.getrandbits(64)
        self._behaviours = [
            behaviour(replace(context, random=Random(f"{seed}/{behaviour.name}"))) for behaviour in behaviours
        ]
        for behaviour in behaviours:
            context.score.effects.setdefault(behaviour.name, 0)

    def reseed(self, seed: str) -> None:
        """Reseed the random source of every behaviour."""
        for behaviour in self._behaviours:
            behaviour.context.random.seed(f"{seed}/{behaviour.name}")

    def handle(self, validator: Validator, event: Event) -> list[Effect]:
        """Let the validator handle an event. Returns its effects as the behaviours changed them."""
        is_swallowed = any(behaviour.swallows(event) for behaviour in self._behaviours)
        effects = [] if is_swallowed else validator.node.handle(event)
        heard = heard_in(event)
        for behaviour in self._behaviours:
            effects = [altered for effect in effects for altered in behaviour.alter(effect)]
            effects += behaviour.react(event)
            if heard is not None:
                effects += behaviour.hear(heard)
        if heard is not None:
            self.accountability.note_certificate(heard.message)
        for effect in effects:
            if isinstance(effect, Send):
                self.accountability.note_sent(effect, validator.node.view)
        return effects
