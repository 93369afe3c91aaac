class Keeper(Actor):
    """Splits work that is too long for one fire over as many as it takes, and never does a part of it twice.

    The work here is a sum over many numbers; what matters is how it is cut: each fire does a fixed number of steps,
    notes how far it got together with what it found, and schedules the next one. A fire that is late changes nothing,
    and one that was lost is made up for by ``resume``.
    """

    STEPS = 200
    NUMBER_LIMIT = 18446744073709551616
    """Numbers are below this, 2 ** 64, so that no step ever fails over a sum that is too large."""

    async def start(self, payload):
        """``{"jobs": [[name, first, last], ...]}``: the ranges that are to be summed, each as a piece of work of its own."""
        self.only_owner()
        for job in payload["jobs"]:
            self.spawn(self.open(job[0], job[1], job[2]))

    async def open(self, name, first, last):
        assert 0 <= first <= last < self.NUMBER_LIMIT, "first to last: from 0 to below 2 ** 64"
        await self.pause()
        assert self.get("work:" + name) is None, "under way already"  # others had their turn since: look right before it
        self.go_on(name, first, last, 0)

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
            self.go_on(payload, end, work["last"], total)

    def resume(self, payload):
        """By the owner, with a piece of work's name: go on where its timer was lost."""
        self.only_owner()
        work = self.get("work:" + payload)
        assert work is not None, "no such work"
        assert not self.pending(work["timer"]), "under way"
        self.go_on(payload, work["next"], work["last"], work["total"])

    def go_on(self, name, first, last, total):
        timer = self.schedule(self.height + 1, name, "step", gas_limit=100000, tier=ECONOMY)
        self.set("work:" + name, {"last": last, "next": first, "timer": timer, "total": total})

    def only_owner(self):
        assert self.sender == self.deployer, "only the owner"
