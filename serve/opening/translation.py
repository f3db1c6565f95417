"""Models as retrieval asks them: the same calls, with retrieval's errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from models import types as models
from models.catalog import ManagedEmbedder
from models.chain import ChainMember
from models.types import DeadlineExceeded, Load, ModelError, Overloaded, RemoteError, Scores
from models.types import Unavailable as ModelUnavailable
from retrieval import errors
from retrieval.protocols import RerankRequest
from retrieval.types import Floats


def translated(error: ModelError, part: str) -> errors.FourfoldError:
    """An error of `part` ("the embedder") as one of retrieval's."""
    match error:
        case Overloaded():
            return errors.Overloaded(str(error), error.retry_after_s)
        case DeadlineExceeded():
            return errors.DeadlineExceeded(error.stage)
        case ModelUnavailable():
            return errors.Unavailable(error.part, error.reason)
        case RemoteError(retry_after_s=float(seconds)):
            return errors.Unavailable(part, str(error), seconds)
        case _:
            return errors.Unavailable(part, str(error))


@contextmanager
def translating(part: str) -> Iterator[None]:
    """Errors of models inside leave as retrieval's."""
    try:
        yield
    except ModelError as error:
        raise translated(error, part) from error


class OpenedEmbedder:
    """retrieval.protocols.Embedder over one of models."""

    def __init__(self, model: ManagedEmbedder) -> None:
        self.model = model

    @property
    def model_id(self) -> str:
        return self.model.model_id

    @property
    def dimension(self) -> int:
        return self.model.dimension

    def legibility(self, text: str) -> float | None:
        """retrieval.protocols.Legible."""
        return self.model.legibility(text)

    def load(self) -> Load:
        return self.model.load()

    async def check_health(self) -> None:
        """Raises where the model can no longer serve."""
        with translating("the embedder"):
            await self.model.check_health()

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        with translating("the embedder"):
            return await self.model.embed_queries(texts, tenant=tenant, deadline=deadline)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        with translating("the embedder"):
            return await self.model.embed_passages(texts, tenant=tenant, deadline=deadline)


class OpenedReranker:
    """retrieval.protocols.Reranker over a chain of models, or one of them."""

    def __init__(self, model: ChainMember) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """The members of the chain, in order."""
        members = getattr(self.model, "members", None) or [self.model]
        return " > ".join(map(_shown, members))

    @property
    def reads_text(self) -> bool:
        return self.model.reads_text

    def load(self) -> Load:
        return self.model.load()

    async def check_health(self) -> None:
        """Raises where no member can serve any more."""
        with translating("the reranker"):
            await self.model.check_health()

    async def rerank(self, request: RerankRequest) -> Scores:
        with translating("the reranker"):
            return await self.model.rerank(
                models.RerankRequest(
                    request.query,
                    request.documents,
                    request.tenant,
                    request.bank,
                    request.deadline,
                )
            )


def _shown(member: ChainMember) -> str:
    """A member's name; of a local one also in which precision it runs, and where."""
    where = getattr(member, "runs_on", "")
    return f"{member.name} ({where})" if where else member.name
