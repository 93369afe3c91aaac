class Escrow(Actor):
    """Holds a buyer's tokens until the buyer releases them, the arbiter decides, or the time is over.

    A deal is opened by paying tokens to this actor with a note (see :file:`token.py`). When the message about it comes,
    the tokens are here already, so it must not fail, whatever the note says: what opens no deal is owed to its payer,
    who takes it back with ``withdraw``. A timer gives the tokens back when the deadline passes without a word. It is a
    convenience: where there is none, or it was lost, anybody may call ``expire`` then.
    """

    MOST_BLOCKS = 100000
    MOST_TIMERS = 1000
    """Deals that get a timer; those above wait for whoever calls ``expire``. An actor may have 1,024."""
    LONGEST_NAME = 64
    PAYMENT_CYCLES = 20000
    PAYMENT_CELLS = 1000
    """What the token needs for a payment."""

    def init(self, payload):
        """``{"arbiter", "least", "token"}``: deals have at least so many tokens, for their timers are paid from here."""
        assert self.sender == self.deployer, "only the owner"
        assert self.get("token") is None, "set up already"
        assert len(payload["token"]) == 20 and len(payload["arbiter"]) == 20, "token and arbiter are addresses"
        assert payload["least"] > 0, "least: at least one"
        self.set("token", payload["token"])
        self.set("arbiter", payload["arbiter"])
        self.set("least", payload["least"])

    def received(self, payload):
        """The token tells of a payment. Its note: the deal's name, blocks to the deadline, the seller in hex."""
        assert self.sender == self.get("token"), "not from the token"
        amount, buyer = payload["amount"], payload["from"]
        terms = self.terms(payload["note"])
        if terms is None or amount < self.get("least"):
            self.owe(buyer, amount)
            return
        name, blocks, seller = terms
        deadline = self.height + blocks
        open_deals = self.get("open", 0)
        timer = None
        if open_deals < self.MOST_TIMERS:
            timer = self.schedule(deadline, name, "expire", gas_limit=60000, tier=URGENT)
        deal = {"amount": amount, "buyer": buyer, "deadline": deadline, "seller": seller, "timer": timer}
        self.set("deal:" + name, deal)
        self.set("open", open_deals + 1)
        self.emit("opened", name)

    def release(self, payload):
        """The buyer is content: the seller gets the tokens. The payload is the deal's name."""
        deal = self.open_deal(payload)
        assert self.sender == deal["buyer"], "only the buyer"
        self.settle(payload, deal, deal["seller"])

    def refund(self, payload):
        """The seller gives up."""
        deal = self.open_deal(payload)
        assert self.sender == deal["seller"], "only the seller"
        self.settle(payload, deal, deal["buyer"])

    def decide(self, payload):
        """``{"deal", "for": "buyer" or "seller"}``, by the arbiter."""
        assert self.sender == self.get("arbiter"), "only the arbiter"
        deal = self.open_deal(payload["deal"])
        assert payload["for"] == "buyer" or payload["for"] == "seller", "for whom?"
        self.settle(payload["deal"], deal, deal[payload["for"]])

    def expire(self, payload):
        """The deadline: back to the buyer. By the timer, or by anybody where that is gone."""
        deal = self.open_deal(payload)
        assert self.height >= deal["deadline"], "before the deadline"
        self.settle(payload, deal, deal["buyer"])

    def withdraw(self, payload):
        """What the sender is owed for payments that opened no deal."""
        key = "owed:" + self.sender.hex()
        owed = self.get(key, 0)
        assert owed > 0, "nothing is owed"
        self.delete(key)
        self.pay(self.sender, owed)

    def terms(self, note):
        """What a note says, or None. The token vouches that it is a text, and for nothing else."""
        parts = note.split(" ")
        if len(parts) != 3:
            return None
        name, blocks, seller = parts
        if not 1 <= len(name) <= self.LONGEST_NAME or self.get("deal:" + name) is not None:
            return None
        if not (1 <= len(blocks) <= 6 and self.consists_of(blocks, "0123456789")):
            return None
        if not 1 <= int(blocks) <= self.MOST_BLOCKS:
            return None
        if not (len(seller) == 40 and self.consists_of(seller, "0123456789abcdef")):
            return None
        return (name, int(blocks), bytes.fromhex(seller))

    def consists_of(self, text, characters):
        return all([character in characters for character in text])

    def open_deal(self, name):
        deal = self.get("deal:" + name)
        assert deal is not None, "no such deal"
        return deal

    def settle(self, name, deal, winner):
        if deal["timer"] is not None and self.pending(deal["timer"]):
            self.cancel(deal["timer"])
        self.delete("deal:" + name)
        self.set("open", self.get("open") - 1)
        self.pay(winner, deal["amount"])
        self.emit("settled", name)

    def owe(self, who, amount):
        key = "owed:" + who.hex()
        self.set(key, self.get(key, 0) + amount)
        self.emit("owed", who.hex() + " " + str(amount))

    def pay(self, who, amount):
        self.send(
            self.get("token"), "pay", {"amount": amount, "to": who}, cycles=self.PAYMENT_CYCLES, cells=self.PAYMENT_CELLS
        )
