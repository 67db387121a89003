import pytest

from hajob.domain.text import last_lines


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("", ""),
        ("loss 1\n2", "loss 1\n2"),
        ("loss 1\n234", "loss 1\n234"),
        ("loss 1\nloss 2", "loss 2"),
        ("too much\n123456789", "123456789"),
        ("too much\n1234567890", "1234567890"),
        ("too much\n12345678901", "2345678901"),
        ("too much\n1234\n5678", "1234\n5678"),
        ("one long line", " long line"),
    ],
)
def test_shortened_output_begins_with_a_whole_line(text: str, shortened: str) -> None:
    assert last_lines(text, limit=10) == shortened
