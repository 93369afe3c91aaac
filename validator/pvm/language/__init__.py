"""The language of actors: its grammar, its built-ins, and what is refused."""
