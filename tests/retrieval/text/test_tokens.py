import subprocess
import sys

import pytest

from retrieval.text import tokens

pytestmark = pytest.mark.unit


def test_counts_of_known_texts() -> None:
    assert tokens.count("") == 0
    assert tokens.count("hello world") == 2
    assert tokens.count("tiktoken is great!") == 6
    assert tokens.counts(["hello world", ""]).tolist() == [2, 0]


def test_control_tokens_are_ordinary_text() -> None:
    assert tokens.count("<|endoftext|>") == 7


def test_lone_surrogates_count() -> None:
    assert tokens.count("\ud800") == 1


@pytest.mark.parametrize("text", ["one two three four", "你好世界，这是测试", "🐉🐉🐉", "a\n\n\nb"])
@pytest.mark.parametrize("n", range(-1, 12))
def test_cut_is_a_prefix_within_the_budget(text: str, n: int) -> None:
    piece = tokens.cut(text, n)
    assert text.startswith(piece)
    assert tokens.count(piece) <= max(n, 0)
    if tokens.count(text) <= n:
        assert piece == text


@pytest.mark.parametrize(
    "text",
    [
        "The tide, it's high at 3pm.\n\n  Next: 12,500 barrels… ",
        "昨天我在港口，看到一艘船。",
        "Привет, мир! ",
    ],
)
def test_long_texts_have_as_many_tokens_as_in_one_piece(text: str) -> None:
    long = text * (5 * tokens.PART // len(text))
    assert tokens.count(long) == len(tokens._tokenizer().encode(long))
    assert tokens.counts([long]).tolist() == [tokens.count(long)]


def test_letters_without_a_break_count_a_little_more() -> None:
    long = "abcdefgh" * tokens.PART
    one = len(tokens._tokenizer().encode(long))
    assert one <= tokens.count(long) <= one + 8


def test_a_long_text_is_cut_by_its_beginning() -> None:
    assert tokens.cut("one two " * 1_000_000, 3) == "one two one"


def test_cut_keeps_as_much_as_fits() -> None:
    assert tokens.cut("one two three four", 2) == "one two"


def test_loading_is_quick() -> None:
    code = (
        "import time; from retrieval.text import tokens; t = time.process_time();"
        "tokens.count('a'); print(time.process_time() - t)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert float(done.stdout) < 1.0
