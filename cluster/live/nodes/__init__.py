"""The nodes of a Ray cluster: their properties, their code, and the placement of hosts."""
