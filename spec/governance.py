"""System instructions and governed parameters (``docs/protocol.md``, *System instructions*)."""

from __future__ import annotations

import json

from spec import timers
from spec.encoding import PARAMETERS_ADDRESS, CancelTimer, ExtendTimer, UpdateTimerConfig
from spec.parameters import GOVERNED, BadParameter, Parameters, check_together, checked, stored_key, stored_text
from spec.runs import Run
from spec.scripts import strict_json
from spec.world import Failure, World


def instruct(run: Run, instruction: CancelTimer | UpdateTimerConfig | ExtendTimer) -> None:
    """Carry out an instruction of a system deployer."""
    world = run.world
    world.refuse("S-01", "NotSystemDeployer", run.sender not in world.genesis.system_deployers)
    if isinstance(instruction, UpdateTimerConfig):
        update(world, instruction.config)
        return
    timer = world.timers.get(instruction.timer_id)
    if isinstance(instruction, CancelTimer):
        if timer is None:
            world.reached("S-03")
            return
        world.reached("S-02")
        timers.end_unfired(world, timer)
        run.changes.append(("cancelled", timer.timer_id))
        return
    if timer is None:
        raise world.refusal("S-07", "NotFound")
    timer = timers.extend(world, timer, instruction.new_expires_at, refused_by="S-08")
    world.reached("S-06")
    run.changes.append(("extended", timer.timer_id, timer.expires_at))


def parameters_in_force(world: World) -> Parameters:
    """The genesis's parameters, with the governed ones as they are in state."""
    stored = {name: world.storage[PARAMETERS_ADDRESS, stored_key(name)] for name in GOVERNED}
    return world.genesis.parameters | {name: json.loads(text) for name, text in stored.items()}


def update(world: World, config: str) -> None:
    """Set governed parameters, from the next block on: all of them or, with ``ConfigInvalid``, none."""
    try:
        given = strict_json(config.encode())
        if not isinstance(given, dict) or not set(given) <= set(GOVERNED):
            raise BadParameter("an object of governed parameters is expected")
        values = {name: checked(name, value) for name, value in given.items()}
        check_together(parameters_in_force(world) | values)
    except (BadParameter, Failure, UnicodeEncodeError):
        raise world.refusal("S-05", "ConfigInvalid") from None
    world.reached("S-04")
    for name, value in values.items():
        world.put(world.storage, (PARAMETERS_ADDRESS, stored_key(name)), stored_text(value).encode())
