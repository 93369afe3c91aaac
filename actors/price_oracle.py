class PriceOracle(Actor):
    """Asks runners for a price every so many blocks, and pushes the median to everybody who subscribed.

    The price comes from outside the chain, as a job (SPEC 14): several runners answer, the callback takes the median, and
    each subscriber gets a message. Subscribers are told what changed, not what stayed the same.
    """

    MOST_SUBSCRIBERS = 2
    RUNNERS = 3

    def start(self, payload):
        """``{"every": blocks, "pair": text}``."""
        assert self.sender == self.deployer, "only the owner"
        assert payload["every"] > 0, "every: at least one block"
        self.set("every", payload["every"])
        self.set("pair", payload["pair"])
        self.set("subscribers", [])
        self.plan()

    def subscribe(self, payload):
        """The actor at the address in the payload is told of every new price."""
        subscribers = self.get("subscribers", [])
        assert len(subscribers) < self.MOST_SUBSCRIBERS, "no room"
        assert payload not in subscribers, "subscribed already"
        subscribers.append(payload)
        self.set("subscribers", subscribers)

    def ask(self, payload):
        """What the timer calls: open a job, and plan the next one."""
        assert self.sender == self.address, "only the timer"
        self.plan()
        self.request_job(self.get("pair"), self.RUNNERS, "answered")

    def answered(self, payload):
        """The results are there: each is a price as eight bytes, or nothing that we use."""
        self.consume_result(payload["job"])
        prices = sorted([int.from_bytes(result) for result in payload["results"] if len(result) == 8])
        if not prices:
            self.emit("no_price", self.height)
            return
        price = prices[len(prices) // 2]
        before = self.get("price", 0)
        self.set("price", price)
        self.set("priced_at", self.height)
        self.emit("price", price)
        if price != before:
            for subscriber in self.get("subscribers", []):
                self.send(subscriber, "price_changed", {"before": before, "price": price}, cycles=40000, cells=1000)

    def push(self, payload):
        """The owner's word for a price, where no runner is at hand."""
        assert self.sender == self.deployer, "only the owner"
        before = self.get("price", 0)
        self.set("price", payload)
        self.emit("price", payload)
        for subscriber in self.get("subscribers", []):
            self.send(subscriber, "price_changed", {"before": before, "price": payload}, cycles=40000, cells=1000)

    def plan(self):
        self.schedule(self.height + self.get("every"), None, "ask", gas_limit=240000, tier=FAST)
