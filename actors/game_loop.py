class GameLoop(Actor):
    """A game whose world moves by itself: cells that live and die by Conway's rule, one generation a tick.

    Ticks are timers, and the world follows from its first state alone, so every validator sees the same game. Players
    toggle cells between two ticks. The board wraps around at its edges, and is so small that every tick fits its limit.
    """

    WIDTH = 8
    HEIGHT = 8

    def start(self, payload):
        """``{"cells": [[x, y], ...], "every": blocks}``; a game that goes on already is given up."""
        self.only_owner()
        assert payload["every"] > 0, "every: at least one block"
        timer = self.get("timer")
        if timer is not None and self.pending(timer):
            self.cancel(timer)
        alive = {}
        for cell in payload["cells"]:
            alive[self.place(cell[0], cell[1])] = True
        self.set("every", payload["every"])
        self.save(alive)
        self.set("generation", 0)
        self.tick_next()

    def resume(self, payload):
        """By the owner, where the timer was lost: the game goes on as it stands."""
        self.only_owner()
        assert not self.pending(self.get("timer")), "the next tick is planned"
        self.tick_next()

    def toggle(self, payload):
        """A player's move: ``[x, y]``."""
        place = self.place(payload[0], payload[1])
        alive = self.load()
        if place in alive:
            del alive[place]
        else:
            alive[place] = True
        self.save(alive)
        self.set("moves", self.get("moves", 0) + 1)

    def tick(self, payload):
        """What the timer calls: the next generation."""
        assert self.sender == self.address, "only the timer"
        self.tick_next()
        alive = self.load()
        neighbours = {}
        for place in alive:
            for other in self.around(place):
                neighbours[other] = neighbours.get(other, 0) + 1
        born = {}
        for place in neighbours:
            count = neighbours[place]
            if count == 3 or (count == 2 and place in alive):
                born[place] = True
        self.save(born)
        generation = self.get("generation") + 1
        self.set("generation", generation)
        self.emit("tick", str(generation) + " " + str(len(born)))

    def around(self, place):
        x, y = place % self.WIDTH, place // self.WIDTH
        steps = [-1, 0, 1]
        found = []
        for dx in steps:
            for dy in steps:
                if dx != 0 or dy != 0:
                    found.append(self.place((x + dx) % self.WIDTH, (y + dy) % self.HEIGHT))
        return found

    def place(self, x, y):
        assert 0 <= x < self.WIDTH and 0 <= y < self.HEIGHT, "outside the board"
        return y * self.WIDTH + x

    def load(self):
        return {place: True for place in self.get("alive", [])}

    def save(self, alive):
        self.set("alive", sorted(alive))

    def tick_next(self):
        timer = self.schedule(self.height + self.get("every"), None, "tick", gas_limit=240000, tier=STANDARD)
        self.set("timer", timer)

    def only_owner(self):
        assert self.sender == self.deployer, "only the owner"
