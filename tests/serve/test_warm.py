"""Banks that are loaded before anybody asks."""

from __future__ import annotations

import pytest

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from serve.opening.banks import warm
from serve.settings import parse
from tests.support.system import system


@pytest.mark.unit
def test_the_list_of_a_file_and_of_the_environment() -> None:
    named = parse({"banks": {"bank_warm": ["a", "t/b"]}}, {})
    assert named.banks.bank_warm == ("a", "t/b")
    listed = parse({}, {"FOURFOLD_BANK_WARM": "a, t/b,"})
    assert listed.banks.bank_warm == ("a", "t/b")


@pytest.mark.integration
async def test_banks_are_resident_before_they_are_asked() -> None:
    async with system() as run:
        for name in ("a", "b"):
            await run.import_bank(name, [{"key": "k", "text": "The kettle is on."}])
        fresh = Residency(run.pool, ResidencySettings())
        assert await warm(run.pool, fresh, ("b", f"{run.tenant}/a", "nobody/b", "none")) == 2
        assert fresh.metrics().resident_banks == 2
        await fresh.close()
