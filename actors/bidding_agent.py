class BiddingAgent(Actor):
    """Bids for the timers of other actors, which name it: more where a published price has jumped, and for what is late.

    The chain asks it in every block in which such a timer is due, and the timer's actor pays for the query. It reads its
    own storage and what an oracle published (price_oracle.py), and changes nothing. In calm times it leaves the limit to
    the default agent and says the tip alone.
    """

    def init(self, payload):
        """The address of the oracle; by the owner, as often as it likes."""
        assert self.sender == self.deployer, "only the owner"
        assert len(payload) == 20, "no address"
        self.set("oracle", payload)

    def get_gas_bid(self, context):
        lane = context["basefee_lane_timer"]
        tip = context["previous_block_p50_priority_tip_per_cycle"]
        jump = self.published(self.get("oracle"), "jump")
        if jump is None:
            return {}
        late = min(context["current_block_height"] - context["trigger_block_height"], 4)
        hurry = min(jump // 100, 10) + late
        if hurry == 0:
            return {"max_priority_fee_per_cycle": tip}
        tip += lane * hurry // 10
        return {"max_fee_per_cycle": lane * (2 + late) + tip, "max_priority_fee_per_cycle": tip}
