"""`python -m tests.sim`: the simulation's figures beside their goals."""

from tests.sim.table import show

show()
