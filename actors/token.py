class Token(Actor):
    """A token with a fixed supply: balances, transfers, and allowances that others may spend.

    Amounts are whole numbers of the smallest unit. Accounts and actors hold it alike; an actor that gets some is told, if
    the payer asks for it, by a message to its handler ``received``. That message runs after the payment and cannot undo
    it. So the note in it is a short text: whoever receives it knows what it is and what reading it costs, and need not
    fail over it.
    """

    SUPPLY = 1000000000000
    LONGEST_NOTE = 200
    """Bytes of a note."""

    def create(self, payload):
        """The whole supply to the deployer, once."""
        assert self.sender == self.deployer, "only the owner"
        assert self.get("supply") is None, "created already"
        self.set("supply", self.SUPPLY)
        self.put_balance(self.sender, self.SUPPLY)
        self.emit("created", self.SUPPLY)

    def pay(self, payload):
        """``{"amount", "to", "note"?}`` from the sender's own; with a note, the receiver's ``received`` is called."""
        self.move(self.sender, payload["to"], payload["amount"])
        if "note" in payload:
            self.tell(payload["to"], self.sender, payload["amount"], payload["note"])

    def approve(self, payload):
        """``{"amount", "spender"}``: what somebody else may take from the sender from now on, in all.

        Who lowers it sets it to 0 first and looks what is left: the spender may take what was allowed before that.
        """
        amount = payload["amount"]
        assert amount >= 0, "no negative amounts"
        self.set(self.allowance_key(self.sender, payload["spender"]), amount)
        self.emit("approved", amount)

    def take(self, payload):
        """``{"amount", "from", "to", "note"?}`` out of what ``from`` approved for the sender."""
        key = self.allowance_key(payload["from"], self.sender)
        left = self.get(key, 0) - payload["amount"]
        assert left >= 0, "more than was approved"
        self.set(key, left)
        self.move(payload["from"], payload["to"], payload["amount"])
        if "note" in payload:
            self.tell(payload["to"], payload["from"], payload["amount"], payload["note"])

    def move(self, source, target, amount):
        assert amount > 0, "amounts are positive"
        assert len(target) == 20, "no address"
        held = self.balance_of(source)
        assert held >= amount, "more than there is"
        self.put_balance(source, held - amount)
        self.put_balance(target, self.balance_of(target) + amount)
        self.emit("moved", source.hex() + " " + target.hex() + " " + str(amount))

    def tell(self, target, source, amount, note):
        """Bytes of a text: of anything else ``encode`` fails here, and with it the payment."""
        assert len(note.encode()) <= self.LONGEST_NOTE, "note: at most 200 bytes"
        self.send(target, "received", {"amount": amount, "from": source, "note": note}, cycles=60000, cells=2000)

    def balance_of(self, who):
        return self.get("balance:" + who.hex(), 0)

    def put_balance(self, who, amount):
        if amount == 0:
            self.delete("balance:" + who.hex())
        else:
            self.set("balance:" + who.hex(), amount)

    def allowance_key(self, owner, spender):
        return "allowance:" + owner.hex() + ":" + spender.hex()
