"""The data types of the chain: blocks, transactions, receipts, records of the state, peer messages and the genesis."""
