class LiquidationBot(Actor):
    """Watches positions and closes those that a falling price made unsafe, bidding more the nearer the danger.

    Prices come as messages from an oracle. A timer looks at the positions every few blocks; its price is found in the
    block in which it is due, by ``get_gas_bid``: volatility and the weakest position decide how much a check is worth.

    A figure that cannot be computed with would fail the check, and so end the checks, for everybody: positions and
    prices are bounded. There is room for few, so each pays a deposit; who closes a position gets it back.
    """

    CHECK_EVERY = 3
    MOST_POSITIONS = 16
    FIGURE_LIMIT = 79228162514264337593543950336
    """Collateral and debt are below this, 2 ** 96, and prices too."""
    UNSAFE = 1200
    """Collateral over debt, in thousandths, below which a position is closed."""

    def init(self, payload):
        """``{"deposit", "oracle": address}``."""
        assert self.sender == self.deployer, "only the owner"
        assert self.get("oracle") is None, "set up already"
        assert payload["deposit"] > 0, "deposit: at least one"
        self.set("deposit", payload["deposit"])
        self.set("oracle", payload["oracle"])
        self.set("positions", {})
        self.set("volatility", 0)
        self.check_next()

    def resume(self, payload):
        """By the owner, where the timer was lost: go on checking."""
        assert self.sender == self.deployer, "only the owner"
        assert not self.pending(self.get("timer")), "the next check is planned"
        self.check_next()

    def open_position(self, payload):
        """``{"collateral", "debt"}`` of the sender, with the deposit as the value of this transaction."""
        positions = self.get("positions")
        name = self.sender.hex()
        assert name not in positions, "close the one that is open first"
        assert len(positions) < self.MOST_POSITIONS, "no room"
        assert 0 < payload["debt"] < self.FIGURE_LIMIT, "debt: positive, below 2 ** 96"
        assert 0 < payload["collateral"] < self.FIGURE_LIMIT, "collateral: positive, below 2 ** 96"
        assert self.value == self.get("deposit"), "the value is not the deposit"
        positions[name] = [payload["collateral"], payload["debt"]]
        self.set("positions", positions)
        self.remember_weakest(positions)
        self.emit("opened", name)

    def close_position(self, payload):
        """The sender's own; the deposit goes back."""
        positions = self.get("positions")
        name = self.sender.hex()
        assert name in positions, "no position"
        del positions[name]
        self.set("positions", positions)
        self.remember_weakest(positions)
        self.transfer(self.sender, self.get("deposit"))
        self.emit("closed", name)

    def price_changed(self, payload):
        """From the oracle: remember the price, and how far it jumped, in thousandths."""
        assert self.sender == self.get("oracle"), "only the oracle"
        before, price = payload["before"], payload["price"]
        assert 0 <= before < self.FIGURE_LIMIT and 0 <= price < self.FIGURE_LIMIT, "no price"
        if price == 0:
            return
        jump = 0
        if before > 0:
            jump = abs(price - before) * 1000 // before
        self.set("volatility", (self.get("volatility") * 3 + jump) // 4)
        self.set("price", price)
        self.remember_weakest(self.get("positions"))

    def check(self, payload):
        """What the timer calls."""
        assert self.sender == self.address, "only the timer"
        self.check_next()
        price = self.get("price")
        if price is None:
            return
        positions = self.get("positions")
        closed = [name for name in positions if self.safety(positions[name], price) < self.UNSAFE]
        for name in closed:
            del positions[name]
            self.emit("liquidated", name)
        if closed:
            self.set("positions", positions)
            self.set("liquidated", self.get("liquidated", 0) + len(closed))
            self.remember_weakest(positions)

    def get_gas_bid(self, context):
        """Twice the lane's price in calm times; up to ten times, and a tip to match, where somebody is near the edge."""
        price = context["basefee_lane_timer"]
        danger = min(self.get("volatility") // 10, 4)
        weakest = self.get("weakest")
        if weakest is not None and weakest < 2 * self.UNSAFE:
            danger += 4
        late = min(context["current_block_height"] - context["trigger_block_height"], 4)
        tip = context["previous_block_p50_priority_tip_per_cycle"] + price * (danger + late) // 10
        return {"max_fee_per_cycle": price * (2 + danger) + tip, "max_priority_fee_per_cycle": tip}

    def safety(self, position, price):
        return position[0] * price * 1000 // position[1]

    def remember_weakest(self, positions):
        price = self.get("price")
        if price is None or not positions:
            self.delete("weakest")
        else:
            self.set("weakest", min([self.safety(positions[name], price) for name in positions]))

    def check_next(self):
        timer = self.schedule(self.height + self.CHECK_EVERY, None, "check", gas_limit=200000)
        self.set("timer", timer)
