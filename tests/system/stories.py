"""Made-up lives for the scenarios: short stories, and the sixty things that bury them."""

from __future__ import annotations

from tests.support.system import Memory

_PEOPLE = (
    "Priya", "Tomas", "Ines", "Marek", "Yuki", "Oluwaseun", "Greta", "Hassan", "Lena", "Diego",
)  # fmt: skip
_DEEDS = (
    ("planted tomatoes in the community garden", ("community garden",)),
    ("is reading a long novel about the sea", ()),
    ("presented the quarterly budget for Project Borealis", ("Project Borealis",)),
    ("moved the billing service to PostgreSQL", ("billing service", "PostgreSQL")),
    ("complained about the broken office printer", ("office printer",)),
    ("signed up for a pottery course on Thursdays", ("pottery course",)),
)


def distractors() -> list[Memory]:
    """Sixty memories about ten people, none of whom a story knows."""
    return [
        {
            "key": f"noise-{person}-{number}",
            "text": f"{person} {deed}",
            "entities": [person, *things],
            "mentioned_at": f"2024-05-{1 + number * 4:02d}T10:00:00Z",
        }
        for person in _PEOPLE
        for number, (deed, things) in enumerate(_DEEDS)
    ]


ATLAS: list[Memory] = [
    {
        "key": "lead",
        "text": "Alice is the tech lead on Project Atlas",
        "entities": ["Alice", "Project Atlas"],
    },
    {
        "key": "uses",
        "text": "Project Atlas uses Kubernetes",
        "entities": ["Project Atlas", "Kubernetes"],
    },
    {
        "key": "outage",
        "text": "Kubernetes cluster had an outage Tuesday",
        "entities": ["Kubernetes"],
    },
]

COMPLAINTS: list[Memory] = [
    {"key": f"complaint-{person}", "text": f"{person} told everybody about issues at home"}
    for person in _PEOPLE
]
"""They share words with the question about the outage, and nothing else."""

MANAGER: list[Memory] = [
    {
        "key": "works",
        "text": "Rosalind works on Project Heron",
        "entities": ["Rosalind", "Project Heron"],
    },
    {
        "key": "heads",
        "text": "Project Heron is run by Bartholomew",
        "entities": ["Project Heron", "Bartholomew"],
    },
    {
        "key": "away",
        "text": "Bartholomew is on parental leave until August",
        "entities": ["Bartholomew"],
    },
]

ACCOUNT: list[Memory] = [
    {
        "key": "contract",
        "text": "Fennel Foods signed a yearly contract and Dagny looks after the account",
        "entities": ["Fennel Foods", "Dagny"],
        "document_id": "session-1",
    },
    {
        "key": "weather",
        "text": "The meeting room was too warm",
        "document_id": "session-1",
    },
    {
        "key": "renewal",
        "text": "The renewal is at risk because the import keeps timing out",
        "entities": ["Fennel Foods"],
        "document_id": "session-2",
    },
    {
        "key": "discount",
        "text": "Dagny offered a discount of ten percent",
        "entities": ["Dagny"],
        "document_id": "session-3",
    },
]

WHY: list[Memory] = [
    {"key": "valve", "text": "A cooling valve at the plant had rusted through"},
    {
        "key": "pump",
        "text": "The second pump overheated and shut itself down",
        "links": [{"to": "valve", "type": "caused_by"}],
    },
    {
        "key": "late",
        "text": "The delivery to the hospital came two days late",
        "links": [{"to": "pump", "type": "caused_by"}],
    },
    {
        "key": "complaint",
        "text": "Doctor Okafor wrote an angry letter",
        "entities": ["Doctor Okafor"],
    },
]

LIFE: list[Memory] = [
    {
        "key": "bakery",
        "text": "Alice sold bread in a bakery in Leeds",
        "entities": ["Alice"],
        "occurred_start": "2021-09-01T00:00:00Z",
    },
    {
        "key": "joined",
        "text": "Alice joined Google as a site reliability engineer",
        "entities": ["Alice", "Google"],
        "occurred_start": "2023-03-01T00:00:00Z",
    },
    {
        "key": "bread-club",
        "text": "Alice started a bread club with her colleagues",
        "entities": ["Alice"],
        "occurred_start": "2023-10-01T00:00:00Z",
    },
    {
        "key": "lisbon",
        "text": "We were in Lisbon for two weeks of holidays",
        "entities": ["Lisbon"],
        "occurred_start": "2023-07-01T00:00:00Z",
        "occurred_end": "2023-07-14T00:00:00Z",
    },
    {
        "key": "sardines",
        "text": "We ate grilled sardines at the harbour",
        "occurred_start": "2023-07-05T20:00:00Z",
    },
    {
        "key": "dumplings",
        "text": "We ate dumplings at the night market",
        "occurred_start": "2023-11-05T20:00:00Z",
    },
    {
        "key": "outage",
        "text": "The payment service had an outage for an afternoon",
        "occurred_start": "2024-02-12T13:00:00Z",
    },
    {
        "key": "apology",
        "text": "Support wrote an apology to every customer about the payment service",
        "occurred_start": "2024-02-12T17:00:00Z",
    },
    {
        "key": "review",
        "text": "Support wrote a long review of the payment service",
        "occurred_start": "2024-03-20T09:00:00Z",
    },
]

HOMES: list[Memory] = [
    {
        "key": "porto",
        "text": "Wiebke lives in Porto near the river",
        "entities": ["Wiebke", "Porto"],
        "occurred_start": "2020-02-01T00:00:00Z",
        "occurred_end": "2022-04-01T00:00:00Z",
    },
    {
        "key": "ghent",
        "text": "Wiebke lives in Ghent near the castle",
        "entities": ["Wiebke", "Ghent"],
        "occurred_start": "2022-04-02T00:00:00Z",
    },
    {
        "key": "nurse",
        "text": "Wiebke works as a nurse at the Saint Lucas hospital",
        "entities": ["Wiebke", "Saint Lucas hospital"],
        "occurred_start": "2021-05-01T00:00:00Z",
    },
    {
        "key": "teacher",
        "text": "Wiebke works as a teacher at a nursing school",
        "entities": ["Wiebke"],
        "occurred_start": "2022-09-01T00:00:00Z",
    },
]
