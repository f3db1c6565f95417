"""What holds for every test: generated examples have no limit of real time, which a busy machine
would reach for them."""

from hypothesis import settings

settings.register_profile("fourfold", deadline=None)
settings.load_profile("fourfold")
