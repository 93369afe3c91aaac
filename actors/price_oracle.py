class PriceOracle(Actor):
    """Asks runners for a price every so many blocks, publishes the median, and pushes it to subscribed actors.

    The price comes from outside the chain, as a job (SPEC 14). It is published under "price", and how far it moved last
    under "jump", in thousandths. Subscribers get a message besides, of what changed, not of what stayed the same.

    Each message is paid here, and one that cannot be sent fails the callback for all. So the owner alone subscribes, and
    who is no actor is found out then: it is sent the price at once.
    """

    MOST_SUBSCRIBERS = 2
    RUNNERS = 3
    MOST_OPEN = 16
    """Jobs that wait for answers. The chain keeps 64, and refuses more: that would end the asking for good."""
    LIFETIME = 3600
    """Blocks after which the chain gives a job up."""
    PRICE_LIMIT = 18446744073709551616
    """Prices are below this: eight bytes."""

    def start(self, payload):
        """``{"every": blocks, "pair": text}``; again, to change them, or where the timer was lost."""
        self.only_owner()
        assert payload["every"] > 0, "every: at least one block"
        timer = self.get("timer")
        if timer is not None and self.pending(timer):
            self.cancel(timer)
        self.set("every", payload["every"])
        self.set("pair", payload["pair"])
        self.plan()

    def subscribe(self, payload):
        """The actor at the address in the payload is told the price, and of every new one."""
        self.only_owner()
        subscribers = self.get("subscribers", [])
        assert len(subscribers) < self.MOST_SUBSCRIBERS, "no room"
        assert payload not in subscribers, "subscribed already"
        price = self.get("price", 0)
        self.tell(payload, price, price)
        subscribers.append(payload)
        self.set("subscribers", subscribers)

    def unsubscribe(self, payload):
        """By the owner, or by the subscriber itself: no more messages to that address."""
        assert self.sender == self.deployer or self.sender == payload, "only the owner, or the subscriber"
        subscribers = self.get("subscribers", [])
        assert payload in subscribers, "not subscribed"
        subscribers.remove(payload)
        self.set("subscribers", subscribers)

    def ask(self, payload):
        """What the timer calls: plan the next one, and open a job unless too many wait already."""
        assert self.sender == self.address, "only the timer"
        self.plan()
        asked = self.get("open", {})
        waiting = {job: asked[job] for job in asked if asked[job] > self.height}
        if len(waiting) < self.MOST_OPEN:
            waiting[self.request_job(self.get("pair"), self.RUNNERS, "answered")] = self.height + self.LIFETIME
        else:
            self.emit("unanswered", len(waiting))
        self.set("open", waiting)

    def answered(self, payload):
        """The results are there: each is a price as eight bytes, or nothing that we use. Most must be prices."""
        self.consume_result(payload["job"])
        waiting = self.get("open", {})
        waiting.pop(payload["job"], None)
        self.set("open", waiting)
        prices = [int.from_bytes(result) for result in payload["results"] if len(result) == 8]
        prices = sorted([price for price in prices if price > 0])
        if 2 * len(prices) <= self.RUNNERS:
            self.emit("no_price", self.height)
        else:
            self.announce(prices[len(prices) // 2])

    def push(self, payload):
        """The owner's word for a price, where no runner is at hand."""
        self.only_owner()
        assert 0 < payload < self.PRICE_LIMIT, "no price"
        self.announce(payload)

    def announce(self, price):
        before = self.get("price", 0)
        self.publish("price", price)
        self.publish("jump", abs(price - before) * 1000 // before if before > 0 else 0)
        self.set("price", price)
        self.set("priced_at", self.height)
        self.emit("price", price)
        if price != before:
            for subscriber in self.get("subscribers", []):
                self.tell(subscriber, before, price)

    def tell(self, subscriber, before, price):
        self.send(subscriber, "price_changed", {"before": before, "price": price}, cycles=40000, cells=1000)

    def plan(self):
        timer = self.schedule(self.height + self.get("every"), None, "ask", gas_limit=240000, tier=FAST)
        self.set("timer", timer)

    def only_owner(self):
        assert self.sender == self.deployer, "only the owner"
