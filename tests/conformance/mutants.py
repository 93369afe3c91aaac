"""Small falsifications of the reference, one rule each: `(name, text in reference.py, what stands there instead)`.

A rule that can be broken without any default case noticing is a rule that the comparison does not check. The generator
is good enough when every one of these changes the outcome of some default case.
"""

from pathlib import Path
from types import ModuleType

from tests.conformance import reference

MUTANTS: list[tuple[str, str, str]] = [
    # §2 transactions, costs, scripts
    ("nonce not raised", "self.state.nonce[sender] = self.state.nonce.get(sender, 0) + 1", "pass"),
    ("nonce not checked", 'if number(tx["nonce"]) != self.state.nonce.get(sender, 0):', "if False:"),
    ("cell fee not checked", 'or number(tx["max_fee_per_cell"]) < self.basefee_cell', ""),
    ("cycle fee not checked", "if max_fee < self.basefee_cycle or", "if"),
    ("gas not checked", 'if gas < self.params["TX_BASE_CYCLES"]:', "if False:"),
    ("user lane endless", "if self.used[lane] + gas > lane_limit or", "if"),
    ("cell lane endless", ' or self.used["cells"] + cells > self.params["LANE_USER_CELLS"]', ""),
    ("limits counted as used", "self.used[lane] += meter.cycles\n", "self.used[lane] += meter.cycle_limit\n"),
    (
        "one lane for all",
        'lane = "system" if tx["kind"] == "system" else "user"\n        lane_limit',
        'lane = "user"\n        lane_limit',
    ),
    ("value not in funds", 'number(tx.get("value") or 0) + upfront', "upfront"),
    (
        "refund without tip",
        "price + meter.cell_limit * self.basefee_cell - fee)",
        "self.basefee_cycle + meter.cell_limit * self.basefee_cell - fee)",
    ),
    (
        "all fees burned",
        "self.burn(meter.cycles * self.basefee_cycle + meter.cells * self.basefee_cell)\n        self.used",
        "self.burn(fee)\n        self.used",
    ),
    (
        "tips of transactions after timers",
        "            self.pay_proposer(proposer, tips)\n            self.check_watched_keys(self.height)\n"
        "            self.timer_phase(proposer)\n",
        "            self.check_watched_keys(self.height)\n            self.timer_phase(proposer)\n"
        "            self.pay_proposer(proposer, tips)\n",
    ),
    ("failed handler keeps effects", "            self.state = before\n", "            pass\n"),
    ("cells out of cycles", "            self.cycles = self.cycle_limit\n", ""),
    ("cells charged when out", "        self.cells += cells\n\n\n@dataclass", "\n\n@dataclass"),
    (
        "payload free",
        'meter.charge(self.params["TX_BASE_CYCLES"], len(payload))',
        'meter.charge(self.params["TX_BASE_CYCLES"])',
    ),
    ("deployment free of cells", 'payload = tx["code"].encode()', "pass"),
    ("address of the next nonce", 'number(tx["nonce"]).to_bytes', '(1 + number(tx["nonce"])).to_bytes'),
    ("deployed actor has no deployer", "self.deployer[to] = sender", "pass"),
    ("deployed actor is none", "            self.actors.add(to)\n", ""),
    ("get free", "run.meter.charge(10)", "pass"),
    ("emit counts characters", "run.meter.charge(50, len(data.encode()))", "run.meter.charge(50, len(data))"),
    ("set counts characters", "len(key.encode()) + len(value.encode())", "len(key) + len(value)"),
    ("rejected call free", "            run.meter.charge(80, len(payload))\n", ""),
    ("reservation free", "run.meter.charge(80 + cycles, len(payload) + cells)", "run.meter.charge(80, len(payload))"),
    ("messages unlimited", 'raise Rejection("TooManyMessages")', "pass"),
    (
        "save_as free",
        'self.do_set(run, options["save_as"], timer_id)',
        'self.state.storage.setdefault(run.actor, {})[options["save_as"]] = timer_id',
    ),
    ("try catches all", "except Rejection as rejection", "except Failure as rejection"),
    ("duplicate keys pass", "if len({key for key, _ in pairs}) != len(pairs):", "if False:"),
    ("surrogates pass", "        value.encode()\n    elif", "        pass\n    elif"),
    ("depth 65", "if level > 64:", "if level > 65:"),
    ("depth 63", "if level > 64:", "if level > 63:"),
    ("minus zero passes", 'if text == "-0" or', "if"),
    ("floats pass", "parse_float=_refuse, ", ""),
    (
        "null is given",
        "{key: value for key, value in arguments[0].items() if value is not None}\n        for",
        "dict(arguments[0])\n        for",
    ),
    ("json as given", 'json.dumps(value, separators=(",", ":")).encode()', "json.dumps(value).encode()"),
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
    # §4 timers
    ("bid accepted", 'raise Rejection("TimerArgDeprecated")', "pass"),
    (
        "bid refused in fifo",
        "if bid is not None and self.auction:",
        "if bid is not None:",
    ),
    ("fee range", "not 0 <= value < FEE_LIMIT", "not 0 <= value"),
    ("negative cap", "(max_fee, priority, cap, stated_bid)):", "(max_fee, priority, stated_bid)):"),
    (
        "tier and priority",
        "if stated is not None or filled >= FEE_LIMIT:",
        "if filled >= FEE_LIMIT:",
    ),
    ("tier of a zero median", "filled = self.p50 * self.params", "filled = 0 * self.params"),
    ("same block", "and height <= self.height:", "and height < self.height:"),
    ("far height", "and height >= 2**63:", "and False:"),
    ("payload size", 'if len(payload) > self.params["MAX_TIMER_PAYLOAD"]:', "if False:"),
    (
        "handler length in characters",
        "1 <= len(handler.encode()) <= 256:\n            raise",
        "1 <= len(handler) <= 256:\n            raise",
    ),
    ("timer limit", '>= self.params["MAX_TIMERS_PER_ACTOR"]', '> self.params["MAX_TIMERS_PER_ACTOR"]'),
    ("allowance endless", "run.allowance -= cap or 0", "pass"),
    ("default cap none", "cap = run.allowance if cap is None else cap\n", "cap = 1 if cap is None else cap\n"),
    ("gas too low", 'raise Rejection("TimerGasLimitTooLow")', "pass"),
    ("gas too high", 'raise Rejection("TimerGasLimitTooHigh")', "pass"),
    (
        "expiry not clamped",
        'expires_at = min(options.get("expires_at", latest), latest)',
        'expires_at = options.get("expires_at", latest)',
    ),
    (
        "expiry before height",
        "self.height + 1 if height is None else height):",
        "self.height + 1 if height is None else 0):",
    ),
    ("below basefee accepted", 'raise Rejection("TimerRejectedBelowBasefee")', "pass"),
    ("no clamp", "and priority > max_fee - self.floor:", "and False:"),
    ("no schedule nonce", "state.schedule_nonce[actor] = nonce + 1", "pass"),
    ("cancel anyone's", "if timer.actor != run.actor:", "if False:"),
    ("extend shortens", "if expires_at <= timer.expires_at or", "if"),
    ("extend the expired", " or self.height > timer.expires_at:", ":"),
    ("extend not clamped", 'expires_at = min(expires_at, self.height + self.params["MAX_TTL"])', "pass"),
    ("envelope ignored", "return base64.b64decode(inner, validate=True)", "return payload"),
    ("envelope with more keys", 'set(value) != {"_handler", "_payload"}', '"_payload" not in value'),
    (
        "envelope handler any length",
        "not 1 <= len(handler.encode()) <= 256:\n            return",
        "False:\n            return",
    ),
    # §5 tiers
    (
        "tiers by distance",
        "timer.is_watching or timer.height < timer.scheduled_at",
        "timer.is_watching or timer.height < self.height",
    ),
    ("carried not ring", "or timer.height <= self.height + 1:", "or False:"),
    ("horizon", 'elif epochs_away <= self.params["EPOCH_HORIZON"]', 'elif epochs_away < self.params["EPOCH_HORIZON"]'),
    # §6 timer phase
    ("carry lost", "if t.height <= self.height)", "if t.height == self.height)"),
    (
        "expiry a block early",
        "            if self.height <= timer.expires_at:\n                continue",
        "            if self.height < timer.expires_at:\n                continue",
    ),
    (
        "whole gc budget",
        'self.params["TIMER_GC_CYCLES"] - self.params["SCAN_LIMIT"] * cost',
        'self.params["TIMER_GC_CYCLES"]',
    ),
    ("gc budget endless", 'if self.gc_used + cost > self.params["TIMER_GC_CYCLES"]:', "if False:"),
    ("no fee gate", "if max_fee < self.floor:", "if False:"),
    ("no cap gate", "elif self.over_cap(timer):", "elif False:"),
    (
        "cap before fee",
        "if max_fee < self.floor:",
        "if max_fee < self.lane_price and not self.over_cap(timer):",
    ),
    (
        "tip not capped by max fee",
        "tips[timer.timer_id] = min(priority, max_fee - self.floor)",
        "tips[timer.timer_id] = priority",
    ),
    ("lane cells ignored", 'self.lane_cells >= params["LANE_TIMER_CELLS"]', "False"),
    (
        "lane cells exact",
        'self.lane_cells >= params["LANE_TIMER_CELLS"]',
        'self.lane_cells > params["LANE_TIMER_CELLS"]',
    ),
    ("scan limit ignored", 'looked >= params["SCAN_LIMIT"]', "False"),
    (
        "destroyed counts as looked at",
        "            elif not self.destroy_insolvent(timer, needed, available):\n",
        "            elif self.destroy_insolvent(timer, needed, available) or True:\n",
    ),
    (
        "carried for gc does not count",
        "            elif not self.destroy_insolvent(timer, needed, available):\n                looked += 1",
        "            else:\n                self.destroy_insolvent(timer, needed, available)",
    ),
    (
        "misfit does not count",
        '                self.carried[timer_id] = "lane_full"\n                looked += 1',
        '                self.carried[timer_id] = "lane_full"',
    ),
    (
        "misfit ends the scan",
        "                if not (self.auction or self.by_bias):\n                    self.carried",
        "                if True:\n                    self.carried",
    ),
    (
        "fifo goes on",
        "                if not (self.auction or self.by_bias):\n                    self.carried",
        "                if False:\n                    self.carried",
    ),
    ("payer cap ignored", "if timer.payer_cap is not None:", "if False:"),
    (
        "cells not in max cost",
        'needed = gas_limit * price + params["MAX_CELLS_PER_FIRE"] * self.basefee_cell',
        "needed = gas_limit * price + 10**3 * self.basefee_cell",
    ),
    ("lane by limit", "self.lane_used += meter.cycles", "self.lane_used += meter.cycle_limit"),
    (
        "cancelled are reported",
        "self.deferred = {timer_id: why for timer_id, why in self.carried.items() if timer_id in self.state.timers}",
        "self.deferred = self.carried",
    ),
    (
        "cancelled count as looked at",
        "if timer is None:\n                continue\n            if self.is_aside",
        "if timer is None:\n                looked += 1\n                continue\n            if self.is_aside",
    ),
    # §7 basefees
    ("no least step", "basefee + max(step, 1))", "basefee + step)"),
    ("no highest basefee", 'min(params["MAX_BASEFEE"], basefee + max(step, 1))', "basefee + max(step, 1)"),
    ("no lowest basefee", 'max(params["MIN_BASEFEE"], basefee - step)', "basefee - step"),
    ("slope fixed", 'params["LANE_BASEFEE_SLOPE"], params', "8, params"),
    ("multiplier ignored", '* self.params["LANE_FEE_MULTIPLIER_MILLI"] // 1000 if', "if"),
    ("lane target whole", 'params["LANE_TIMER_CYCLES"] // 2', 'params["LANE_TIMER_CYCLES"]'),
    (
        "new parameters for the new basefee",
        "        params = self.params\n        if self.auction or self.by_bias:\n",
        "        params = self.params | self.state.pending\n        if self.auction or self.by_bias:\n",
    ),
    # §8 fairness
    (
        "upper median",
        "middle = x[(len(x) - 1) // 2] + x[len(x) // 2] if x else 0",
        "middle = 2 * x[len(x) // 2] if x else 0",
    ),
    ("mean", "middle = x[(len(x) - 1) // 2] + x[len(x) // 2] if x else 0", "middle = 2 * sum(x) // len(x) if x else 0"),
    ("weight of one", "2 * divisor - min(2 * recent.get(self.weighed_as(actor), 0), divisor)", "1"),
    (
        "weight unclamped",
        "2 * divisor - min(2 * recent.get(self.weighed_as(actor), 0), divisor)",
        "2 * divisor - 2 * recent.get(self.weighed_as(actor), 0)",
    ),
    ("window a block longer", "if h >= window_start}", "if h >= window_start - 1}"),
    ("window a block shorter", "if h >= window_start}", "if h > window_start}"),
    ("floor ignored", "(tips[t.timer_id] + floor)", "(tips[t.timer_id])"),
    ("wrong tie-break", "t.age if aged else (t.timer_id,)", "(t.timer_id,) if aged else t.age"),
    ("lowest first", "-(tips[t.timer_id] + floor)", "(tips[t.timer_id] + floor)"),
    # §9 gas bidding agents
    ("median not wired", "self.p50 = self.median_tip()\n", "self.p50 = 0\n"),
    ("upper median tip", "return tips[(len(tips) - 1) // 2]", "return tips[len(tips) // 2]"),
    ("median always by fires", 'if self.params["P50_WEIGHT"] == "fires":', "if True:"),
    ("median always by cycles", 'if self.params["P50_WEIGHT"] == "fires":', "if False:"),
    ("more than half", ">= total:", "> total:"),
    ("no tip cap", 'if self.params["DEFAULT_TIP_CAP"] > 0:', "if False:"),
    ("headroom of one", "max_fee = 2 * self.floor\n", "max_fee = self.floor\n"),
    ("headroom not kept", "self.state.timers[timer.timer_id] = replace(timer, default_max_fee=max_fee)", "pass"),
    ("gba beats explicit", "max_fee = answer[0] if max_fee is None else max_fee", "max_fee = answer[0]"),
    (
        "gba ignored",
        "            if answer is not None:\n                max_fee = answer",
        "            if False:\n                max_fee = answer",
    ),
    ("last answer ignored", "answer = self.good_answer.get(timer.actor)", "pass"),
    ("unpaid takes the last answer", "                fallen_back.add(timer_id)\n", ""),
    ("hopeless asked", "hopeless = timer.max_fee is not None and timer.max_fee < self.floor", "hopeless = False"),
    ("over cap asked", "or hopeless or self.over_cap(timer):", "or hopeless:"),
    ("all explicit asked", "not is_open or", ""),
    (
        "pause a block shorter",
        'unpaid_at >= self.height - self.params["GBA_UNPAID_PAUSE"]',
        'unpaid_at > self.height - self.params["GBA_UNPAID_PAUSE"]',
    ),
    ("no pause", 'unpaid_at >= self.height - self.params["GBA_UNPAID_PAUSE"]', "False"),
    ("queries per actor", 'if rank < self.params["GBA_QUERIES_PER_ACTOR"]:', "if True:"),
    ("rank ignored", "found.append((rank,", "found.append((0,"),
    ("rotation ignored", "self.last_queried.get(timer.actor, 0), timer.timer_id", "0, timer.timer_id"),
    ("budget endless", 'admitted = report["spent"] + limit <= self.params["GBA_BUDGET_CYCLES"]', "admitted = True"),
    ("others of the unpaid", " or self.unpaid_at.get(owner) == self.height:", ":"),
    (
        "unpaid is charged",
        "self.unpaid_at[owner] = self.height",
        "self.burn(1); self.unpaid_at[owner] = self.height",
    ),
    ("query free", "self.state.debit(owner, 100 * self.basefee_cycle)", "pass"),
    ("unpaid below its price", "< limit * self.basefee_cycle:", "< 100 * self.basefee_cycle:"),
    # §10 settlement
    (
        "refund at the lane price",
        "self.state.credit(timer.fee_payer, max_cost - fee)",
        "self.state.credit(timer.fee_payer, max_cost - burned)",
    ),
    (
        "refund to the actor",
        "self.state.credit(timer.fee_payer, max_cost - fee)",
        "self.state.credit(timer.actor, max_cost - fee)",
    ),
    (
        "no refund after a revert",
        "        self.state.credit(timer.fee_payer, max_cost - fee)",
        "        self.state.credit(timer.fee_payer, 0 if error else max_cost - fee)",
    ),
    ("base not charged", 'meter.charge(self.params["FIRE_BASE_CYCLES"])', "pass"),
    (
        "reverted fires do not count",
        "        self.fired_actors.append(timer.actor)",
        "        self.fired_actors += [] if error else [timer.actor]",
    ),
    ("payer counts", "self.fired_actors.append(timer.actor)", "self.fired_actors.append(timer.fee_payer)"),
    # §12 system instructions
    ("anyone", 'raise Failure("NotSystemDeployer")', "pass"),
    (
        "in force at once",
        "        self._write_parameters(config)\n",
        "        self._write_parameters(config)\n        self.params = after\n",
    ),
    (
        "last one wins",
        "after = self.params | self.state.pending",
        "after = self.params | {n: self._value(v) for n, v in config.items()}",
    ),
    ("caps above the lane", 'if after["LANE_TIMER_CYCLES"] < max', "if 0 > max"),
    ("ranges ignored", "or not self.in_range(name, value)", ""),
    ("unknown names", "if name not in GOVERNED or", "if name in GOVERNED and"),
    ("gc floor", 'minimum = 2 * self.params["SCAN_LIMIT"]', 'minimum = self.params["SCAN_LIMIT"]'),
    ("not written", "        self._write_parameters(config)\n", ""),
    ("cancel is refused", 'self.state.timers.pop(arguments["timer_id"].lower(), None)', "None"),
    # §13 activation and fifo
    (
        "activation a block early",
        'self.height > self.params["ACTIVATION_HEIGHT"]\n',
        'self.height >= self.params["ACTIVATION_HEIGHT"]\n',
    ),
    ("lane basefee starts anew", "self.basefee_lane = self.basefee_cycle\n", "pass\n"),
    (
        "fifo cap",
        '"MAX_CYCLES_PER_FIRE_AUCTION_PHASE" if self.auction or self.by_bias else "MAX_CYCLES_PER_FIRE"',
        '"MAX_CYCLES_PER_FIRE_AUCTION_PHASE"',
    ),
    ("fifo pays the lane", "// 1000 if self.has_lane_fee else 0", "// 1000"),
    (
        "fifo fires count",
        "        elif self.has_lane_fee:\n            self.fires_by_block[self.height] = self.fired_actors\n",
        "        self.fires_by_block[self.height] = self.fired_actors\n        if self.has_lane_fee:\n",
    ),
    # candidates of cip1
    (
        "fires count for the actor",
        'return self.deployer[actor] if self.params["WEIGHT_PARTY"] == "deployer" else actor',
        "return actor",
    ),
    (
        "fires count for the deployer",
        'return self.deployer[actor] if self.params["WEIGHT_PARTY"] == "deployer" else actor',
        "return self.deployer[actor]",
    ),
    (
        "deployers are followed",
        "return self.deployer[actor] if",
        "return self.deployer.get(self.deployer[actor], self.deployer[actor]) if",
    ),
    (
        "rounded weights by actor",
        "self.clipped(recent.get(self.weighed_as(actor), 0))",
        "self.clipped(recent.get(actor, 0))",
    ),
    ("median not smoothed", "int(newest if self.median is None else share", "int(newest if True else share"),
    (
        "median begins at zero",
        "int(newest if self.median is None else share * newest + (1 - share) * self.median)",
        "int(share * newest + (1 - share) * (self.median or 0))",
    ),
    (
        "shares of the medians swapped",
        "share * newest + (1 - share) * self.median)",
        "(1 - share) * newest + share * self.median)",
    ),
    (
        "empty window is a median of zero",
        "        if x:\n            self.median =",
        "        if True:\n            self.median =",
    ),
    ("smoothing alone is off", 'names = ("MEDIAN_SMOOTHING_MILLI", ', "names = ("),
    ("least weight ignored", "max(least, floor((2 - ratio)", "max(0, floor((2 - ratio)"),
    ("most weight ignored", "return min(most, max(least, floor", "return min(2**17, max(least, floor"),
    ("ratio ends at one", "ratio = min(Fraction(2), Fraction(fires", "ratio = min(Fraction(1), Fraction(fires"),
    # §13 gba_auction
    ("timers last", "        if self.timers_first:\n            self.timer_phase(proposer)\n", "        if False:\n"),
    (
        "insolvent timers destroyed",
        "        if self.timers_first:\n            self.unpaid",
        "        if False:\n            self.unpaid",
    ),
    ("weight ignored", "-self.earned(t), ", ""),
    ("weight before tip", "(-tips[t.timer_id], -self.earned(t), ", "(-self.earned(t), -tips[t.timer_id], "),
    ("one pass", "        self.scan([timer_id for timer_id in ids if timer_id in closed], tips)\n", ""),
    ("no slices", "self.scan(ids, tips, first_pass=True)", "self.scan(ids, tips)"),
    ("slices by reservation", "self.cycles_by.get(timer.actor, 0) + meter.cycles\n", "gas_limit\n"),
    ("equal slices", "* self.weight_of(actor) //", "* 2**15 //"),
    ("no starvation floor", 'return max(weight, self.bound("STARVATION_FLOOR_MILLI"))', "return weight"),
    ("starving a block later", '>= self.params["STARVATION_BLOCKS"]:', '> self.params["STARVATION_BLOCKS"]:'),
    (
        "idle actors keep their weight",
        "mean = sum(scores) // len(scores) if scores else 0",
        "mean = sum(scores) // len(scores) if scores else 2**15",
    ),
    ("weights unbounded above", 'min(self.bound("WEIGHT_MAX_MILLI"), max', "min(2**40, max"),
    ("weights unbounded below", 'max(self.bound("WEIGHT_MIN_MILLI"), after)', "after"),
    (
        "newcomers start high",
        'before = self.params["WEIGHT_LAMBDA_MILLI"], self.weight.get(actor, self.bound("WEIGHT_MIN_MILLI"))',
        'before = self.params["WEIGHT_LAMBDA_MILLI"], self.weight.get(actor, 2**16)',
    ),
    ("outcome ignored", "(0 if error else one)", "one"),
    ("use ignored", "+ by_wait + by_use", "+ by_wait"),
    ("tip ignored", "return (by_tip + (0", "return ((0"),
    (
        "weights move in each block",
        '        if (self.height + 1) // self.params["EPOCH_LENGTH"] == self.epoch:\n            return\n',
        "",
    ),
    (
        "the lane is paid twice",
        "self.floor = self.basefee_cycle if self.timers_first else self.lane_price",
        "self.floor = self.lane_price = self.basefee_cycle if self.timers_first else self.lane_price",
    ),
    # §13 bias_auction
    ("bid not locked", "        self.state.debit(payer, bid)\n        self.state.credit(ESCROW, bid)\n", ""),
    ("bid beyond the cap", "if cap is not None and bid > cap:", "if False:"),
    ("bid beyond the balance", "if self.state.balance.get(payer, 0) < bid:", "if False:"),
    (
        "cancelled bid kept",
        "        del self.state.timers[timer.timer_id]\n        self.end_unfired(timer)\n\n    def do_ext",
        "        del self.state.timers[timer.timer_id]\n\n    def do_ext",
    ),
    (
        "destroyed bid kept",
        "        del self.state.timers[timer.timer_id]\n        self.end_unfired(timer)\n        self.destr",
        "        del self.state.timers[timer.timer_id]\n        self.destr",
    ),
    (
        "priority is no bid",
        "bid = (priority or 0) * gas if stated is None else stated",
        "bid = 0 if stated is None else stated",
    ),
    ("bid in the cap twice", "timer.payer_cap - timer.bid)", "timer.payer_cap)"),
    ("no bias", "return self.bias_after(self.height - timer.height)", "return self.bias_after(0)"),
    ("bias before the bid", "timer.bid * 2**32 + self.bias(timer))", "timer.bid + self.bias(timer))"),
    ("bids not by the cycle", "// self.gas_of(timer)\n\n    def settle", "// 1\n\n    def settle"),
    ("no limit of fires", '            full = full or len(self.fires) >= params["MAX_FIRES_PER_BLOCK"]\n', ""),
    ("no limit of an actor", "return self.by_bias and self.fired_actors", "return False and self.fired_actors"),
    ("reserve ignored", 'max(self.params["RESERVE_PRICE"], self.due(timer))', "max(0, self.due(timer))"),
    ("more than the bid", "due = min(timer.bid, max(", "due = (max("),
    ("always first price", 'if self.params["PAYMENT_RULE"] == "first_price":', "if True:"),
    ("never first price", 'if self.params["PAYMENT_RULE"] == "first_price":', "if False:"),
    ("critical as vcg", 'if self.params["PAYMENT_RULE"] == "vcg":', "if True:"),
    ("vcg as critical", 'if self.params["PAYMENT_RULE"] == "vcg":', "if False:"),
    ("bias not paid back", "return left_out.bid - self.bias(timer) // 2**32", "return left_out.bid"),
    ("rate stands still", "            self.move_rate()\n", "            pass\n"),
    (
        "rate goes the other way",
        "moved = self.rate - step if too_steep else self.rate + step",
        "moved = self.rate + step if too_steep else self.rate - step",
    ),
    ("sums are kept", "        self.sums = dict.fromkeys(self.sums, 0)\n", ""),
    (
        "rate without bounds",
        'min(params["BIAS_LAMBDA_MAX_MICRO"], max(params["BIAS_LAMBDA_MIN_MICRO"], moved))',
        "moved",
    ),
    # watched keys of bias_auction
    ("anyone is watched", 'raise Rejection("WatchNotAllowed")', "self.state.watchable[watch] = None, ()"),
    (
        "another actor's leave",
        "if watch not in self.state.watchable:\n            raise",
        "if not self.state.watchable:\n            raise",
    ),
    ("watches under every policy", 'raise Rejection("WatchUnavailable")', "pass"),
    ("long keys are watched", 'raise Rejection("WatchKeyInvalid")', "pass"),
    ("keys of 256 bytes are not watched", "if len(key.encode()) > 256:", "if len(key.encode()) > 255:"),
    ("keys by characters", "if len(key.encode()) > 256:", "if len(key) > 256:"),
    ("one watcher more", '>= self.params["MAX_WATCHERS_PER_KEY"]', '> self.params["MAX_WATCHERS_PER_KEY"]'),
    ("allowing costs nothing", "run.meter.charge(200, len(key.encode()))\n        self.require", "self.require"),
    (
        "allowing without cells",
        "run.meter.charge(200, len(key.encode()))\n        self.require",
        "run.meter.charge(200)\n        self.require",
    ),
    ("leave for ever", "            self.state.watchable.pop(watch, None)\n", "            pass\n"),
    ("leave given anew", "elif watch not in self.state.watchable:", "else:"),
    ("leave is a change", "self.state.value_of(watch), ()\n\n", "None, ()\n\n"),
    ("watchable writes are as cheap", "run.meter.charge(200 + 200 * len(", "run.meter.charge(200 * len("),
    (
        "watchers are free",
        "run.meter.charge(200 + 200 * len(self.state.watchable[run.actor, key][1]))",
        "run.meter.charge(200)",
    ),
    (
        "every write is watchable",
        "        if (run.actor, key) in self.state.watchable:\n            run.meter",
        "        if True:\n            run.meter",
    ),
    (
        "deletions are free",
        "        self.pay_for_watchers(run, key)\n        self.state.storage.get",
        "        self.state.storage.get",
    ),
    (
        "writes pay for no watchers",
        "        self.pay_for_watchers(run, key)\n        self.state.storage.setd",
        "        self.state.storage.setd",
    ),
    ("changes by transactions wait", "            self.check_watched_keys(self.height)\n", ""),
    ("changes after the fires are lost", "        self.check_watched_keys(self.height + 1)\n", ""),
    (
        "checked before the transactions",
        "            receipts, tips = self.transactions(txs)\n            self.pay_proposer(proposer, tips)\n"
        "            self.check_watched_keys(self.height)\n",
        "            self.check_watched_keys(self.height)\n"
        "            receipts, tips = self.transactions(txs)\n            self.pay_proposer(proposer, tips)\n",
    ),
    ("due a block later", "due = max(height, timer.scheduled_at + 1)", "due = max(height + 1, timer.scheduled_at + 1)"),
    ("due in the block of its schedule", "due = max(height, timer.scheduled_at + 1)", "due = height"),
    (
        "due after its expiry",
        "if due <= timer.expires_at:\n                    state",
        "if True:\n                    state",
    ),
    (
        "not due in its last block",
        "if due <= timer.expires_at:\n                    state",
        "if due < timer.expires_at:\n                    state",
    ),
    ("every check is a change", "            if now == before:\n                continue\n", ""),
    (
        "the first value for ever",
        "            state.watchable[watch] = now, ()\n",
        "            state.watchable[watch] = before, ()\n",
    ),
    (
        "a change is forgotten",
        "            state.watchable[watch] = now, ()\n",
        "            state.watchable[watch] = now, watchers\n",
    ),
    (
        "only the first watcher",
        "map(state.timers.__getitem__, watchers)",
        "map(state.timers.__getitem__, watchers[:1])",
    ),
    (
        "expiry of a watch at once",
        "if expires_at < (self.height + 1 if height is None",
        "if expires_at < (self.height if height is None",
    ),
    (
        "expiry of a watch a block later",
        "if expires_at < (self.height + 1 if height is None",
        "if expires_at < (self.height + 2 if height is None",
    ),
    (
        "named by its expiry",
        "height = expires_at + 1 if height is None else height\n",
        "height = expires_at if height is None else height\n",
    ),
    (
        "an extended watch is due",
        "height = expires_at + 1 if timer.is_watching else timer.height",
        "height = timer.height",
    ),
    (
        "an extension undoes a change",
        "height = expires_at + 1 if timer.is_watching else timer.height",
        "height = expires_at + 1 if timer.watch else timer.height",
    ),
    ("ended timers watch on", "tuple(each for each in watchers if each != timer.timer_id)", "watchers"),
    ("watches are placed by height", "placed_in_ring = timer.is_watching or timer", "placed_in_ring = timer"),
    # §14 messages
    ("message limits", "if not (2_000 <= cycles", "if not (0 <= cycles"),
    ("mailbox endless", 'raise Rejection("MailboxFull")', "pass"),
    ("mailbox exact", '> self.params["MAILBOX_BYTES"]', '>= self.params["MAILBOX_BYTES"]'),
    (
        "sent to nobody",
        "if to not in self.actors:\n            raise Rejection",
        "if False:\n            raise Rejection",
    ),
    ("deferred lane endless", 'if used + message.cycles > self.params["LANE_DEFERRED_CYCLES"]:', "if False:"),
    ("deferred by reservation", "used += run.meter.cycles - (0 if error else run.reserved)", "used += message.cycles"),
    ("onward reservations count", "run.meter.cycles - (0 if error else run.reserved)", "run.meter.cycles"),
    ("reverted reservations count off", "(0 if error else run.reserved)", "run.reserved"),
    ("new messages run too", "for _ in range(len(self.state.queue)):", "while self.state.queue:"),
    ("message base", 'run.meter.charge(self.params["MESSAGE_BASE_CYCLES"])', "pass"),
]


def mutated(old: str, new: str) -> ModuleType:
    """The reference with one text replaced. The text must stand there exactly once."""
    path = Path(reference.__file__)
    source = path.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{source.count(old)} times in the reference: {old!r}"
    module = ModuleType("mutated_reference")
    # Dataclasses look their module up by name; this one answers to the reference's.
    module.__name__ = reference.__name__
    exec(compile(source.replace(old, new), str(path), "exec"), module.__dict__)
    return module
