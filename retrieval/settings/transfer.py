"""What can be tuned in archives and templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field


def _database(value: str) -> str:
    if value not in ("database", "native"):
        raise ValueError(
            f"file_storage: {value[:40]!r} is not built here; files lie in the database: leave it"
            " at 'database'"
        )
    return "database"


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """Archives that come and go."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    enable_document_export_api: bool = True
    """false answers 404 where banks and documents are exported or cloned."""
    enable_document_import_api: bool = True
    """false answers 404 where banks and documents are imported or cloned."""
    transfer_max_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 4 << 30
    """Largest archive that is taken; the limits of other bodies do not hold for it."""
    export_max_s: Annotated[float, Field(gt=0, le=7 * 86_400)] = 3600.0
    """Most seconds of an export: its snapshot holds back the database's vacuum."""
    export_ttl_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 86_400.0
    """Seconds after which an archive that was made or brought here is removed."""
    default_bank_template: str | None = None
    """What new banks begin with: a manifest of `POST .../import` as JSON, or a file with one."""
    file_storage: Annotated[str, AfterValidator(_database)] = "database"
    """Where archives lie: in the database."""
