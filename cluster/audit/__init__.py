"""The auditor: a second implementation of the rules of the chain, which reads what validators served."""
