"""What a scenario says before anything runs: whether its file is right, what will happen when, over which network.

:mod:`.outline` is pure and knows nothing of how it is shown: as text by :mod:`.terminal`, as a drawing by
:mod:`.picture`, as a page by :mod:`.page`.
"""
