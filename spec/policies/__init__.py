"""The scheduling policies, a module each. They differ in who fires, in which order and at what price."""
