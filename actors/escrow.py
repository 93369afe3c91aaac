class Escrow(Actor):
    """Holds a buyer's tokens until the buyer releases them, the arbiter decides, or the time is over.

    A deal is opened by paying tokens to this actor with a note (see :file:`token.py`). A timer gives the tokens back
    when the deadline passes without a word: nobody has to remember it.
    """

    FEE_NOTE = "escrow"

    def init(self, payload):
        """``{"arbiter", "token"}``."""
        assert self.sender == self.deployer, "only the owner"
        assert self.get("token") is None, "set up already"
        self.set("token", payload["token"])
        self.set("arbiter", payload["arbiter"])

    def received(self, payload):
        """The token tells of a payment; its note is ``{"blocks", "deal", "seller"}``."""
        assert self.sender == self.get("token"), "not from the token"
        note = payload["note"]
        key = "deal:" + note["deal"]
        assert self.get(key) is None, "this deal is open already"
        assert note["blocks"] > 0, "the deadline lies ahead"
        timer = self.schedule(
            self.height + note["blocks"], note["deal"], "expire", gas_limit=240000, tier=URGENT
        )
        deal = {"amount": payload["amount"], "buyer": payload["from"], "seller": note["seller"], "timer": timer}
        self.set(key, deal)
        self.emit("opened", note["deal"])

    def release(self, payload):
        """The buyer is content: the seller gets the tokens."""
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
        """The deadline: back to the buyer. Called by the timer alone."""
        assert self.sender == self.address, "only the timer"
        deal = self.open_deal(payload)
        deal["timer"] = None
        self.settle(payload, deal, deal["buyer"])

    def open_deal(self, name):
        deal = self.get("deal:" + name)
        assert deal is not None, "no such deal"
        return deal

    def settle(self, name, deal, winner):
        if deal["timer"] is not None:
            self.cancel(deal["timer"])
        self.delete("deal:" + name)
        self.send(self.get("token"), "pay", {"amount": deal["amount"], "to": winner}, cycles=60000, cells=2000)
        self.emit("settled", name)
