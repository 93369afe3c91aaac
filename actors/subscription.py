class Subscription(Actor):
    """Members pay ahead from a deposit; every period is renewed by a timer, dunned when short, and cancelled after that.

    Whoever joins pays a deposit. Each renewal takes the fee for one period out of it; where it is short, the member gets
    reminders, each a period's quarter later. After the last one the membership ends, and the rest can be withdrawn.
    """
    # Timers are paid from this actor's balance, in which the deposits lie too: the owner puts money of its own there,
    # and `collect` leaves what is held for others. A renewal that could not be paid for is lost: see `resume`.

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
        self.hold(self.value - fee)
        self.earn(fee)
        timer = self.renew_in(self.get("period"), name)
        self.set(name, {"deposit": self.value - fee, "reminders": 0, "timer": timer})
        self.emit("joined", name)

    def top_up(self, payload):
        """Add the value of this transaction to the deposit."""
        member = self.member(self.sender.hex())
        self.hold(self.value)
        member["deposit"] += self.value
        self.set(self.sender.hex(), member)

    def leave(self, payload):
        """End the membership at once; what is left of the deposit goes back, now or by ``withdraw``."""
        name = self.sender.hex()
        member = self.member(name)
        if self.pending(member["timer"]):
            self.cancel(member["timer"])
        self.end(name, member, "left")
        if 0 < self.get("owed:" + name, 0) <= self.balance:
            self.pay_out(name)

    def withdraw(self, payload):
        """What is left of the sender's deposit, once the membership has ended."""
        name = self.sender.hex()
        assert self.get("owed:" + name, 0) > 0, "nothing is owed"
        self.pay_out(name)

    def renew(self, payload):
        """What the timer calls, with the member's name. It pays nobody: in a fire, its price is off the balance."""
        assert self.sender == self.address, "only the timer"
        member = self.member(payload)
        fee = self.get("fee")
        if member["deposit"] >= fee:
            member["deposit"] -= fee
            member["reminders"] = 0
            member["timer"] = self.renew_in(self.get("period"), payload)
            self.set(payload, member)
            self.hold(-fee)
            self.earn(fee)
            self.emit("renewed", payload)
        elif member["reminders"] < self.MOST_REMINDERS:
            member["reminders"] += 1
            member["timer"] = self.renew_in(self.get("period") // 4, payload)
            self.set(payload, member)
            self.emit("reminded", payload)
        else:
            self.end(payload, member, "cancelled")

    def resume(self, payload):
        """By the owner, with a member's name: plan the renewal of a member whose timer is gone."""
        assert self.sender == self.deployer, "only the owner"
        member = self.member(payload)
        assert not self.pending(member["timer"]), "its timer is pending"
        member["timer"] = self.renew_in(1, payload)
        self.set(payload, member)

    def collect(self, payload):
        """What was earned and is there, deposits apart, to the owner."""
        assert self.sender == self.deployer, "only the owner"
        earned = self.get("earned", 0)
        amount = max(min(earned, self.balance - self.get("held", 0)), 0)
        self.set("earned", earned - amount)
        self.transfer(self.deployer, amount)

    def member(self, name):
        assert len(name) == 40, "no member"
        member = self.get(name)
        assert member is not None, "no member"
        return member

    def end(self, name, member, how):
        """What is left is owed, together with what was before; it stays held."""
        self.delete(name)
        if member["deposit"] > 0:
            self.set("owed:" + name, self.get("owed:" + name, 0) + member["deposit"])
        self.emit(how, name)

    def pay_out(self, name):
        owed = self.get("owed:" + name)
        self.delete("owed:" + name)
        self.hold(-owed)
        self.transfer(bytes.fromhex(name), owed)

    def hold(self, amount):
        """Deposits, and what is owed, in all."""
        self.set("held", self.get("held", 0) + amount)

    def earn(self, fee):
        self.set("earned", self.get("earned", 0) + fee)

    def renew_in(self, blocks, name):
        return self.schedule(self.height + blocks, name, "renew", gas_limit=60000, tier=ECONOMY)
