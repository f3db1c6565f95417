"""Language models over HTTP: asking, turns, retries, failover. `LanguageModel` is the way in."""

from models.llm.account import Account
from models.llm.language_model import Accounting, CallRecord, LanguageModel
from models.llm.member import ModelMember
from models.llm.settings import LLMSettings

__all__ = ["Account", "Accounting", "CallRecord", "LLMSettings", "LanguageModel", "ModelMember"]
