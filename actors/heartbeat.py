class Heartbeat(Actor):
    """Beats every so many blocks, for ever or a number of times, and can be changed or stopped at any moment.

    A handler that fails is undone as a whole, the next timer with it, so a beat does nothing that can fail. A timer may
    end without a beat all the same, where this actor cannot pay for it; the owner then starts the heart anew.
    """

    def start(self, payload):
        """``{"every": blocks, "times": how often, or None for ever}``, and ``"agent"``, the address of an actor that bids
        for the beats, where one is to; replaces a heart that beats already."""
        self.only_owner()
        every, times = payload["every"], payload["times"]
        assert every > 0, "every: at least one block"
        assert times is None or times > 0, "times: at least once, or None for ever"
        self.stop_timer()
        self.set_bidding_agent(payload.get("agent"))
        self.set("every", every)
        self.set("left", times)
        self.beat_next(every)

    def stop(self, payload):
        """No more beats."""
        self.only_owner()
        self.stop_timer()

    def beat(self, payload):
        """What the timer calls."""
        assert self.sender == self.address, "only the timer beats"
        self.delete("timer")
        count = self.get("count", 0) + 1
        self.set("count", count)
        self.set("last", self.height)
        self.emit("beat", count)
        left = self.get("left")
        if left is not None:
            left = left - 1
            self.set("left", left)
        if left is None or left > 0:
            self.beat_next(self.get("every"))

    def beat_next(self, every):
        self.set("timer", self.schedule(self.height + every, None, "beat", gas_limit=60000))

    def stop_timer(self):
        timer = self.get("timer")
        if timer is not None:
            if self.pending(timer):
                self.cancel(timer)
            self.delete("timer")

    def only_owner(self):
        assert self.sender == self.deployer, "only the owner"
