"""Small falsifications of the specification, one rule each: `(name, text in the module, what is there in its place)`.

A rule that can be broken without any default case noticing is a rule that the comparison does not check. The generator
is good enough when every one of these changes the answer to some default case. Rules that are broken in the validator
by `tests/kits/conform/planted.py` are not among them: families of cases find these.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cluster.misbehaviour.planted import Planted
from tests.kits.conform.text_patch import TextPatch

_RULES: dict[str, list[tuple[str, str, str]]] = {
    "spec.block": [
        ("nonce not raised", "world.put(world.nonce, sender, transaction.nonce + 1)", "pass"),
        ("user lane endless", "used + transaction.gas_limit > limit", "False"),
        (
            "limits counted as used",
            "    used = block.system_cycles if is_system else block.user_cycles\n",
            '    limits = vars(block).setdefault("limits", ({}, {}))[is_system]\n'
            "    limits[transaction.hash] = transaction.gas_limit\n"
            "    used = sum(limits.get(each.transaction_hash, 0) for each in block.transactions)\n",
        ),
        ("value not in funds", "transaction.value + upfront", "upfront"),
        ("all fees burned", "block.burned += burned", "block.burned += burned + tips"),
        ("deployed actor is the system's", "action.code, sender)", "action.code, world.genesis.system_deployers[0])"),
        (
            "deployed actor is none",
            "deploy(world, target, action.code, sender)",
            "deploy(world, target, action.code, sender)\n            world.drop(world.actors, target)",
        ),
        (
            "new parameters for the new basefee",
            '    counters["basefee of the lane"] = world.policy',
            "    world.parameters = governance.parameters_in_force(world)\n"
            '    counters["basefee of the lane"] = world.policy',
        ),
        ("median not wired", "world.policy.next_p50(world, fires)", "0"),
        ("activation a block early", "is_active = world.height > world", "is_active = world.height >= world"),
        ("changes by transactions wait", "        watches.look(world, world.height)\n", ""),
        ("changes after the fires are lost", "    watches.look(world, world.height + 1)\n", ""),
        ("deferred lane endless", "if block.deferred_cycles + cycles > limit:", "if False:"),
        ("deferred by reservation", "ended.cycles - run.reserved", "run.meter.cycle_limit"),
        ("onward reservations count", "ended.cycles - run.reserved", "ended.cycles"),
        (
            "new messages run too",
            '("first message", 0)) < end:',
            '("first message", 0)) < world.counters.get("next message", 0):',
        ),
    ],
    "spec.runs": [
        ("failed handler keeps effects", "        world.back(mark)\n", "        pass\n"),
        (
            "cells charged when out",
            '            raise self.world.failure("A-13", ',
            '            self.cells += cells\n            raise self.world.failure("A-13", ',
        ),
        ("reverted reservations count off", "run.reserved, error, effects = 0", "_, error, effects = 0"),
    ],
    "spec.host": [
        ("emit counts characters", "self.change(50, len(data.encode()),", "self.change(50, len(data),"),
        ("rejected call free", "            self.pay(0, len(payload))\n", ""),
        ("reservation free", "self.pay(cycles, len(payload) + cells)", "self.pay(0, len(payload))"),
        ("cancelled bid kept", "own_timer(self, timer_id))", "own_timer(self, timer_id)._replace(bid=0))"),
        ("allowing costs nothing", "self.change(200, len(key.encode()))", "pass"),
        ("allowing without cells", "self.change(200, len(key.encode()))", "self.change(200)"),
        ("watchable writes are as cheap", "charge(200 + 200 * len(watched[1]))", "charge(200 * len(watched[1]))"),
        ("watchers are free", "charge(200 + 200 * len(watched[1]))", "charge(200)"),
        (
            "every write is watchable",
            "        if watched is not None:\n            self.meter.charge(200 + 200 * len(watched[1]))",
            "        self.meter.charge(200 + 200 * len(watched[1] if watched else ()))",
        ),
        (
            "deletions are free",
            "if watched is not None:\n            self.meter",
            "if watched is not None and value is not None:\n            self.meter",
        ),
        (
            "writes pay for no watchers",
            "if watched is not None:\n            self.meter",
            "if watched is not None and value is None:\n            self.meter",
        ),
        ("message limits", "if not (2_000 <= cycles", "if not (0 <= cycles"),
    ],
    "spec.scripts": [
        (
            "save_as free",
            "run.kv_set(save_as, timer_id.hex().encode())",
            "run.world.put(run.world.storage, (run.actor, save_as), timer_id.hex().encode())",
        ),
        ("try catches all", "except Refusal as refusal", "except Failure as refusal"),
        ("duplicate keys pass", "_need(len(found) == len(pairs))", "pass"),
        (
            "surrogates pass",
            "            json.dumps(value, ensure_ascii=False).encode()\n",
            '            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))\n',
        ),
        ("depth 65", "MAX_NESTING = 64", "MAX_NESTING = 65"),
        ("depth 63", "MAX_NESTING = 64", "MAX_NESTING = 63"),
        ("minus zero passes", 'text != "-0" and ', ""),
        ("floats pass", "parse_float=bad_script, ", ""),
        ("null is given", "items() if value is not None}", "items()}"),
        ("json as given", 'json.dumps(value, separators=(",", ":"))', "json.dumps(value)"),
        (
            "json not ascii",
            'json.dumps(value, separators=(",", ":"))',
            'json.dumps(value, separators=(",", ":"), ensure_ascii=False)',
        ),
        (
            "json sorted",
            'json.dumps(value, separators=(",", ":"))',
            'json.dumps(value, separators=(",", ":"), sort_keys=True)',
        ),
        ("envelope ignored", "return named, base64.b64decode(packed)", "return handler, payload"),
        (
            "envelope with more keys",
            "dict(json.loads(text, object_pairs_hook=list)) if _TWO_TEXTS.fullmatch(text) else {}",
            'dict(pair for pair in json.loads(text or "{}", object_pairs_hook=list)[:2] if type(pair[1]) is str)',
        ),
    ],
    "spec.timers": [
        ("bid accepted", 'request.bid is not None and policy.bids == "refused"', "False"),
        ("bid refused in fifo", 'and policy.bids == "refused"', 'and policy.bids != "locked"'),
        ("fee range", "not 0 <= figure < PRICE_LIMIT", "not 0 <= figure"),
        ("negative cap", "request.payer_cap, bid)", "bid)"),
        ("tier of a zero median", "world.p50 * world", "0 * world"),
        ("far height", "request.height >= HEIGHT_LIMIT", "False"),
        ("handler length in characters", "not is_name(request.handler)", "not 1 <= len(request.handler) <= 256"),
        ("default cap none", "cap = run.allowance if request", "cap = 1 if request"),
        ("gas too high", "request.gas_limit > policy.fire_cap(world)", "False"),
        ("expiry not clamped", "min(request.expires_at, latest)", "request.expires_at"),
        (
            "expiry before height",
            "world.height + 1 if request.height is None else request.height",
            "world.height + 1 if request.height is None else 0",
        ),
        ("no schedule nonce", "world.put(world.schedule_nonce, actor, nonce + 1)", "pass"),
        ("extend the expired", "is_too_late = world.height > timer.expires_at", "is_too_late = False"),
        (
            "extend not clamped",
            '    latest = world.height + world.parameters["MAX_TTL"]\n',
            "    latest = expires_at\n",
        ),
        ("bid not locked", "    world.debit(payer, bid)\n", ""),
        ("bid beyond the cap", "cap is not None and bid > cap", "False"),
        (
            "bid beyond the balance",
            'world.refuse("X-03", "InsufficientBalance", world.balance.get(payer, 0) < bid)',
            "bid = min(bid, world.balance.get(payer, 0))",
        ),
        ("priority is no bid", "(priority or 0) * gas_limit if", "0 if"),
        ("expiry of a watch at once", "earliest = world.height + 1 if", "earliest = world.height if"),
        ("expiry of a watch a block later", "earliest = world.height + 1 if", "earliest = world.height + 2 if"),
        ("named by its expiry", "height = expires_at + 1 if", "height = expires_at if"),
        ("an extended watch is due", "if timer.is_watching:", "if False:"),
        (
            "an extension undoes a change",
            "    if timer.is_watching:\n",
            "    if timer.watch is not None:\n"
            "        world.waiting = [each for each in world.waiting if each != timer.timer_id]\n",
        ),
    ],
    "spec.policies.cip1": [
        ("below basefee accepted", 'raise world.refusal("T-18", "TimerRejectedBelowBasefee")', "pass"),
        ("no clamp", "if priority is None or priority <= max_fee - world.fee_floor:", "if True:"),
        ("no fee gate", "if max_fee < world.fee_floor and world.height <= timer.expires_at:", "if False:"),
        (
            "cap before fee",
            "and world.height <= timer.expires_at:",
            "and world.height <= timer.expires_at and not self.is_over_cap(world, timer):",
        ),
        ("tip not capped by max fee", "(min(priority, max_fee - world.fee_floor), timer)", "(priority, timer)"),
        ("slope fixed", 'p["LANE_BASEFEE_SLOPE"])', "8)"),
        ("lane target whole", 'p["LANE_TIMER_CYCLES"] // 2', 'p["LANE_TIMER_CYCLES"]'),
        ("upper median", "counts[(len(counts) - 1) // 2] + counts[len(counts) // 2]", "2 * counts[len(counts) // 2]"),
        ("mean", "counts[(len(counts) - 1) // 2] + counts[len(counts) // 2]", "2 * sum(counts) // len(counts)"),
        ("weight of one", "2 * divisor - min(2 * fires, divisor)", "1"),
        ("weight unclamped", "2 * divisor - min(2 * fires, divisor)", "2 * divisor - 2 * fires"),
        (
            "window a block longer",
            "(height := next(iter(world.fires))) < first",
            "(height := next(iter(world.fires))) < first - 1",
        ),
        (
            "window a block shorter",
            "(height := next(iter(world.fires))) < first",
            "(height := next(iter(world.fires))) <= first",
        ),
        ("floor ignored", "(tip + floor) * weight", "tip * weight"),
        ("lowest first", "(tip + floor) * weight", "-(tip + floor) * weight"),
        (
            "reverted fires do not count",
            "timer.actor) for timer in phase.fired)",
            "fire.actor) for fire in phase.fires if fire.ok)",
        ),
        ("payer counts", "timer.actor) for timer in phase.fired)", "timer.fee_payer) for timer in phase.fired)"),
        ("fires count for the actor", 'if world.parameters["WEIGHT_PARTY"] == "actor":', "if True:"),
        ("fires count for the deployer", 'if world.parameters["WEIGHT_PARTY"] == "actor":', "if False:"),
        (
            "deployers are followed",
            "        return world.actors[actor].deployer",
            "        actor = world.actors[actor].deployer\n"
            "        return world.actors[actor].deployer if actor in world.actors else actor",
        ),
        (
            "rounded weights by actor",
            "world.recent.get(self.counts_for(world, timer.actor), 0)",
            'world.recent.get(timer.actor if weight.__name__ == "rounded" else self.counts_for(world, timer.actor), 0)',
        ),
        ("median not smoothed", 'before = world.median.get("", newest)', "before = newest"),
        ("median begins at zero", 'world.median.get("", newest)', 'world.median.get("", 0)'),
        (
            "shares of the medians swapped",
            "share * newest + (1_000 - share) * before",
            "(1_000 - share) * newest + share * before",
        ),
        (
            "empty window is a median of zero",
            ' and world.recent:\n            world.reached("K-02")\n            newest = ONE * _divisor(world) // 2\n',
            ":\n            newest = ONE * _divisor(world) // 2 if world.recent else 0\n",
        ),
        ("smoothing alone is off", 'ROUNDING = ("MEDIAN_SMOOTHING_MILLI", ', "ROUNDING = ("),
        ("least weight ignored", "max(least, weight)", "max(0, weight)"),
        ("most weight ignored", "min(most, max(least, weight))", "max(least, weight)"),
        ("ratio ends at one", "max(0, 2 * ONE +", "max(ONE, 2 * ONE +"),
    ],
    "spec.leaves": [
        ("tiers by distance", "timer.trigger_height < timer.scheduled_at + p", "timer.trigger_height < height + p"),
        ("carried not ring", "timer.trigger_height <= height + 1 or ", ""),
        ("horizon", 'epochs_away <= p["EPOCH_HORIZON"]', 'epochs_away < p["EPOCH_HORIZON"]'),
        ("watches are placed by height", " or timer.is_watching:", ":"),
    ],
    "spec.world": [
        (
            "carry lost",
            "[timers[timer_id] for timer_id in self.waiting]",
            "[timers[timer_id] for timer_id in self.waiting if timers[timer_id].trigger_height == self.height]",
        ),
    ],
    "spec.phase": [
        ("expiry a block early", "if world.height <= timer.expires_at:", "if world.height < timer.expires_at:"),
        ("whole gc budget", '- p["SCAN_LIMIT"] * p["GC_CYCLES_PER_REMOVAL"], []', ", []"),
        ("gc budget endless", 'self.gc_cycles + p["GC_CYCLES_PER_REMOVAL"] > p["TIMER_GC_CYCLES"]', "False"),
        ("lane cells ignored", 'self.cells >= p["LANE_TIMER_CELLS"]', "False"),
        ("lane cells exact", 'self.cells >= p["LANE_TIMER_CELLS"]', 'self.cells > p["LANE_TIMER_CELLS"]'),
        ("destroyed counts as looked at", "turn.tip, gas_limit):", "turn.tip, gas_limit) or True:"),
        (
            "carried for gc does not count",
            '"gc_budget"\n            return True',
            '"gc_budget"\n            return False',
        ),
        ("misfit does not count", "NO_ROOM\n                looked_at += 1", "NO_ROOM"),
        ("misfit ends the scan", "if is_over or not policy.passes_over:", "if True:"),
        ("fifo goes on", "if is_over or not policy.passes_over:", "if is_over:"),
        ("lane by limit", "self.cycles += meter.cycles", "self.cycles += meter.cycle_limit"),
        ("cancelled are reported", "self.waits.items() if timer_id in world.timers}", "self.waits.items()}"),
        (
            "cancelled count as looked at",
            "                continue  # a fire has cancelled it\n",
            "                looked_at += 1\n                continue\n",
        ),
        ("refund to the actor", "credit(timer.fee_payer, needed", "credit(timer.actor, needed"),
        ("no refund after a revert", "credit(timer.fee_payer, needed", "credit(timer.fee_payer, ended.ok and needed"),
        ("destroyed bid kept", "end_unfired(self.world, timer)", "end_unfired(self.world, timer._replace(bid=0))"),
        (
            "bid in the cap twice",
            "timer.payer_cap - (timer.bid or 0) < balance:\n"
            '            world.reached("L-22")\n'
            "            balance = timer.payer_cap - (timer.bid or 0)\n",
            "timer.payer_cap < balance:\n            balance = timer.payer_cap\n",
        ),
    ],
    "spec.policies.fifo": [
        ("no cap gate", "if self.is_over_cap(world, timer):", "if False:"),
        ("wrong tie-break", "age if is_aged", "age if not is_aged"),
        ("lane basefee starts anew", "return next_basefee_cycle", "return world.basefee_lane"),
        ("fifo cap", '"MAX_CYCLES_PER_FIRE"', '"MAX_CYCLES_PER_FIRE_AUCTION_PHASE"'),
        (
            "fifo pays the lane",
            'on top of the cycle\'s basefee."""\n        return 0',
            'on top of the cycle\'s basefee."""\n'
            '        return world.basefee_lane * world.parameters["LANE_FEE_MULTIPLIER_MILLI"] // 1_000',
        ),
        (
            "fifo fires count",
            '        """Record what later blocks have to know of this block\'s fires."""\n',
            "        world = phase.world\n        for timer in phase.fired:\n"
            "            world.recent[timer.actor] = world.recent.get(timer.actor, 0) + 1\n"
            "            world.fires.setdefault(world.height, []).append((timer.actor, 1))\n",
        ),
        ("watches under every policy", "has_watches = False", "has_watches = True"),
    ],
    "spec.fees": [
        ("no highest basefee", 'min(p["MAX_BASEFEE"], basefee + max(1, step))', "basefee + max(1, step)"),
        ("upper median tip", "ascending[(len(ascending) - 1) // 2]", "ascending[len(ascending) // 2]"),
        ("median always by fires", 'if world.parameters["P50_WEIGHT"] == "fires":', "if True:"),
        ("median always by cycles", 'if world.parameters["P50_WEIGHT"] == "fires":', "if False:"),
        ("more than half", "2 * passed >= total", "2 * passed > total"),
        ("no tip cap", "if cap and priority > price // cap:", "if False:"),
        ("headroom of one", "min(2 * price, PRICE_LIMIT - 1)", "min(price, PRICE_LIMIT - 1)"),
    ],
    "spec.agents": [
        ("headroom not kept", "world.put(world.timers, timer.timer_id, timer)", "pass"),
        ("gba beats explicit", "bid[0] if max_fee is None else max_fee", "max_fee if bid[0] is None else bid[0]"),
        (
            "gba ignored",
            "self._results.get(timer.timer_id, (kept.max_fee, kept.priority)) or (None, None)",
            "(None, None)",
        ),
        ("last answer ignored", "(kept.max_fee, kept.priority)) or (None, None)", "None) or (None, None)"),
        (
            "unpaid takes the last answer",
            "(kept.max_fee, kept.priority)) or (None, None)",
            "None) or (kept.max_fee, kept.priority)",
        ),
        ("hopeless asked", "not is_hopeless and ", ""),
        ("over cap asked", " or world.policy.is_over_cap(world, timer)", ""),
        ("all explicit asked", "return is_open and", "return"),
        (
            "pause a block shorter",
            'unpaid_at <= world.parameters["GBA_UNPAID_PAUSE"]',
            'unpaid_at < world.parameters["GBA_UNPAID_PAUSE"]',
        ),
        ("no pause", 'world.height - unpaid_at <= world.parameters["GBA_UNPAID_PAUSE"]', "False"),
        ("queries per actor", 'if rank < world.parameters["GBA_QUERIES_PER_ACTOR"]:', "if True:"),
        ("rank ignored", "found.append((rank,", "found.append((0,"),
        ("rotation ignored", "world.asked.get(timer.actor, Asked()).at, timer.timer_id", "0, timer.timer_id"),
        ("budget endless", 'self.spent + p["GBA_MAX_CYCLES"] > p["GBA_BUDGET_CYCLES"] or', ""),
        ("others of the unpaid", " or timer.actor in unpaid:", ":"),
        ("unpaid is charged", '"unpaid", 0, None', '"unpaid", LEAST_CYCLES, None'),
        ("query free", "world.debit(actor, used * world.basefee_cycle)", "pass"),
        (
            "unpaid below its price",
            'world.parameters["GBA_MAX_CYCLES"] * world.basefee_cycle',
            "LEAST_CYCLES * world.basefee_cycle",
        ),
    ],
    "spec.governance": [
        (
            "in force at once",
            "stored_text(value).encode())",
            "stored_text(value).encode())\n    world.parameters = parameters_in_force(world)",
        ),
        (
            "last one wins",
            "check_together(parameters_in_force(world) | values)",
            "check_together(world.parameters | values)",
        ),
        (
            "caps above the lane",
            "check_together(parameters_in_force(world) | values)",
            'check_together(parameters_in_force(world) | values | {"LANE_TIMER_CYCLES": 10**9})',
        ),
        ("unknown names", "not set(given) <= set(GOVERNED)", "False"),
        ("not written", "for name, value in values.items():", "for name, value in ():"),
        ("cancel is refused", "        timers.end_unfired(world, timer)\n", ""),
    ],
    "spec.parameters": [
        ("ranges ignored", "if type(value) is not int or not low <= value <= high:", "if type(value) is not int:"),
        ("gc floor", '(2 * p["SCAN_LIMIT"] * p', '(p["SCAN_LIMIT"] * p'),
    ],
    "spec.policies.gba_auction": [
        ("timers last", "timers_first = True", "timers_first = False"),
        (
            "insolvent timers destroyed",
            '        phase.world.reached("W-04")\n',
            "        return super().turn_away(phase, timer, needed, balance)\n",
        ),
        ("weight ignored", " | self.weight_of(world, timer)", ""),
        (
            "weight before tip",
            "tip << WEIGHT_BITS | self.weight_of(world, timer)",
            "self.weight_of(world, timer) << 96 | tip",
        ),
        ("one pass", "phase.scan(closed)", "pass"),
        (
            "no slices",
            "        self.first_pass = True\n        phase.scan(turns)\n",
            "        self.first_pass = False\n        phase.scan(turns)\n",
        ),
        (
            "slices by reservation",
            "sum(fire.cycles for fire in phase.fires if fire.actor == timer.actor)",
            "sum(self.gas_limit(world, fired) for fired in phase.fired if fired.actor == timer.actor)",
        ),
        ("equal slices", "* self.earned(world, timer.actor) //", "* 2**15 //"),
        ("no starvation floor", 'max(weight, fixed_point(p["STARVATION_FLOOR_MILLI"]))', "weight"),
        ("starving a block later", "timer.trigger_height < p[", "timer.trigger_height <= p["),
        ("idle actors keep their weight", "// 1_000)), 0\n", "// 1_000)), 2**15\n"),
        ("weights unbounded above", "min(most, max(least,", "min(2**40, max(least,"),
        ("weights unbounded below", "min(most, max(least,", "min(most, max(0,"),
        (
            "newcomers start high",
            "(epoch, self.earned(world, actor), 0, 0)",
            "(epoch, self.earned(world, actor) if record else ONE, 0, 0)",
        ),
        ("outcome ignored", "of_tip + ONE * fire.ok", "of_tip + ONE"),
        ("use ignored", "of_lateness + ONE - ONE * fire.cycles // lane", "of_lateness"),
        ("tip ignored", "ONE * tip // (tip + world.p50) if tip + world.p50 else ONE // 2", "0"),
        ("weights move in each block", 'world.height // world.parameters["EPOCH_LENGTH"]', "world.height"),
        (
            "the lane is paid twice",
            "    timers_first = True\n",
            "    timers_first = True\n\n"
            "    def lane_price(self, world: World) -> int:\n        return world.basefee_lane\n",
        ),
    ],
    "spec.policies.bias_auction": [
        ("no bias", "bias(world.height - timer.trigger_height,", "bias(0,"),
        ("bias before the bid", "((timer.bid or 0) << FRACTION_BITS) +", "(timer.bid or 0) +"),
        (
            "bids not by the cycle",
            "self.strength(world, timer)) // self.gas_limit(world, timer)",
            "self.strength(world, timer))",
        ),
        (
            "no limit of an actor",
            'bool(phase.fires_of(timer.actor) < phase.world.parameters["MAX_FIRES_PER_ACTOR"])',
            "True",
        ),
        ("reserve ignored", 'max(int(world.parameters["RESERVE_PRICE"]), self.due', "max(0, self.due"),
        ("more than the bid", "return min(timer.bid or 0, max(", "return (max("),
        ("always first price", 'if rule == "first_price":', "if True:"),
        ("never first price", 'if rule == "first_price":', "if False:"),
        ("critical as vcg", 'if rule == "vcg":', "if True:"),
        ("vcg as critical", 'if rule == "vcg":', "if False:"),
        (
            "bias not paid back",
            "(left_out.bid or 0) - (self.bias_of(world, timer) >> FRACTION_BITS)",
            "left_out.bid or 0",
        ),
        ("rate stands still", "after = BiasRate(self.moved(world, after))", "pass"),
        (
            "rate goes the other way",
            "rate.micro - step if growth > decay else rate.micro + step",
            "rate.micro + step if growth > decay else rate.micro - step",
        ),
        ("sums are kept", "BiasRate(self.moved(world, after))", "after._replace(micro=self.moved(world, after))"),
        (
            "rate without bounds",
            'int(min(p["BIAS_LAMBDA_MAX_MICRO"], max(p["BIAS_LAMBDA_MIN_MICRO"], moved)))',
            "moved",
        ),
    ],
    "spec.watches": [
        (
            "anyone is watched",
            'raise world.refusal("Y-05", "WatchNotAllowed")',
            "world.put(world.watchable, watch, (digest(world, watch), ()))",
        ),
        ("another actor's leave", "if watch not in world.watchable:", "if not world.watchable:"),
        ("long keys are watched", "len(key.encode()) > MAX_KEY_BYTES)", "False)"),
        ("keys of 256 bytes are not watched", "> MAX_KEY_BYTES", ">= MAX_KEY_BYTES"),
        ("keys by characters", "len(key.encode()) > MAX_KEY_BYTES", "len(key) > MAX_KEY_BYTES"),
        (
            "one watcher more",
            '>= world.parameters["MAX_WATCHERS_PER_KEY"]',
            '> world.parameters["MAX_WATCHERS_PER_KEY"]',
        ),
        ("leave for ever", "world.drop(world.watchable, watch)", "pass"),
        (
            "leave given anew",
            "if allowed == (watch in world.watchable):",
            "if not allowed and watch not in world.watchable:",
        ),
        ("leave is a change", "(digest(world, watch), ())", '(b"", ())'),
        (
            "due a block later",
            "due = max(height, timer.scheduled_at + 1)",
            "due = max(height + 1, timer.scheduled_at + 1)",
        ),
        ("due in the block of its schedule", "due = max(height, timer.scheduled_at + 1)", "due = height"),
        ("due after its expiry", "if due <= timer.expires_at:", "if True:"),
        ("not due in its last block", "if due <= timer.expires_at:", "if due < timer.expires_at:"),
        ("every check is a change", " or world.watchable[watch][0] == now:", ":"),
        ("the first value for ever", "(now, ())", "(world.watchable[watch][0], ())"),
        ("a change is forgotten", "(now, ())", "(now, watchers)"),
        ("only the first watcher", "for timer_id in watchers:", "for timer_id in watchers[:1]:"),
        ("ended timers watch on", "tuple(each for each in watchers if each != timer_id)", "watchers"),
    ],
    "spec.messages": [
        ("mailbox endless", 'waiting > world.parameters["MAILBOX_BYTES"])', "False)"),
        ("mailbox exact", '> world.parameters["MAILBOX_BYTES"]', '>= world.parameters["MAILBOX_BYTES"]'),
        ("sent to nobody", "message.to not in world.actors", "False"),
    ],
}


AFRESH = ("spec", "cluster.audit.specified", "kits.conform.t8n_by_spec", "tests.kits.conform.specification.compare")
"""What is imported anew for a mutant: the specification, and what answers by it."""


BROKEN = [
    Planted(name, TextPatch(module, old, new), "a default case")
    for module, rules in _RULES.items()
    for name, old, new in rules
]


@contextmanager
def mutated(bug: Planted) -> Iterator[Callable[..., Any]]:
    """What answers by the specification with the bug."""
    with bug.patch.in_module(AFRESH):
        yield importlib.import_module("tests.kits.conform.specification.compare").specs_answer
