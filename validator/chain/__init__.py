"""What a chain is made of: blocks, transactions, receipts, records of state, messages, the genesis."""
