class Subscription(Actor):
    """Members pay ahead from a deposit; every period is renewed by a timer, dunned when short, and cancelled after that.

    Whoever joins pays a deposit into this actor. Each renewal takes the fee for one period out of it. Where it is short,
    the member gets reminders, each a period's quarter later; after the last one the membership ends, and what is left of
    the deposit goes back.
    """

    MOST_REMINDERS = 3

    def init(self, payload):
        """``{"fee", "period": blocks}``."""
        assert self.sender == self.deployer, "only the owner"
        assert self.get("fee") is None, "set up already"
        assert payload["fee"] > 0 and payload["period"] >= 4, "a positive fee, and four blocks at least"
        self.set("fee", payload["fee"])
        self.set("period", payload["period"])

    def join(self, payload):
        """Become a member with the value of this transaction as deposit."""
        name = self.sender.hex()
        assert self.get(name) is None, "a member already"
        fee = self.get("fee")
        assert self.value >= fee, "the deposit is below one fee"
        self.earn(fee)
        timer = self.renew_in(self.get("period"), name)
        self.set(name, {"deposit": self.value - fee, "reminders": 0, "timer": timer})
        self.emit("joined", name)

    def top_up(self, payload):
        """Add the value of this transaction to the deposit."""
        member = self.member(self.sender.hex())
        member["deposit"] += self.value
        self.set(self.sender.hex(), member)

    def leave(self, payload):
        """End the membership at once; what is left of the deposit goes back."""
        name = self.sender.hex()
        member = self.member(name)
        self.cancel(member["timer"])
        self.end(name, member, "left")

    def renew(self, payload):
        """What the timer calls, with the member's name."""
        assert self.sender == self.address, "only the timer"
        member = self.member(payload)
        fee = self.get("fee")
        if member["deposit"] >= fee:
            member["deposit"] -= fee
            member["reminders"] = 0
            member["timer"] = self.renew_in(self.get("period"), payload)
            self.set(payload, member)
            self.earn(fee)
            self.emit("renewed", payload)
        elif member["reminders"] < self.MOST_REMINDERS:
            member["reminders"] += 1
            member["timer"] = self.renew_in(self.get("period") // 4, payload)
            self.set(payload, member)
            self.emit("reminded", payload)
        else:
            self.end(payload, member, "cancelled")

    def collect(self, payload):
        """What was earned, to the owner."""
        assert self.sender == self.deployer, "only the owner"
        earned = self.get("earned", 0)
        self.set("earned", 0)
        self.transfer(self.deployer, earned)

    def member(self, name):
        member = self.get(name)
        assert member is not None, "no member"
        return member

    def end(self, name, member, how):
        self.delete(name)
        if member["deposit"] > 0:
            self.transfer(bytes.fromhex(name), member["deposit"])
        self.emit(how, name)

    def earn(self, fee):
        self.set("earned", self.get("earned", 0) + fee)

    def renew_in(self, blocks, name):
        return self.schedule(self.height + blocks, name, "renew", gas_limit=60000, tier=ECONOMY)
