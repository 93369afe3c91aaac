class Keeper(Actor):
    """Splits work that is too long for one fire over as many as it takes, and never does a part of it twice.

    The work here is a sum over many numbers; what matters is how it is cut: each fire does a fixed number of steps,
    notes how far it got together with what it found, and schedules the next one. A fire that is late changes nothing.
    """

    STEPS = 200

    async def start(self, payload):
        """``{"jobs": [[name, first, last], ...]}``: the ranges that are to be summed, each as a piece of work of its own."""
        assert self.sender == self.deployer, "only the owner"
        for job in payload["jobs"]:
            self.spawn(self.open(job[0], job[1], job[2]))

    async def open(self, name, first, last):
        assert self.get("work:" + name) is None, "under way already"
        assert first <= last, "an empty range"
        self.set("work:" + name, {"last": last, "next": first, "total": 0})
        await self.pause()
        self.go_on(name)

    def step(self, payload):
        """What the timer calls: one part of one piece of work."""
        assert self.sender == self.address, "only the timer"
        work = self.get("work:" + payload)
        end = min(work["next"] + self.STEPS, work["last"] + 1)
        total = work["total"]
        for number in range(work["next"], end):
            total += number * number % 7
        if end > work["last"]:
            self.delete("work:" + payload)
            self.set("done:" + payload, total)
            self.emit("done", payload + " " + str(total))
        else:
            self.set("work:" + payload, {"last": work["last"], "next": end, "total": total})
            self.go_on(payload)

    def go_on(self, name):
        self.schedule(self.height + 1, name, "step", gas_limit=100000, tier=ECONOMY)
