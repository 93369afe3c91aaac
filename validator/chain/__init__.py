"""Parts of a chain: blocks, transactions, receipts, records of state, messages, the genesis."""
