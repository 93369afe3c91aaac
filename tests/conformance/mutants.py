"""Small falsifications of the specification, one rule each: `(name, module, text in it, what stands there instead)`.

A rule that can be broken without any default case noticing is a rule that the comparison does not check. The generator
is good enough when every one of these changes the answer to some default case. Rules that are broken in the validator
by `tests/kits/conform/planted.py` are not among them: families of cases find these.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.repository.sources import ROOT

MUTANTS: list[tuple[str, str, str, str]] = [
    # transactions, costs, scripts
    ("nonce not raised", "spec.block", "world.put(world.nonce, sender, transaction.nonce + 1)", "pass"),
    ("user lane endless", "spec.block", "used + transaction.gas_limit > limit", "False"),
    (
        "limits counted as used",
        "spec.block",
        "    used = block.system_cycles if is_system else block.user_cycles\n",
        '    limits = vars(block).setdefault("limits", ({}, {}))[is_system]\n'
        "    limits[transaction.hash] = transaction.gas_limit\n"
        "    used = sum(limits.get(each.transaction_hash, 0) for each in block.transactions)\n",
    ),
    ("value not in funds", "spec.block", "transaction.value + upfront", "upfront"),
    ("all fees burned", "spec.block", "block.burned += burned", "block.burned += burned + tips"),
    ("failed handler keeps effects", "spec.runs", "        world.back(mark)\n", "        pass\n"),
    (
        "cells charged when out",
        "spec.runs",
        '            raise self.world.failure("A-13", ',
        '            self.cells += cells\n            raise self.world.failure("A-13", ',
    ),
    (
        "deployed actor is the system's",
        "spec.block",
        "action.code, sender)",
        "action.code, world.genesis.system_deployers[0])",
    ),
    (
        "deployed actor is none",
        "spec.block",
        "deploy(world, target, action.code, sender)",
        "deploy(world, target, action.code, sender)\n            world.drop(world.actors, target)",
    ),
    ("emit counts characters", "spec.host", "self.change(50, len(data.encode()),", "self.change(50, len(data),"),
    ("rejected call free", "spec.host", "            self.pay(0, len(payload))\n", ""),
    ("reservation free", "spec.host", "self.pay(cycles, len(payload) + cells)", "self.pay(0, len(payload))"),
    (
        "save_as free",
        "spec.scripts",
        'run.kv_set(given["save_as"], timer_id.hex().encode())',
        'run.world.put(run.world.storage, (run.actor, given["save_as"]), timer_id.hex().encode())',
    ),
    ("try catches all", "spec.scripts", "except Refusal as refusal", "except Failure as refusal"),
    ("duplicate keys pass", "spec.scripts", "_need(len(found) == len(pairs))", "pass"),
    (
        "surrogates pass",
        "spec.scripts",
        "            json.dumps(value, ensure_ascii=False).encode()\n",
        '            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))\n',
    ),
    ("depth 65", "spec.scripts", "MAX_NESTING = 64", "MAX_NESTING = 65"),
    ("depth 63", "spec.scripts", "MAX_NESTING = 64", "MAX_NESTING = 63"),
    ("minus zero passes", "spec.scripts", 'text != "-0" and ', ""),
    ("floats pass", "spec.scripts", "parse_float=bad_script, ", ""),
    ("null is given", "spec.scripts", "items() if value is not None}", "items()}"),
    ("json as given", "spec.scripts", 'json.dumps(value, separators=(",", ":"))', "json.dumps(value)"),
    (
        "json not ascii",
        "spec.scripts",
        'json.dumps(value, separators=(",", ":"))',
        'json.dumps(value, separators=(",", ":"), ensure_ascii=False)',
    ),
    (
        "json sorted",
        "spec.scripts",
        'json.dumps(value, separators=(",", ":"))',
        'json.dumps(value, separators=(",", ":"), sort_keys=True)',
    ),
    # timers
    ("bid accepted", "spec.timers", 'request.bid is not None and policy.bids == "refused"', "False"),
    ("bid refused in fifo", "spec.timers", 'and policy.bids == "refused"', 'and policy.bids != "locked"'),
    ("fee range", "spec.timers", "not 0 <= figure < PRICE_LIMIT", "not 0 <= figure"),
    ("negative cap", "spec.timers", "request.payer_cap, bid)", "bid)"),
    ("tier of a zero median", "spec.timers", "world.p50 * world", "0 * world"),
    ("far height", "spec.timers", "request.height >= HEIGHT_LIMIT", "False"),
    (
        "handler length in characters",
        "spec.timers",
        "not is_name(request.handler)",
        "not 1 <= len(request.handler) <= 256",
    ),
    ("default cap none", "spec.timers", "cap = run.allowance if request", "cap = 1 if request"),
    ("gas too high", "spec.timers", "request.gas_limit > policy.fire_cap(world)", "False"),
    ("expiry not clamped", "spec.timers", "min(request.expires_at, latest)", "request.expires_at"),
    (
        "expiry before height",
        "spec.timers",
        "world.height + 1 if request.height is None else request.height",
        "world.height + 1 if request.height is None else 0",
    ),
    (
        "below basefee accepted",
        "spec.policies.cip1",
        'raise world.refusal("T-18", "TimerRejectedBelowBasefee")',
        "pass",
    ),
    ("no clamp", "spec.policies.cip1", "if priority is None or priority <= max_fee - world.fee_floor:", "if True:"),
    ("no schedule nonce", "spec.timers", "world.put(world.schedule_nonce, actor, nonce + 1)", "pass"),
    ("extend the expired", "spec.timers", "is_too_late = world.height > timer.expires_at", "is_too_late = False"),
    (
        "extend not clamped",
        "spec.timers",
        '    latest = world.height + world.parameters["MAX_TTL"]\n',
        "    latest = expires_at\n",
    ),
    ("envelope ignored", "spec.scripts", "return named, base64.b64decode(packed)", "return handler, payload"),
    (
        "envelope with more keys",
        "spec.scripts",
        "dict(json.loads(text, object_pairs_hook=list)) if _TWO_TEXTS.fullmatch(text) else {}",
        'dict(pair for pair in json.loads(text or "{}", object_pairs_hook=list)[:2] if type(pair[1]) is str)',
    ),
    # tiers
    (
        "tiers by distance",
        "spec.leaves",
        "timer.trigger_height < timer.scheduled_at + p",
        "timer.trigger_height < height + p",
    ),
    ("carried not ring", "spec.leaves", "timer.trigger_height <= height + 1 or ", ""),
    ("horizon", "spec.leaves", 'epochs_away <= p["EPOCH_HORIZON"]', 'epochs_away < p["EPOCH_HORIZON"]'),
    # the timer phase
    (
        "carry lost",
        "spec.world",
        "[timers[timer_id] for timer_id in self.waiting]",
        "[timers[timer_id] for timer_id in self.waiting if timers[timer_id].trigger_height == self.height]",
    ),
    (
        "expiry a block early",
        "spec.phase",
        "if world.height <= timer.expires_at:",
        "if world.height < timer.expires_at:",
    ),
    ("whole gc budget", "spec.phase", '- p["SCAN_LIMIT"] * p["GC_CYCLES_PER_REMOVAL"], []', ", []"),
    ("gc budget endless", "spec.phase", 'self.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > p["TIMER_GC_CYCLES"]', "False"),
    (
        "no fee gate",
        "spec.policies.cip1",
        "if max_fee < world.fee_floor and world.height <= timer.expires_at:",
        "if False:",
    ),
    ("no cap gate", "spec.policies.fifo", "if self.is_over_cap(world, timer):", "if False:"),
    (
        "cap before fee",
        "spec.policies.cip1",
        "and world.height <= timer.expires_at:",
        "and world.height <= timer.expires_at and not self.is_over_cap(world, timer):",
    ),
    (
        "tip not capped by max fee",
        "spec.policies.cip1",
        "(min(priority, max_fee - world.fee_floor), timer)",
        "(priority, timer)",
    ),
    ("lane cells ignored", "spec.phase", 'self.cells >= p["LANE_TIMER_CELLS"]', "False"),
    ("lane cells exact", "spec.phase", 'self.cells >= p["LANE_TIMER_CELLS"]', 'self.cells > p["LANE_TIMER_CELLS"]'),
    ("destroyed counts as looked at", "spec.phase", "turn.tip, gas_limit):", "turn.tip, gas_limit) or True:"),
    (
        "carried for gc does not count",
        "spec.phase",
        '"gc_budget"\n            return True',
        '"gc_budget"\n            return False',
    ),
    ("misfit does not count", "spec.phase", "NO_ROOM\n                looked_at += 1", "NO_ROOM"),
    ("misfit ends the scan", "spec.phase", "if is_over or not policy.passes_over:", "if True:"),
    ("fifo goes on", "spec.phase", "if is_over or not policy.passes_over:", "if is_over:"),
    ("lane by limit", "spec.phase", "self.cycles += meter.cycles", "self.cycles += meter.cycle_limit"),
    ("cancelled are reported", "spec.phase", "self.waits.items() if timer_id in world.timers}", "self.waits.items()}"),
    (
        "cancelled count as looked at",
        "spec.phase",
        "                continue  # a fire has cancelled it\n",
        "                looked_at += 1\n                continue\n",
    ),
    # basefees
    ("no highest basefee", "spec.fees", 'min(p["MAX_BASEFEE"], basefee + max(1, step))', "basefee + max(1, step)"),
    ("slope fixed", "spec.policies.cip1", 'p["LANE_BASEFEE_SLOPE"])', "8)"),
    ("lane target whole", "spec.policies.cip1", 'p["LANE_TIMER_CYCLES"] // 2', 'p["LANE_TIMER_CYCLES"]'),
    (
        "new parameters for the new basefee",
        "spec.block",
        '    counters["basefee of the lane"] = world.policy',
        "    world.parameters = governance.parameters_in_force(world)\n"
        '    counters["basefee of the lane"] = world.policy',
    ),
    # fairness
    (
        "upper median",
        "spec.policies.cip1",
        "counts[(len(counts) - 1) // 2] + counts[len(counts) // 2]",
        "2 * counts[len(counts) // 2]",
    ),
    (
        "mean",
        "spec.policies.cip1",
        "counts[(len(counts) - 1) // 2] + counts[len(counts) // 2]",
        "2 * sum(counts) // len(counts)",
    ),
    ("weight of one", "spec.policies.cip1", "2 * divisor - min(2 * fires, divisor)", "1"),
    ("weight unclamped", "spec.policies.cip1", "2 * divisor - min(2 * fires, divisor)", "2 * divisor - 2 * fires"),
    (
        "window a block longer",
        "spec.policies.cip1",
        "(height := next(iter(world.fires))) < first",
        "(height := next(iter(world.fires))) < first - 1",
    ),
    (
        "window a block shorter",
        "spec.policies.cip1",
        "(height := next(iter(world.fires))) < first",
        "(height := next(iter(world.fires))) <= first",
    ),
    ("floor ignored", "spec.policies.cip1", "(tip + floor) * weight", "tip * weight"),
    ("wrong tie-break", "spec.policies.fifo", "age if is_aged", "age if not is_aged"),
    ("lowest first", "spec.policies.cip1", "(tip + floor) * weight", "-(tip + floor) * weight"),
    # bidding agents
    ("median not wired", "spec.block", "world.policy.next_p50(world, fires)", "0"),
    ("upper median tip", "spec.fees", "ascending[(len(ascending) - 1) // 2]", "ascending[len(ascending) // 2]"),
    ("median always by fires", "spec.fees", 'if world.parameters["P50_WEIGHT"] == "fires":', "if True:"),
    ("median always by cycles", "spec.fees", 'if world.parameters["P50_WEIGHT"] == "fires":', "if False:"),
    ("more than half", "spec.fees", "2 * passed >= total", "2 * passed > total"),
    ("no tip cap", "spec.fees", "if cap and priority > price // cap:", "if False:"),
    ("headroom of one", "spec.fees", "min(2 * price, PRICE_LIMIT - 1)", "min(price, PRICE_LIMIT - 1)"),
    ("headroom not kept", "spec.agents", "world.put(world.timers, timer.timer_id, timer)", "pass"),
    (
        "gba beats explicit",
        "spec.agents",
        "bid[0] if max_fee is None else max_fee",
        "max_fee if bid[0] is None else bid[0]",
    ),
    (
        "gba ignored",
        "spec.agents",
        "self._results.get(timer.timer_id, (kept.max_fee, kept.priority)) or (None, None)",
        "(None, None)",
    ),
    ("last answer ignored", "spec.agents", "(kept.max_fee, kept.priority)) or (None, None)", "None) or (None, None)"),
    (
        "unpaid takes the last answer",
        "spec.agents",
        "(kept.max_fee, kept.priority)) or (None, None)",
        "None) or (kept.max_fee, kept.priority)",
    ),
    ("hopeless asked", "spec.agents", "not is_hopeless and ", ""),
    ("over cap asked", "spec.agents", " or world.policy.is_over_cap(world, timer)", ""),
    ("all explicit asked", "spec.agents", "return is_open and", "return"),
    (
        "pause a block shorter",
        "spec.agents",
        'unpaid_at <= world.parameters["GBA_UNPAID_PAUSE"]',
        'unpaid_at < world.parameters["GBA_UNPAID_PAUSE"]',
    ),
    ("no pause", "spec.agents", 'world.height - unpaid_at <= world.parameters["GBA_UNPAID_PAUSE"]', "False"),
    ("queries per actor", "spec.agents", 'if rank < world.parameters["GBA_QUERIES_PER_ACTOR"]:', "if True:"),
    ("rank ignored", "spec.agents", "found.append((rank,", "found.append((0,"),
    (
        "rotation ignored",
        "spec.agents",
        "world.asked.get(timer.actor, Asked()).at, timer.timer_id",
        "0, timer.timer_id",
    ),
    ("budget endless", "spec.agents", 'self.spent + p["GBA_MAX_CYCLES"] > p["GBA_BUDGET_CYCLES"] or', ""),
    ("others of the unpaid", "spec.agents", " or timer.actor in unpaid:", ":"),
    ("unpaid is charged", "spec.agents", '"unpaid", 0, None', '"unpaid", LEAST_CYCLES, None'),
    ("query free", "spec.agents", "world.debit(actor, used * world.basefee_cycle)", "pass"),
    (
        "unpaid below its price",
        "spec.agents",
        'world.parameters["GBA_MAX_CYCLES"] * world.basefee_cycle',
        "LEAST_CYCLES * world.basefee_cycle",
    ),
    # settlement of fires
    ("refund to the actor", "spec.phase", "credit(timer.fee_payer, needed", "credit(timer.actor, needed"),
    (
        "no refund after a revert",
        "spec.phase",
        "credit(timer.fee_payer, needed",
        "credit(timer.fee_payer, ended.ok and needed",
    ),
    (
        "reverted fires do not count",
        "spec.policies.cip1",
        "timer.actor) for timer in phase.fired)",
        "fire.actor) for fire in phase.fires if fire.ok)",
    ),
    (
        "payer counts",
        "spec.policies.cip1",
        "timer.actor) for timer in phase.fired)",
        "timer.fee_payer) for timer in phase.fired)",
    ),
    # system instructions
    (
        "in force at once",
        "spec.governance",
        "stored_text(value).encode())",
        "stored_text(value).encode())\n    world.parameters = parameters_in_force(world)",
    ),
    (
        "last one wins",
        "spec.governance",
        "check_together(parameters_in_force(world) | values)",
        "check_together(world.parameters | values)",
    ),
    (
        "caps above the lane",
        "spec.governance",
        "check_together(parameters_in_force(world) | values)",
        'check_together(parameters_in_force(world) | values | {"LANE_TIMER_CYCLES": 10**9})',
    ),
    (
        "ranges ignored",
        "spec.parameters",
        "if type(value) is not int or not low <= value <= high:",
        "if type(value) is not int:",
    ),
    ("unknown names", "spec.governance", "not set(given) <= set(GOVERNED)", "False"),
    ("gc floor", "spec.parameters", '(2 * p["SCAN_LIMIT"] * p', '(p["SCAN_LIMIT"] * p'),
    ("not written", "spec.governance", "for name, value in values.items():", "for name, value in ():"),
    ("cancel is refused", "spec.governance", "        timers.end_unfired(world, timer)\n", ""),
    # activation and fifo
    ("activation a block early", "spec.block", "is_active = world.height > world", "is_active = world.height >= world"),
    ("lane basefee starts anew", "spec.policies.fifo", "return next_basefee_cycle", "return world.basefee_lane"),
    ("fifo cap", "spec.policies.fifo", '"MAX_CYCLES_PER_FIRE"', '"MAX_CYCLES_PER_FIRE_AUCTION_PHASE"'),
    (
        "fifo pays the lane",
        "spec.policies.fifo",
        'on top of the cycle\'s basefee."""\n        return 0',
        'on top of the cycle\'s basefee."""\n'
        '        return world.basefee_lane * world.parameters["LANE_FEE_MULTIPLIER_MILLI"] // 1_000',
    ),
    (
        "fifo fires count",
        "spec.policies.fifo",
        '        """Record what later blocks have to know of this block\'s fires."""\n',
        "        world = phase.world\n        for timer in phase.fired:\n"
        "            world.recent[timer.actor] = world.recent.get(timer.actor, 0) + 1\n"
        "            world.fires.setdefault(world.height, []).append((timer.actor, 1))\n",
    ),
    # candidates of cip1
    ("fires count for the actor", "spec.policies.cip1", 'if world.parameters["WEIGHT_PARTY"] == "actor":', "if True:"),
    (
        "fires count for the deployer",
        "spec.policies.cip1",
        'if world.parameters["WEIGHT_PARTY"] == "actor":',
        "if False:",
    ),
    (
        "deployers are followed",
        "spec.policies.cip1",
        "        return world.actors[actor].deployer",
        "        actor = world.actors[actor].deployer\n"
        "        return world.actors[actor].deployer if actor in world.actors else actor",
    ),
    (
        "rounded weights by actor",
        "spec.policies.cip1",
        "world.recent.get(self.counts_for(world, timer.actor), 0)",
        'world.recent.get(timer.actor if weight.__name__ == "rounded" else self.counts_for(world, timer.actor), 0)',
    ),
    ("median not smoothed", "spec.policies.cip1", 'before = world.median.get("", newest)', "before = newest"),
    ("median begins at zero", "spec.policies.cip1", 'world.median.get("", newest)', 'world.median.get("", 0)'),
    (
        "shares of the medians swapped",
        "spec.policies.cip1",
        "share * newest + (1_000 - share) * before",
        "(1_000 - share) * newest + share * before",
    ),
    (
        "empty window is a median of zero",
        "spec.policies.cip1",
        ' and world.recent:\n            world.reached("K-02")\n            newest = ONE * _divisor(world) // 2\n',
        ":\n            newest = ONE * _divisor(world) // 2 if world.recent else 0\n",
    ),
    ("smoothing alone is off", "spec.policies.cip1", 'ROUNDING = ("MEDIAN_SMOOTHING_MILLI", ', "ROUNDING = ("),
    ("least weight ignored", "spec.policies.cip1", "max(least, weight)", "max(0, weight)"),
    ("most weight ignored", "spec.policies.cip1", "min(most, max(least, weight))", "max(least, weight)"),
    ("ratio ends at one", "spec.policies.cip1", "max(0, 2 * ONE +", "max(ONE, 2 * ONE +"),
    # gba_auction
    ("timers last", "spec.policies.gba_auction", "timers_first = True", "timers_first = False"),
    (
        "insolvent timers destroyed",
        "spec.policies.gba_auction",
        '        phase.world.reached("W-04")\n',
        "        return super().turn_away(phase, timer, needed, balance)\n",
    ),
    ("weight ignored", "spec.policies.gba_auction", " | self.weight_of(world, timer)", ""),
    (
        "weight before tip",
        "spec.policies.gba_auction",
        "tip << WEIGHT_BITS | self.weight_of(world, timer)",
        "self.weight_of(world, timer) << 96 | tip",
    ),
    ("one pass", "spec.policies.gba_auction", "phase.scan(closed)", "pass"),
    (
        "no slices",
        "spec.policies.gba_auction",
        "        self.first_pass = True\n        phase.scan(turns)\n",
        "        self.first_pass = False\n        phase.scan(turns)\n",
    ),
    (
        "slices by reservation",
        "spec.policies.gba_auction",
        "sum(fire.cycles for fire in phase.fires if fire.actor == timer.actor)",
        "sum(self.gas_limit(world, fired) for fired in phase.fired if fired.actor == timer.actor)",
    ),
    ("equal slices", "spec.policies.gba_auction", "* self.earned(world, timer.actor) //", "* 2**15 //"),
    (
        "no starvation floor",
        "spec.policies.gba_auction",
        'max(weight, fixed_point(p["STARVATION_FLOOR_MILLI"]))',
        "weight",
    ),
    ("starving a block later", "spec.policies.gba_auction", "timer.trigger_height < p[", "timer.trigger_height <= p["),
    ("idle actors keep their weight", "spec.policies.gba_auction", "// 1_000)), 0\n", "// 1_000)), 2**15\n"),
    ("weights unbounded above", "spec.policies.gba_auction", "min(most, max(least,", "min(2**40, max(least,"),
    ("weights unbounded below", "spec.policies.gba_auction", "min(most, max(least,", "min(most, max(0,"),
    (
        "newcomers start high",
        "spec.policies.gba_auction",
        "(epoch, self.earned(world, actor), 0, 0)",
        "(epoch, self.earned(world, actor) if record else ONE, 0, 0)",
    ),
    ("outcome ignored", "spec.policies.gba_auction", "of_tip + ONE * fire.ok", "of_tip + ONE"),
    (
        "use ignored",
        "spec.policies.gba_auction",
        "of_lateness + ONE - ONE * fire.cycles // lane",
        "of_lateness",
    ),
    (
        "tip ignored",
        "spec.policies.gba_auction",
        "ONE * tip // (tip + world.p50) if tip + world.p50 else ONE // 2",
        "0",
    ),
    (
        "weights move in each block",
        "spec.policies.gba_auction",
        'world.height // world.parameters["EPOCH_LENGTH"]',
        "world.height",
    ),
    (
        "the lane is paid twice",
        "spec.policies.gba_auction",
        "    timers_first = True\n",
        "    timers_first = True\n\n"
        "    def lane_price(self, world: World) -> int:\n        return world.basefee_lane\n",
    ),
    # bias_auction
    ("bid not locked", "spec.timers", "    world.debit(payer, bid)\n", ""),
    ("bid beyond the cap", "spec.timers", "cap is not None and bid > cap", "False"),
    (
        "bid beyond the balance",
        "spec.timers",
        'world.refuse("X-03", "InsufficientBalance", world.balance.get(payer, 0) < bid)',
        "bid = min(bid, world.balance.get(payer, 0))",
    ),
    ("cancelled bid kept", "spec.host", "own_timer(self, timer_id))", "own_timer(self, timer_id)._replace(bid=0))"),
    (
        "destroyed bid kept",
        "spec.phase",
        "end_unfired(self.world, timer)",
        "end_unfired(self.world, timer._replace(bid=0))",
    ),
    ("priority is no bid", "spec.timers", "(priority or 0) * gas_limit if", "0 if"),
    (
        "bid in the cap twice",
        "spec.phase",
        "timer.payer_cap - (timer.bid or 0) < balance:\n"
        '            world.reached("L-22")\n'
        "            balance = timer.payer_cap - (timer.bid or 0)\n",
        "timer.payer_cap < balance:\n            balance = timer.payer_cap\n",
    ),
    ("no bias", "spec.policies.bias_auction", "late = world.height - timer.trigger_height", "late = 0"),
    (
        "bias before the bid",
        "spec.policies.bias_auction",
        "((timer.bid or 0) << FRACTION_BITS) +",
        "(timer.bid or 0) +",
    ),
    (
        "bids not by the cycle",
        "spec.policies.bias_auction",
        "self.strength(world, timer)) // self.gas_limit(world, timer)",
        "self.strength(world, timer))",
    ),
    (
        "no limit of an actor",
        "spec.policies.bias_auction",
        'bool(phase.fires_of(timer.actor) < phase.world.parameters["MAX_FIRES_PER_ACTOR"])',
        "True",
    ),
    (
        "reserve ignored",
        "spec.policies.bias_auction",
        'max(int(world.parameters["RESERVE_PRICE"]), self.due',
        "max(0, self.due",
    ),
    ("more than the bid", "spec.policies.bias_auction", "return min(timer.bid or 0, max(", "return (max("),
    ("always first price", "spec.policies.bias_auction", 'if rule == "first_price":', "if True:"),
    ("never first price", "spec.policies.bias_auction", 'if rule == "first_price":', "if False:"),
    ("critical as vcg", "spec.policies.bias_auction", 'if rule == "vcg":', "if True:"),
    ("vcg as critical", "spec.policies.bias_auction", 'if rule == "vcg":', "if False:"),
    (
        "bias not paid back",
        "spec.policies.bias_auction",
        "(left_out.bid or 0) - (self.bias_of(world, timer) >> FRACTION_BITS)",
        "left_out.bid or 0",
    ),
    ("rate stands still", "spec.policies.bias_auction", "after = BiasRate(self.moved(world, after))", "pass"),
    (
        "rate goes the other way",
        "spec.policies.bias_auction",
        "rate.micro - step if growth > decay else rate.micro + step",
        "rate.micro + step if growth > decay else rate.micro - step",
    ),
    (
        "sums are kept",
        "spec.policies.bias_auction",
        "BiasRate(self.moved(world, after))",
        "after._replace(micro=self.moved(world, after))",
    ),
    (
        "rate without bounds",
        "spec.policies.bias_auction",
        'int(min(p["BIAS_LAMBDA_MAX_MICRO"], max(p["BIAS_LAMBDA_MIN_MICRO"], moved)))',
        "moved",
    ),
    # watched keys of bias_auction
    (
        "anyone is watched",
        "spec.watches",
        'raise world.refusal("Y-05", "WatchNotAllowed")',
        "world.put(world.watchable, watch, (digest(world, watch), ()))",
    ),
    ("another actor's leave", "spec.watches", "if watch not in world.watchable:", "if not world.watchable:"),
    ("watches under every policy", "spec.policies.fifo", "has_watches = False", "has_watches = True"),
    ("long keys are watched", "spec.watches", "len(key.encode()) > MAX_KEY_BYTES)", "False)"),
    ("keys of 256 bytes are not watched", "spec.watches", "> MAX_KEY_BYTES", ">= MAX_KEY_BYTES"),
    ("keys by characters", "spec.watches", "len(key.encode()) > MAX_KEY_BYTES", "len(key) > MAX_KEY_BYTES"),
    (
        "one watcher more",
        "spec.watches",
        '>= world.parameters["MAX_WATCHERS_PER_KEY"]',
        '> world.parameters["MAX_WATCHERS_PER_KEY"]',
    ),
    ("allowing costs nothing", "spec.host", "self.change(200, len(key.encode()))", "pass"),
    ("allowing without cells", "spec.host", "self.change(200, len(key.encode()))", "self.change(200)"),
    ("leave for ever", "spec.watches", "world.drop(world.watchable, watch)", "pass"),
    (
        "leave given anew",
        "spec.watches",
        "if allowed == (watch in world.watchable):",
        "if not allowed and watch not in world.watchable:",
    ),
    ("leave is a change", "spec.watches", "(digest(world, watch), ())", '(b"", ())'),
    (
        "watchable writes are as cheap",
        "spec.host",
        "charge(200 + 200 * len(watched[1]))",
        "charge(200 * len(watched[1]))",
    ),
    ("watchers are free", "spec.host", "charge(200 + 200 * len(watched[1]))", "charge(200)"),
    (
        "every write is watchable",
        "spec.host",
        "        if watched is not None:\n            self.meter.charge(200 + 200 * len(watched[1]))",
        "        self.meter.charge(200 + 200 * len(watched[1] if watched else ()))",
    ),
    (
        "deletions are free",
        "spec.host",
        "if watched is not None:\n            self.meter",
        "if watched is not None and value is not None:\n            self.meter",
    ),
    (
        "writes pay for no watchers",
        "spec.host",
        "if watched is not None:\n            self.meter",
        "if watched is not None and value is None:\n            self.meter",
    ),
    ("changes by transactions wait", "spec.block", "        watches.look(world, world.height)\n", ""),
    ("changes after the fires are lost", "spec.block", "    watches.look(world, world.height + 1)\n", ""),
    (
        "due a block later",
        "spec.watches",
        "due = max(height, timer.scheduled_at + 1)",
        "due = max(height + 1, timer.scheduled_at + 1)",
    ),
    ("due in the block of its schedule", "spec.watches", "due = max(height, timer.scheduled_at + 1)", "due = height"),
    ("due after its expiry", "spec.watches", "if due <= timer.expires_at:", "if True:"),
    ("not due in its last block", "spec.watches", "if due <= timer.expires_at:", "if due < timer.expires_at:"),
    ("every check is a change", "spec.watches", " or world.watchable[watch][0] == now:", ":"),
    ("the first value for ever", "spec.watches", "(now, ())", "(world.watchable[watch][0], ())"),
    ("a change is forgotten", "spec.watches", "(now, ())", "(now, watchers)"),
    ("only the first watcher", "spec.watches", "for timer_id in watchers:", "for timer_id in watchers[:1]:"),
    (
        "expiry of a watch at once",
        "spec.timers",
        "earliest = world.height + 1 if",
        "earliest = world.height if",
    ),
    (
        "expiry of a watch a block later",
        "spec.timers",
        "earliest = world.height + 1 if",
        "earliest = world.height + 2 if",
    ),
    ("named by its expiry", "spec.timers", "height = expires_at + 1 if", "height = expires_at if"),
    ("an extended watch is due", "spec.timers", "if timer.is_watching:", "if False:"),
    (
        "an extension undoes a change",
        "spec.timers",
        "    if timer.is_watching:\n",
        "    if timer.watch is not None:\n"
        "        world.waiting = [each for each in world.waiting if each != timer.timer_id]\n",
    ),
    ("ended timers watch on", "spec.watches", "tuple(each for each in watchers if each != timer_id)", "watchers"),
    ("watches are placed by height", "spec.leaves", " or timer.is_watching:", ":"),
    # messages
    ("message limits", "spec.host", "if not (2_000 <= cycles", "if not (0 <= cycles"),
    ("mailbox endless", "spec.messages", 'waiting > world.parameters["MAILBOX_BYTES"])', "False)"),
    ("mailbox exact", "spec.messages", '> world.parameters["MAILBOX_BYTES"]', '>= world.parameters["MAILBOX_BYTES"]'),
    ("sent to nobody", "spec.messages", "message.to not in world.actors", "False"),
    ("deferred lane endless", "spec.block", "if block.deferred_cycles + cycles > limit:", "if False:"),
    ("deferred by reservation", "spec.block", "ended.cycles - run.reserved", "run.meter.cycle_limit"),
    ("onward reservations count", "spec.block", "ended.cycles - run.reserved", "ended.cycles"),
    ("reverted reservations count off", "spec.runs", "run.reserved, error, effects = 0", "_, error, effects = 0"),
    (
        "new messages run too",
        "spec.block",
        '("first message", 0)) < end:',
        '("first message", 0)) < world.counters.get("next message", 0):',
    ),
]


AFRESH = ("spec", "cluster.audit.specified", "kits.conform.t8n_by_spec", "tests.conformance.compare")
"""What is imported anew for a mutant: the specification, and what answers by it."""


class _Mutated(MetaPathFinder, Loader):
    """Finder and loader of one module with another text."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(self, name: str, *_others: Any) -> Any:
        return spec_from_loader(name, self) if name == self._name else None

    def create_module(self, _found: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"{self._name} mutated", "exec"), module.__dict__)


@contextmanager
def mutated(module: str, old: str, new: str) -> Iterator[Callable[..., Any]]:
    """What answers by the specification with one text replaced, which must stand in the module exactly once."""
    source = Path(ROOT, *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{source.count(old)} times in {module}: {old!r}"
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(AFRESH)}
    finder = _Mutated(module, source.replace(old, new))
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("tests.conformance.compare").specs_answer
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(AFRESH)]:
            del sys.modules[name]
        sys.modules.update(kept)
