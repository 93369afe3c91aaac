"""The numbered rules of docs/protocol.md and docs/policies.md, and which of them an execution reached."""
