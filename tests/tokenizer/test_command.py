"""`weft tokenize`: text to ids and back, and wrong usage."""
import os

import pytest
from harness import SOURCE, WEFT, run, says, weft

SP, GPT2 = (SOURCE / "tests/golden/tokenizer" / name for name in ("sp-bpe", "gpt2-style"))
BYTES = b"the \x00\xff harbour\n\n\xc3\xa9 "  # NUL, invalid UTF-8, a missing line end


def tokenize(*words, **options):
    return weft("tokenize", *words, **options)


@pytest.fixture(scope="module")
def ids():
    """Of BYTES."""
    return tokenize(SP, stdin=BYTES).out


def test_one_line_of_numbers():
    """For any text. Special tokens are added only on request."""
    found = tokenize(SP, stdin="a the\n").out
    assert found.count("\n") == 1 and set(found) <= set("0123456789 \n")
    assert tokenize(SP, "--bos", "--eos", stdin="a the\n").out == f"1 {found.strip()} 2\n"
    assert tokenize(".", stdin="a the\n", cwd=SP).out == found
    assert tokenize(SP).out.strip() == ""


@pytest.mark.parametrize("tokenizer", [SP, GPT2], ids=lambda path: path.name)
def test_every_byte_is_restored(tokenizer):
    result = tokenize(tokenizer, "--decode", stdin=tokenize(tokenizer, stdin=BYTES).out)
    assert result.out.encode(errors="surrogateescape") == BYTES


def test_decoding(ids):
    """Special tokens have names; ids may stand on several lines, and one past the tokenizer's has no text."""
    assert tokenize(SP, "--decode", stdin="1 " + tokenize(SP, stdin="the").out).out == "<s> the"
    text = tokenize(SP, "--decode", stdin=ids).out
    assert tokenize(SP, "--decode", stdin=ids.replace(" ", "\n")).out == text
    past = tokenize(SP, "--decode", stdin=f"{ids} 4000")
    assert past.out == text
    says(past.err, "weft: ")


@pytest.mark.parametrize("words, status, text, facts", [
    ([SP, "--decode"], 1, "1 2 x", ["byte 4"]), ([SP, "--decode"], 1, "99999999999", ["byte 0"]),
    ([GPT2, "--bos"], 1, "", ["BOS"]),
    (["nothing"], 1, "", ["nothing", "No such file or directory"]), (["."], 1, "", ["tokenizer.json"]),
    ([SP, "--decode", "--bos"], 2, "", ["--decode"]), ([], 2, "", []), ([SP, GPT2], 2, "", ["weft tokenize"])])
def test_wrong_usage(words, status, text, facts):
    """Nothing on standard output."""
    result = tokenize(*words, status=status, stdin=text)
    says(result.err, *facts)
    assert result.out == ""


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="there is no /dev/full to write to")
def test_full_disk():
    with open("/dev/full", "wb") as full:
        run(WEFT, "tokenize", SP, stdin="99999999999", stdout=full, status=1)
