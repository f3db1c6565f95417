"""Kinds of values that settings have, as a file and the environment write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "1", "yes", "on"):
            return True
        if word in ("false", "0", "no", "off", ""):
            return False
    return value


def blank_is_unset(value: Any) -> Any:
    """None for what the environment writes as nothing."""
    return None if isinstance(value, str) and not value.strip() else value


def _only_false(value: bool) -> bool:
    if value:
        raise ValueError(
            "trust_remote_code: code that comes with a model is never run, leave it false"
        )
    return value


def listed(value: Any) -> Any:
    """A list that the environment writes with commas."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


Flag = Annotated[bool, BeforeValidator(_boolean)]
Never = Annotated[Flag, AfterValidator(_only_false)]
Text = Annotated[str | None, BeforeValidator(blank_is_unset)]
Secret = Annotated[SecretStr | None, BeforeValidator(blank_is_unset)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count64 = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Listed = Annotated[tuple[str, ...], BeforeValidator(listed)]
Maybe = Annotated[int | None, BeforeValidator(blank_is_unset)]


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
